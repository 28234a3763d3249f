"""The tables of A.6 in the appendix: their rows on torchvision and timm, on fresh models and by value."""

import importlib

import pytest
from support import randn, randomize_
from torch import nn

from tools.benchmarks import peers
from vit_course import VisionTransformer
from vit_course.weights import to_timm

VERSIONS, MISSING = peers.find()  # first: transformers imports torchvision, where it is there
lesson = importlib.import_module("lessons.test_published_vits")

SIZES = dict(image_size=96, patch_size=16, num_layers=2, num_heads=6, hidden_dim=384, mlp_dim=1536, num_classes=1000)


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Fail, not skip, where a library is missing: proving them is what these tests are for."""
    assert {"torchvision", "timm"} <= set(VERSIONS), f"not there: {MISSING}; run make test-all"


def torchvisions(**options):
    from torchvision.models import VisionTransformer as Torchvisions

    return Torchvisions(**SIZES, **options)


def timms(**options):
    from timm.models.vision_transformer import VisionTransformer as Timms

    return Timms(img_size=96, depth=2, num_heads=6, embed_dim=384, **options)


# Where training starts


def test_torchvision_starts():
    fresh = torchvisions()
    block = fresh.encoder.layers[0]
    lesson.std_is(fresh.conv_proj.weight, (3 * 16 * 16) ** -0.5)
    lesson.std_is(fresh.encoder.pos_embedding, 0.02)
    attention, widen, narrow = block.self_attention, block.mlp[0], block.mlp[3]
    for weight in (attention.in_proj_weight, widen.weight, narrow.weight):
        lesson.std_is(weight, (2 / sum(weight.shape)) ** 0.5)
    lesson.std_is(attention.out_proj.weight, (3 * 384) ** -0.5)  # Linear's default, uniform in ±1/√d
    for linear in (widen, narrow):
        lesson.std_is(linear.bias, 1e-6, 0.15)
    lesson.zero(fresh.class_token, fresh.heads.head.weight, fresh.heads.head.bias)
    lesson.zero(attention.in_proj_bias, attention.out_proj.bias, fresh.conv_proj.bias)


def test_timm_starts():
    fresh = timms()
    block = fresh.blocks[0]
    lesson.std_is(fresh.patch_embed.proj.weight, (3 * 768) ** -0.5)  # Conv2d's default, uniform in ±1/√(c·p·p)
    assert fresh.patch_embed.proj.weight.abs().max() <= 768**-0.5
    lesson.std_is(fresh.pos_embed, 0.02)
    lesson.std_is(fresh.cls_token, 1e-6, 0.15)
    for linear in (block.attn.qkv, block.attn.proj, block.mlp.fc1, block.mlp.fc2, fresh.head):
        lesson.std_is(linear.weight, 0.02)
        lesson.zero(linear.bias)


# What is computed; that the rest is as ours is in test_published_weights.py


def ours(**changes):
    return randomize_(VisionTransformer(**SIZES | changes), std=0.05)


BATCH = randn(2, 3, 96, 96)


def test_torchvision_may_have_a_hidden_layer():
    deep = torchvisions(representation_size=8)
    assert [type(layer) for layer in deep.heads] == [nn.Linear, nn.Tanh, nn.Linear]


def test_timm_normalises_the_mean_after():
    model, pooling = ours(), timms(global_pool="avg").double().eval()
    pooling.load_state_dict({name.replace("norm.", "fc_norm.") if name.startswith("norm.") else name: value
                             for name, value in to_timm(model).items()})  # fmt: skip
    assert (pooling(BATCH) - ours(pool="mean")(BATCH)).abs().max() > 1e-4
