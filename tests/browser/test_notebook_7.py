"""A lesson and an explorer in Notebook 7."""

from lab import run_all, running_lab
from lab_findings import findings, visible_findings
from site_checks import Traffic
from test_explore import PATH, Shown, write_explorers

START = "notebooks/00_start_here.ipynb"
# What Notebook 7.6 itself complains of when it starts, whatever is opened.
OWN = ("Menu entry for command", "[yjs#509] Not same Y.Doc", "reading 'schema'")


def test_a_lesson_runs_from_the_menu_and_an_explorer_answers(tmp_path, new_page):
    with running_lab(tmp_path, "notebook") as lab:
        lesson, figure = new_page(), new_page()
        traffic = [Traffic(page, lab.url) for page in (lesson, figure)]
        lab.open(lesson, START)
        run_all(lesson)
        assert findings(lesson, lab.save(lesson, START)) == []

        write_explorers(lab, ["attention"])
        lab.open(figure, PATH)
        run_all(figure)
        shown = Shown(figure, "attention")
        shown.click(0, 4)
        figure.keyboard.press("ArrowRight")
        shown.check(selected=(0, 5))
        shown.slide("layer", "Home")
        shown.check(layer=0)
        assert visible_findings(figure) == []
    problems = [problem for each in traffic for problem in each.problems]
    assert [problem for problem in problems if not any(known in problem for known in OWN)] == []
