"""The student editions: what the sources generate, without solutions and hidden tests, and a first stub that helps."""

import copy

import nbformat
import pytest
from support import run_python

from grader.classroom import check_source
from grader.files import Stop, write_notebook
from grader.release import CODE_STUB, TEXT_STUB, student_edition
from grader.source import ASSIGNMENTS, Source, inside, is_answer, is_theirs, load, load_all, worked_solution

SOURCES = load_all(ASSIGNMENTS / "source")
every_assignment = pytest.mark.parametrize("name", SOURCES)


@every_assignment
def test_the_stored_edition_is_what_the_source_generates(name, tmp_path):
    generated = write_notebook(student_edition(SOURCES[name]), tmp_path, name)
    stored = ASSIGNMENTS / "release" / name / f"{name}.ipynb"
    assert stored.read_bytes() == generated.read_bytes(), "make release"


@every_assignment
def test_no_solution_and_no_hidden_test_is_handed_out(name):
    edition = student_edition(SOURCES[name])
    text = nbformat.writes(edition)
    for secret in ("SOLUTION", "HIDDEN TESTS", "from grader", "output_of", "execution"):
        assert secret not in text.replace('"execution_count": null', "").replace('"solution"', "")
    for cell, written in zip(edition.cells, SOURCES[name].notebook.cells, strict=True):
        for region in ("SOLUTION", "HIDDEN TESTS"):
            lines = [line for line in inside(written.source, region).splitlines() if len(line.strip()) > 12]
            assert [line for line in lines if line in cell.source] == []
        if is_answer(written):
            assert cell.source == TEXT_STUB
        elif is_theirs(written):
            assert "raise NotImplementedError" in cell.source
            assert CODE_STUB.splitlines()[0] in cell.source
        else:
            assert cell.source in written.source


@every_assignment
def test_a_worked_solution_is_for_reading(name):
    solution = worked_solution(SOURCES[name])
    text = nbformat.writes(solution)
    for mark in ("BEGIN SOLUTION", "HIDDEN TESTS", "nbgrader"):
        assert mark not in text
    source = SOURCES[name].notebook
    assert [cell.get("outputs") for cell in solution.cells] == [cell.get("outputs") for cell in source.cells]
    assert not any("raise NotImplementedError" in cell.source for cell in solution.cells if cell.cell_type == "code")


def test_without_nbgrader_worked_solutions_are_written_and_other_commands_say_what_is_missing():
    """Who studies alone has only what ``make lab`` installs."""
    code = "import sys; sys.modules['nbgrader'] = None; from grader import __main__ as commands; "
    code += "commands.write_notebook = lambda *each: each[-1]; commands.main(['solutions']); "
    done = run_python("-c", code + "sys.exit(commands.main(['feedback', '--class', '.']))")
    assert (done.returncode, done.stdout.split()) == (1, list(SOURCES))
    assert done.stderr.strip() == "nbgrader is missing: .venv/bin/python -m pip install -e '.[class]'"


def test_an_edition_that_is_there_already_is_not_written_again(source, tmp_path):
    """The owner of a class need not be able to write in an installation that belongs to root."""
    path = write_notebook(source.notebook, tmp_path, "assignment_01")
    before = path.stat()
    after = write_notebook(source.notebook, tmp_path, "assignment_01").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    source.notebook.metadata["new"] = True
    assert write_notebook(source.notebook, tmp_path, "assignment_01").stat().st_ino != before.st_ino


def test_a_solution_that_fails_its_own_tests_is_named(source):
    notebook = copy.deepcopy(source.notebook)
    double = next(cell for cell in notebook.cells if cell.id == "double")
    double.source = double.source.replace("2 * x", "3 * x")
    (line,) = check_source(Source("assignment_01", notebook))  # and nothing about square, which is right
    assert line.startswith("double-test: ")


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda cell: cell.update(source=cell.source.split("###")[0]), "no hidden tests in double-test"),
        (lambda cell: cell.metadata["nbgrader"].update(grade_id="square-test"), "several cells have the grade_id"),
    ],
)
def test_a_source_that_cannot_be_graded_is_refused(source, tmp_path, change, cause):
    notebook = copy.deepcopy(source.notebook)
    change(next(cell for cell in notebook.cells if cell.id == "double-test"))
    path = tmp_path / "assignment_01.ipynb"
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    with pytest.raises(Stop, match=cause):
        load(path)
