"""Rules for the notebooks, which close the holes that nbval leaves, and what prepares their outputs."""

import base64
import copy
import io
import re
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import RULES, exercises
from PIL import Image

from tools import execute_notebooks, solve_lessons
from tools.site_links import ROOT, lessons


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
@pytest.mark.parametrize("rule", RULES)
def test_notebook_keeps_the_rule(rule, path):
    assert list(rule(nbformat.read(path, as_version=4), path)) == []


def png(shade):
    """Return a small picture of one shade of gray, as it is stored."""
    buffer = io.BytesIO()
    Image.new("L", (4, 4), shade).save(buffer, format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def good_notebook():
    """Return a notebook that keeps every rule."""
    picture = new_output("display_data", {"image/png": png(0), "text/plain": "Figure: 1 picture"})
    number = new_output("stream", name="stdout", text="0.1234\n")
    tagged = {"tags": [execute_notebooks.VARYING]}
    cells = [
        new_markdown_cell("# Lesson 9\n\n![The whole model, drawn](../img/architecture.svg)\n\n**You will** read."),
        new_code_cell("import matplotlib.pyplot as plt\nimport torch"),
        new_markdown_cell("**You need** nothing."),
        new_code_cell("assert values.sum() == 1\nplt.plot(values)\nplt.show()", outputs=[picture]),
        new_code_cell("torch.testing.assert_close(a, b)\nprint(0.1234)", outputs=[number]),
        new_markdown_cell("<details><summary>Answer</summary>\n\nYes.\n\n</details>"),
        new_code_cell("assert seconds < 9\nprint(seconds)", metadata=tagged),
        new_markdown_cell("[start](00_start_here.ipynb)"),
        *exercise("part", "**Your turn** · 3 minutes · ●○○"),
        *exercise("Whole", "**Your turn, stretch** · 20 minutes · ●●●"),
    ]
    notebook = new_notebook(cells=cells)
    execute_notebooks.normalize(notebook)
    return notebook


def exercise(name, head):
    """Return the three cells of an exercise."""
    parts = {"Hint 1": "a", "Hint 2": "b", "A solution": f"```python\ndef {name}(x): ...\n```"}
    folded = [f"<details><summary>{part}</summary>\n\n{text}\n\n</details>" for part, text in parts.items()]
    output = new_output("execute_result", {"text/plain": "part: not written yet."})
    stub, check = f"def {name}(x):\n    ...", new_code_cell(f"checks.exercise({name})", outputs=[output])
    return new_markdown_cell("\n\n".join([head, *folded])), new_code_cell(stub), check


def findings(notebook):
    """Return what all rules find in a notebook that lies among the lessons."""
    return [found for rule in RULES for found in rule(notebook, ROOT / "notebooks" / "08_example.ipynb")]


def replaced(place, old, new):
    """Return a fault: a text in one cell, replaced."""

    def spoil(notebook):
        assert old in notebook.cells[place].source
        notebook.cells[place].source = notebook.cells[place].source.replace(old, new)

    return spoil


def stored(place, **fields):
    """Return a fault: a cell's only output, with some fields replaced."""
    return lambda notebook: notebook.cells[place].outputs[0].update(fields)


def cell(place, **fields):
    """Return a fault: some fields of a cell, replaced."""
    return lambda notebook: notebook.cells[place].update(fields)


PLAIN = {"image/png": png(0), "text/plain": "Figure: 1 picture"}
SHOWS = "print(0.1234)"  # the last line of the cell NUMBER
PICTURE, NUMBER, FOLDED, VARYING, TURN, STUB, CHECK, STRETCH = 3, 4, 5, 6, 8, 9, 10, 11
FAULTS = {
    "cell 4: its id '' is empty": cell(NUMBER, id=""),
    "cell 4: its id 'aaa": cell(NUMBER, id=51 * "a"),
    "cell 4: its id 'first' is": lambda notebook: [cell(place, id="first")(notebook) for place in (0, NUMBER)],
    "never executed": cell(NUMBER, execution_count=None),
    "cell 4: empty": cell(NUMBER, source=" "),
    "not plain Python for every place: '%'": replaced(NUMBER, SHOWS, "%time print(0.1234)"),
    "not plain Python for every place: '!'": replaced(NUMBER, SHOWS, "!ls"),
    "not plain Python for every place: 'torch.add?'": replaced(NUMBER, SHOWS, "torch.add?"),
    "not plain Python for every place: 'sys.path'": replaced(NUMBER, SHOWS, "sys.path.append('..')"),
    "nbval-skip": cell(NUMBER, metadata=nbformat.from_dict({"tags": ["nbval-skip"]})),
    "cell 6: its output belongs to older code": replaced(NUMBER, "0.1234", "0.5"),
    "stored error ValueError": cell(NUMBER, outputs=[new_output("error", ename="ValueError")]),
    "stored warning or log 'no": cell(NUMBER, outputs=[new_output("stream", name="stderr", text="no")]),
    "'0x7f3a2b1c' in the stored output": stored(NUMBER, text="<object at 0x7f3a2b1c>"),
    "'/home/' in the stored output": stored(NUMBER, text="see /home/me/course"),
    "0.12345 has more than four decimals": stored(NUMBER, text="0.12345\n"),
    "does not end with plt.show()": replaced(PICTURE, "plt.show()", "plt.plot(b)"),
    "described as '<Figure": stored(PICTURE, data=PLAIN | {"text/plain": "<Figure size 1x1>"}),
    "described as 'Figure: nothing": stored(PICTURE, data=PLAIN | {"text/plain": "Figure: nothing yet"}),
    "a widget is stored": stored(PICTURE, data=PLAIN | {execute_notebooks.WIDGET: {}}),
    "without its still picture": replaced(NUMBER, SHOWS, "explore.schedule()"),
    "no empty line after": replaced(FOLDED, "</summary>\n\n", "</summary>\n"),
    "not closed": replaced(FOLDED, "</details>", ""),
    "the alt text 'one' does not say": replaced(0, "The whole model, drawn", "one"),
    "nothing.svg: no such picture": replaced(0, "architecture.svg", "nothing.svg"),
    "an <img> tag": replaced(0, "**You will**", '<img src="a.png">'),
    "a link to 08_elsewhere": replaced(7, "00_start_here", "08_elsewhere"),
    "lesson 12 is named": replaced(2, "nothing", "lesson 12"),
    "1 exercises, 2 to 5 wanted": replaced(TURN, "**Your turn** ·", "**Your turn**"),
    "no stretch exercise": replaced(STRETCH, ", stretch", ""),
    "'Hint 3'": replaced(TURN, "Hint 2", "Hint 3"),
    "no code in the solution": replaced(TURN, "```python", "```"),
    "defines ['my_other'], the check takes part": replaced(STUB, "def part", "def my_other"),
    "the check takes None": replaced(CHECK, "checks.exercise(part)", "part(1)"),
    "the stub's check has stored 'right'": stored(CHECK, data={"text/plain": "right"}),
    "part is shown in cell 4": replaced(NUMBER, SHOWS, "def part(x):\n    return 1"),
}


def test_the_good_notebook_keeps_every_rule():
    assert findings(good_notebook()) == []


@pytest.mark.parametrize("says", FAULTS)
def test_a_rule_finds_the_fault(says):
    notebook = good_notebook()
    FAULTS[says](notebook)
    found = findings(notebook)
    assert any(says in line for line in found), found


def test_the_solved_editions_differ_in_their_stubs_alone(tmp_path):
    solve_lessons.main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"solved_{path.name}" for path in lessons()]
    for path in lessons():
        lesson, edition = (nbformat.read(one, as_version=4) for one in (path, tmp_path / f"solved_{path.name}"))
        turns = {turn.index + 1: turn.solution.rstrip() for turn in exercises(lesson)}
        sources = {index: cell.source for index, cell in enumerate(lesson.cells)}
        assert [cell.source for cell in edition.cells] == list((sources | turns).values())
        assert all(not edition.cells[index + step].outputs for index in turns for step in (0, 1))


def test_nbval_compares_stored_outputs(tmp_path):
    """The command of ``make test`` is green on a right output, red on a wrong one, and deaf to what it ignores."""
    cells = []
    for stored, tags in (("2\n", []), ("3\n", []), ("3\n", ["nbval-ignore-output"])):
        output = new_output("stream", name="stdout", text=stored)
        cells.append(new_code_cell("print(1 + 1)", metadata={"tags": tags}, execution_count=1, outputs=[output]))
    kernel = nbformat.from_dict(execute_notebooks.METADATA)
    nbformat.write(new_notebook(cells=cells, metadata=kernel), tmp_path / "one.ipynb")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = re.search(r"^NBVAL := (.*)$", makefile, flags=re.MULTILINE)[1].split()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "one.ipynb::Cell 1" in done.stdout


def test_normalizing_stores_no_widget():
    notebook = good_notebook()
    stored(PICTURE, data=PLAIN | {execute_notebooks.WIDGET: {}})(notebook)
    execute_notebooks.normalize(notebook)
    assert notebook.cells[PICTURE].outputs[0].data.keys() == {"image/png", "text/plain"}


def test_an_output_that_varies_is_kept_until_its_code_changes():
    kept = good_notebook()
    kept.cells[VARYING].outputs = [new_output("stream", name="stdout", text="3 s")]
    notebook = copy.deepcopy(kept)
    for threshold, text in (("9", "3 s"), ("8", "5 s")):
        replaced(VARYING, "9", threshold)(notebook)
        notebook.cells[VARYING].outputs = [new_output("stream", name="stdout", text="5 s")]
        execute_notebooks.normalize(notebook, kept)
        assert notebook.cells[VARYING].outputs[0].text == text


def test_a_progress_bar_leaves_its_last_line():
    pieces = [new_output("stream", name="stderr", text=text) for text in ("\r 10%", "\r 50%", "\r100%\n")]
    assert [piece.text for piece in execute_notebooks.merge_streams(pieces)] == ["100%\n"]


def test_the_dry_run_sees_a_changed_picture_and_a_changed_text():
    stored = good_notebook()
    softer, other, text = (copy.deepcopy(stored) for _ in range(3))
    softer.cells[PICTURE].outputs[0].data["image/png"] = png(9)
    other.cells[PICTURE].outputs[0].data["image/png"] = png(200)
    text.cells[NUMBER].outputs[0].text = "0.5"
    assert execute_notebooks.differences(stored, softer) == []
    assert execute_notebooks.differences(stored, other) == [f"cell {PICTURE}"]
    assert execute_notebooks.differences(stored, text) == [f"cell {NUMBER}"]
