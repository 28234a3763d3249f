"""Lesson 04: what an encoder starts with. What it computes is compared in test_checks.py and test_parity.py."""

import math

from torch import nn

from vit_course import Encoder


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
