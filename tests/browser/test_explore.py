"""The explorers in JupyterLab: clicked, typed into and moved by keys, and the picture follows.

What must be seen is drawn once more here, by the same explorer in the same state, and compared with the PNG file that
the page shows, pixel by pixel.
"""

import time

import numpy as np
import pytest
from lab import Lab, notebook, pixels, run_all, wait_for_cells
from lab_findings import layout
from nbformat.v4 import new_code_cell
from playwright.sync_api import Locator, Page, expect
from site_checks import Traffic

from vit_course import explore
from vit_course.data import load_sample, load_test_images
from vit_course.weights import load_trained

PATH = "notebooks/all_explorers.ipynb"
SETUP = """
from vit_course import explore
from vit_course.data import load_sample, load_test_images
from vit_course.weights import load_trained

model, about = load_trained("fashion_mnist")
sample, letters = load_sample(), load_test_images()
"""
CALLS = {
    "attention": "explore.attention(model, sample.images[0], about=about)",
    "patches": "explore.patches(letters[0, :, :48])",
    "einops": 'explore.einops(letters[0], "c h w -> h w c")',
    "positions": "explore.positions(model)",
    "schedule": "explore.schedule()",
    "head_ablation": "explore.head_ablation(model, sample.images, sample.labels, about=about)",
}
ANSWERS_WITHIN = 5_000  # ms, on a machine that does much else


def make(name: str) -> explore.Explorer:
    """The explorer that the cell makes, in this process."""
    model, about = load_trained("fashion_mnist")
    here = dict(explore=explore, model=model, about=about, sample=load_sample(), letters=load_test_images())
    return eval(CALLS[name], here)


class Shown:
    """An explorer on the page, made anew, beside its twin in this process."""

    def __init__(self, page: Page, name: str) -> None:
        self.page, self.twin = page, make(name)
        self.cell = notebook(page).locator(".jp-CodeCell").filter(has_text=f"explore.{name}(")
        self.picture = self.cell.locator(".vit-picture")
        self.says = self.picture.get_by_role("status")
        self.run()
        self.check()

    def run(self) -> None:
        """Run the cell anew, so that nothing is left of the test before."""
        prompt = self.cell.locator(".jp-InputPrompt")
        number = prompt.inner_text()
        self.cell.locator(".cm-content").press("Control+Enter")
        expect(prompt).not_to_have_text(number)
        wait_for_cells(self.page)
        self.picture.scroll_into_view_if_needed()

    def control(self, name: str) -> Locator:
        """The widget of this control, found by its description, as a reader finds it."""
        words = self.twin.controls[name].description
        return self.cell.locator(".widget-inline-hbox, .widget-checkbox").filter(has_text=words)

    def slide(self, name: str, key: str) -> None:
        """Press a key on a slider's handle."""
        self.cell.get_by_role("slider", name=self.twin.controls[name].description).press(key)

    def point(self, row: int, column: int, place: int = 0) -> dict[str, float]:
        """Where the middle of a cell lies, in pixels from the picture's corner."""
        left, top, width, height = self.twin.picture.places[place]
        rows, columns = self.twin.picture.shape
        box = self.picture.locator("img").bounding_box()
        x, y = left + width * (column + 0.5) / columns, top + height * (row + 0.5) / rows
        return dict(x=x * box["width"], y=y * box["height"])

    def click(self, row: int, column: int, place: int = 0) -> None:
        """Click the middle of a cell."""
        self.picture.locator("img").click(position=self.point(row, column, place))

    def png(self) -> np.ndarray:
        """The picture that the page shows, as pixels."""
        return pixels(self.picture.locator("img"))

    def check(self) -> None:
        """Wait until the page says what the twin says, and shows what the twin shows."""
        expect(self.says).to_have_text(self.twin.text, timeout=ANSWERS_WITHIN)
        wanted = pixels(self.twin.picture.png)
        last = time.monotonic() + ANSWERS_WITHIN / 1000
        while not np.array_equal(self.png(), wanted) and time.monotonic() < last:
            pass  # two states may have the same words
        np.testing.assert_array_equal(self.png(), wanted)
        cursors = self.picture.locator(".vit-picture-cursor")
        expect(cursors).to_have_count(0 if self.twin.picture.selected is None else len(self.twin.picture.places))


def write_explorers(lab: Lab, names: list[str]) -> None:
    """Write a notebook with these explorers."""
    lab.write(PATH, [new_code_cell(SETUP.strip()), *(new_code_cell(CALLS[name]) for name in names)])


@pytest.fixture(scope="module")
def page(lab: Lab, new_page):
    """All explorers in one notebook; at the end nothing was amiss, and nothing scrolls or is cut off."""
    page = new_page(has_touch=True)
    traffic = Traffic(page, lab.url)
    write_explorers(lab, list(CALLS))
    lab.open(page, PATH)
    run_all(page)
    expect(notebook(page).locator(".vit-picture img")).to_have_count(len(CALLS))
    yield page
    assert traffic.problems == []
    assert layout(page) == []
    lab.end_kernels()


def test_attention_answers_to_clicks_and_keys(page):
    shown = Shown(page, "attention")
    before = shown.png()
    shown.click(1, 5)
    shown.twin.picture.selected = (1, 5)
    shown.check()
    assert (shown.png() != before).any()
    shown.page.keyboard.press("ArrowDown")  # the click has brought the focus
    shown.page.keyboard.press("Home")
    shown.twin.picture.selected = (2, 0)
    shown.check()
    shown.click(6, 3, place=1)  # in the map
    shown.twin.picture.selected = (6, 3)
    shown.check()
    shown.picture.locator("img").tap(position=shown.point(5, 1))  # by a finger
    shown.twin.picture.selected = (5, 1)
    shown.check()
    shown.slide("layer", "ArrowLeft")
    shown.twin.controls["layer"].value = 2
    shown.check()
    shown.control("head").locator("select").select_option("1")
    shown.twin.controls["head"].value = 1
    shown.check()
    shown.control("rollout").locator("input").check()
    shown.twin.controls["rollout"].value = True
    shown.check()


def test_attention_by_the_keyboard_alone(page):
    """From the last control one Tab leads to the picture; arrows move there, Escape asks for the class token."""
    shown = Shown(page, "attention")
    box = shown.control("class_token").locator("input")
    box.focus()
    page.keyboard.press("Tab")
    expect(shown.picture).to_be_focused()
    ring = shown.picture.evaluate(
        "frame => getComputedStyle(frame).outlineStyle + getComputedStyle(frame).outlineWidth"
    )
    assert ring == "solid3px"
    shown.picture.press("Escape")
    shown.twin.picture.selected = None
    shown.check()
    expect(box).to_be_checked()
    shown.picture.press("ArrowUp")  # from nowhere, to the middle
    shown.picture.press("ArrowUp")
    shown.picture.press("End")
    shown.twin.picture.selected = (2, 6)
    shown.check()
    expect(box).not_to_be_checked()
    cells = notebook(page).locator(".jp-Cell")
    count = cells.count()
    page.keyboard.press("b")  # in the notebook it would insert a cell
    page.keyboard.press("ArrowLeft")
    shown.twin.picture.selected = (2, 5)
    shown.check()
    expect(cells).to_have_count(count)
    expect(shown.picture).to_be_focused()


def test_patches_of_a_rectangular_image(page):
    shown = Shown(page, "patches")
    shown.click(0, shown.twin.picture.shape[1] - 1)
    shown.twin.picture.selected = (0, shown.twin.picture.shape[1] - 1)
    shown.check()
    shown.slide("patch_size", "ArrowRight")
    sizes = shown.twin.controls["patch_size"].options
    shown.twin.controls["patch_size"].value = sizes[sizes.index(shown.twin.controls["patch_size"].value) + 1]
    shown.check()
    shown.control("order").locator("select").select_option("(p1 p2 c)")
    shown.twin.controls["order"].value = "(p1 p2 c)"
    shown.check()


def test_patterns_right_and_wrong(page):
    shown = Shown(page, "einops")
    field = shown.control("pattern").locator("input")
    for pattern in ("c h w -> c w h", "c h -> h c", "c h w -> c h w d"):
        field.fill("")
        field.press_sequentially(pattern)
        shown.twin.controls["pattern"].value = pattern
        shown.check()
    assert "Identifiers only on one side of expression (should be on both): {'d'}" in shown.twin.message
    pattern = "c (gh p1) (gw p2) -> c (p1 gh) (p2 gw)"
    field.fill(pattern)
    shown.twin.controls["pattern"].value = pattern
    shown.control("sizes").locator("input").press_sequentially("p1=16, p2=16")
    shown.twin.controls["sizes"].value = "p1=16, p2=16"
    shown.check()
    assert shown.twin.message is None
    shown.click(2, 5)
    shown.twin.picture.selected = (2, 5)
    shown.check()


def test_positions_are_clicked_in_the_mosaic(page):
    shown = Shown(page, "positions")
    shown.click(0, 6, place=1)
    shown.twin.picture.selected = (0, 6)
    shown.check()
    shown.control("class_token").locator("input").check()
    shown.twin.controls["class_token"].value = True
    shown.check()


def test_the_schedule_by_sliders_and_keys(page):
    shown = Shown(page, "schedule")
    shown.slide("warmup_steps", "ArrowRight")
    shown.twin.controls["warmup_steps"].value = 101
    shown.check()
    shown.slide("final", "PageUp")
    readout = shown.control("final").locator(".widget-readout")
    expect(readout).not_to_have_text("0.00")
    shown.twin.controls["final"].value = float(readout.inner_text())
    shown.check()
    shown.picture.press("End")
    shown.picture.press("ArrowLeft")
    shown.twin.picture.selected = (0, 998)
    shown.check()


def test_heads_are_switched_by_click_and_by_space(page):
    shown = Shown(page, "head_ablation")
    shown.click(1, 2)
    shown.twin.picture.selected, shown.twin.picture.pressed = (1, 2), [(1, 2)]
    shown.check()
    shown.picture.press("ArrowUp")
    shown.picture.press("ArrowLeft")
    shown.picture.press(" ")
    shown.twin.picture.selected, shown.twin.picture.pressed = (0, 1), [(1, 2), (0, 1)]
    shown.check()
    shown.picture.press("Enter")  # on again
    shown.twin.picture.pressed = [(1, 2)]
    shown.check()
    shown.control("heads").locator("select").select_option("layer 0 off")
    shown.twin.controls["heads"].value = "layer 0 off"
    shown.check()
