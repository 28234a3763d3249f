"""torchvision's and timm's own models, every parameter random: our logits equal theirs both ways.

``tests/test_model.py`` shows the same of Hugging Face's model.
"""

import re

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from lessons.test_lesson_08 import PREPARE, TEXT
from support import SMALL, assert_equal, images_of, randomize_, small_model
from timm.layers import resample_abs_pos_embed
from timm.models.vision_transformer import VisionTransformer as Timms
from torchvision.models import ViT_B_16_Weights

from tools.benchmarks import peers
from vit_course.weights import load_weights, to_timm, to_torchvision

SIZES = [dict(image_size=16, num_layers=12, num_heads=4), dict(image_size=12, hidden_dim=24, num_heads=3, mlp_dim=7)]
WRITERS = {"torchvision": to_torchvision, "timm": to_timm}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", WRITERS)
def test_their_weights_give_their_logits_and_ours_give_ours_in_their_model(name, sizes):
    theirs, model = randomize_(peers.build(name, **SMALL | dict(in_channels=3) | sizes), seed=5), small_model(**sizes)
    images = images_of(model)
    before, expected, written = model(images), theirs(images), WRITERS[name](model)
    assert expected.std() > 0.1
    assert load_weights(model, theirs.state_dict()) == name
    assert_equal(model(images), expected)
    assert_equal(WRITERS[name](model), dict(theirs.state_dict()), atol=0)
    theirs.load_state_dict(written)
    assert_equal(theirs(images), before)


def timms(**options):
    sizes = dict(img_size=(8, 12), patch_size=4, depth=2, num_heads=2, embed_dim=16, mlp_ratio=1.5, num_classes=5)
    return randomize_(Timms(**sizes | options), seed=6)


def test_mean_pooling_equals_timms_without_fc_norm():
    theirs, model = timms(global_pool="avg", fc_norm=False), small_model(pool="mean")
    load_weights(model, theirs.state_dict())
    assert_equal(model(images_of(model)), theirs(images_of(model)))
    assert (small_model()(images_of(model)) - theirs(images_of(model))).abs().max() > 1e-2
    after = timms(global_pool="avg")  # timm's default
    after.load_state_dict({re.sub(r"^norm\.", "fc_norm.", name): value for name, value in theirs.state_dict().items()})
    assert (after(images_of(model)) - theirs(images_of(model))).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("old", "new", "grid_size"),
    [((16, 16), (24, 24), None), ((24, 24), (8, 8), (6, 6)), ((8, 12), (16, 24), (2, 3)), ((8, 12), (12, 8), (2, 3))],
)
def test_positions_are_interpolated_as_timm_does_it(old, new, grid_size):
    theirs, model = timms(img_size=old), small_model(image_size=new)
    grids = [[side // 4 for side in size] for size in (old, new)]
    load_weights(model, theirs.state_dict(), grid_size=grid_size)
    expected = resample_abs_pos_embed(theirs.pos_embed.data, new_size=grids[1], old_size=grids[0])
    assert_equal(model.embedding.pos_embedding.data, expected, atol=0)
    theirs.set_input_size(img_size=new)
    assert_equal(model(images_of(model)), theirs(images_of(model)))


def test_lesson_8_prepares_a_photo_as_torchvision_does_for_the_weights_that_it_loads():
    weights = ViT_B_16_Weights.IMAGENET1K_V1
    preset, categories = weights.transforms(), weights.meta["categories"]
    assert weights.url in TEXT
    assert (len(categories), categories[0]) == (1000, "tench")
    names = dict(torch=torch, F=F, rearrange=rearrange)
    exec(PREPARE, names)
    for h, w in ((300, 500), (500, 301), (256, 256), (224, 640)):
        picture = torch.rand(3, h, w, generator=torch.Generator().manual_seed(0))
        prepared = names["prepare_for_imagenet"](rearrange(255 * picture, "c h w -> h w c").numpy())
        torch.testing.assert_close(prepared, preset(picture), rtol=0, atol=1e-5)
