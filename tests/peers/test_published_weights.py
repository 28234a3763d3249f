"""torchvision's, timm's and Hugging Face's own models, every parameter random: our logits equal theirs both ways."""

import pytest
import torch
from support import SMALL, assert_equal, images_of, parameter_count, randomize_, small_model

from tools.benchmarks import peers
from vit_course.weights import load_weights, to_huggingface, to_timm, to_torchvision

SIZES = {
    "square": dict(image_size=8),
    "deep": dict(image_size=16, num_layers=12, num_heads=4),
    "one patch, one head": dict(image_size=4, num_heads=1),
    "wide tokens": dict(image_size=12, hidden_dim=24, num_heads=3, mlp_dim=7),
    "rectangular": {},
    "tall": dict(image_size=(20, 4)),
}
WRITERS = {"torchvision": to_torchvision, "timm": to_timm, "Hugging Face": to_huggingface}
LAYOUTS = {"torchvision": "torchvision", "timm": "timm", "Hugging Face": "huggingface"}


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Fail, not skip, where a library is missing: proving them is what these tests are for."""
    versions, missing = peers.find()
    assert set(WRITERS) <= set(versions), f"not there: {missing}; run make test-all"
    return versions


def published(name, sizes, **changes):
    """A model of theirs at our sizes, random in every parameter."""
    return randomize_(peers.build(name, **SMALL | dict(in_channels=3) | sizes, **changes), seed=5)


def state_of(theirs):
    """Its state dict, without the wrapper that returns logits alone."""
    return {name.removeprefix("model."): value for name, value in theirs.state_dict().items()}


CASES = [
    (name, case)
    for name in WRITERS
    for case in SIZES
    if not (name == "torchvision" and case in ("rectangular", "tall"))
]


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("name", "case"), CASES)
def test_their_weights_give_their_logits(name, case, dtype, atol):
    theirs = published(name, SIZES[case]).to(dtype)
    model = small_model(**SIZES[case]).to(dtype)
    assert load_weights(model, state_of(theirs)) == LAYOUTS[name]
    expected = theirs(images_of(model, dtype=dtype))
    assert expected.std() > 0.1
    assert_equal(model(images_of(model, dtype=dtype)), expected, atol=atol)
    assert_equal(WRITERS[name](model), state_of(theirs), atol=0)


@pytest.mark.parametrize(("name", "case"), CASES)
def test_our_weights_give_our_logits_in_their_model(name, case):
    model, theirs = small_model(**SIZES[case]), published(name, SIZES[case])
    inside = theirs.model if name == "Hugging Face" else theirs
    inside.load_state_dict(WRITERS[name](model))
    assert_equal(theirs(images_of(model)), model(images_of(model)))


def timms(**options):
    from timm.models.vision_transformer import VisionTransformer as Timms

    sizes = dict(img_size=(8, 12), patch_size=4, depth=2, num_heads=2, embed_dim=16, mlp_ratio=1.5, num_classes=5)
    return randomize_(Timms(**sizes | options), seed=6)


def test_mean_pooling_equals_timms_without_fc_norm():
    theirs, model = timms(global_pool="avg", fc_norm=False), small_model(pool="mean")
    load_weights(model, theirs.state_dict())
    assert_equal(model(images_of(model)), theirs(images_of(model)))
    assert (small_model()(images_of(model)) - theirs(images_of(model))).abs().max() > 1e-2


def test_mean_pooling_in_the_other_order_is_refused_with_the_reason():
    theirs, model = timms(global_pool="avg"), small_model(pool="mean")
    with pytest.raises(ValueError, match=r"takes the mean of the tokens first and normalises after"):
        load_weights(model, theirs.state_dict())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (dict(init_values=0.1), "LayerScale"),
        (dict(qk_norm=True), "inside the attention"),
        (dict(reg_tokens=2), "register tokens"),
        (dict(pre_norm=True), "before the encoder"),
    ],
)
def test_timms_other_models_are_refused_with_the_reason(options, reason):
    with pytest.raises(ValueError, match=reason):
        load_weights(small_model(), timms(**options).state_dict())


@pytest.mark.parametrize(
    ("old", "new"),
    [((16, 16), (24, 24)), ((24, 24), (8, 8)), ((16, 16), (8, 20)), ((8, 12), (16, 24)), ((4, 4), (8, 8))],
)
def test_positions_are_interpolated_as_timm_does_it(old, new):
    from timm.layers import resample_abs_pos_embed

    theirs, model = timms(img_size=old), small_model(image_size=new)
    grids = [[side // 4 for side in size] for size in (old, new)]
    load_weights(model, theirs.state_dict(), grid_size=tuple(grids[0]))
    expected = resample_abs_pos_embed(theirs.pos_embed.data, new_size=grids[1], old_size=grids[0])
    assert_equal(model.embedding.pos_embedding.data, expected, atol=0)
    theirs.set_input_size(img_size=new)
    assert_equal(model(images_of(model)), theirs(images_of(model)))


def test_torchvisions_saved_names_and_ours_agree_for_vit_b_16():
    """The full-size model by name: every key and shape, without its weights."""
    from torchvision.models import vit_b_16

    from vit_course import create_vit

    with torch.device("meta"):
        theirs, ours = vit_b_16(weights=None), create_vit("B/16")
    written = to_torchvision(ours)
    assert {name: value.shape for name, value in written.items()} == {
        name: value.shape for name, value in theirs.state_dict().items()
    }
    assert parameter_count(ours) == 86_567_656
