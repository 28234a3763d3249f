"""The whole way of a reader: a lesson on a phone, the same in JupyterLab, a patch clicked, and its attention seen."""

from collections import Counter
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import site_checks
import torch
from lab import notebook, pixels, run_all
from lab_findings import findings
from playwright.sync_api import expect
from site_checks import PHONE, Traffic

from vit_course import explore
from vit_course.data import load_sample
from vit_course.weights import load_trained

LESSON = "notebooks/02_image_embedding"
PATCH = (1, 5)  # row and column


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


def test_from_the_site_on_a_phone_to_the_attention_of_a_patch(home, lab, new_page, expected):
    phone = new_page(viewport=PHONE, is_mobile=True, has_touch=True)
    traffic = Traffic(phone, home)
    phone.goto(home)
    phone.locator(f"article a[href$='{LESSON}.html']").first.tap()
    expect(phone).to_have_url(f"{home}{LESSON}.html")
    expect(phone.locator("article h1")).to_be_in_viewport()
    answer = phone.locator("article details").first
    expect(answer.locator("p").first).not_to_be_visible()
    answer.locator("summary").tap()
    expect(answer.locator("p").first).to_be_visible()
    letters_can_be_read(phone)
    assert traffic.problems == []

    phone.evaluate("scrollTo(0, 0)")
    phone.locator(".dropdown-launch-buttons > button").tap()
    binder = phone.locator(".dropdown-launch-buttons a[href^='https://mybinder.org/']")
    expect(binder).to_be_visible()
    # its address leads to mybinder.org; what it asks for there, the JupyterLab of this machine opens
    (opened,) = parse_qs(urlsplit(binder.get_attribute("href")).query)["urlpath"]
    assert opened == f"lab/tree/{LESSON}.ipynb"

    page = new_page()
    traffic = Traffic(page, lab.url)
    lab.open(page, f"{LESSON}.ipynb")
    run_all(page)
    assert findings(page, lab.save(page, f"{LESSON}.ipynb"), code=False) == []
    cell = notebook(page).locator(".jp-CodeCell").filter(has_text="explore.attention(")
    picture, words = cell.locator("img.vit-picture-image"), cell.get_by_role("status")
    expect(picture).to_be_visible()
    drawn = pixels(expected.png)
    assert abs(pixels(picture) - drawn).mean() > 1  # another patch is selected at first
    (left, top, width, height), (rows, columns) = expected.places[0], expected.shape
    box = picture.bounding_box()
    across, down = left + width * (PATCH[1] + 0.5) / columns, top + height * (PATCH[0] + 0.5) / rows
    picture.click(position={"x": across * box["width"], "y": down * box["height"]})
    expect(words).to_have_text(expected.text)
    assert np.array_equal(pixels(picture), drawn)
    assert traffic.problems == []
    lab.end_kernels()


def letters_can_be_read(phone):
    """Text has 14 px at least and 16 px as a rule; a wide figure keeps 0.6 of its size, in a box that scrolls."""
    site_checks.ready(phone)
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    letters = phone.locator("article p").evaluate_all(f"list => list.map({size})")
    assert len(letters) > 50
    assert min(letters) >= 14
    assert Counter(letters).most_common(1)[0][0] >= 16
    widths = "list => list.map(image => [image.getBoundingClientRect().width, image.getAttribute('width')])"
    shown = phone.locator("article img").evaluate_all(widths)
    assert min(width / min(float(natural), 960) for width, natural in shown) >= 0.6
