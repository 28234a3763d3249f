"""Every lesson in a real JupyterLab: it runs from the menu without error, and at 1280 px nothing is cut off or scrolls.

That the checks find what they look for is shown on a spoilt notebook.
"""

import lab as lab_module
import psutil
import pytest
from conftest import DESKTOP
from lab import COURSE, STARTS_WITHIN, not_of_notebook, notebook, run_all, running_lab
from lab_findings import all_findings, layout
from nbformat.v4 import new_code_cell, new_markdown_cell
from playwright.sync_api import expect
from site_checks import Traffic

LESSONS = [path.name for path in sorted(COURSE.glob("notebooks/[0-9][0-9]_*.ipynb"))]
SPOILT = "notebooks/spoilt.ipynb"

# a cell, and what is said of it; None: nothing, for it is as it should be
CELLS = [
    (new_markdown_cell("# Title\n\n$x^2$, and a price of 5 $"), None),
    (new_markdown_cell("![a picture that is missing](../img/missing.svg)"), "picture that is missing is not loaded"),
    (new_markdown_cell("|" + 3 * f" {'w' * 60} |" + "\n|---|---|---|\n" + "| 1 | 2 | 3 |"), "out of the cell"),
    (new_markdown_cell(r"$$" + "+".join(f"x_{{{i}}}" for i in range(99)) + "$$"), "holds 4397 px in 846 px"),
    (new_markdown_cell(r"$\nosuchcommand{x}$"), "mathematics: a command that MathJax does not know"),
    (new_markdown_cell(r"$\frac{1$"), r"mathematics: $\frac{1$"),
    (
        new_markdown_cell("<details>\n<summary>Answer</summary>\n\n```python\n" + 150 * "y" + "\n```\n\n</details>"),
        "holds 1269 px in 846 px",
    ),
    (new_code_cell("from PIL import Image\nImage.new('RGB', (840, 20))"), None),
    (new_code_cell("Image.new('RGB', (3000, 20))"), "a picture of 3000 px is shown with 846 px"),
    (new_code_cell("print('z' * 400)"), "is broken to fit"),
    (
        new_code_cell("from IPython.display import HTML\nHTML('<div style=\"width: 900px\">wide</div>')"),
        "holds 920 px in 848 px",
    ),
    (new_code_cell("x = '" + 200 * "w" + "'"), "code of"),
    (new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}), None),
    (new_code_cell("1 / 0"), "ZeroDivisionError: division by zero"),
    (new_code_cell("2"), "not run"),
]


def fold_file_browser(page):
    """Click on the tab of the file browser, which gives its width to the notebook."""
    width = notebook(page).bounding_box()["width"]
    page.get_by_role("tab", name="File Browser").click()
    page.wait_for_function(
        "width => document.querySelector('.jp-NotebookPanel:not(.lm-mod-hidden)').clientWidth > width + 100", arg=width
    )


@pytest.mark.parametrize("name", LESSONS)
def test_lesson_runs_from_the_menu_and_fits(lab, new_page, name):
    page, path = new_page(), f"notebooks/{name}"
    traffic = Traffic(page, lab.url)
    lab.open(page, path)
    run_all(page)
    # at first the file browser takes 250 px: 106 characters of code fit beside it, and 120 once it is folded
    assert all_findings(page, lab.save(page, path), code=False) == []
    fold_file_browser(page)
    assert layout(page) == []
    assert traffic.problems == []


def test_a_lesson_runs_from_the_menu_and_fits_in_notebook_7(notebook_7, new_page):
    page, path = new_page(), f"notebooks/{LESSONS[0]}"
    traffic = Traffic(page, notebook_7.url)
    notebook_7.open(page, path)
    run_all(page)
    assert all_findings(page, notebook_7.save(page, path)) == []
    assert not_of_notebook(traffic.problems) == []


def test_a_link_between_lessons_opens_the_other_lesson(lab, new_page):
    page = new_page()
    lab.open(page, f"notebooks/{LESSONS[0]}")
    notebook(page).get_by_role("link", name="Lesson 1 – Einops primer").click()
    expect(page).to_have_url(f"{lab.url}lab/tree/notebooks/{LESSONS[1]}")
    expect(notebook(page).locator("h1")).to_contain_text("Einops primer", timeout=1000 * STARTS_WITHIN)
    expect(page.locator(".jp-Dialog")).to_have_count(0)


def processes_naming(folder):
    """Running processes with the folder in their command line: the server by its root, kernels by their files."""
    running = psutil.process_iter(["cmdline"])
    return [process for process in running if str(folder) in " ".join(process.info["cmdline"] or [])]


def fail_beside_a_kernel(folder):
    with running_lab(folder) as lab:
        lab.ask("api/kernels", method="POST")
        assert len(processes_naming(folder)) == 2
        raise ZeroDivisionError


def test_no_process_is_left_when_a_test_fails(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fail_beside_a_kernel(tmp_path)
    assert processes_naming(tmp_path) == []


def test_a_server_that_does_not_start_says_why(tmp_path, monkeypatch):
    monkeypatch.setitem(lab_module.SERVER, "ServerApp", {"ip": "no such address"})
    with pytest.raises(RuntimeError, match="no such address"), running_lab(tmp_path):
        pass


@pytest.fixture(scope="module")
def spoilt(lab_server, browser):
    """What is found in the spoilt notebook, and what the browser complained of."""
    context = browser.new_context(viewport=DESKTOP)
    page = context.new_page()
    traffic = Traffic(page, lab_server.url)
    lab_server.write(SPOILT, [cell for cell, _ in CELLS])
    lab_server.open(page, SPOILT)
    run_all(page)
    yield all_findings(page, lab_server.save(page, SPOILT)), traffic.problems
    context.close()
    lab_server.end_kernels()


@pytest.mark.parametrize("index", range(len(CELLS)))
def test_a_spoilt_cell_is_found_and_a_sound_one_is_not(spoilt, index):
    found = [finding for finding in spoilt[0] if finding.startswith(f"cell {index}: ")]
    expected = CELLS[index][1]
    assert any(expected in finding for finding in found) if expected else found == []


def test_the_browser_complains_of_the_missing_picture_alone(spoilt):
    missing, console = spoilt[1]
    assert "404" in missing
    assert "/files/img/missing.svg" in missing
    assert "404" in console
