"""Every lesson in a real JupyterLab at 1280 px: nothing is cut off or scrolls, and no formula or picture is missing.

nbval runs the lessons and compares their outputs; here they are seen as they are stored. Then a reader solves the
exercises of one: wrong answers are refused, a right one is kept and used. At the end all explorers are used.
"""

import ast

import nbformat
import pytest
from lab import execute, findings, notebook, run_all, wait_for_notebook
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import expect
from site_checks import watch
from support import run_python
from test_explore import CALLS, SETUP, expect_states, use

from tools.my_course import Copies
from tools.site_links import lessons
from tools.solve_lessons import turns
from vit_course.checks.verdict import COLORS, sentence
from vit_course.mine.parts import PARTS

LESSONS = [path.name for path in lessons()]
STATES = {"rgb({}, {}, {})".format(*bytes.fromhex(color[1:])): state for state, color in COLORS.items()}


@pytest.fixture(scope="module")
def page(new_page):
    """One page for all notebooks; those that are opened by their path share a kernel there."""
    return new_page(has_touch=True)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_fits(lab, page, name):
    problems = watch(page, lab.url)
    lab.open(page, f"notebooks/{name}")  # whose outputs are stored
    others = page.locator(".jp-NotebookPanel.lm-mod-hidden")  # what they hold slows down every notebook after them
    others.evaluate_all("panels => panels.forEach(panel => panel.replaceChildren())")
    assert findings(page) == []
    assert problems == []


def test_a_link_leads_to_the_next_lesson_where_a_save_is_no_change_and_a_cell_of_the_readers_stays(lab, page):
    """JupyterLab writes its own version of Python into a notebook; then the course gets a newer version of it."""
    path, lesson = f"my_course/{LESSONS[1]}", lab.root / "notebooks" / LESSONS[1]
    lab.open(page, f"my_course/{LESSONS[0]}")
    notebook(page).get_by_role("link", name="Lesson 1 – Einops primer").click()
    expect(page).to_have_url(f"{lab.url}lab/tree/{path}")
    expect(notebook(page).locator("h1")).to_contain_text("Einops primer")
    wait_for_notebook(page, path)
    notebook(page).locator("h1").click()
    page.keyboard.press("b")
    page.keyboard.press("Enter")
    page.keyboard.type("print('mine')")
    page.keyboard.press("Escape")  # or the first cell is edited after the reload, and its text is not shown
    execute(page, "docmanager:save")
    assert nbformat.read(lab.root / path, as_version=4).metadata.language_info.version
    newest = nbformat.read(lesson, as_version=4)
    newest.cells[0].source += " (newer)"
    nbformat.write(newest, lesson)
    assert LESSONS[1] in Copies(lab.root).update()[0]
    execute(page, "docmanager:reload")
    expect(notebook(page).locator("h1, h2, p").filter(has_text="(newer)").first).to_be_visible()
    expect(notebook(page).locator(".jp-CodeCell").first).to_contain_text("print('mine')")
    merged, ids = nbformat.read(lab.root / path, as_version=4), {cell.id for cell in newest.cells}
    assert [cell.source for cell in merged.cells if cell.id not in ids] == ["print('mine')"]
    assert len(merged.cells) == len(newest.cells) + 1


def test_what_a_reader_writes_is_kept_and_used(lab, page):
    """One answer is right, and the others are wrong."""
    problems, path = watch(page, lab.url), f"my_course/{LESSONS[1]}"
    lab.open(page, path)
    (name,) = [name for name, part in PARTS.items() if part.lesson == "01"]
    lesson = nbformat.read(lab.root / "notebooks" / LESSONS[1], as_version=4)
    copy = nbformat.read(lab.root / path, as_version=4)  # in which the test above has inserted a cell
    shown = {cell.id: notebook(page).locator(".jp-Cell").nth(place) for place, cell in enumerate(copy.cells)}
    verdicts = []
    for index, _, solution in turns(lesson):
        stub, check = lesson.cells[index + 1 : index + 3]
        is_kept = check.source == f"mine.keep({name})"
        shown[stub.id].locator(".cm-content").click()
        page.keyboard.press("Control+a")
        page.keyboard.insert_text(solution.rstrip() if is_kept else solution.replace("return ", "return 2 * ", 1))
        verdicts.append((shown[check.id].locator("[style*=border-left]"), is_kept))
    run_all(page)
    execute(page, "docmanager:save")
    ran = [cell for cell in nbformat.read(lab.root / path, as_version=4).cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in ran)
    assert [output for cell in ran for output in cell.outputs if output.output_type == "error"] == []
    assert findings(page) == []
    for verdict, is_kept in verdicts:
        color, says = verdict.evaluate("verdict => getComputedStyle(verdict).borderLeftColor"), verdict.inner_text()
        assert STATES[color] == ("right" if is_kept else "wrong")
        kept = sentence("mine.kept", name=name, helpers="", kept=1, total=len(PARTS))
        assert kept in says if is_kept else says.startswith("✗ ") and "expected" in says
    printed = [output.get("text", "") for cell in ran for output in cell.outputs]
    assert sentence("mine.yours", name=name) in "".join(printed)
    table = run_python("-m", "vit_course.mine", cwd=lab.root).stdout
    assert sentence("mine.summary", kept=1, total=len(PARTS)) in table
    assert problems == []


def test_every_explorer_follows_the_reader_and_python_follows_it(lab, page):
    problems, path = watch(page, lab.url), "notebooks/all_explorers.ipynb"
    shown = [f"{kind} = {call}\n{kind}" for kind, call in CALLS.items()]
    said = f"[view.text for view in [{', '.join(CALLS)}]]"
    cells = [new_code_cell(source) for source in (SETUP.strip(), *shown, said)]
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}  # so that JupyterLab asks for none
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": python}), lab.root / path)
    lab.open(page, path)
    run_all(page)
    twins = expect_states(page, use(page))
    last = notebook(page).locator(".jp-CodeCell").last
    last.locator(".cm-content").click()
    execute(page, "notebook:run-cell")
    said = ast.literal_eval(last.locator(".jp-OutputArea-output").inner_text())
    assert said == [twins[kind].text for kind in CALLS]
    assert findings(page) == []
    assert problems == []
