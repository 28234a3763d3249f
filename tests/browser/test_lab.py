"""Every lesson in a real JupyterLab at 1280 px: nothing is cut off or scrolls, and no formula or picture is missing.

nbval runs the lessons and compares their outputs; here they are seen as they are stored.
"""

import pytest
from lab import notebook, run_all
from lab_findings import findings, visible_findings
from nbformat.v4 import new_code_cell, new_markdown_cell
from playwright.sync_api import expect
from site_checks import Traffic

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
    lab.open(page, f"notebooks/{name}")
    assert visible_findings(page) == []
    assert traffic.problems == []


def test_a_link_between_lessons_opens_the_other_lesson(lab, page):
    lab.open(page, f"notebooks/{LESSONS[0]}")
    notebook(page).get_by_role("link", name="Lesson 1 – Einops primer").click()
    expect(page).to_have_url(f"{lab.url}lab/tree/notebooks/{LESSONS[1]}")
    expect(notebook(page).locator("h1")).to_contain_text("Einops primer")
    expect(page.locator(".jp-Dialog")).to_have_count(0)


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
