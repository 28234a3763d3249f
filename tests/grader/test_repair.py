"""What a submission looks like after the repair, however it was handed in; and what is no notebook at all."""

import copy
import itertools
import json
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from course import ANSWER, SOLUTION, handed_in
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from grader import read_submission
from grader.read_submission import Unreadable, find_notebook, read_notebook
from grader.release import TEXT_STUB, graded_edition, student_edition
from grader.repair import NOT_FOUND, Repair
from grader.source import ASSIGNMENTS, is_test, load_all, nbgrader_of


def repaired(source, notebook, tmp_path):
    """Read and repair a notebook as it comes from the disk."""
    path = tmp_path / "assignment_01.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return Repair(source, read_notebook(path)).result()  # the notebook and the notes


def by_name(notebook):
    """Return the graded cells by their ``grade_id``."""
    return {nbgrader_of(cell)["grade_id"]: cell for cell in notebook.cells if nbgrader_of(cell)}


def assert_is_whole(source, notebook, *, may_lack=frozenset()):
    """Assert that every graded cell is there once, and that tests and given cells are the source's."""
    found = [nbgrader_of(cell)["grade_id"] for cell in notebook.cells if nbgrader_of(cell)]
    wanted = by_name(graded_edition(source))
    assert sorted({*found, *may_lack & wanted.keys()}) == sorted(wanted)
    assert len(found) == len(set(found))
    for name, cell in by_name(notebook).items():
        assert cell.metadata == wanted[name].metadata
        assert cell.cell_type == wanted[name].cell_type
        if not nbgrader_of(cell)["solution"]:
            assert cell.source == wanted[name].source
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    nbformat.validate(notebook)


def each(**changes):
    """Return a damage done to every cell: attributes set to a value, or to what a function makes of the cell."""

    def damage(notebook):
        for number, cell in enumerate(notebook.cells):
            for name, value in changes.items():
                cell[name] = value(cell, number) if callable(value) else value

    return damage


def without_labels_and_ids(notebook):
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        cell.metadata = {}
        del cell["id"]


def relabeled(cell, number):
    """Make every cell worth more, and every check a solution."""
    labels = dict(nbgrader_of(cell))
    labels |= {"points": 100} if "points" in labels else {}
    return {"nbgrader": labels | dict(grade=False, solution=True) if is_test(cell) else labels}


GIVEN = ("setup", "experiment-run", "double-task")
DAMAGES = {
    "no labels": each(metadata={}),
    "no labels, no ids": without_labels_and_ids,
    "other ids": each(id=lambda cell, number: f"colab-{number}"),
    "no checks": lambda notebook: notebook.update(cells=[cell for cell in notebook.cells if not is_test(cell)]),
    "no given cells": lambda notebook: notebook.update(cells=[each for each in notebook.cells if each.id not in GIVEN]),
    "easy checks": each(source=lambda cell, number: "assert True" if is_test(cell) else cell.source),
    "more points": each(metadata=relabeled),
    "twice": lambda notebook: notebook.cells.extend(copy.deepcopy(notebook.cells)),
    "backwards": lambda notebook: notebook.cells.reverse(),
    "lines of Windows": each(source=lambda cell, number: cell.source.replace("\n", "  \r\n")),
    "raw": each(cell_type="raw"),
    "labels of another kind": each(metadata=lambda cell, number: {"nbgrader": [1]} if number % 2 else "nothing"),
}


def test_no_assignment_is_taken_for_another(tmp_path):
    """And nothing else is said, because a list of all that is missing would hide it."""
    sources = load_all(ASSIGNMENTS / "source")
    others = {name: handed_in(source) for name, source in sources.items()}
    others["none"] = new_notebook(cells=[new_code_cell("x = 1")])
    for (name, source), (other, notebook) in itertools.product(sources.items(), others.items()):
        if name != other:
            _, notes = repaired(source, notebook, tmp_path)
            assert notes == [f"no task of {name} is in the notebook; it may be another one"], other


@pytest.mark.parametrize("name", DAMAGES)
def test_whatever_was_done_to_it(source, tmp_path, name):
    notebook = handed_in(source)
    DAMAGES[name](notebook)
    made, notes = repaired(source, notebook, tmp_path)
    assert not any("it may be another one" in note for note in notes)
    assert_is_whole(source, made)
    for id in ("double", "square"):
        assert [line.rstrip() for line in by_name(made)[id].source.splitlines()] == SOLUTION[id].splitlines()
    if name != "backwards":  # there the headings stand behind what they head
        assert by_name(made)["experiment-answer"].source.strip() == ANSWER


TEXTS = st.sampled_from([*SOLUTION.values(), "", "## Task 1 · Double", "assert True", "x = \ud800"])
LABELS = st.sampled_from([None, 3, "double", "square", "double-test", "experiment-answer", "setup", "?"])
CELLS = st.fixed_dictionaries(
    dict(cell_type=st.sampled_from(["code", "markdown", "raw", "video"]), source=TEXTS | st.lists(TEXTS)),
    optional=dict(id=LABELS, metadata=st.builds(lambda label: {"nbgrader": {"grade_id": label}}, LABELS)),
)


@settings(deadline=None, max_examples=60)
@given(places=st.lists(st.integers(0, 30), max_size=30), strange=st.lists(CELLS, min_size=1, max_size=12))
def test_any_cells_in_any_order_become_a_whole_notebook(source, places, strange):
    cells = [dict(cell) for cell in handed_in(source).cells]
    cells = [cells[place % len(cells)] for place in places] + strange
    with TemporaryDirectory() as name, suppress(Unreadable):
        made, notes = repaired(source, {"cells": cells}, Path(name))
        assert_is_whole(source, made, may_lack={"double", "square"})  # a deleted stub does not come back
        assert all(isinstance(note, str) for note in notes)


def test_an_edition_in_which_nothing_was_written(source, tmp_path):
    made, notes = repaired(source, student_edition(source), tmp_path)
    assert (by_name(made), notes) == (by_name(graded_edition(source)), [])


def test_own_cells_stay_in_their_order(source, tmp_path):
    mine = [(place, new_code_cell(f"mine = {number}")) for number, place in enumerate((0, 4, 4, 9, 13))]
    notebook = handed_in(source, *mine)
    made, notes = repaired(source, notebook, tmp_path)
    theirs = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not cell.id.endswith("-test")]
    graded = [cell.source for cell in made.cells if cell.cell_type == "code" and not nbgrader_of(cell).get("points")]
    assert graded == theirs
    assert notes == []


CODE, WRITTEN = "double", "experiment-answer"
TWICE = SOLUTION[CODE]
BELOW = f"import torch\n\nfrom vit_course import checks\n\n\n{TWICE}"
CHANGED = "the {} had been changed; the original counts"
STUB = dict(experiment_answer=TEXT_STUB)
QUESTION = "## Experiment · Growth\n\nWhich grows faster? Give a reason.\n\n"
OTHER, LABEL = "No, the double.", {"nbgrader": {"grade_id": WRITTEN}}
ELSEWHERE = "the written answer of Experiment was found by its place, not by its label"
LOST = "the written answer of Experiment could not be found; look it up by hand"
SEVERAL = "2 written answers to Experiment; all are shown, one below the other"


@pytest.mark.parametrize(
    ("where", "changes", "more", "text", "note"),
    [
        (CODE, dict(double=""), [], "", None),
        (CODE, dict(double="", double_test=TWICE), [], "", CHANGED.format("check of Task 1")),
        (CODE, dict(double=None, setup=BELOW), [], BELOW, CHANGED.format("given cell setup (Assignment 1)")),
        # the stub does not come back: it would stand behind the student's own function and take its name
        (CODE, dict(double=None), [], None, "the cell for the code of Task 1 (double) was not found"),
        (WRITTEN, STUB, [], TEXT_STUB, None),
        (WRITTEN, dict(experiment_answer="", experiment_task=QUESTION + ANSWER), [], QUESTION + ANSWER, ELSEWHERE),
        (WRITTEN, STUB, [(-1, new_markdown_cell(ANSWER))], ANSWER, ELSEWHERE),
        (WRITTEN, dict(experiment_answer=None), [], NOT_FOUND, LOST),
        (WRITTEN, STUB, [(99, new_markdown_cell(OTHER))], NOT_FOUND, LOST),  # below the last heading
        (WRITTEN, STUB, [(-1, new_code_cell("# No,\n\n  # the double."))], NOT_FOUND, LOST),
        (WRITTEN, STUB, [(99, new_code_cell(f'"""{OTHER}"""'))], NOT_FOUND, LOST),
        (WRITTEN, {}, [(99, new_markdown_cell(OTHER, metadata=LABEL))], f"{ANSWER}\n\n{OTHER}", SEVERAL),
    ],
)
def test_work_in_another_cell_is_found_or_looked_up_by_hand(source, tmp_path, where, changes, more, text, note):
    made, notes = repaired(source, handed_in(source, *more, **changes), tmp_path)
    assert_is_whole(source, made, may_lack={CODE})
    assert by_name(made).get(where, {}).get("source") == text
    assert notes == ([note] if note else [])
    everything = "\n\n".join(cell.source for cell in made.cells)
    written = [cell.source for _, cell in more] + [each for each in changes.values() if each and where == CODE]
    assert [everything.count(each) for each in written] == [1] * len(written)


def test_pictures_of_an_answer_stay(source, tmp_path):
    notebook = handed_in(source)
    notebook.cells[-2].attachments = {"a.png": {"image/png": "aGk="}, "b.svg": {"image/svg+xml": "x"}, "c": 3}
    notebook.cells[-2].attachments["half.png"] = {"image/png": "\ud800"}
    made, _ = repaired(source, notebook, tmp_path)
    kept = {"a.png": {"image/png": "aGk="}, "half.png": {"image/png": "?"}}
    assert by_name(made)["experiment-answer"].attachments == kept


# Files that are no notebook


def good(**changes):
    return json.dumps(dict(nbformat=4, cells=[dict(cell_type="code", source="1")]) | changes)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "empty"),
        (" \n", "empty"),
        (good()[:-9], "broken JSON"),
        ("[" * 100_000, "broken JSON"),
        ('{"nbformat": ' + "9" * 5000 + "}", "broken JSON"),
        ("<html>Please log in</html>", "web page"),
        ("<<<<<<< HEAD\n" + good(), "git merge conflict"),
        ('{\n<<<<<<< HEAD\n"a": 1', "git merge conflict"),
        (good().encode("utf-16"), "not UTF-8"),
        (b"PK\x03\x04\xff", "not UTF-8"),
        ("[1, 2]", "not a notebook"),
        ("null", "not a notebook"),
        ('{"cells": {}}', "not a notebook"),
        ('{"worksheets": []}', "not a notebook"),
        (json.dumps(dict(nbformat=3, worksheets=[])), "format 3, not 4"),
        (good(nbformat=5), "format 5, not 4"),
        (good(nbformat="\x1b[2J5"), r"format \[2J5, not 4"),
        (good(nbformat="4"), "format"),
        (good(cells=[]), "no cells"),
        (good(cells=[1, None, {}, {"cell_type": "video"}]), "no cells"),
        (good(cells=[{"cell_type": "code", "source": ""}] * 1001), "1001 cells; the limit is 1000"),
    ],
)
def test_what_is_no_notebook(tmp_path, content, cause):
    path = tmp_path / "assignment_01.ipynb"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Unreadable, match=cause) as error:
        read_notebook(path)
    assert len(str(error.value)) < 300


def test_what_is_no_file_or_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(read_submission, "MEGABYTES", 0.001)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_text(good(), encoding="utf-8")
    for name in ("large.ipynb", "large.py"):
        (tmp_path / name).write_text(good() + " " * 1000, encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_notebook(tmp_path / "real")
    for name, cause in {
        "missing": "it cannot be opened: No such file",
        "folder": "not an ordinary file",
        "pipe": "not an ordinary file",
        "link": "link to another one",
        "large.ipynb": "Clear all outputs",
        "large.py": "Keep only the code",
    }.items():
        with pytest.raises(Unreadable, match=cause):
            read_notebook(tmp_path / name)


def test_a_file_that_is_exchanged_for_a_link_between_two_looks_is_not_followed(tmp_path, monkeypatch):
    path, opened = tmp_path / "mine", os.open

    def exchanged_and_opened(*arguments):
        path.unlink()
        path.symlink_to(tmp_path / "another's")
        return opened(*arguments)

    for name in ("mine", "another's"):
        (tmp_path / name).write_text(good(), encoding="utf-8")
    monkeypatch.setattr(os, "open", exchanged_and_opened)
    with pytest.raises(Unreadable, match="link to another one"):
        read_notebook(path)


def test_strange_cells_are_read(tmp_path):
    cells = [
        {"cell_type": "code", "source": ["a = 1\n", 7, "b"], "metadata": None, "outputs": "none"},
        {"cell_type": "markdown", "source": "half \ud800", "metadata": {"nbgrader": {"grade_id": 3}}, "id": ["x"]},
        {"cell_type": "raw", "source": {"not": "text"}},
    ]
    path = tmp_path / "assignment_01.ipynb"
    path.write_text("\ufeff" + good(cells=cells), encoding="utf-8")
    assert [(cell.kind, cell.text, cell.id, cell.grade_id) for cell in read_notebook(path)] == [
        ("code", "a = 1\nb", None, None),
        ("markdown", "half ?", None, None),
        ("markdown", "", None, None),
    ]


def test_a_notebook_by_another_name(tmp_path):
    with pytest.raises(Unreadable, match=r"no assignment_01\.ipynb was handed in, but: nothing\."):
        find_notebook(tmp_path, "assignment_01")
    (tmp_path / "assignment_01.ipynb.txt").touch()
    with pytest.raises(Unreadable, match=r"but: assignment_01\.ipynb\.txt\."):
        find_notebook(tmp_path, "assignment_01")
    other = tmp_path / "Assignment 1 (2).ipynb"
    other.touch()
    assert find_notebook(tmp_path, "assignment_01") == (other, ["the notebook was named Assignment 1 (2).ipynb"])
    other.rename(tmp_path / os.fsdecode(b"a\xff\n.ipynb"))
    assert find_notebook(tmp_path, "assignment_01")[1] == ["the notebook was named a?\n.ipynb"]
    (tmp_path / "copy.IPYNB").touch()
    with pytest.raises(Unreadable, match="several notebooks"):
        find_notebook(tmp_path, "assignment_01")
    (tmp_path / "assignment_01.ipynb").touch()
    assert find_notebook(tmp_path, "assignment_01") == (tmp_path / "assignment_01.ipynb", [])
    link = tmp_path / "elsewhere"
    link.symlink_to(tmp_path)
    with pytest.raises(Unreadable, match="is not a folder but a link"):
        find_notebook(link, "assignment_01")
