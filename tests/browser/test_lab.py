"""Every lesson in a real JupyterLab at 1280 px: nothing is cut off or scrolls, and no formula or picture is missing.

nbval runs the lessons and compares their outputs; here they are seen as they are stored.
"""

import nbformat
import pytest
from lab import notebook
from lab_findings import visible_findings
from playwright.sync_api import expect
from site_checks import Traffic

from tools.my_course import Copies
from tools.site_links import lessons

LESSONS = [path.name for path in lessons()]


@pytest.fixture(scope="module")
def page(new_page):
    """One page for all lessons, which share a kernel there."""
    return new_page()


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_fits(lab, page, name):
    traffic = Traffic(page, lab.url)
    lab.open(page, f"my_course/{name}")
    assert visible_findings(page) == []
    assert traffic.problems == []


def test_a_link_between_lessons_opens_the_other_lesson(lab, page):
    lab.open(page, f"my_course/{LESSONS[0]}")
    notebook(page).get_by_role("link", name="Lesson 1 – Einops primer").click()
    expect(page).to_have_url(f"{lab.url}lab/tree/my_course/{LESSONS[1]}")
    expect(notebook(page).locator("h1")).to_contain_text("Einops primer")
    expect(page.locator(".jp-Dialog")).to_have_count(0)


def test_a_save_counts_as_no_change_and_a_cell_of_the_readers_stays(lab, page):
    """JupyterLab writes its own version of Python into a notebook; then the course gets a newer version of it."""
    path, lesson = f"my_course/{LESSONS[1]}", lab.root / "notebooks" / LESSONS[1]
    stored = lesson.read_text(encoding="utf-8")
    try:
        lab.open(page, path)
        notebook(page).locator("h1").click()
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        page.keyboard.type("print('mine')")
        saved = lab.save(page, path)
        assert saved.metadata.language_info.version
        newest = nbformat.reads(stored, as_version=4)
        newest.cells[0].source += " (newer)"
        lesson.write_text(nbformat.writes(newest), encoding="utf-8")
        assert LESSONS[1] in Copies(lab.root).update()[0]
        page.locator("#jp-MainMenu").get_by_role("menuitem", name="File", exact=True).click()
        page.locator(".lm-Menu").get_by_role("menuitem", name="Reload Notebook from Disk").click()
        expect(notebook(page).locator("h1, h2, p").filter(has_text="(newer)").first).to_be_visible()
        expect(notebook(page).locator(".jp-CodeCell").first).to_contain_text("print('mine')")
        merged = nbformat.read(lab.root / path, as_version=4)
        assert [cell.source for cell in merged.cells if cell.id not in {each.id for each in newest.cells}] == [
            "print('mine')"
        ]
        assert len(merged.cells) == len(newest.cells) + 1
    finally:
        lesson.write_text(stored, encoding="utf-8")
