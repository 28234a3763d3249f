"""Lesson 09: what is measured inside a model, each against a computation of another kind.

Attention maps and the tokens of the layers are compared in test_model.py.
"""

import copy
import itertools

import pytest
import torch
from support import SMALL, assert_equal, randn, small_model

from vit_course import inside

IMAGES = randn(5, 3, 8, 12)  # layers, heads, images and tokens all have different numbers below


def test_attention_maps_are_those_before_any_dropout_and_leave_no_hook():
    model = small_model(num_layers=1, attention_dropout=0.9)
    assert_equal(inside.attention_maps(model.train(), IMAGES), inside.attention_maps(model.eval(), IMAGES), atol=0)
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


@torch.no_grad()
def without_values(model, heads):
    """Return a copy of a model, 16 wide with 4 heads, in which every value of these heads is zero."""
    changed = copy.deepcopy(model)
    for layer, head in heads:
        for parameter in changed.encoder.layers[layer].self_attention.qkv.parameters():
            parameter[2 * 16 + 4 * head :][:4] = 0
    return changed


@pytest.mark.parametrize("heads", [[], [(1, 3), (2, 0), (1, 1)], {(0, 2)}, [(2, 1)] * 2])
def test_a_silenced_head_adds_nothing(heads):
    """That the model itself is left alone is shown in test_checks.py."""
    model = small_model(num_layers=3, num_heads=4)
    assert_equal(inside.silence_heads(model, heads)(IMAGES), without_values(model, heads)(IMAGES))


def test_ablation_counts_what_is_still_right():
    model, images = small_model(num_heads=4, dropout=0.2), randn(40, 3, 8, 12)
    with torch.no_grad():
        model.head.bias -= model(images).mean(dim=0)  # no class is favored: a small change moves some images
    labels = model(images).argmax(dim=1)
    labels[::4] = (labels[::4] + 1) % SMALL["num_classes"]  # three quarters right, with every head
    expected = torch.empty(2, 4)
    for pair in itertools.product(range(2), range(4)):
        expected[pair] = (without_values(model, [pair])(images).argmax(dim=1) == labels).float().mean()
    assert_equal(inside.head_ablation(model.train(), images, labels), expected, atol=1e-7)
    assert model.training
    assert len(expected.unique()) > 3
