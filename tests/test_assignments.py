"""The sources of the assignments: their shape, their points, and the rules that hold for every notebook."""

import re
from pathlib import Path

import nbformat
import pytest
from notebook_rules import RULES

ROOT = Path(__file__).resolve().parents[1] / "notebooks"
NAMES = [f"assignment_{number:02}" for number in range(1, 7)]
SHARED_RULES = [
    "every_code_cell_was_executed",
    "plain_python",
    "pictures_rest_on_an_assert",
    "no_stored_errors",
    "no_addresses_or_paths",
    "four_decimals_at_most",
    "what_varies_is_asserted",
    "folded_answers_render",
]


def path_of(name, edition="source"):
    return ROOT / "assignments" / edition / name / f"{name}.ipynb"


def read(name, edition="source"):
    return nbformat.read(path_of(name, edition), as_version=4)


def nbgrader(cell):
    return cell.metadata.get("nbgrader", {})


def test_there_is_one_for_each_lesson():
    for edition in ("source", "release"):
        assert sorted(path.name for path in (ROOT / "assignments" / edition).iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rule", SHARED_RULES)
def test_source_keeps_the_rule(rule, name):
    assert list(RULES[rule](read(name), path_of(name)) or []) == []


def faults(notebook):
    """Return what is wrong with the shape of an assignment."""
    cells = notebook.cells
    table = dict(re.findall(r"^\| (\S+) · [^|]+ \| (\d+) \| \d+ \| [●○]{3} \|$", cells[0].source, re.MULTILINE))
    tests = [cell for cell in cells if nbgrader(cell).get("grade") and not nbgrader(cell)["solution"]]
    written = [cell for cell in cells if nbgrader(cell).get("grade") and nbgrader(cell)["solution"]]
    if sum(nbgrader(cell).get("points", 0) for cell in cells) != 20:
        yield "not 20 points in all"
    tasks = [key for key in table if key != "Experiment"]
    if not 3 <= len(tasks) <= 5 or len(tests) != len(tasks):
        yield f"{len(tasks)} tasks in the table, {len(tests)} tests"
    if [int(table[key]) for key in tasks] != [nbgrader(cell)["points"] for cell in tests]:
        yield "points in the table are not those of the tests"
    if len(written) != 1 or written[0].cell_type != "markdown" or "Rubric" not in written[0].source:
        yield "no written answer with a rubric"
    elif int(table.get("Experiment", 0)) != nbgrader(written[0])["points"]:
        yield "the written answer has other points than the table says"
    for cell in tests:
        visible, _, hidden = cell.source.partition("### BEGIN HIDDEN TESTS")
        if not re.search(r"^checks\.\w+\(", visible, re.MULTILINE):
            yield f"{cell.id}: no visible check"
        if "hidden." not in hidden or "### END HIDDEN TESTS" not in hidden:
            yield f"{cell.id}: no hidden test"
    for cell in cells:
        if nbgrader(cell) and nbgrader(cell)["grade_id"] != cell.id:
            yield f"{cell.id}: its grade_id is {nbgrader(cell)['grade_id']}"
    prose = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    for section in re.split(r"^## ", prose, flags=re.MULTILINE)[1:]:
        if section.startswith("Task") and re.findall(r"<summary>(.*?)</summary>", section) != ["Hint 1", "Hint 2"]:
            yield f"{section.splitlines()[0]}: two hints wanted"


@pytest.mark.parametrize("name", NAMES)
def test_source_has_the_shape_of_an_assignment(name):
    assert list(faults(read(name))) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("edition", ["source", "release"])
def test_links_lead_somewhere(edition, name):
    text = "\n".join(cell.source for cell in read(name, edition).cells if cell.cell_type == "markdown")
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)\)", text) if not target.startswith("http")]
    assert [target for target in targets if not (path_of(name, edition).parent / target).exists()] == []
    assert any(f"{name[-2:]}_" in target for target in targets), "no link to its lesson"


@pytest.mark.parametrize("name", NAMES)
def test_its_lesson_links_to_it(name):
    (lesson,) = ROOT.glob(f"{name[-2:]}_*.ipynb")
    text = "\n".join(cell.source for cell in nbformat.read(lesson, as_version=4).cells)
    assert f"](assignments/release/{name}/{name}.ipynb)" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_student_edition_holds_no_solution_and_no_hidden_test(name):
    source, release = read(name), read(name, "release")
    text = "\n".join(cell.source for cell in release.cells)
    assert not re.search(r"SOLUTION|HIDDEN|grading|\bhidden\.|Rubric", text)
    stubs = [cell for cell in release.cells if nbgrader(cell).get("solution") and cell.cell_type == "code"]
    assert all('raise NotImplementedError("not written yet")' in cell.source for cell in stubs)
    assert [cell.id for cell in release.cells] == [cell.id for cell in source.cells]
    assert not any(cell.get("outputs") for cell in release.cells)
