"""The lessons' figures compute in the browser what Python computes, and respond to mouse, touch and keys."""

import functools
import json

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from site_checks import DESKTOP, problems_in_both_looks, show, watch
from test_engine import ENCODED, decoded

from tools.lesson_figures import FONT, PAGE, live, scripts
from vit_course.explore.figure import FIGURES, STORED

SETUP = """\
import torch
from vit_course import VisionTransformer, explore
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
    "head_ablation": "explore.head_ablation(model, sample.images, sample.labels, about=about, count=20)",
}
HEAD = """<html lang="en"><meta name="viewport" content="width=device-width">
<style>[data-theme="dark"] { background: #14171d; }</style>"""
READ = f"""JSON.stringify([...document.querySelectorAll(".vit-figure")].map(
    figure => [figure.querySelector("[role=status]").textContent, ({ENCODED})(figure.values ?? [])]))"""
# By operation and reduction, patterns with sizes after a bar: right ones, and one for each of einops' messages.
PATTERNS = {
    ("rearrange", "mean"): """
        c (gh p1) (gw p2) -> (gh gw) (c p1 p2) | p1=16, p2=16; c (p1 gh) (p2 gw) -> c (gh p1) (gw p2) | p1 = 16,p2=16,;
        c ... -> (...) c 1; c h w - h w c; c h w -> w h -> c; c h -> h c; ... a b c d -> a b c d ...;
        c h w -> c h w d e; c h w -> c h w 2; c h w -> ... c h w; (... c) h w -> ... c h w; c h h -> c h;
        c h w. -> c h w; c ... ... -> c ...; c ((h) w) -> c h w; c h) w -> c h w; c (h w -> c h w; c h! w -> c h w;
        c 2h w -> c h w; c _h w -> c h w; c (a b) w -> c a b w; c (a b) w -> c a b w | a=7; c h w -> c h w | h=5;
        c h w -> c h w | p1=5; c h w -> c h w | h_=5; c h w -> c h w | h=x""",
    ("reduce", "max"): "c (h 4) (w 2) -> c h w",
    ("reduce", "sum"): "c h w -> h w",
    ("reduce", "min"): "... c h w -> ... w ()",
    ("reduce", "mean"): "c h w -> ; c h w -> c k; c h w 0 -> c",
    ("repeat", "mean"): "c h w -> h (n w) (c 2) 3 | n=3; c h w -> c h; c h w -> c h w n; c h w -> c h (n w) | n=100000",
}
STATES = {
    CALLS["attention"]: [
        dict(),
        dict(selected=(0, 6), layer=0, head=2),
        dict(selected=None, layer=1, head=3),
        dict(selected=None, layer=3, rollout=True),
        dict(selected=(5, 1), layer=2, rollout=True),
    ],
    CALLS["positions"]: [dict(), dict(selected=(0, 6)), dict(selected=(6, 2)), dict(selected=None)],
    CALLS["patches"]: [
        dict(),
        dict(patch_size=8, selected=(0, 11)),
        dict(patch_size=12, order="(p1 p2 c)", selected=(3, 1)),
    ],
    "explore.patches(sample.images[0])": [dict(patch_size=1, selected=(20, 27)), dict(patch_size=28, selected=(0, 0))],
    CALLS["einops"]: [
        dict(operation=operation, reduction=reduction, pattern=pattern.lstrip(), sizes=sizes)
        for (operation, reduction), cases in PATTERNS.items()
        for pattern, _, sizes in (case.partition(" | ") for case in cases.split(";"))
    ],
    "explore.einops(letters)": [
        dict(),
        dict(pattern="(b1 b2) c h w -> (b1 h) (b2 w) c", sizes="b1=2", selected=(2, 1)),
    ],
    CALLS["head_ablation"]: [dict(), dict(off=[(1, 2)]), dict(off=[(0, 0), (0, 3), (3, 1)])],
}
NAMES: dict = {}
exec(SETUP, NAMES)


def made(call: str, state: dict | None = None):
    """Make an explorer in this process, and put it into a state."""
    view = eval(call, NAMES)
    for name, value in (state or {}).items():
        setattr(view, name, value)
    return view


@functools.cache
def every_state() -> list:
    """Make an explorer for each of the states."""
    return [made(call, state) for call, states in STATES.items() for state in states]


def write_page(path, views) -> str:
    """Write a page with these figures, as the website has them; return its address."""
    figures = [live(view._repr_mimebundle_()[1][STORED]) for view in views]
    cells = "".join(f'<div class="cell"><div class="cell_output"></div>{figure}</div>' for figure in figures)
    page = PAGE.format(scripts=scripts([view.kind for view in views], FIGURES.as_uri()), live=cells, font=FONT)
    path.write_text(page.replace("<meta", HEAD + "<meta", 1), encoding="utf-8")
    return path.as_uri()


def differences(page, views) -> list[str]:
    """Return the words of Python that the page has not, and name the figures whose values differ."""
    found = []
    for (words, encoded), view in zip(json.loads(page.evaluate(READ)), views, strict=True):
        if words != view.text:
            found.append(f"{words} instead of {view.text}")
        values, wanted = decoded(encoded), torch.empty(0) if view.values is None else view.values.flatten().float()
        if values.shape != wanted.shape or not torch.allclose(values, wanted, rtol=1e-5, atol=1e-6):
            found.append(f"values of {view.kind}: {view.text}")
    return found


def test_words_and_values_are_python_s(new_page, tmp_path):
    page = new_page()
    problems = watch(page, "file://")
    page.goto(write_page(tmp_path / "page.html", every_state()))
    assert differences(page, every_state()) == []
    assert problems == []


def figure_of(page: Page, kind: str) -> Locator:
    """Return a figure on the page, in view."""
    figure = page.locator(f".vit-figure.{kind}:visible")
    figure.scroll_into_view_if_needed()
    return figure


def press(figure: Locator, cell: tuple[int, int], grid: tuple[int, int], *, map: int = 0, how: str = "click") -> None:
    """Click or tap the middle of a cell of one of the figure's maps, or move the mouse there."""
    cells = figure.locator(".vit-cells").nth(map)
    box, (row, column), (rows, columns) = cells.bounding_box(), cell, grid
    place = {"x": box["width"] * (column + 0.5) / columns, "y": box["height"] * (row + 0.5) / rows}
    getattr(cells, how)(position=place)


def use(page: Page) -> dict[str, dict]:
    """Use every figure by mouse, finger and keys; return the states in which they must be then."""
    attention = figure_of(page, "attention")
    press(attention, (1, 5), (7, 7))
    attention.locator(".vit-cells").first.press("ArrowRight")
    attention.get_by_label("layer").first.press("ArrowLeft")
    attention.get_by_role("button", name="head 1").click()

    patches = figure_of(page, "patches")
    press(patches, (2, 11), (6, 12), how="tap")
    patches.get_by_label("patch size").press("ArrowRight")
    patches.get_by_label("order").select_option("(p1 p2 c)")

    einops = figure_of(page, "einops")
    field = einops.get_by_label("pattern")
    field.fill("")
    field.press_sequentially("c (gh p1) (gw p2) -> c (p1 gh) (p2 gw)")
    einops.get_by_label("sizes").press_sequentially("p1=16, p2=16")
    press(einops, (2, 5), (6, 6))

    positions = figure_of(page, "positions")
    press(positions, (0, 6), (7, 7), map=1)
    positions.locator(".vit-cells").first.press("Escape")

    heads = figure_of(page, "head_ablation")
    press(heads, (1, 2), (4, 4))
    heads.locator(".vit-cells").focus()
    for key in ("Home", "ArrowUp", "ArrowRight", "ArrowRight", "ArrowRight", "Enter", "ArrowLeft", "Space", "Space"):
        page.keyboard.press(key)
    return {
        "attention": dict(selected=(1, 6), layer=2, head=1),
        "patches": dict(patch_size=12, selected=(2, 7), order="(p1 p2 c)"),
        "einops": dict(pattern="c (gh p1) (gw p2) -> c (p1 gh) (p2 gw)", sizes="p1=16, p2=16", selected=(2, 5)),
        "positions": dict(selected=None),
        "head_ablation": dict(off=[(0, 3), (1, 2)]),
    }


def expect_states(page: Page, states: dict[str, dict]) -> dict:
    """Wait until each figure has the words of its twin in this process; return the twins."""
    twins = {kind: made(CALLS[kind], state) for kind, state in states.items()}
    for kind, twin in twins.items():
        expect(page.locator(f".vit-figure.{kind}:visible [role=status]")).to_have_text(twin.text, use_inner_text=False)
    return twins


def test_hover_shows_a_preview_and_a_click_pins_it(new_page, tmp_path):
    page = new_page()
    page.goto(write_page(tmp_path / "page.html", [made(CALLS["attention"])]))
    figure = figure_of(page, "attention")
    words, status = figure.locator(".vit-text"), figure.get_by_role("status")
    before = words.inner_text()
    press(figure, (0, 2), (7, 7), how="hover")
    expect(words).to_contain_text("Patch (0, 2)")
    expect(status).to_contain_text("Patch (3, 3)")
    expect(page.locator(".vit-tip")).to_have_text("patch (0, 2)")
    page.mouse.move(5, 5)
    expect(words).to_have_text(before)
    press(figure, (0, 2), (7, 7))
    page.mouse.move(5, 5)
    expect(status).to_contain_text("Patch (0, 2)")
    press(figure, (6, 0), (7, 7), map=1, how="hover")
    weight = made(CALLS["attention"], dict(selected=(0, 2))).values[1 + 6 * 7]
    expect(page.locator(".vit-tip")).to_have_text(f"patch (6, 0): {100 * weight:.1f}%")
    figure.get_by_role("button", name="Play").click()
    expect(figure.locator("figcaption").nth(1)).to_have_text("layer 0, mean of its heads")
    expect(figure.locator("figcaption").nth(1)).to_have_text("layer 3, mean of its heads")


def test_on_a_page_they_can_be_used_by_everybody_and_nothing_jumps(new_page, tmp_path):
    """At both widths, in light and dark, without Python but for the heads, whose model is not on this page."""
    page = new_page(has_touch=True)
    page.goto(write_page(tmp_path / "page.html", [made(call) for call in CALLS.values()]))
    schemes = "[...document.querySelectorAll('.vit-figure')].map(figure => figure.style.colorScheme)"
    assert problems_in_both_looks(page) == []
    assert page.evaluate(schemes) == ["light"] * len(CALLS)
    show(page, DESKTOP, "dark")
    assert page.evaluate(schemes) == ["dark"] * len(CALLS)
    heights = "[...document.querySelectorAll('.vit-figure')].map(figure => figure.offsetHeight)"
    before = page.evaluate(heights)
    states = use(page)
    del states["head_ablation"]
    expect_states(page, states)
    expect(page.locator(".head_ablation [role=status]")).to_have_text("The model could not be loaded.")
    assert page.evaluate(heights) == before


@pytest.mark.parametrize("protocol", ["file", "http"])
def test_on_the_website_a_figure_replaces_its_still_picture_and_heads_are_switched_off(protocol, home, site, new_page):
    start = home if protocol == "http" else site.as_uri() + "/"
    page = new_page()
    problems = watch(page, start)
    page.goto(start + "notebooks/09_inside_the_model.html")
    expect(page.locator(".vit-figure")).to_have_count(3)
    expect(page.locator("img[alt^='explore.']").first).to_be_hidden()
    heads = figure_of(page, "head_ablation")
    with page.expect_event("requestfinished", lambda request: request.url.endswith("ablation_images.js")):
        press(heads, (1, 2), (4, 4))
    if protocol == "file":
        heads.locator("select").select_option("layer 0 off")
        call = "explore.head_ablation(model, sample.images, sample.labels, about=about, count=200)"  # as in the lesson
        twin = made(call, dict(off=[(0, head) for head in range(4)]))
        expect(heads.get_by_role("status")).to_have_text(twin.text)
        assert heads.evaluate("figure => figure.values") == twin.values.tolist()
    assert problems == []
