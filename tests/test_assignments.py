"""The assignments: their shape, their points, and the student editions; rules for notebooks: test_notebooks.py."""

import re

import nbformat
import pytest

from tools.site_links import ROOT
from vit_course import checks

NOTEBOOKS = ROOT / "notebooks"
NAMES = [f"assignment_{number:02}" for number in range(1, 8)]
every_assignment = pytest.mark.parametrize("name", NAMES)


def path_of(name, edition="source"):
    return NOTEBOOKS / "assignments" / edition / name / f"{name}.ipynb"


def read(name, edition="source"):
    return nbformat.read(path_of(name, edition), as_version=4)


def nbgrader(cell):
    return cell.metadata.get("nbgrader", {})


def test_there_is_one_for_each_lesson():
    for edition in ("source", "release"):
        assert sorted(path.name for path in (NOTEBOOKS / "assignments" / edition).glob("assignment_*")) == NAMES


@every_assignment
def test_source_has_the_shape_of_an_assignment(name):
    cells = read(name).cells
    table = dict(re.findall(r"^\| (\S+) · [^|]+ \| (\d+) \| \d+ \| [●○]{3} \|$", cells[0].source, re.MULTILINE))
    points_of_the_answer = table.pop("Experiment")
    graded = [cell for cell in cells if nbgrader(cell).get("grade")]
    tests = [cell for cell in graded if not nbgrader(cell)["solution"]]
    (answer,) = [cell for cell in graded if nbgrader(cell)["solution"]]
    assert 3 <= len(table) <= 5
    assert [*table.values()] == [str(nbgrader(cell)["points"]) for cell in tests]
    assert points_of_the_answer == str(nbgrader(answer)["points"])
    assert sum(nbgrader(cell)["points"] for cell in graded) == 20
    assert answer.cell_type == "markdown"
    assert "Rubric" in answer.source
    for cell in tests:
        visible, _, hidden = cell.source.partition("### BEGIN HIDDEN TESTS")
        assert re.search(r"^checks\.\w+\(", visible, re.MULTILINE), f"{cell.id}: no visible check"
        assert re.search(r"(?s)hidden\..*### END HIDDEN TESTS", hidden), f"{cell.id}: no hidden test"
    assert [cell.id for cell in cells if nbgrader(cell).get("grade_id", cell.id) != cell.id] == []
    prose = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for task in re.findall(r"^## (Task.*?)(?=^## |\Z)", prose, flags=re.MULTILINE | re.DOTALL):
        assert re.findall(r"<summary>(.*?)</summary>", task) == ["Hint 1", "Hint 2"], task.splitlines()[0]


@every_assignment
def test_assignment_and_lesson_link_to_each_other(name):
    (lesson,) = NOTEBOOKS.glob(f"{name[-2:]}_*.ipynb")
    assert f"](assignments/release/{name}/{name}.ipynb)" in lesson.read_text(encoding="utf-8")
    for edition in ("source", "release"):
        assert f"](../../../{lesson.name}" in path_of(name, edition).read_text(encoding="utf-8")


@pytest.mark.usefixtures("as_readers_run_it")
@every_assignment
def test_the_student_edition_stops_at_its_first_stub_and_says_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = [cell.source for cell in read(name, "release").cells if cell.cell_type == "code"]
    first = next(place for place, source in enumerate(sources) if re.search(r"^checks\.", source, re.MULTILINE))
    code = compile("\n\n".join(sources[: first + 1]), name, "exec")
    with pytest.raises(checks.CheckFailed, match=r"not written yet\. Put your code where it raises NotImplemented"):
        exec(code, {"__name__": "__main__"})


def test_the_teachers_commands_start_where_processes_have_no_affinity(monkeypatch, capsys):
    """Python has no such function on macOS."""
    from grader.__main__ import main

    monkeypatch.delattr("os.sched_getaffinity")
    with pytest.raises(SystemExit, match="0"):
        main(["grade", "--help"])
    assert "default: all cores" in capsys.readouterr().out
