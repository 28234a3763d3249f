"""Hygiene of the notebooks: the holes that nbval leaves, each closed, and each closing shown to find its fault."""

import base64
import copy
import io
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import RULES, code_cells, exercises
from PIL import Image

from tools import execute_notebooks, solve_lessons

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def findings(rule, notebook, path):
    return list(RULES[rule](notebook, path) or [])


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", RULES)
def test_notebook_keeps_the_rule(rule, path):
    assert findings(rule, nbformat.read(path, as_version=4), path) == []


# --- each rule finds its fault ---------------------------------------------------------------------------------------


def png(values):
    """Return an array as a stored picture."""
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


BLACK = np.zeros((4, 4), dtype=np.uint8)


def good_notebook():
    """Return a notebook that keeps every rule."""
    setup = new_code_cell("import matplotlib.pyplot as plt\nimport torch")
    picture = new_code_cell("assert values.sum() == 1\nplt.plot(values)\nplt.show()")
    picture.outputs = [new_output("display_data", {"image/png": png(BLACK), "text/plain": "Figure: 1 picture"})]
    number = new_code_cell("torch.testing.assert_close(a, b)\nprint(0.1234)")
    number.outputs = [new_output("stream", name="stdout", text="0.1234\n")]
    varying = new_code_cell("assert seconds < 9\nprint(seconds)")
    varying.metadata = nbformat.from_dict(
        {
            "tags": ["nbval-ignore-output"],
            "output_of": execute_notebooks.fingerprint([setup.source, picture.source, number.source, varying.source]),
        }
    )
    sections = "\n\n".join(f"## 9.{k} Part\n\n**Checkpoint.** Equal." for k in (1, 2, 3))
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# Lesson 9\n\n![The whole model, drawn](../img/architecture.svg)\n\n**You will** read."),
            setup,
            new_markdown_cell("**You need** nothing. **Time** none. **Recall**, **Predict first.**"),
            picture,
            number,
            new_markdown_cell("<details><summary>Answer</summary>\n\nYes.\n\n</details>\n\n" + sections),
            varying,
            new_markdown_cell("## In the wild\n\n## Recap\n\n[start](00_start_here.ipynb)"),
            *exercise("my_part", "**Your turn** · 3 minutes · ●○○"),
            *exercise("MyWhole", "**Your turn, stretch** · 20 minutes · ●●●"),
        ]
    )
    notebook.metadata = nbformat.from_dict(execute_notebooks.METADATA)
    for count, (_, cell) in enumerate(code_cells(notebook), 1):
        cell.execution_count = count
    return notebook


def exercise(name, head):
    """Return the three cells of an exercise."""
    folded = "".join(
        f"\n\n<details><summary>{part}</summary>\n\n{text}\n\n</details>"
        for part, text in {"Hint 1": "a", "Hint 2": "b", "A solution": f"```python\ndef {name}(x): ...\n```"}.items()
    )
    check = new_code_cell(f"checks.part({name})")
    check.outputs = [new_output("execute_result", {"text/plain": "part: not written yet."}, execution_count=1)]
    return new_markdown_cell(head + folded), new_code_cell(f"def {name}(x):\n    ..."), check


def replace(index, old, new):
    """Return a fault: a text in one cell, replaced."""

    def spoil(notebook):
        assert old in notebook.cells[index].source
        notebook.cells[index].source = notebook.cells[index].source.replace(old, new)

    return spoil


def output(index, **fields):
    """Return a fault: a field of a cell's first output, replaced."""
    return lambda notebook: notebook.cells[index].outputs[0].update(fields)


def metadata(index, **fields):
    """Return a fault: something in a cell's metadata."""
    return lambda notebook: notebook.cells[index].metadata.update(fields)


def stored_error(notebook):
    notebook.cells[4].outputs = [new_output("error", ename="ValueError", evalue="no", traceback=[])]


def stored_warning(notebook):
    notebook.cells[4].outputs = [new_output("stream", name="stderr", text="UserWarning: no")]


def never_executed(notebook):
    notebook.cells[4].execution_count = None


PLAIN = {"image/png": png(BLACK), "text/plain": "Figure: 1 picture"}
PICTURE, NUMBER, FOLDED, VARYING, TURN, STUB, CHECK, STRETCH = 3, 4, 5, 6, 8, 9, 10, 11
FAULTS = [
    ("every_code_cell_was_executed", never_executed, "never executed"),
    ("every_code_cell_was_executed", replace(NUMBER, "torch.testing.assert_close(a, b)\nprint(0.1234)", " "), "empty"),
    ("plain_python", replace(NUMBER, "print(0.1234)", "%time print(0.1234)"), "magic"),
    ("plain_python", replace(NUMBER, "print(0.1234)", "!ls"), "shell line"),
    ("plain_python", replace(NUMBER, "print(0.1234)", "torch.add?"), "question mark"),
    ("plain_python", replace(NUMBER, "print(0.1234)", "sys.path.append('..')"), "sys.path"),
    ("pictures_rest_on_an_assert", replace(PICTURE, "plt.show()", "plt.plot(b)"), "plt.show()"),
    ("stored_pictures_are_described", output(PICTURE, data=PLAIN | {"text/plain": "<Figure size 1x1>"}), "<Figure"),
    ("stored_pictures_are_described", output(PICTURE, data=PLAIN | {"text/plain": "Figure: nothing yet"}), "nothing"),
    (
        "explorers_are_stored_as_pictures",
        output(PICTURE, data=PLAIN | {execute_notebooks.WIDGET: {}}),
        "a widget is stored",
    ),
    ("explorers_are_stored_as_pictures", replace(NUMBER, "print(0.1234)", "explore.schedule()"), "still picture"),
    ("no_stored_errors", stored_error, "ValueError"),
    ("no_stored_errors", stored_warning, "UserWarning"),
    ("pictures_in_the_prose_are_described", replace(0, "The whole model, drawn", ""), "alt text"),
    ("pictures_in_the_prose_are_described", replace(0, "architecture.svg", "nothing.svg"), "no such picture"),
    ("pictures_in_the_prose_are_described", replace(0, "../img/architecture.svg", "../README.md"), "no such picture"),
    ("pictures_in_the_prose_are_described", replace(0, "**You will**", '<img src="a.png">'), "<img>"),
    ("no_addresses_or_paths", output(NUMBER, text="<object at 0x7f3a2b1c>"), "0x7f3a2b1c"),
    ("no_addresses_or_paths", output(NUMBER, text="see /home/me/course"), "/home/"),
    ("four_decimals_at_most", output(NUMBER, text="0.12345\n"), "0.12345"),
    ("what_varies_is_asserted", replace(VARYING, "assert seconds < 9", "seconds"), "nothing is asserted"),
    ("what_varies_is_asserted", replace(VARYING, "9", "8"), "older code"),
    ("what_varies_is_asserted", replace(NUMBER, "0.1234", "0.5"), "older code"),
    ("what_varies_is_asserted", metadata(NUMBER, tags=["nbval-skip"]), "nbval-skip"),
    ("folded_answers_render", replace(FOLDED, "</summary>\n\n", "</summary>\n"), "no empty line"),
    ("folded_answers_render", replace(FOLDED, "</details>", ""), "not closed"),
    ("links_lead_somewhere", replace(7, "00_start_here", "08_elsewhere"), "08_elsewhere"),
    ("links_lead_somewhere", replace(2, "nothing", "lesson 12"), "lesson 12 is named"),
    ("your_turns", replace(TURN, "**Your turn** ·", "**Your turn**"), "1 exercises"),
    ("your_turns", replace(STRETCH, ", stretch", ""), "no stretch"),
    ("your_turns", replace(TURN, "Hint 2", "Hint 3"), "Hint 3"),
    ("your_turns", replace(TURN, "```python", "```"), "no code in the solution"),
    ("your_turns", replace(STUB, "my_part", "my_other"), "the check takes my_part"),
    ("your_turns", replace(CHECK, "checks.part(my_part)", "my_part(1)"), "the check takes None"),
    ("your_turns", output(CHECK, data={"text/plain": "right"}), "has stored"),
    ("your_turns", replace(NUMBER, "print(0.1234)", "def part(x):\n    return 1"), "part is shown before"),
]


def test_the_good_notebook_keeps_every_rule():
    path = NOTEBOOKS / "09_example.ipynb"
    assert {rule: found for rule in RULES if (found := findings(rule, good_notebook(), path))} == {}


@pytest.mark.parametrize(("rule", "spoil", "says"), FAULTS, ids=[f"{rule}-{says}" for rule, _, says in FAULTS])
def test_the_rule_finds_its_fault(rule, spoil, says):
    notebook = good_notebook()
    spoil(notebook)
    found = findings(rule, notebook, NOTEBOOKS / "09_example.ipynb")
    assert any(says in line for line in found), found


def test_a_picture_far_from_any_assert_is_found():
    notebook = good_notebook()
    replace(PICTURE, "assert values.sum() == 1\n", "")(notebook)
    replace(NUMBER, "torch.testing.assert_close(a, b)\n", "")(notebook)
    assert any(
        "without an assert" in line for line in findings("pictures_rest_on_an_assert", notebook, NOTEBOOKS / "9")
    )


def test_every_rule_has_a_fault_that_it_finds():
    assert {rule for rule, *_ in FAULTS} == set(RULES)


def test_the_solved_editions_differ_in_their_stubs_alone(tmp_path):
    solve_lessons.main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"solved_{path.name}" for path in PATHS]
    for path in PATHS:
        lesson, edition = (nbformat.read(one, as_version=4) for one in (path, tmp_path / f"solved_{path.name}"))
        changed = {
            index
            for index, (old, new) in enumerate(zip(lesson.cells, edition.cells, strict=True))
            if old.source != new.source
        }
        turns = {turn.index + 1: turn.solution for turn in exercises(lesson)}
        assert changed == set(turns)
        assert all(edition.cells[index].source == solution.rstrip() for index, solution in turns.items())
        assert all(not edition.cells[index + step].outputs for index in turns for step in (0, 1))


# --- nbval itself ----------------------------------------------------------------------------------------------------


def test_nbval_compares_stored_outputs(tmp_path):
    """The command of ``make test`` is green on a right output, red on a wrong one, and deaf to what it ignores."""

    def notebook(stored, tags=()):
        cell = new_code_cell("print(1 + 1)", metadata={"tags": list(tags)}, execution_count=1)
        cell.outputs = [new_output("stream", name="stdout", text=stored)]
        return new_notebook(cells=[cell], metadata=nbformat.from_dict(execute_notebooks.METADATA))

    nbformat.write(notebook("2\n"), tmp_path / "right.ipynb")
    nbformat.write(notebook("3\n"), tmp_path / "wrong.ipynb")
    nbformat.write(notebook("3\n", ["nbval-ignore-output"]), tmp_path / "ignored.ipynb")
    makefile = (NOTEBOOKS.parent / "Makefile").read_text(encoding="utf-8")
    options = re.search(r"^NBVAL := (.*)$", makefile, flags=re.MULTILINE)[1].split()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=NOTEBOOKS.parent, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "wrong.ipynb" in done.stdout


def test_normalizing_stores_no_widget():
    notebook = good_notebook()
    notebook.cells[PICTURE].outputs[0].data[execute_notebooks.WIDGET] = {"model_id": "1", "version_major": 2}
    execute_notebooks.normalize(notebook)
    assert notebook.cells[PICTURE].outputs[0].data.keys() == {"image/png", "text/plain"}


def test_normalizing_twice_changes_nothing():
    """What differs from run to run is kept as long as its source is the same, and only so long."""
    notebook, stored = good_notebook(), good_notebook()
    for cell, kept in zip(notebook.cells, stored.cells, strict=True):
        cell.id = kept.id
    stored.cells[VARYING].outputs = [new_output("stream", name="stdout", text="3 s")]
    notebook.cells[VARYING].outputs = [new_output("stream", name="stdout", text="4 s")]
    execute_notebooks.normalize(notebook, stored)
    assert notebook.cells[VARYING].outputs[0].text == "3 s"

    replace(VARYING, "9", "8")(notebook)
    notebook.cells[VARYING].outputs = [new_output("stream", name="stdout", text="5 s")]
    execute_notebooks.normalize(notebook, stored)
    assert notebook.cells[VARYING].outputs[0].text == "5 s"


def test_a_progress_bar_leaves_its_last_line():
    pieces = [new_output("stream", name="stderr", text=text) for text in ("\r 10%", "\r 50%", "\r100%\n")]
    assert [piece.text for piece in execute_notebooks.merge_streams(pieces)] == ["100%\n"]


def test_the_dry_run_sees_a_changed_picture_and_a_changed_text():
    stored = good_notebook()
    softer, other, text = (copy.deepcopy(stored) for _ in range(3))
    softer.cells[PICTURE].outputs[0].data["image/png"] = png(BLACK + 9)
    other.cells[PICTURE].outputs[0].data["image/png"] = png(BLACK + 200)
    text.cells[NUMBER].outputs[0].text = "0.5"
    assert execute_notebooks.differences(stored, softer) == []
    assert execute_notebooks.differences(stored, other) == [f"cell {PICTURE}"]
    assert execute_notebooks.differences(stored, text) == [f"cell {NUMBER}"]
