"""Lesson 03: scaled dot-product attention and multi-head self-attention."""

import pytest
import torch.nn.functional as F
from einops import rearrange
from support import assert_equal, randn, randomize_, torchs_names
from torch import nn

from vit_course import MultiHeadSelfAttention, scaled_dot_product_attention
from vit_course.attention import attention_weights


def attention(**changes) -> MultiHeadSelfAttention:
    return randomize_(MultiHeadSelfAttention(**dict(hidden_dim=12, num_heads=3) | changes))


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
