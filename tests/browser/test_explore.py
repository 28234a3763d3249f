"""The explorers in JupyterLab answer to mouse, touch and keys.

The page must show what the same explorer, put into the same state in this process, draws: pixel by pixel.
"""

import time

import numpy as np
import pytest
from lab import Lab, notebook, pixels, run_all, wait_for_cells
from lab_findings import visible_findings
from nbformat.v4 import new_code_cell
from playwright.sync_api import Locator, Page, expect
from site_checks import Traffic

PATH = "notebooks/all_explorers.ipynb"
SETUP = """\
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


class Shown:
    """An explorer on the page, made anew, and its twin in this process."""

    def __init__(self, page: Page, name: str) -> None:
        here = {}
        exec(SETUP, here)
        self.page, self.twin = page, eval(CALLS[name], here)
        self.cell = notebook(page).locator(".jp-CodeCell").filter(has_text=f"explore.{name}(")
        self.picture = self.cell.locator(".vit-picture")
        self.image = self.picture.locator("img")
        prompt = self.cell.locator(".jp-InputPrompt")
        number = prompt.inner_text()
        self.cell.locator(".cm-content").press("Control+Enter")
        expect(prompt).not_to_have_text(number)
        wait_for_cells(page)
        self.picture.scroll_into_view_if_needed()
        self.check()

    def control(self, name: str) -> Locator:
        """Return the widget of a control, found by its description, as a reader finds it."""
        words = self.twin.controls[name].description
        return self.cell.locator(".widget-inline-hbox, .widget-checkbox").filter(has_text=words)

    def slide(self, name: str, key: str) -> None:
        """Press a key on a slider's handle."""
        self.cell.get_by_role("slider", name=self.twin.controls[name].description).press(key)

    def point(self, row: int, column: int, place: int = 0) -> dict[str, float]:
        """Return where the middle of a cell lies, in pixels from the image's corner."""
        left, top, width, height = self.twin.picture.places[place]
        rows, columns = self.twin.picture.shape
        box = self.image.bounding_box()
        x, y = left + width * (column + 0.5) / columns, top + height * (row + 0.5) / rows
        return dict(x=x * box["width"], y=y * box["height"])

    def click(self, row: int, column: int, place: int = 0) -> None:
        """Click the middle of a cell."""
        self.image.click(position=self.point(row, column, place))

    def check(self, **state) -> None:
        """Put the twin into a state (``selected``, ``pressed`` or controls); wait until the page says and shows it."""
        for name, value in state.items():
            if name in ("selected", "pressed"):
                setattr(self.twin.picture, name, value)
            else:
                self.twin.controls[name].value = value
        expect(self.picture.get_by_role("status")).to_have_text(self.twin.text)
        wanted = pixels(self.twin.picture.png)
        last = time.monotonic() + 60
        while not np.array_equal(pixels(self.image), wanted) and time.monotonic() < last:
            time.sleep(0.05)  # two states may have the same words
        np.testing.assert_array_equal(pixels(self.image), wanted)
        cursors = 0 if self.twin.picture.selected is None else len(self.twin.picture.places)
        expect(self.picture.locator(".vit-picture-cursor")).to_have_count(cursors)


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
    yield page
    assert traffic.problems == []
    assert visible_findings(page) == []


def test_attention_answers_to_clicks_touch_and_controls(page):
    shown = Shown(page, "attention")
    before = pixels(shown.image)
    shown.click(1, 5)
    shown.check(selected=(1, 5))
    assert (pixels(shown.image) != before).any()
    shown.click(6, 3, place=1)  # in the map
    shown.check(selected=(6, 3))
    shown.image.tap(position=shown.point(5, 1))
    shown.check(selected=(5, 1))
    shown.slide("layer", "ArrowLeft")
    shown.check(layer=2)
    shown.control("head").locator("select").select_option("1")
    shown.check(head=1)
    shown.control("rollout").locator("input").check()
    shown.check(rollout=True)


def test_attention_by_the_keyboard_alone(page):
    """Tab leads from the last control to the picture; arrows move there, and Escape selects the class token."""
    shown = Shown(page, "attention")
    box = shown.control("class_token").locator("input")
    box.focus()
    page.keyboard.press("Tab")
    expect(shown.picture).to_be_focused()
    outline = "frame => getComputedStyle(frame).outlineStyle + getComputedStyle(frame).outlineWidth"
    assert shown.picture.evaluate(outline) == "solid3px"
    page.keyboard.press("Escape")
    shown.check(selected=None)
    expect(box).to_be_checked()
    for key in ("ArrowUp", "ArrowUp", "End"):  # the first goes to the middle
        page.keyboard.press(key)
    shown.check(selected=(2, 6))
    expect(box).not_to_be_checked()
    cells = notebook(page).locator(".jp-Cell")
    count = cells.count()
    page.keyboard.press("b")  # in the notebook it would insert a cell
    page.keyboard.press("ArrowLeft")
    shown.check(selected=(2, 5))
    expect(cells).to_have_count(count)
    expect(shown.picture).to_be_focused()


def test_patches_of_a_rectangular_image(page):
    shown = Shown(page, "patches")
    last = shown.twin.picture.shape[1] - 1
    shown.click(0, last)
    shown.check(selected=(0, last))
    size = shown.twin.controls["patch_size"]
    shown.slide("patch_size", "ArrowRight")
    shown.check(patch_size=size.options[size.options.index(size.value) + 1])
    shown.control("order").locator("select").select_option("(p1 p2 c)")
    shown.check(order="(p1 p2 c)")


def test_patterns_right_and_wrong(page):
    shown = Shown(page, "einops")
    field = shown.control("pattern").locator("input")
    for pattern in ("c h -> h c", "c h w -> c h w d"):
        field.fill("")
        field.press_sequentially(pattern)
        shown.check(pattern=pattern)
    assert "Identifiers only on one side of expression (should be on both): {'d'}" in shown.twin.message
    field.fill("c (gh p1) (gw p2) -> c (p1 gh) (p2 gw)")
    shown.control("sizes").locator("input").press_sequentially("p1=16, p2=16")
    shown.check(pattern="c (gh p1) (gw p2) -> c (p1 gh) (p2 gw)", sizes="p1=16, p2=16")
    assert shown.twin.message is None
    shown.click(2, 5)
    shown.check(selected=(2, 5))


def test_positions_are_clicked_in_the_mosaic(page):
    shown = Shown(page, "positions")
    shown.click(0, 6, place=1)
    shown.check(selected=(0, 6))
    shown.control("class_token").locator("input").check()
    shown.check(class_token=True)


def test_the_schedule_by_sliders_and_keys(page):
    shown = Shown(page, "schedule")
    shown.slide("warmup_steps", "ArrowRight")
    shown.check(warmup_steps=101)
    shown.slide("final", "PageUp")
    readout = shown.control("final").locator(".widget-readout")
    expect(readout).not_to_have_text("0.00")
    shown.check(final=float(readout.inner_text()))
    shown.picture.press("End")
    shown.picture.press("ArrowLeft")
    shown.check(selected=(0, 998))


def test_heads_are_switched_by_click_and_space_and_not_by_dragging(page):
    shown = Shown(page, "head_ablation")
    shown.click(1, 2)
    shown.check(selected=(1, 2), pressed=[(1, 2)])
    shown.picture.press("ArrowUp")
    shown.picture.press("ArrowLeft")
    shown.picture.press(" ")
    shown.check(selected=(0, 1), pressed=[(1, 2), (0, 1)])
    shown.picture.press("Enter")  # on again
    shown.check(pressed=[(1, 2)])
    shown.image.drag_to(shown.image, source_position=shown.point(0, 1), target_position=shown.point(0, 3))
    shown.check(selected=(0, 3))  # the selection follows the mouse, and no head is switched
    shown.control("heads").locator("select").select_option("layer 0 off")
    shown.check(heads="layer 0 off")
