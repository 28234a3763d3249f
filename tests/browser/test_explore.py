"""The lessons' figures compute in the browser what Python computes, and respond to mouse, touch and keys."""

import json
import shutil

import pytest
import torch
from lab import notebook, run_all
from lab_findings import visible_findings
from nbformat.v4 import new_code_cell
from playwright.sync_api import Page, expect
from site_checks import DESKTOP, PHONE, Traffic, barriers, overflow, show

from tools.lesson_figures import FONT, PAGE, live, scripts
from vit_course.explore.explorer import FIGURES, STORED

PATH = "notebooks/all_explorers.ipynb"
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
    "schedule": "explore.schedule()",
    "head_ablation": "explore.head_ablation(model, sample.images, sample.labels, about=about)",
}
DIGITS = "explore.patches(sample.images[0])"
BATCH = "explore.einops(letters)"
PATTERNS = [  # operation, pattern, sizes, reduction: right ones, then one for each of einops' messages
    ("rearrange", "c (gh p1) (gw p2) -> (gh gw) (c p1 p2)", "p1=16, p2=16", "mean"),
    ("rearrange", "c (p1 gh) (p2 gw) -> c (gh p1) (gw p2)", "p1 = 16,p2=16,", "mean"),
    ("rearrange", "c ... -> (...) c 1", "", "mean"),
    ("reduce", "c (h 4) (w 2) -> c h w", "", "max"),
    ("reduce", "c h w -> h w", "", "sum"),
    ("reduce", "c h w -> ", "", "mean"),
    ("reduce", "... c h w -> ... w ()", "", "min"),
    ("repeat", "c h w -> h (n w) c 2", "n=3", "mean"),
    ("repeat", "c h w -> c h (w 2)", "", "mean"),
    ("rearrange", "c h w - h w c", "", "mean"),
    ("rearrange", "c h w -> w h -> c", "", "mean"),
    ("rearrange", "c h -> h c", "", "mean"),
    ("rearrange", "... a b c d -> a b c d ...", "", "mean"),
    ("rearrange", "c h w -> c h w d e", "", "mean"),
    ("rearrange", "c h w -> c h w 2", "", "mean"),
    ("rearrange", "c h w -> ... c h w", "", "mean"),
    ("rearrange", "(... c) h w -> ... c h w", "", "mean"),
    ("rearrange", "c h h -> c h", "", "mean"),
    ("rearrange", "c h w. -> c h w", "", "mean"),
    ("rearrange", "c ... ... -> c ...", "", "mean"),
    ("rearrange", "c ((h) w) -> c h w", "", "mean"),
    ("rearrange", "c h) w -> c h w", "", "mean"),
    ("rearrange", "c (h w -> c h w", "", "mean"),
    ("rearrange", "c h! w -> c h w", "", "mean"),
    ("rearrange", "c 2h w -> c h w", "", "mean"),
    ("rearrange", "c _h w -> c h w", "", "mean"),
    ("rearrange", "c (a b) w -> c a b w", "", "mean"),
    ("rearrange", "c (a b) w -> c a b w", "a=7", "mean"),
    ("rearrange", "c h w -> c h w", "h=5", "mean"),
    ("rearrange", "c h w -> c h w", "p1=5", "mean"),
    ("rearrange", "c h w -> c h w", "h_=5", "mean"),
    ("rearrange", "c h w -> c h w", "h=x", "mean"),
    ("reduce", "c h w -> c k", "", "mean"),
    ("reduce", "c h w 0 -> c", "", "mean"),
    ("repeat", "c h w -> c h", "", "mean"),
    ("repeat", "c h w -> c h w n", "", "mean"),
    ("repeat", "c h w -> c h (n w)", "n=100000", "mean"),
]
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
    DIGITS: [dict(patch_size=1, selected=(20, 27)), dict(patch_size=28, selected=(0, 0))],
    CALLS["einops"]: [
        dict(zip(("operation", "pattern", "sizes", "reduction"), each, strict=True)) for each in PATTERNS
    ],
    BATCH: [dict(), dict(pattern="(b1 b2) c h w -> (b1 h) (b2 w) c", sizes="b1=2", selected=(2, 1))],
    CALLS["schedule"]: [
        dict(),
        dict(peak=0.02, total_steps=50, warmup_steps=10, final_share=0.25, step=12),
        dict(total_steps=2, warmup_steps=60, step=60),
        dict(warmup_steps=0, total_steps=3),
    ],
    CALLS["head_ablation"]: [dict(), dict(off=[(1, 2)]), dict(off=[(0, 0), (0, 3), (3, 1)])],
}
SPOILS = {  # one computation of each figure
    CALLS["attention"]: ("attention.js", "return sum / heads", "return sum"),
    CALLS["positions"]: ("positions.js", "value / length", "value"),
    CALLS["patches"]: ("patches.js", "row * p + y", "row * p + x"),
    CALLS["einops"]: ("einops.js", "place + k * stride", "place + k"),
    CALLS["schedule"]: ("schedule.js", "Math.cos", "Math.sin"),
    CALLS["head_ablation"]: ("head_ablation.js", "[...bits].map(Number)", "[...bits].map((bit) => 1 - bit)"),
}


def made(call: str, state: dict | None = None):
    """Make an explorer in this process, and put it into a state."""
    here = {}
    exec(SETUP, here)
    view = eval(call, here)
    for name, value in (state or {}).items():
        setattr(view, name, value)
    return view


def write_page(path, views) -> str:
    """Write a page with these figures, as the website has them; return its address."""
    figures = "".join(f'<div class="cell"><div class="cell_output"></div>{live(stored(view))}</div>' for view in views)
    folder = FIGURES.as_uri() if not (path.parent / "figures").exists() else "figures"
    page = PAGE.format(scripts=scripts([view.kind for view in views], folder), live=figures, font=FONT)
    path.write_text('<html lang="en"><meta name="viewport" content="width=device-width">' + page, encoding="utf-8")
    return path.as_uri()


def stored(view) -> dict:
    return json.loads(json.dumps(view._repr_mimebundle_()[1][STORED]))


def differences(page: Page, views) -> list[str]:
    """Return the words of Python that the page has not, and name the figures whose values differ."""
    figures = page.locator(".vit-figure")
    expect(figures).to_have_count(len(views))
    found = []
    for figure, view in zip(figures.all(), views, strict=True):
        if figure.get_by_role("status").text_content() != view.text:
            found.append(f"{figure.get_by_role('status').text_content()} instead of {view.text}")
        ours = figure.evaluate("figure => figure.values && [...figure.values]")
        theirs = None if view.values is None else view.values.flatten().double()
        if (ours is None) != (theirs is None) or (
            ours is not None and not torch.allclose(torch.tensor(ours).double(), theirs, rtol=1e-5, atol=1e-6)
        ):
            found.append(f"values of {view.kind}: {view.text}")
    return found


@pytest.mark.parametrize("call", STATES)
def test_words_and_values_are_python_s(call, new_page, tmp_path):
    page = new_page()
    traffic = Traffic(page, "file://")
    views = [made(call, state) for state in STATES[call]]
    page.goto(write_page(tmp_path / "page.html", views))
    assert differences(page, views) == []
    assert traffic.problems == []


@pytest.mark.parametrize("call", SPOILS)
def test_a_spoiled_computation_is_found(call, new_page, tmp_path):
    name, old, new = SPOILS[call]
    script = shutil.copytree(FIGURES, tmp_path / "figures") / name
    text = script.read_text(encoding="utf-8")
    assert old in text
    script.write_text(text.replace(old, new), encoding="utf-8")
    page, views = new_page(), [made(call, state) for state in STATES[call]]
    page.goto(write_page(tmp_path / "page.html", views))
    assert differences(page, views) != []
