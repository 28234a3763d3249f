"""Lesson 09: what is measured inside a model, each against a computation of another kind."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from support import SMALL, assert_equal, parameters_of, randn, small_model

from vit_course import inside

IMAGES = randn(5, 3, 8, 12)  # layers, heads, images and tokens all have different numbers below


def model_with(**changes):
    return small_model(**dict(num_layers=3, num_heads=4) | changes)


@torch.no_grad()
def test_attention_maps_are_those_before_any_dropout_and_leave_no_hook():
    model = model_with(attention_dropout=0.9).train()
    inputs = []
    hook = model.encoder.layers[0].register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    first = inside.attention_maps(model, IMAGES)[0]
    hook.remove()
    layer = model.encoder.layers[0]
    tokens = layer.ln_1(inputs[0])
    query, key = (
        F.linear(tokens, layer.self_attention.qkv.weight[i : i + 4], layer.self_attention.qkv.bias[i : i + 4])
        for i in (4, 20)
    )  # head 1 of 4, each 4 wide
    assert_equal(first[:, 1], (query @ key.mT / 2).softmax(dim=-1))
    assert not any(layer.self_attention._forward_pre_hooks for layer in model.encoder.layers)


@pytest.mark.parametrize("sizes", [dict(hidden_dim=64), dict(in_channels=1), dict(in_channels=1, patch_size=2)])
def test_components_are_the_eigenvectors_of_the_covariance(sizes):
    model = small_model(**sizes)
    projection = model.embedding.patch_embedding.projection
    p, c = sizes.get("patch_size", 4), sizes.get("in_channels", 3)
    count = min(min(projection.weight.shape) - 1, 5)
    variances, directions = torch.linalg.eigh(torch.cov(projection.weight.detach().T))  # the smallest first
    components, shares = inside.projection_components(model, count)
    assert components.shape == (count, c, p, p)
    assert_equal(shares, variances.flip(0)[:count] / variances.sum())
    flat = components.flatten(1)
    assert_equal((flat @ directions.flip(1)[:, :count]).abs(), torch.eye(count, dtype=torch.float64), atol=1e-7)
    assert torch.equal(flat.abs().max(dim=1).values, flat.max(dim=1).values)


def test_layer_tokens_are_what_the_parts_of_the_model_hand_on():
    model, seen = model_with(), []
    for part in [model.embedding, *model.encoder.layers]:
        part.register_forward_hook(lambda module, given, result: seen.append(result.detach()))
    model(IMAGES)
    expected = list(seen)
    assert_equal(inside.layer_tokens(model, IMAGES), expected, atol=0)


@torch.no_grad()
def logits_without(model, images, silent):
    """Classify with every head on its own: softmax, mix, project by its columns; silent ones are passed over."""
    x = model.embedding(images)
    for number, layer in enumerate(model.encoder.layers):
        attention, normed = layer.self_attention, layer.ln_1(x)
        d, e = attention.qkv.in_features, attention.qkv.in_features // attention.num_heads
        added = attention.out_proj.bias.expand_as(x)
        for head in range(attention.num_heads):
            rows = [slice(third * d + head * e, third * d + (head + 1) * e) for third in range(3)]
            q, k, v = (F.linear(normed, attention.qkv.weight[row], attention.qkv.bias[row]) for row in rows)
            mixed = torch.softmax(torch.einsum("bie,bje->bij", q, k) / math.sqrt(e), dim=-1) @ v
            if (number, head) not in silent:
                added = added + mixed @ attention.out_proj.weight.T[head * e : (head + 1) * e]
        x = x + added
        x = x + layer.mlp(layer.ln_2(x))
    return model.head(model.encoder.ln(x)[:, 0])


@pytest.mark.parametrize("heads", [[], [(1, 3), (2, 0), (1, 1)], {(0, 2)}, [(2, 1)] * 2])
def test_a_silenced_head_adds_nothing(heads):
    model = model_with()
    silent = inside.silence_heads(model, heads)
    assert_equal(silent(IMAGES).detach(), logits_without(model, IMAGES, heads))


@pytest.mark.parametrize("training", [True, False])
def test_the_model_itself_is_left_alone(training):
    model = model_with(dropout=0.1).train(training)
    before = parameters_of(model)
    silent = inside.silence_heads(model, [(0, 1), (2, 2)])
    assert all(part.training == training for each in (model, silent) for part in each.modules())
    changed = [name for name, value in parameters_of(silent).items() if not torch.equal(value, before[name])]
    assert changed == [f"encoder.layers.{layer}.self_attention.out_proj.weight" for layer in (0, 2)]
    assert all(parameter.requires_grad for parameter in silent.parameters())
    with torch.no_grad():
        for parameter in silent.parameters():
            parameter.add_(1)  # nothing is shared
    assert_equal(parameters_of(model), before, atol=0)


def test_ablation_counts_what_is_still_right():
    model, images = model_with(num_layers=2, num_heads=4, dropout=0.2), randn(40, 3, 8, 12)
    with torch.no_grad():
        model.head.bias -= model(images).mean(dim=0)  # no class is favored: a small change moves some images
    labels = model(images).argmax(dim=1)
    labels[::4] = (labels[::4] + 1) % SMALL["num_classes"]  # three quarters right, with every head
    expected = torch.empty(2, 4)
    for pair in itertools.product(range(2), range(4)):
        expected[pair] = (logits_without(model, images, {pair}).argmax(dim=1) == labels).float().mean()
    assert_equal(inside.head_ablation(model.train(), images, labels), expected, atol=1e-7)
    assert model.training
    assert len(expected.unique()) > 3
