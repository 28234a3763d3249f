"""The whole way of a reader: the site on a phone, the lesson in JupyterLab, a patch clicked, and its attention seen."""

import io

import numpy as np
import pytest
import torch
from conftest import PHONE
from lab import notebook, run_all
from PIL import Image
from playwright.sync_api import Locator, expect
from site_building import binder_urlpath
from site_checks import Traffic

from vit_course import explore
from vit_course.data import load_sample
from vit_course.weights import load_trained

LESSON = "02_image_embedding"
PATCH = (1, 5)  # row and column
DRAWN = "image => fetch(image.src).then(answer => answer.bytes()).then(bytes => [...bytes])"


@pytest.fixture(scope="module")
def expected():
    """The lesson's explorer after a click on the patch, by Python alone; its numbers come from the model's maps."""
    model, about = load_trained("fashion_mnist")
    sample = load_sample()
    explorer = explore.attention(model, sample.images[0], about=about)
    explorer.picture.selected = PATCH
    with torch.no_grad():
        last = model.attention_maps(sample.normalized().images[:1])[-1]  # (1, heads, s, s)
    torch.testing.assert_close(explorer.values, last[0].mean(dim=0)[1 + 7 * PATCH[0] + PATCH[1]])
    return explorer.picture


def decoded(png: bytes) -> np.ndarray:
    """The pixels of a PNG file."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)


def shown(picture: Locator) -> np.ndarray:
    """The pixels of the picture in the browser."""
    return decoded(bytes(picture.evaluate(DRAWN)))


def test_from_the_site_on_a_phone_to_the_attention_of_a_patch(site, home, lab, new_page, expected):
    phone = new_page(viewport=PHONE, is_mobile=True, has_touch=True)
    phone.goto(home)
    phone.locator(f"article a[href$='{LESSON}.html']").first.tap()
    expect(phone).to_have_url(f"{home}notebooks/{LESSON}.html")
    expect(phone.locator("article h1")).to_be_in_viewport()
    expect(phone.locator("a.course-button.binder")).to_be_visible()

    # the button's address leads to mybinder.org; what it asks for there, the JupyterLab of this machine opens
    page = new_page()
    traffic = Traffic(page, lab.url)
    lab.visit(page, binder_urlpath(site, LESSON))
    run_all(page)
    cell = notebook(page).locator(".jp-CodeCell").filter(has_text="explore.attention(")
    picture, words = cell.locator("img.vit-picture-image"), cell.get_by_role("status")
    expect(picture).to_be_visible()
    drawn = decoded(expected.png)
    assert abs(shown(picture) - drawn).mean() > 1  # another patch is selected at first

    (left, top, width, height), (rows, columns) = expected.places[0], expected.shape
    box = picture.bounding_box()
    across = left + width * (PATCH[1] + 0.5) / columns
    down = top + height * (PATCH[0] + 0.5) / rows
    picture.click(position={"x": across * box["width"], "y": down * box["height"]})
    expect(words).to_have_text(expected.text)
    assert np.array_equal(shown(picture), drawn)
    assert traffic.problems == []
