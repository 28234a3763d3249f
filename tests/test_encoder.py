"""Lesson 04: the MLP, the encoder block and the encoder."""

import math

import pytest
from support import assert_dropped, assert_equal, randn, randomize_, torchs_names
from torch import nn

from vit_course import Encoder, EncoderBlock

WIDTHS = dict(hidden_dim=12, num_heads=3, mlp_dim=20)


def block(**changes) -> EncoderBlock:
    return randomize_(EncoderBlock(**WIDTHS | changes))


def zero_(*linears: nn.Linear) -> None:
    """Set the last layers of branches to zero, so that these branches add nothing."""
    for linear in linears:
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_encoder_equals_torchs_encoder(num_layers):
    ours, x = randomize_(Encoder(num_layers=num_layers, **WIDTHS)), randn(2, 5, 12)
    options = dict(norm_first=True, activation="gelu", layer_norm_eps=1e-6, batch_first=True, dropout=0.0)
    layer, final_norm = nn.TransformerEncoderLayer(12, 3, 20, **options), nn.LayerNorm(12, eps=1e-6)
    theirs = nn.TransformerEncoder(layer, num_layers, norm=final_norm, enable_nested_tensor=False).double()
    theirs.load_state_dict(torchs_names(ours))
    # training mode keeps torch from its fast path, and there is no dropout
    assert_equal(ours.train()(x), theirs.train()(x))


# Dropout: on the branches, never on the residual stream


def test_the_residual_stream_is_never_dropped():
    ours, x = block(dropout=0.9, attention_dropout=0.9).train(), randn(8, 5, 12)
    zero_(ours.self_attention.out_proj, ours.mlp.linear_2)
    assert_equal(ours(x), x, atol=0)


def test_dropout_acts_on_the_attention_branch_in_training_only():
    ours, undropped, x = block(dropout=0.5), block(), randn(40, 5, 12)
    for each in (ours, undropped):
        zero_(each.mlp.linear_2)
    assert_equal(ours(x), undropped(x), atol=0)
    assert_dropped(ours.train()(x) - x, undropped(x) - x)


def test_mlp_drops_after_each_of_its_layers_and_in_training_only():
    # the second layer copies: a value comes through both dropouts, times 2 * 2, in one case of four
    mlp, x = block(mlp_dim=12, dropout=0.5).mlp, randn(80, 5, 12)
    zero_(mlp.linear_2)
    nn.init.eye_(mlp.linear_2.weight)
    in_eval = mlp(x)
    assert in_eval.all()
    assert_dropped(mlp.train()(x), in_eval, kept=0.25, factor=4)


# Initial values


def test_layers_start_xavier_uniform_with_zero_biases_and_norms_as_identity():
    ours = Encoder(num_layers=2, hidden_dim=48, num_heads=3, mlp_dim=192)
    linears = [module for module in ours.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in ours.modules() if isinstance(module, nn.LayerNorm)]
    assert (len(linears), len(norms)) == (8, 5)
    for linear in linears:
        bound, weight = math.sqrt(6 / (linear.in_features + linear.out_features)), linear.weight.detach()
        assert 0.98 * bound < weight.abs().max() <= bound
        assert abs(weight.std() - bound / math.sqrt(3)) < 0.03 * bound
        assert linear.bias.count_nonzero() == 0
    for norm in norms:
        assert norm.weight.eq(1).all()
        assert norm.bias.count_nonzero() == 0
    weights = [linear.weight for linear in linears]
    assert len({weight.flatten()[0].item() for weight in weights}) == len(weights)  # each was drawn on its own
