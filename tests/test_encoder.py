"""Lesson 04: the encoder. Its dropout is compared in test_checks.py."""

import math

import pytest
from support import assert_equal, randn, randomize_, torchs_names
from torch import nn

from vit_course import Encoder

WIDTHS = dict(hidden_dim=12, num_heads=3, mlp_dim=20)


@pytest.mark.parametrize("num_layers", [1, 3])
def test_encoder_equals_torchs_encoder(num_layers):
    ours, x = randomize_(Encoder(num_layers=num_layers, **WIDTHS)), randn(2, 5, 12)
    options = dict(norm_first=True, activation="gelu", layer_norm_eps=1e-6, batch_first=True, dropout=0.0)
    layer, final_norm = nn.TransformerEncoderLayer(12, 3, 20, **options), nn.LayerNorm(12, eps=1e-6)
    theirs = nn.TransformerEncoder(layer, num_layers, norm=final_norm, enable_nested_tensor=False).double()
    theirs.load_state_dict(torchs_names(ours))
    # training mode keeps torch from its fast path, and there is no dropout
    assert_equal(ours.train()(x), theirs.train()(x))


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
