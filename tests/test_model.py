"""Lesson 05: the Vision Transformer and its variants."""

import math

import pytest
import torch
import torch.nn.functional as F
import torchsummary
from support import SMALL, assert_equal, images_of, parameter_count, parameters_of, small_model
from torch import nn

from vit_course import (
    VARIANTS,
    Encoder,
    EncoderBlock,
    ImageEmbedding,
    MLPBlock,
    MultiHeadSelfAttention,
    PatchEmbedding,
    VisionTransformer,
    create_vit,
    patchify,
    unpatchify,
)

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
both_poolings = pytest.mark.parametrize("pool", ["token", "mean"])


def on_meta(variant: str, **options) -> VisionTransformer:
    """Build a variant without memory for its weights."""
    with torch.device("meta"):
        return create_vit(variant, **options)


# Weights: names, shapes, counts


def test_state_dict_has_the_names_and_shapes_that_others_rely_on():
    p, d, mlp, k, n = 4, 16, 24, 5, 6  # those of the small model
    expected = {
        "embedding.patch_embedding.projection.weight": (d, 3 * p * p),
        "embedding.patch_embedding.projection.bias": (d,),
        "embedding.class_token": (1, 1, d),
        "embedding.pos_embedding": (1, n + 1, d),
        "encoder.ln.weight": (d,),
        "encoder.ln.bias": (d,),
        "head.weight": (k, d),
        "head.bias": (k,),
    }
    layers = {"self_attention.qkv": (3 * d, d), "self_attention.out_proj": (d, d)}
    layers |= {"mlp.linear_1": (mlp, d), "mlp.linear_2": (d, mlp), "ln_1": (d,), "ln_2": (d,)}
    for i in range(2):
        for name, shape in layers.items():
            expected |= {f"encoder.layers.{i}.{name}.weight": shape, f"encoder.layers.{i}.{name}.bias": shape[:1]}
    model = small_model()
    assert {name: tuple(value.shape) for name, value in model.state_dict().items()} == expected
    assert dict(model.named_parameters()).keys() == expected.keys()  # all are trained


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
    assert len(model.encoder.layers) == 12
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.1}
    heads = [module for module in model.modules() if isinstance(module, MultiHeadSelfAttention)]
    assert [(head.num_heads, head.attention_dropout) for head in heads] == [(3, 0.2)] * 12


# Initial values


def test_first_loss_is_exactly_ln_k_and_only_the_head_has_a_gradient():
    model = VisionTransformer(**SMALL).double()
    loss = F.cross_entropy(model(IMAGES), LABELS)
    assert loss.item() == pytest.approx(math.log(5), abs=1e-15)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad.count_nonzero() > 0) == name.startswith("head."), name


def test_two_models_share_no_weights():
    first, second = VisionTransformer(**SMALL), VisionTransformer(**SMALL)
    before = parameters_of(second)
    assert not torch.equal(first.embedding.pos_embedding, second.embedding.pos_embedding)
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.fill_(7.0)
    assert_equal(parameters_of(second), before, atol=0)


# The forward pass


def test_token_pooling_reads_the_class_token_alone():
    model = small_model()
    features = model.forward_features(IMAGES)
    assert features.shape == (3, 7, 16)
    assert_equal(model(IMAGES), features[:, 0] @ model.head.weight.T + model.head.bias)


def test_mean_pooling_reads_the_patch_tokens_alone():
    model = small_model(pool="mean")
    patch_tokens = model.forward_features(IMAGES)[:, 1:]
    expected = sum(patch_tokens.unbind(dim=1)) / 6 @ model.head.weight.T + model.head.bias
    assert_equal(model(IMAGES), expected)


@both_poolings
def test_each_image_is_classified_on_its_own(pool):
    model = small_model(pool=pool)
    one_by_one = torch.cat([model(image[None]) for image in IMAGES])
    assert one_by_one.std(dim=0).min() > 1e-3  # images do differ
    assert_equal(model(IMAGES), one_by_one)
    assert model(IMAGES[:0]).shape == (0, 5)


@both_poolings
def test_without_positions_the_order_of_patches_does_not_matter(pool):
    model, order = small_model(pool=pool), torch.tensor([5, 2, 0, 4, 1, 3])
    shuffled = unpatchify(patchify(IMAGES, 4)[:, order], patch_size=4, image_size=(8, 12))
    assert (model(shuffled) - model(IMAGES)).abs().max() > 1e-3
    nn.init.zeros_(model.embedding.pos_embedding)
    assert_equal(model(shuffled), model(IMAGES))


def test_attention_maps_have_one_entry_a_layer_and_rows_that_sum_to_one():
    model = small_model(num_layers=3, dropout=0.9, attention_dropout=0.9)
    maps = model.attention_maps(IMAGES)
    assert [tuple(each.shape) for each in maps] == [(3, 2, 7, 7)] * 3
    for each in [*maps, *model.train().attention_maps(IMAGES)]:
        assert_equal(each.sum(dim=-1), torch.ones(3, 2, 7).double())
    assert not torch.allclose(maps[0], maps[1])


@both_poolings
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


@pytest.mark.parametrize("option", ["dropout", "attention_dropout"])
def test_dropout_makes_training_random_and_leaves_eval_and_the_input_alone(option):
    model, images = small_model(**{option: 0.5}), IMAGES.clone()
    assert_equal(model(images), small_model()(images), atol=0)
    model.train()
    assert not torch.equal(model(images), model(images))
    assert_equal(images, IMAGES, atol=0)


# Other people's containers and tools


WIDTHS = dict(hidden_dim=16, num_heads=2, mlp_dim=24)
IMAGE = dict(image_size=(8, 12), patch_size=4, hidden_dim=16)
PARTS = {
    PatchEmbedding: (IMAGE, (3, 8, 12)),
    ImageEmbedding: (IMAGE, (3, 8, 12)),
    MultiHeadSelfAttention: (dict(hidden_dim=16, num_heads=2), (7, 16)),
    MLPBlock: (dict(hidden_dim=16, mlp_dim=24), (7, 16)),
    EncoderBlock: (WIDTHS, (7, 16)),
    Encoder: (dict(WIDTHS, num_layers=2), (7, 16)),
    VisionTransformer: (SMALL, (3, 8, 12)),
}


@pytest.mark.parametrize("part", PARTS)
def test_sequential_and_torchsummary_take_every_part(part, capsys):
    options, shape = PARTS[part]
    module, x = part(**options), torch.randn(2, *shape)
    assert_equal(nn.Sequential(nn.Identity(), module, nn.Identity())(x), module(x), atol=0)
    torchsummary.summary(module, shape, device="cpu")
    # torchsummary counts weights and biases of layers; class token and positions are neither
    loose = sum(value.numel() for key, value in module.named_parameters() if "token" in key or "pos_" in key)
    assert f"Total params: {parameter_count(module) - loose:,}" in capsys.readouterr().out


def test_a_model_is_its_parts_in_a_row():
    model = small_model()
    row = nn.Sequential(model.embedding, *model.encoder.layers, model.encoder.ln)
    assert_equal(model.head(row(IMAGES)[:, 0]), model(IMAGES))
