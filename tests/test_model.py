"""Lesson 05: the Vision Transformer and its variants. What it computes is compared in test_parity.py."""

import math

import pytest
import torch
import torch.nn.functional as F
import torchsummary
from support import SMALL, assert_equal, images_of, parameter_count, small_model
from torch import nn

from vit_course import VARIANTS, MultiHeadSelfAttention, VisionTransformer, create_vit

# at 224 pixels with 1000 classes
PARAMETER_COUNTS = {
    "Ti/16": 5_717_416,
    "S/16": 22_050_664,
    "S/32": 22_878_952,
    "B/16": 86_567_656,
    "B/32": 88_224_232,
    "L/16": 304_326_632,
    "L/32": 306_535_400,
    "H/14": 632_045_800,
}
IMAGES = images_of(small_model())
LABELS = torch.tensor([0, 4, 2])


def on_meta(variant: str, **options) -> VisionTransformer:
    """Build a variant without memory for its weights."""
    with torch.device("meta"):
        return create_vit(variant, **options)


def test_variants_have_the_parameter_counts_and_proportions_of_the_papers():
    assert {variant: parameter_count(on_meta(variant)) for variant in VARIANTS} == PARAMETER_COUNTS
    for variant, sizes in VARIANTS.items():  # what a parameter count cannot see
        assert sizes["patch_size"] == int(variant.split("/")[1])
        assert sizes["hidden_dim"] / sizes["num_heads"] == (80 if variant == "H/14" else 64)


def test_create_vit_passes_every_option_on():
    options = dict(in_channels=1, dropout=0.1, attention_dropout=0.2, pool="mean")
    model = on_meta("Ti/16", image_size=(32, 48), num_classes=7, **options)
    embedding = model.embedding.patch_embedding
    assert (model.pool, model.head.out_features) == ("mean", 7)
    assert (embedding.in_channels, embedding.grid_size) == (1, (2, 3))
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.1}
    heads = [module for module in model.modules() if isinstance(module, MultiHeadSelfAttention)]
    assert [(head.num_heads, head.attention_dropout) for head in heads] == [(3, 0.2)] * 12


def test_first_loss_is_exactly_ln_k_and_only_the_head_has_a_gradient():
    model = VisionTransformer(**SMALL).double()
    loss = F.cross_entropy(model(IMAGES), LABELS)
    assert loss.item() == pytest.approx(math.log(5), abs=1e-15)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad.count_nonzero() > 0) == name.startswith("head."), name


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_gradients_reach_every_parameter_but_the_key_biases(pool):
    model = small_model(pool=pool)
    F.cross_entropy(model(IMAGES), LABELS).backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.abs()
        if name.endswith("qkv.bias"):
            query, key, value = gradient.chunk(3)
            assert key.max() < 1e-12, name  # zero to rounding: softmax does not see a key bias
            gradient = torch.cat([query, value])
        assert gradient.min() > 1e-9, name


def test_sequential_takes_the_parts_and_torchsummary_the_model(capsys):
    model = small_model()
    row = nn.Sequential(model.embedding, *model.encoder.layers, model.encoder.ln)
    assert_equal(model.head(row(IMAGES)[:, 0]), model(IMAGES))
    torchsummary.summary(model.float(), (3, 8, 12), device="cpu")
    # torchsummary counts weights and biases of layers; class token and positions are neither
    loose = model.embedding.class_token.numel() + model.embedding.pos_embedding.numel()
    assert f"Total params: {parameter_count(model) - loose:,}" in capsys.readouterr().out
