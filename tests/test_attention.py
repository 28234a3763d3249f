"""Lesson 03: scaled dot-product attention and multi-head self-attention."""

import math

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from support import assert_equal, randn, randomize_
from torch import nn

from vit_course import MultiHeadSelfAttention, scaled_dot_product_attention
from vit_course.attention import attention_weights


def attention(**changes) -> MultiHeadSelfAttention:
    return randomize_(MultiHeadSelfAttention(**dict(hidden_dim=12, num_heads=3) | changes))


def torchs(ours: MultiHeadSelfAttention) -> nn.MultiheadAttention:
    """Return torch's layer with our weights."""
    theirs = nn.MultiheadAttention(ours.hidden_dim, ours.num_heads, batch_first=True).double().eval()
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.out_proj.weight,
            "out_proj.bias": ours.out_proj.bias,
        }
    )
    return theirs


def test_attention_weights_by_hand():
    # one query [2, 0] and the keys [1, 5] and [0, 7], e = 2: scores 2 and 0, divided by sqrt(2)
    query, keys = torch.tensor([[[[2.0, 0.0]]]]), torch.tensor([[[[1.0, 5.0], [0.0, 7.0]]]])
    first = math.exp(2 / math.sqrt(2)) / (math.exp(2 / math.sqrt(2)) + 1)
    assert_equal(attention_weights(query, keys), torch.tensor([[[[first, 1 - first]]]]), atol=1e-6)


@pytest.mark.parametrize(("queries", "keys", "value_dim"), [(5, 5, 4), (3, 6, 4), (1, 1, 4), (4, 2, 7)])
def test_scaled_dot_product_attention_equals_torchs(queries, keys, value_dim):
    query, key, value = randn(2, 3, queries, 4), randn(2, 3, keys, 4, seed=2), randn(2, 3, keys, value_dim, seed=3)
    ours = scaled_dot_product_attention(query, key, value)
    assert_equal(ours, F.scaled_dot_product_attention(query, key, value))


def test_large_scores_do_not_overflow():
    query = torch.full((1, 1, 2, 4), 1e4)
    assert_equal(attention_weights(query, query), torch.full((1, 1, 2, 2), 0.5), atol=0)


@pytest.mark.parametrize(("hidden_dim", "num_heads"), [(12, 3), (12, 1), (12, 12), (10, 2)])
def test_equals_torchs_multihead_attention(hidden_dim, num_heads):
    ours = attention(hidden_dim=hidden_dim, num_heads=num_heads)
    theirs = torchs(ours)
    x = randn(2, 5, hidden_dim)
    out, per_head = theirs(x, x, x, average_attn_weights=False)
    averaged = theirs(x, x, x)[1]
    assert_equal(ours(x), out)
    assert_equal(ours.attention_weights(x), per_head)
    assert_equal(ours.attention_weights(x).mean(dim=1), averaged)


def test_fused_and_written_out_forms_agree():
    ours = attention()
    x = randn(2, 5, 12)
    value = rearrange(ours.qkv(x)[..., 24:], "b s (heads e) -> b heads s e", heads=3)
    written_out = rearrange(ours.attention_weights(x) @ value, "b heads s e -> b s (heads e)")
    assert_equal(ours(x), ours.out_proj(written_out))


def test_a_single_token_looks_at_itself():
    ours = attention()
    x = randn(2, 1, 12)
    assert_equal(ours.attention_weights(x), torch.ones(2, 3, 1, 1).double())
    assert_equal(ours(x), ours.out_proj(ours.qkv(x)[..., 24:]))


def test_permuted_tokens_give_permuted_outputs():
    ours = attention()
    x, order = randn(2, 5, 12), torch.tensor([3, 0, 4, 1, 2])
    assert_equal(ours(x[:, order]), ours(x)[:, order])
    assert_equal(ours.attention_weights(x[:, order]), ours.attention_weights(x)[:, :, order][..., order])


def test_attention_weights_are_whole_before_any_dropout():
    ours = attention(attention_dropout=0.9)
    x = randn(2, 5, 12)
    in_eval = ours.attention_weights(x)
    in_training = ours.train().attention_weights(x)
    assert_equal(in_training, in_eval, atol=0)
    assert_equal(in_training.sum(dim=-1), torch.ones(2, 3, 5).double())
    assert in_training.min() > 0


def test_attention_dropout_acts_on_the_weights_in_training_and_not_in_eval():
    # One token: its one weight is 1. Dropped, the head gives zeros; kept at p = 0.5, twice its values.
    ours = attention(attention_dropout=0.5)
    nn.init.eye_(ours.out_proj.weight)
    nn.init.zeros_(ours.out_proj.bias)
    x = randn(400, 1, 12)
    in_eval = attention_values = ours(x)
    assert_equal(in_eval, ours.qkv(x)[..., 24:])
    in_training = rearrange(ours.train()(x), "b 1 (heads e) -> b heads e", heads=3)
    kept = in_training[..., :1] != 0
    doubled = 2 * rearrange(attention_values, "b 1 (heads e) -> b heads e", heads=3)
    assert 0.45 < kept.double().mean() < 0.55
    assert_equal(in_training, torch.where(kept, doubled, 0))


def test_every_weight_has_a_gradient_but_the_key_bias():
    # a key bias adds the same number to all scores of a query, and softmax takes it away again
    ours = attention()
    (ours(randn(2, 5, 12)) * randn(2, 5, 12, seed=2)).sum().backward()
    query_bias, key_bias, value_bias = ours.qkv.bias.grad.chunk(3)
    assert key_bias.abs().max() < 1e-13
    for gradient in (query_bias, value_bias, ours.qkv.weight.grad, ours.out_proj.weight.grad, ours.out_proj.bias.grad):
        assert gradient.abs().min() > 1e-6


def test_starts_xavier_uniform_with_zero_biases():
    ours = MultiHeadSelfAttention(hidden_dim=96, num_heads=3)
    for linear in (ours.qkv, ours.out_proj):
        bound = math.sqrt(6 / (linear.in_features + linear.out_features))
        weight = linear.weight.detach()
        assert 0.99 * bound < weight.abs().max() <= bound
        assert abs(weight.std() - bound / math.sqrt(3)) < 0.02 * bound
        assert linear.bias.count_nonzero() == 0
