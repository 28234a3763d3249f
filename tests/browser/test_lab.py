"""Every lesson in a real JupyterLab at 1280 px: nothing is cut off or scrolls, and no formula or picture is missing.

nbval runs the lessons and compares their outputs; here they are seen as they are stored.
"""

import nbformat
import pytest
from lab import notebook, run_all
from lab_findings import findings, visible_findings
from nbformat.v4 import new_code_cell, new_markdown_cell
from playwright.sync_api import expect
from site_checks import Traffic

from tools.my_course import Copies
from tools.site_links import lessons

LESSONS = [path.name for path in lessons()]
SPOILT = "notebooks/spoilt.ipynb"
FOLDED = "<details>\n<summary>Answer</summary>\n\n```python\n" + 150 * "y" + "\n```\n\n</details>"
CELLS = [  # a cell, and what is said of it; None if nothing is wrong with it
    (new_markdown_cell("# Title\n\n$x^2$, and a price of 5 $"), None),
    (new_markdown_cell("![a picture that is missing](../img/missing.svg)"), "picture that is missing is not loaded"),
    (new_markdown_cell("|" + 3 * f" {'w' * 60} |" + "\n|---|---|---|\n" + "| 1 | 2 | 3 |"), "out of the cell"),
    (new_markdown_cell(r"$$" + "+".join(f"x_{{{i}}}" for i in range(99)) + "$$"), " px in 8"),
    (new_markdown_cell(r"$\nosuchcommand{x}$"), "mathematics: a command that MathJax does not know"),
    (new_markdown_cell(r"$\frac{1$"), r"mathematics: $\frac{1$"),
    (new_markdown_cell(FOLDED), " px in 8"),
    (new_code_cell("from PIL import Image\nImage.new('RGB', (840, 20))"), None),
    (new_code_cell("Image.new('RGB', (3000, 20))"), "a picture of 3000 px is shown with 8"),
    (new_code_cell("print('z' * 400)"), "is broken to fit"),
    (new_code_cell("from IPython.display import HTML\nHTML('<div style=\"width: 900px\">wide</div>')"), " px in 8"),
    (new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}), None),
    (new_code_cell("1 / 0"), "ZeroDivisionError: division by zero"),
    (new_code_cell("2"), "not run"),
]


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


def test_the_checks_find_what_is_spoilt(lab, page):
    traffic = Traffic(page, lab.url)
    lab.write(SPOILT, [cell for cell, _ in CELLS])
    lab.open(page, SPOILT)
    run_all(page)
    found = findings(page, lab.save(page, SPOILT))
    for index, (_, expected) in enumerate(CELLS):
        here = [finding for finding in found if finding.startswith(f"cell {index}: ")]
        assert any(expected in finding for finding in here) if expected else here == [], (index, here)
    missing, console = traffic.problems
    assert "404" in missing
    assert "/files/img/missing.svg" in missing
    assert "404" in console
