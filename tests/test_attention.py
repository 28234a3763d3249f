"""Lesson 03: scaled dot-product attention and multi-head self-attention."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from support import assert_dropped, assert_equal, randn, randomize_, torchs_names
from torch import nn

from vit_course import MultiHeadSelfAttention, scaled_dot_product_attention
from vit_course.attention import attention_weights


def attention(**changes) -> MultiHeadSelfAttention:
    return randomize_(MultiHeadSelfAttention(**dict(hidden_dim=12, num_heads=3) | changes))


def test_large_scores_do_not_overflow():
    query = torch.full((1, 1, 2, 4), 1e4)
    assert_equal(attention_weights(query, query), torch.full((1, 1, 2, 2), 0.5), atol=0)


@pytest.mark.parametrize(("queries", "keys", "value_dim"), [(5, 5, 4), (3, 6, 4), (1, 1, 4), (4, 2, 7)])
def test_scaled_dot_product_attention_equals_torchs(queries, keys, value_dim):
    query, key, value = randn(2, 3, queries, 4), randn(2, 3, keys, 4, seed=2), randn(2, 3, keys, value_dim, seed=3)
    ours = scaled_dot_product_attention(query, key, value)
    assert_equal(ours, F.scaled_dot_product_attention(query, key, value))


@pytest.mark.parametrize(("hidden_dim", "num_heads", "tokens"), [(12, 3, 5), (12, 1, 5), (12, 12, 1), (10, 2, 4)])
def test_equals_torchs_multihead_attention(hidden_dim, num_heads, tokens):
    ours = attention(hidden_dim=hidden_dim, num_heads=num_heads)
    theirs = nn.MultiheadAttention(hidden_dim, num_heads, batch_first=True).double().eval()
    theirs.load_state_dict(torchs_names(ours))
    x = randn(2, tokens, hidden_dim)
    out, weights = theirs(x, x, x, average_attn_weights=False)
    assert_equal(ours(x), out)
    query, key, _ = rearrange(ours.qkv(x), "b s (three heads e) -> three b heads s e", three=3, heads=num_heads)
    assert_equal(attention_weights(query, key), weights)


def test_attention_dropout_acts_on_the_weights_in_training_and_not_in_eval():
    # One token: its one weight is 1. Dropped, the head gives zeros; kept at p = 0.5, twice its values.
    ours, x = attention(attention_dropout=0.5), randn(400, 1, 12)
    nn.init.eye_(ours.out_proj.weight)
    nn.init.zeros_(ours.out_proj.bias)
    values = ours.qkv(x)[..., 24:]
    assert_equal(ours(x), values)
    by_head = rearrange(ours.train()(x), "b 1 (heads e) -> b heads e", heads=3)
    assert_dropped(by_head, rearrange(values, "b 1 (heads e) -> b heads e", heads=3))
    assert torch.equal(by_head.any(dim=-1), by_head.all(dim=-1))  # a weight belongs to a whole head
