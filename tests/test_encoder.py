"""Lesson 04: the MLP, the encoder block and the encoder."""

import math

import pytest
import torch
from support import assert_equal, randn, randomize_
from torch import nn

from vit_course import Encoder, EncoderBlock, MLPBlock

WIDTHS = dict(hidden_dim=12, num_heads=3, mlp_dim=20)


def block(**changes) -> EncoderBlock:
    return randomize_(EncoderBlock(**WIDTHS | changes))


def without(*linears: nn.Linear) -> None:
    """Set layers to zero, so that the branch behind which they stand adds nothing."""
    for linear in linears:
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)


def torchs_layer() -> nn.TransformerEncoderLayer:
    """Return torch's encoder layer, set to what the paper does."""
    options = dict(norm_first=True, activation="gelu", layer_norm_eps=1e-6, batch_first=True, dropout=0.0)
    return nn.TransformerEncoderLayer(12, 3, 20, **options).double()


def torchs_names(ours: nn.Module) -> dict[str, torch.Tensor]:
    """Return our state dict under torch's names."""
    renamed = {
        "ln_1": "norm1",
        "ln_2": "norm2",
        "self_attention.qkv.": "self_attn.in_proj_",
        "self_attention": "self_attn",
        "mlp.linear_1": "linear1",
        "mlp.linear_2": "linear2",
    }
    state = {}
    for name, value in ours.state_dict().items():
        for our_word, their_word in renamed.items():
            name = name.replace(our_word, their_word)
        state["norm" + name[2:] if name.startswith("ln.") else name] = value
    return state


def test_mlp_is_two_linear_layers_with_exact_gelu_between():
    mlp = randomize_(MLPBlock(hidden_dim=12, mlp_dim=20))
    x = randn(2, 5, 12)
    hidden = x @ mlp.linear_1.weight.T + mlp.linear_1.bias
    gelu = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    assert_equal(mlp(x), gelu @ mlp.linear_2.weight.T + mlp.linear_2.bias)


def test_block_equals_torchs_encoder_layer():
    ours, theirs = block(), torchs_layer()
    theirs.load_state_dict(torchs_names(ours))
    # training mode keeps torch from its fast path, and there is no dropout
    assert_equal(ours.train()(x := randn(2, 5, 12)), theirs.train()(x))


@pytest.mark.parametrize("num_layers", [1, 3])
def test_encoder_equals_torchs_encoder(num_layers):
    ours = randomize_(Encoder(num_layers=num_layers, **WIDTHS))
    final_norm = nn.LayerNorm(12, eps=1e-6).double()
    theirs = nn.TransformerEncoder(torchs_layer(), num_layers, norm=final_norm, enable_nested_tensor=False)
    theirs.load_state_dict(torchs_names(ours))
    assert_equal(ours(x := randn(2, 5, 12)), theirs(x))


def test_layer_norms_use_a_small_epsilon():
    # with values of this size epsilon decides what comes out
    ours = Encoder(num_layers=1, **WIDTHS).double()
    x = 1e-3 * randn(1, 2, 12)
    for norm in (ours.ln, ours.layers[0].ln_1, ours.layers[0].ln_2):
        deviations = x - x.mean(dim=-1, keepdim=True)
        variance = deviations.square().mean(dim=-1, keepdim=True)
        assert_equal(norm(x), deviations / (variance + 1e-6).sqrt())


def test_attention_maps_are_those_of_each_block_on_its_own_input():
    ours = randomize_(Encoder(num_layers=3, **WIDTHS))
    inputs = []
    for layer in ours.layers:
        layer.self_attention.register_forward_pre_hook(lambda module, args: inputs.append((module, args[0])))
    ours(x := randn(2, 5, 12))
    expected = [module.attention_weights(normalised) for module, normalised in inputs]
    assert len(expected) == 3
    assert_equal(ours.attention_maps(x), expected)


# Dropout: on the branches, never on the residual stream


def test_the_residual_stream_is_never_dropped():
    ours = block(dropout=0.9, attention_dropout=0.9).train()
    without(ours.self_attention.out_proj, ours.mlp.linear_2)
    x = randn(8, 5, 12)
    assert_equal(ours(x), x, atol=0)


def test_almost_certain_dropout_leaves_the_stream():
    ours = block(dropout=1 - 1e-12).train()
    x = randn(8, 5, 12)
    assert_equal(ours(x), x, atol=0)


@pytest.mark.parametrize("branch", ["attention", "mlp"])
def test_dropout_acts_on_each_branch_in_training_only(branch):
    ours, undropped = block(dropout=0.5), block()
    for each in (ours, undropped):
        without(each.mlp.linear_2 if branch == "attention" else each.self_attention.out_proj)
    x = randn(40, 5, 12)
    assert_equal(ours(x), undropped(x), atol=0)
    added = ours.train()(x) - x
    kept = added != 0
    assert 0.45 < kept.double().mean() < 0.55
    if branch == "attention":  # the MLP's is dropped twice, see below
        assert_equal(added, torch.where(kept, 2 * (undropped(x) - x), 0))


def test_mlp_drops_after_each_of_its_layers():
    # the second layer copies: a value comes through both dropouts, times 2 * 2, in one case of four
    mlp = randomize_(MLPBlock(hidden_dim=12, mlp_dim=12, dropout=0.5))
    without(mlp.linear_2)
    nn.init.eye_(mlp.linear_2.weight)
    x = randn(80, 5, 12)
    in_eval = mlp(x)
    dropped = mlp.train()(x)
    kept = dropped != 0
    assert 0.22 < kept.double().mean() < 0.28
    assert_equal(dropped, torch.where(kept, 4 * in_eval, 0))


def test_permuted_tokens_give_permuted_outputs():
    ours = randomize_(Encoder(num_layers=2, **WIDTHS))
    x, order = randn(2, 5, 12), torch.tensor([3, 0, 4, 1, 2])
    assert_equal(ours(x[:, order]), ours(x)[:, order])


# Initial values


def test_layers_start_xavier_uniform_with_zero_biases_and_norms_as_identity():
    ours = Encoder(num_layers=2, hidden_dim=48, num_heads=3, mlp_dim=192)
    linears = [module for module in ours.modules() if isinstance(module, nn.Linear)]
    norms = [module for module in ours.modules() if isinstance(module, nn.LayerNorm)]
    assert (len(linears), len(norms)) == (8, 5)
    for linear in linears:
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        assert 0.98 * bound < linear.weight.abs().max() <= bound
        assert linear.bias.count_nonzero() == 0
    for norm in norms:
        assert norm.weight.eq(1).all()
        assert norm.bias.count_nonzero() == 0


def test_every_layer_has_weights_of_its_own():
    first, second = Encoder(num_layers=2, **WIDTHS).layers
    assert not torch.equal(first.mlp.linear_1.weight, second.mlp.linear_1.weight)
    assert {id(weight) for weight in first.parameters()}.isdisjoint(id(weight) for weight in second.parameters())
