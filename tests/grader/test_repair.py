"""What a submission looks like after the repair, however it was handed in; and what is no notebook at all."""

import copy
import json
import os

import nbformat
import pytest
from course import ANSWER, SOLUTION, handed_in

from grader import intake
from grader.intake import Unreadable, find_notebook, read_notebook
from grader.release import graded_edition
from grader.repair import NOT_FOUND, repair
from grader.source import nbgrader_of


def repaired(source, notebook, tmp_path):
    """Read and repair a notebook as it comes from the disk."""
    path = tmp_path / "assignment_01.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return repair(source, read_notebook(path))


def by_name(notebook):
    """Return the graded cells by their ``grade_id``."""
    return {nbgrader_of(cell)["grade_id"]: cell for cell in notebook.cells if nbgrader_of(cell)}


def assert_is_whole(source, notebook):
    """Assert that every graded cell is there once, and that tests and given cells are the source's."""
    found = [nbgrader_of(cell)["grade_id"] for cell in notebook.cells if nbgrader_of(cell)]
    wanted = by_name(graded_edition(source))
    assert sorted(found) == sorted(wanted)
    for name, cell in by_name(notebook).items():
        assert cell.metadata == wanted[name].metadata
        assert cell.cell_type == wanted[name].cell_type
        if not nbgrader_of(cell)["solution"]:
            assert cell.source == wanted[name].source
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    nbformat.validate(notebook)


def without_labels(notebook):
    for cell in notebook.cells:
        cell.metadata = {}


def without_labels_and_ids(notebook):
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        cell.metadata = {}
        del cell["id"]


def with_other_ids(notebook):
    for number, cell in enumerate(notebook.cells):
        cell.id = f"colab-{number}"


def without_tests(notebook):
    notebook.cells = [cell for cell in notebook.cells if not cell.id.endswith("-test")]


def without_given_cells(notebook):
    notebook.cells = [cell for cell in notebook.cells if cell.id not in ("setup", "experiment-run", "double-task")]


def with_easy_tests(notebook):
    for cell in notebook.cells:
        if cell.id.endswith("-test"):
            cell.source = "assert True"


def with_more_points(notebook):
    for cell in notebook.cells:
        if "points" in nbgrader_of(cell):
            cell.metadata["nbgrader"]["points"] = 100


def with_tests_as_solutions(notebook):
    for cell in notebook.cells:
        if cell.id.endswith("-test"):
            cell.metadata["nbgrader"].update(grade=False, solution=True, locked=False)


def twice(notebook):
    notebook.cells += copy.deepcopy(notebook.cells)


def backwards(notebook):
    notebook.cells.reverse()


def with_windows_lines(notebook):
    for cell in notebook.cells:
        cell.source = cell.source.replace("\n", "  \r\n")


def as_raw_cells(notebook):
    for cell in notebook.cells:
        cell.cell_type = "raw"


def with_labels_of_another_kind(notebook):
    for cell in notebook.cells:
        cell.metadata = {"nbgrader": ["grade_id"]} if len(cell.source) % 2 else "nothing"


def with_every_label_the_same(notebook):
    for cell in notebook.cells:
        cell.metadata = {"nbgrader": {"grade_id": "double-test", "grade": True}}


DAMAGES = [
    without_labels,
    without_labels_and_ids,
    with_other_ids,
    without_tests,
    without_given_cells,
    with_easy_tests,
    with_more_points,
    with_tests_as_solutions,
    twice,
    backwards,
    with_windows_lines,
    as_raw_cells,
    with_labels_of_another_kind,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_whatever_was_done_to_it(source, tmp_path, damage):
    notebook = handed_in(source)
    damage(notebook)
    result = repaired(source, notebook, tmp_path)
    assert_is_whole(source, result.notebook)
    cells = by_name(result.notebook)
    for name in ("double", "square"):
        assert [line.rstrip() for line in cells[name].source.splitlines()] == SOLUTION[name].splitlines()
    if damage is not backwards:  # there the headings stand behind what they head
        assert cells["experiment-answer"].source.strip() == ANSWER


def test_nothing_to_repair(source, tmp_path):
    result = repaired(source, handed_in(source), tmp_path)
    assert_is_whole(source, result.notebook)
    assert result.notes == []


def test_nothing_written(source, tmp_path):
    result = repaired(source, handed_in(source, **dict.fromkeys(("double", "square"), "")), tmp_path)
    assert by_name(result.notebook)["double"].source == ""
    blank = copy.deepcopy(handed_in(source))
    stubs = by_name(graded_edition(source))
    for name, cell in by_name(blank).items():
        cell.source = stubs[name].source if nbgrader_of(cell)["solution"] else cell.source
    result = repaired(source, blank, tmp_path)
    assert result.notes == []
    assert by_name(result.notebook) == stubs


def test_with_every_label_the_same(source, tmp_path):
    notebook = handed_in(source)
    with_every_label_the_same(notebook)
    result = repaired(source, notebook, tmp_path)
    assert_is_whole(source, result.notebook)
    for name in ("double", "square"):
        assert any(cell.cell_type == "code" and cell.source == SOLUTION[name] for cell in result.notebook.cells)


def test_own_cells_stay_in_their_order(source, tmp_path):
    notebook = handed_in(source)
    for number, place in enumerate((0, 4, 4, 9, 13)):
        notebook.cells.insert(place, nbformat.v4.new_code_cell(f"mine = {number}"))
    result = repaired(source, notebook, tmp_path)
    theirs = [cell.source for cell in notebook.cells if cell.cell_type == "code" and not cell.id.endswith("-test")]
    graded = [
        cell.source
        for cell in result.notebook.cells
        if cell.cell_type == "code" and not nbgrader_of(cell).get("points")
    ]
    assert graded == theirs
    assert result.notes == []


def test_a_changed_test_stays_as_a_cell_of_the_student(source, tmp_path):
    """Whoever wrote the solution into the cell of the check has not lost it."""
    notebook = handed_in(source, double="", double_test=SOLUTION["double"])
    result = repaired(source, notebook, tmp_path)
    assert_is_whole(source, result.notebook)
    assert SOLUTION["double"] in [cell.source for cell in result.notebook.cells]
    assert result.notes == ["the check of Task 1 had been changed; the original counts"]


def test_code_in_a_given_cell_is_found(source, tmp_path):
    notebook = handed_in(source)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "double"]
    notebook.cells[1].source += "\n\n\n" + SOLUTION["double"]
    result = repaired(source, notebook, tmp_path)
    assert_is_whole(source, result.notebook)
    assert by_name(result.notebook)["double"].source.endswith(SOLUTION["double"])
    assert result.notes == ["the given cell setup (Assignment 1) had been changed; the original counts"]


def test_a_deleted_stub_does_not_come_back(source, tmp_path):
    """It would stand behind the student's own function and take its name."""
    notebook = handed_in(source)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "double"]
    result = repaired(source, notebook, tmp_path)
    assert not any("NotImplementedError" in cell.source for cell in result.notebook.cells)
    assert result.notes == ["the cell for the code of Task 1 (double) was not found"]


def answer_of(result):
    return by_name(result.notebook)["experiment-answer"].source


def test_an_answer_in_a_cell_of_its_own(source, tmp_path):
    notebook = handed_in(source, experiment_answer="YOUR ANSWER HERE")
    notebook.cells.insert(-1, nbformat.v4.new_markdown_cell(ANSWER))
    result = repaired(source, notebook, tmp_path)
    assert answer_of(result) == ANSWER
    assert [cell.source for cell in result.notebook.cells].count(ANSWER) == 1
    assert result.notes == ["the written answer of Experiment stood in another cell; it was taken from there"]


def test_an_answer_under_the_question(source, tmp_path):
    question = "## Experiment · Growth\n\nWhich grows faster? Give a reason.\n\n"
    notebook = handed_in(source, experiment_answer="", experiment_task=question + ANSWER)
    assert answer_of(repaired(source, notebook, tmp_path)) == question + ANSWER


def test_an_answer_that_is_gone_is_looked_up_by_hand(source, tmp_path):
    notebook = handed_in(source)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "experiment-answer"]
    result = repaired(source, notebook, tmp_path)
    assert answer_of(result) == NOT_FOUND
    assert result.notes == ["the written answer of Experiment could not be found; look it up by hand"]


def test_two_answers_are_both_shown(source, tmp_path):
    notebook = handed_in(source)
    second = copy.deepcopy(notebook.cells[-2])
    second.source = "No, the double."
    notebook.cells.append(second)
    result = repaired(source, notebook, tmp_path)
    assert answer_of(result) == f"{ANSWER}\n\nNo, the double."
    assert result.notes == ["2 written answers to Experiment; all are shown, one below the other"]


def test_pictures_of_an_answer_stay(source, tmp_path):
    notebook = handed_in(source)
    notebook.cells[-2].attachments = {"a.png": {"image/png": "aGk="}, "b.svg": {"image/svg+xml": "x"}, "c": 3}
    cell = by_name(repaired(source, notebook, tmp_path).notebook)["experiment-answer"]
    assert cell.attachments == {"a.png": {"image/png": "aGk="}}


def test_the_repaired_notebook_is_the_same_every_time(source, tmp_path):
    notebook = handed_in(source)
    without_labels_and_ids(notebook)
    first, second = (repaired(source, copy.deepcopy(notebook), tmp_path).notebook for _ in range(2))
    assert nbformat.writes(first) == nbformat.writes(second)


# Files that are no notebook


def good(**changes):
    return json.dumps(
        dict(nbformat=4, nbformat_minor=5, metadata={}, cells=[{"cell_type": "code", "source": "1"}]) | changes
    )


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("{", "broken JSON"),
        (good()[:-9], "broken JSON"),
        ("[" * 100_000, "broken JSON"),
        ('{"nbformat": ' + "9" * 5000 + "}", "broken JSON"),
        ("<html>Please log in</html>", "web page"),
        ("<<<<<<< HEAD\n" + good(), "git merge conflict"),
        ('{\n<<<<<<< HEAD\n"a": 1', "git merge conflict"),
        (good().encode("utf-16"), "not UTF-8"),
        (b"PK\x03\x04\xff", "not UTF-8"),
        ("[1, 2]", "not a notebook"),
        ('"text"', "not a notebook"),
        ("null", "not a notebook"),
        ('{"cells": {}}', "not a notebook"),
        (good(nbformat=3, cells=None, worksheets=[]), "format 3, not 4"),
        (good(nbformat=5), "format 5, not 4"),
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


def test_what_is_no_file(tmp_path):
    path = tmp_path / "assignment_01.ipynb"
    with pytest.raises(Unreadable, match="cannot be opened: No such file"):
        read_notebook(path)
    path.mkdir()
    with pytest.raises(Unreadable, match="a folder is where"):
        read_notebook(path)
    pipe = tmp_path / "pipe.ipynb"
    os.mkfifo(pipe)
    with pytest.raises(Unreadable, match="not an ordinary file"):
        read_notebook(pipe)
    (tmp_path / "real.ipynb").write_text(good(), encoding="utf-8")
    link = tmp_path / "link.ipynb"
    link.symlink_to(tmp_path / "real.ipynb")
    with pytest.raises(Unreadable, match="link to another one"):
        read_notebook(link)


def test_what_is_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "MEGABYTES", 0.001)
    path = tmp_path / "assignment_01.ipynb"
    path.write_text(good() + " " * 1000, encoding="utf-8")
    with pytest.raises(Unreadable, match="Clear all outputs"):
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
    with pytest.raises(Unreadable, match="holds no assignment_01"):
        find_notebook(tmp_path, "assignment_01")
    other = tmp_path / "Assignment 1 (2).ipynb"
    other.touch()
    assert find_notebook(tmp_path, "assignment_01") == (other, ["the notebook was named Assignment 1 (2).ipynb"])
    (tmp_path / "copy.IPYNB").touch()
    with pytest.raises(Unreadable, match="several notebooks"):
        find_notebook(tmp_path, "assignment_01")
    (tmp_path / "assignment_01.ipynb").touch()
    assert find_notebook(tmp_path, "assignment_01") == (tmp_path / "assignment_01.ipynb", [])
    link = tmp_path / "elsewhere"
    link.symlink_to(tmp_path)
    with pytest.raises(Unreadable, match="is not a folder but a link"):
        find_notebook(link, "assignment_01")
