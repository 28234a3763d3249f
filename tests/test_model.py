"""Lesson 05: the Vision Transformer and its variants."""

import math

import pytest
import torch
import torch.nn.functional as F
import torchsummary
from support import SMALL, assert_equal, parameters_of, randn, small_model
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


def images(seed: int = 1) -> torch.Tensor:
    return randn(3, 3, 8, 12, seed=seed)


def on_meta(variant: str, **options) -> VisionTransformer:
    """Build a variant without memory for its weights."""
    with torch.device("meta"):
        return create_vit(variant, **options)


# Weights: names, shapes, counts


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_state_dict_has_the_names_and_shapes_that_others_rely_on(pool):
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
    for i in range(2):
        block = {
            "ln_1.weight": (d,),
            "ln_1.bias": (d,),
            "self_attention.qkv.weight": (3 * d, d),
            "self_attention.qkv.bias": (3 * d,),
            "self_attention.out_proj.weight": (d, d),
            "self_attention.out_proj.bias": (d,),
            "ln_2.weight": (d,),
            "ln_2.bias": (d,),
            "mlp.linear_1.weight": (mlp, d),
            "mlp.linear_1.bias": (mlp,),
            "mlp.linear_2.weight": (d, mlp),
            "mlp.linear_2.bias": (d,),
        }
        expected |= {f"encoder.layers.{i}.{name}": shape for name, shape in block.items()}
    model = small_model(pool=pool)
    assert {name: tuple(value.shape) for name, value in model.state_dict().items()} == expected
    assert dict(model.named_parameters()).keys() == expected.keys()  # all are trained


def test_every_variant_has_its_parameter_count_pinned():
    assert PARAMETER_COUNTS.keys() == VARIANTS.keys()


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameter_counts(variant):
    assert sum(parameter.numel() for parameter in on_meta(variant).parameters()) == PARAMETER_COUNTS[variant]


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants_keep_the_papers_proportions(variant):
    # what a parameter count cannot see: the patch size in the name, the number of heads
    sizes = VARIANTS[variant]
    assert sizes["patch_size"] == int(variant.split("/")[1])
    assert sizes["mlp_dim"] == 4 * sizes["hidden_dim"]
    assert sizes["hidden_dim"] / sizes["num_heads"] == (80 if variant == "H/14" else 64)


def test_create_vit_passes_every_option_on():
    options = dict(in_channels=1, dropout=0.1, attention_dropout=0.2, pool="mean")
    model = on_meta("Ti/16", image_size=(32, 48), num_classes=7, **options)
    assert model.pool == "mean"
    assert model.head.out_features == 7
    assert model.embedding.patch_embedding.in_channels == 1
    assert model.embedding.patch_embedding.grid_size == (2, 3)
    assert len(model.encoder.layers) == 12
    assert {module.p for module in model.modules() if isinstance(module, nn.Dropout)} == {0.1}
    heads = [module for module in model.modules() if isinstance(module, MultiHeadSelfAttention)]
    assert [(head.num_heads, head.attention_dropout) for head in heads] == [(3, 0.2)] * 12


# Initial values


def test_first_loss_is_exactly_ln_k():
    model = VisionTransformer(**SMALL).double()
    assert model.head.weight.count_nonzero() == model.head.bias.count_nonzero() == 0
    loss = F.cross_entropy(model(images()), torch.tensor([0, 4, 2]))
    assert loss.item() == pytest.approx(math.log(5), abs=1e-15)


def test_first_gradient_behind_the_head_is_zero():
    model = VisionTransformer(**SMALL).double()
    F.cross_entropy(model(images()), torch.tensor([0, 4, 2])).backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad.count_nonzero() > 0) == name.startswith("head."), name


def test_two_models_have_weights_of_their_own():
    first, second = VisionTransformer(**SMALL), VisionTransformer(**SMALL)
    before = parameters_of(second)
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.fill_(7.0)
    assert_equal(parameters_of(second), before, atol=0)
    drawn = [name for name, value in before.items() if "pos_embedding" in name or value.ndim == 2]
    another = parameters_of(VisionTransformer(**SMALL))
    same = [name for name in drawn if torch.equal(before[name], another[name])]
    assert same == ["head.weight"]  # zeros


# The forward pass


def test_token_pooling_reads_the_class_token_alone():
    model = small_model()
    features = model.forward_features(images())
    assert features.shape == (3, 7, 16)
    assert_equal(model(images()), features[:, 0] @ model.head.weight.T + model.head.bias)


def test_mean_pooling_ignores_the_class_tokens_output():
    model = small_model(pool="mean")
    patch_tokens = model.forward_features(images())[:, 1:]
    expected = sum(patch_tokens.unbind(dim=1)) / 6 @ model.head.weight.T + model.head.bias
    assert_equal(model(images()), expected)

    def spoil_the_class_token(module, args, tokens):
        return torch.cat([torch.full_like(tokens[:, :1], math.nan), tokens[:, 1:]], dim=1)

    model.encoder.register_forward_hook(spoil_the_class_token)
    assert_equal(model(images()), expected)


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_each_image_is_classified_on_its_own(pool):
    model = small_model(pool=pool)
    one_by_one = torch.cat([model(image[None]) for image in images()])
    assert one_by_one.std(dim=0).min() > 1e-3  # images do differ
    assert_equal(model(images()), one_by_one)


def test_an_empty_batch_gives_no_logits():
    assert small_model()(images()[:0]).shape == (0, 5)


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_without_positions_the_order_of_patches_does_not_matter(pool):
    model, order = small_model(pool=pool), torch.tensor([5, 2, 0, 4, 1, 3])
    shuffled = unpatchify(patchify(images(), 4)[:, order], patch_size=4, image_size=(8, 12))
    assert (model(shuffled) - model(images())).abs().max() > 1e-3
    nn.init.zeros_(model.embedding.pos_embedding)
    assert_equal(model(shuffled), model(images()))


def test_attention_maps_have_one_entry_a_layer_and_rows_that_sum_to_one():
    model = small_model(num_layers=3, dropout=0.9, attention_dropout=0.9)
    maps = model.attention_maps(images())
    assert [tuple(each.shape) for each in maps] == [(3, 2, 7, 7)] * 3
    for each in [*maps, *model.train().attention_maps(images())]:
        assert_equal(each.sum(dim=-1), torch.ones(3, 2, 7).double())
    assert not torch.allclose(maps[0], maps[1])


def test_inputs_are_not_modified():
    model = small_model(dropout=0.5).train()
    pixels, before = images(), images()
    model(pixels)
    model.attention_maps(pixels)
    assert_equal(pixels, before, atol=0)
    tokens, before = randn(2, 7, 16), randn(2, 7, 16)
    model.encoder(tokens)
    assert_equal(tokens, before, atol=0)


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_gradients_reach_every_parameter_but_the_key_biases(pool):
    model = small_model(pool=pool)
    F.cross_entropy(model(images()), torch.tensor([0, 4, 2])).backward()
    for name, parameter in model.named_parameters():
        gradient = parameter.grad.abs()
        if name.endswith("qkv.bias"):
            query, key, value = gradient.chunk(3)
            assert key.max() < 1e-12, name  # zero to rounding: softmax does not see a key bias
            assert min(query.min(), value.min()) > 1e-9, name
        else:
            assert gradient.min() > 1e-9, name


def test_dropout_makes_training_random_and_leaves_eval_alone():
    for option in ("dropout", "attention_dropout"):
        model = small_model(**{option: 0.5})
        assert_equal(model(images()), small_model()(images()), atol=0)
        model.train()
        assert not torch.equal(model(images()), model(images())), option


# Other people's containers and tools


WIDTHS = dict(hidden_dim=16, num_heads=2, mlp_dim=24)
IMAGE = dict(image_size=(8, 12), patch_size=4, hidden_dim=16)
PARTS = {
    "PatchEmbedding": (PatchEmbedding(**IMAGE), (3, 8, 12)),
    "ImageEmbedding": (ImageEmbedding(**IMAGE), (3, 8, 12)),
    "MultiHeadSelfAttention": (MultiHeadSelfAttention(hidden_dim=16, num_heads=2), (7, 16)),
    "MLPBlock": (MLPBlock(hidden_dim=16, mlp_dim=24), (7, 16)),
    "EncoderBlock": (EncoderBlock(**WIDTHS), (7, 16)),
    "Encoder": (Encoder(num_layers=2, **WIDTHS), (7, 16)),
    "VisionTransformer": (VisionTransformer(**SMALL), (3, 8, 12)),
}


@pytest.mark.parametrize("name", PARTS)
def test_sequential_takes_every_part(name):
    part, shape = PARTS[name]
    x = torch.randn(2, *shape)
    out = nn.Sequential(nn.Identity(), part, nn.Identity())(x)
    assert isinstance(out, torch.Tensor)
    assert_equal(out, part(x), atol=0)


def test_a_model_is_its_parts_in_a_row():
    class FirstToken(nn.Module):
        def forward(self, tokens):
            return tokens[:, 0]

    model = small_model()
    row = nn.Sequential(model.embedding, *model.encoder.layers, model.encoder.ln, FirstToken(), model.head)
    assert_equal(row(images()), model(images()))


@pytest.mark.parametrize("name", PARTS)
def test_torchsummary_takes_every_part(name, capsys):
    part, shape = PARTS[name]
    torchsummary.summary(part, shape, device="cpu")
    # torchsummary counts weights and biases of layers; class token and positions are neither
    loose = sum(value.numel() for key, value in part.named_parameters() if "token" in key or "pos_" in key)
    total = sum(value.numel() for value in part.parameters()) - loose
    assert f"Total params: {total:,}" in capsys.readouterr().out
