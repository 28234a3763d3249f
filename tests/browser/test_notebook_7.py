"""A lesson and an explorer in Notebook 7."""

import pytest
from lab import NOTEBOOK_7, run_all, running_lab
from lab_findings import findings, layout
from site_checks import Traffic
from test_explore import PATH, Shown, write_explorers

START = "notebooks/00_start_here.ipynb"
# what Notebook 7.6 complains of when it starts, whatever is opened: of its own menus, keys and documents
OWN = ("Menu entry for command", "[yjs#509] Not same Y.Doc", "reading 'schema'")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with running_lab(tmp_path_factory.mktemp("notebook_7"), NOTEBOOK_7) as server:
        yield server


def of_the_course(problems: list[str]) -> list[str]:
    return [problem for problem in problems if not any(known in problem for known in OWN)]


def test_a_lesson_runs_from_the_menu_and_fits(lab, new_page):
    page = new_page()
    traffic = Traffic(page, lab.url)
    lab.open(page, START)
    run_all(page)
    assert findings(page, lab.save(page, START)) == []
    assert of_the_course(traffic.problems) == []
    lab.end_kernels()


def test_an_explorer_answers(lab, new_page):
    page = new_page()
    traffic = Traffic(page, lab.url)
    write_explorers(lab, ["attention"])
    lab.open(page, PATH)
    run_all(page)
    shown = Shown(page, "attention")
    shown.click(0, 4)
    page.keyboard.press("ArrowRight")
    shown.twin.picture.selected = (0, 5)
    shown.check()
    shown.slide("layer", "Home")
    shown.twin.controls["layer"].value = 0
    shown.check()
    assert layout(page) == []
    assert of_the_course(traffic.problems) == []
    lab.end_kernels()
