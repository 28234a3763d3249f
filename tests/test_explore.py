"""The explorers from Python: what they show against what the package computes, and what they store.

That a browser computes and says the same is shown in tests/browser/test_explore.py.
"""

import base64
import re
from functools import partial

import einops
import numpy as np
import pytest
import torch
from support import assert_equal, parameters_of, small_model
from traitlets import TraitError

from vit_course import explore, inside, patchify
from vit_course.data import load_test_images
from vit_course.explore.figure import STORED, number

LETTERS = load_test_images()
ABOUT = dict(mean=[0.4, 0.5, 0.6], std=[0.2, 0.25, 0.5], class_names=["one", "two", "three", "four", "five"])
IMAGES = torch.rand(9, 3, 8, 12, generator=torch.Generator().manual_seed(2)).double()
MEAN, STD = (torch.tensor(ABOUT[key], dtype=torch.float64)[:, None, None] for key in ("mean", "std"))
NORMALIZED = (IMAGES - MEAN) / STD
LABELS = torch.arange(9) % 5
CLOSE = dict(atol=5e-4)  # attention weights are rounded to 16 bits

KINDS = {  # an explorer of each kind, small
    "attention": lambda: explore.attention(small_model(), IMAGES[0]),
    "einops": lambda: explore.einops(LETTERS[0], "c h w -> c w h"),
    "head_ablation": lambda: explore.head_ablation(small_model(), IMAGES, LABELS),
    "patches": lambda: explore.patches(LETTERS[0, :, :48, :48]),
    "positions": lambda: explore.positions(small_model()),
}


@pytest.mark.parametrize(("query", "row"), [(None, 0), ((0, 2), 3), ((1, 0), 4)])  # the grid is 2 x 3
def test_attention_is_the_row_of_the_query_token(query, row):
    view = KINDS["attention"]()
    with torch.no_grad():
        maps = inside.attention_maps(small_model(), IMAGES[:1])
    view.selected = query
    for layer in range(2):
        view.layer = layer
        for head, expected in {"mean": maps[layer][0, :, row].mean(dim=0), 1: maps[layer][0, 1, row]}.items():
            view.head = head
            assert_equal(view.values, expected, **CLOSE)
        view.rollout = True
        assert_equal(view.values, inside.attention_rollout(maps[: layer + 1])[0, row], **CLOSE)
        view.rollout = False


def test_attention_normalizes_what_about_says_and_names_the_prediction():
    model = small_model().train()  # it is used in eval mode, and stays as it was
    raw, normalized = IMAGES[3], NORMALIZED[3]
    view = explore.attention(model, raw, about=ABOUT)
    assert all(module.training for module in model.modules())
    assert_equal(view.values, explore.attention(model, normalized).values)
    assert not torch.allclose(view.values, explore.attention(model, raw).values)
    with torch.no_grad():
        chances = model.eval()(normalized[None])[0].softmax(dim=-1)
    name = ABOUT["class_names"][chances.argmax()]
    assert view.data["prediction"] == f"the model: {name}, {number(100 * chances.max())}%"


def unpacked(part):
    array = np.frombuffer(base64.b64decode(part["data"]), part["type"]).reshape(part["shape"])
    return torch.from_numpy(array.astype(np.float64) / (255 if part["type"] == "uint8" else 1))


def test_an_image_beyond_0_and_1_is_sent_stretched_a_constant_one_too_and_256_shades_take_a_byte_each():
    explore.positions(small_model().bfloat16())
    for image in (3 * IMAGES[0] - 1, torch.full((3, 8, 12), 2.0).double()):
        sent = explore.attention(small_model(), image).data["image"]
        expected = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-9)
        assert_equal(unpacked(sent), expected, atol=1e-6)
    sent = explore.patches(LETTERS[0]).data["image"]
    assert sent["type"] == "uint8"
    assert_equal(unpacked(sent), LETTERS[0].double(), atol=1e-6)


def test_a_patch_is_what_patchify_cuts_and_another_patch_size_keeps_the_cell_on_the_grid():
    image = LETTERS[2, :, :48]  # 48 x 96: a grid with other rows than columns
    view = explore.patches(image, patch_size=8)
    for patch_size, cell, now in ((8, (0, 11), (0, 11)), (8, (5, 1), (5, 1)), (24, (5, 9), (1, 3))):
        view.patch_size, view.selected = 8, cell
        view.patch_size = patch_size
        top, left = now[0] * patch_size, now[1] * patch_size
        pixels = image[:, top : top + patch_size, left : left + patch_size]
        view.order = "(c p1 p2)"
        assert_equal(view.values, patchify(image[None], patch_size)[0, now[0] * view.grid()[1] + now[1]], atol=0)
        view.order = "(p1 p2 c)"
        assert_equal(view.values, pixels.permute(1, 2, 0).flatten(), atol=0)
        assert view.text.startswith(f"Patch {now} is number ")


@pytest.mark.parametrize("written", ["c h w -> h c", "c (h w -> c h w", "-> ", "$x_{ c h w -> h w"])
def test_a_wrong_pattern_gives_einops_message_until_it_is_right(written):
    view = explore.einops(LETTERS[0], "c h w -> h w c")
    view.pattern = written
    with pytest.raises(einops.EinopsError) as raised:
        einops.rearrange(LETTERS[0], written)
    assert view.values is None
    assert view.message == str(raised.value).strip()
    view.pattern = "c h w -> h w c"
    assert_equal(view.values, LETTERS[0].permute(1, 2, 0), atol=0)


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_heads_that_are_off_are_silenced(pool):
    model = small_model(pool=pool)
    before = parameters_of(model)
    view = explore.head_ablation(model, IMAGES, LABELS, about=ABOUT, count=7)
    with torch.no_grad():
        for off in ([], [(0, 1)], [(1, 1), (0, 0)], [(0, 0), (0, 1), (1, 0), (1, 1)]):
            view.off = off
            predictions = inside.silence_heads(model, set(off))(NORMALIZED[:7]).argmax(dim=-1)
            assert_equal(view.values, (predictions == LABELS[:7]).double())
    assert_equal(view.alone, inside.head_ablation(model, NORMALIZED[:7], LABELS[:7]))
    assert view.text.startswith("4 of 4 heads are off: ")
    assert "of 7 images" in view.text
    assert_equal(parameters_of(model), before, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_output_has_words_to_compare_and_what_a_live_figure_needs(kind):
    view = KINDS[kind]()
    data, metadata = view._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    assert data["text/plain"].startswith(f"explore.{kind}: {view.text}\n")
    assert metadata[STORED]["state"] == {name: getattr(view, name) for name in view.choices}
    assert metadata[STORED]["data"] == view.data


def test_numbers_are_rounded_as_in_javascript():
    assert [number(value, 1) for value in (0.25, -0.25, 0.04, -0.04, 2)] == ["0.3", "−0.3", "0.0", "0.0", "2.0"]


attention, patches = partial(explore.attention, small_model()), partial(explore.patches, LETTERS[0])
ablation = partial(explore.head_ablation, small_model(), IMAGES)
set_attention = partial(setattr, KINDS["attention"]())
WRONG = [
    (partial(explore.attention, "B/16", IMAGES[0]), "model must be a VisionTransformer, with the names of the course"),
    (partial(attention, IMAGES[0, :, :, :8]), "image must have shape (c=3, h=8, w=12); got"),
    (partial(attention, IMAGES[0] * 3 - 1, about=ABOUT), "image must hold values in [0, 1], as"),
    (partial(attention, IMAGES[0], about=dict(mean=[0.5], std=[1])), "about must have one mean"),
    (partial(explore.patches, LETTERS[0].permute(1, 2, 0)), "image must have 1 or 3 channels in front"),
    (partial(explore.patches, LETTERS[0] * 255), "image must hold values in [0, 1]; got"),
    (partial(explore.patches, LETTERS[0] * torch.nan), "image must hold values in [0, 1]; got nan"),
    (partial(patches, patch_size=17), "patch_size must be one of 3, 4, 6, 8, 12, 16, 24, 32, 48, 96"),
    (partial(patches, patch_size=0), "patch_size must be one of 3, 4, 6, 8, 12, 16, 24, 32, 48, 96"),
    (partial(explore.patches, torch.zeros(3, 97, 101)), "image must have sides with a common patch size; got 97 x 101"),
    (partial(explore.einops, LETTERS[0], operation="pack"), "operation must be one of 'rearrange', 'reduce', 'repeat'"),
    (partial(ablation, LABELS + 1), "labels must lie in 0 .. 4"),
    (partial(ablation, LABELS, count=0), "count must be a whole number of at least 1"),
    (partial(set_attention, "selected", (2, 0)), "selected must lie in the grid of 2 x 3, counted"),
    (partial(set_attention, "layer", 2), "layer must lie in 0 .. 1; got 2"),
    (partial(set_attention, "head", "max"), "head must lie in 0 .. 1; got 'max'"),
    (partial(setattr, KINDS["head_ablation"](), "off", [(0, 5)]), "head must be at most num_heads - 1=1; got 5"),
]


def test_one_patch_is_always_selected():
    with pytest.raises(TraitError, match=r"'selected' .* expected a tuple, not the NoneType None"):
        KINDS["patches"]().selected = None


@pytest.mark.parametrize(("call", "says"), WRONG, ids=[says for _, says in WRONG])
@pytest.mark.usefixtures("as_readers_run_it")
def test_wrong_input_is_named(call, says):
    with pytest.raises(ValueError, match=f"^{re.escape(says)}"):
        call()
