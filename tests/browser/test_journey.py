"""The whole way of a reader: a lesson on a phone, the same in JupyterLab, a patch clicked, and its attention seen."""

from collections import Counter
from urllib.parse import parse_qs, urlsplit

import site_checks
import torch
from lab import run_all
from lab_findings import findings
from playwright.sync_api import expect
from site_checks import PHONE, Traffic
from test_explore import Shown

from vit_course import inside
from vit_course.data import load_sample
from vit_course.weights import load_trained

LESSON = "notebooks/02_image_embedding"
PATCH = (1, 5)  # row and column
WIDTHS = "list => list.map(image => [image.getBoundingClientRect().width, image.getAttribute('width')])"


def test_from_the_site_on_a_phone_to_the_attention_of_a_patch(home, lab, new_page):
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
    # The address leads to mybinder.org; the JupyterLab of this machine opens what it asks for there.
    assert parse_qs(urlsplit(binder.get_attribute("href")).query)["urlpath"] == [f"lab/tree/{LESSON}.ipynb"]

    page = new_page()
    traffic = Traffic(page, lab.url)
    lab.open(page, f"{LESSON}.ipynb")
    run_all(page)
    assert findings(page, lab.save(page, f"{LESSON}.ipynb")) == []
    shown = Shown(page, "attention")
    shown.click(*PATCH)
    shown.check(selected=PATCH)
    # The numbers that are drawn come from the model's own maps.
    model, _ = load_trained("fashion_mnist")
    with torch.no_grad():
        last = inside.attention_maps(model, load_sample().normalized().images[:1])[-1]  # (1, heads, s, s)
    torch.testing.assert_close(shown.twin.values, last[0].mean(dim=0)[1 + 7 * PATCH[0] + PATCH[1]])
    assert traffic.problems == []


def letters_can_be_read(phone):
    """Text has at least 14 px and usually 16 px; a wide figure keeps 0.6 of its size, in a box that scrolls."""
    site_checks.ready(phone)
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    letters = phone.locator("article p").evaluate_all(f"list => list.map({size})")
    assert len(letters) > 50
    assert min(letters) >= 14
    assert Counter(letters).most_common(1)[0][0] >= 16
    shown = phone.locator("article img").evaluate_all(WIDTHS)
    assert min(width / min(float(natural), 960) for width, natural in shown) >= 0.6
