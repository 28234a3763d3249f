"""Lesson 03: multi-head self-attention (Appendix A, Eq. 5-8)."""

import torch.nn.functional as F
from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_course import arguments


def attention_weights(
    query: Float[Tensor, "b heads i e"], key: Float[Tensor, "b heads j e"]
) -> Float[Tensor, "b heads i j"]:
    """Eq. 6: ``A = softmax(q kᵀ / √e)``, with the softmax over the key tokens ``j``, so that every row sums to 1.

    Raises:
        ValueError: a tensor does not have four axes, or the key does not fit the query.
    """
    arguments.float_tensor("query", query, "b heads i e")
    arguments.shaped("key", key, "b heads j e", (*query.shape[:2], None, query.shape[-1]))
    scores = einsum(query, key, "b heads i e, b heads j e -> b heads i j")
    return (scores * query.shape[-1] ** -0.5).softmax(dim=-1)


def scaled_dot_product_attention(
    query: Float[Tensor, "b heads i e"], key: Float[Tensor, "b heads j e"], value: Float[Tensor, "b heads j v"]
) -> Float[Tensor, "b heads i v"]:
    """Eq. 7: ``A v``, the mean of the values for every query token, weighted by attention, written out step by step.

    Equal to ``torch.nn.functional.scaled_dot_product_attention``. Key and value may have more or fewer tokens.

    Raises:
        ValueError: the axes of the tensors do not fit together.
    """
    weights = attention_weights(query, key)
    arguments.shaped("value", value, "b heads j v", (*key.shape[:3], None))
    return einsum(weights, value, "b heads i j, b heads j v -> b heads i v")


class MultiHeadSelfAttention(nn.Module):
    """Eq. 5-8: queries, keys and values for every head, attention, merged heads, and the output projection.

    Args:
        hidden_dim: width ``d`` of a token.
        num_heads: number of heads; divides ``hidden_dim``, and each head has the width ``e = d / heads``.
        attention_dropout: probability in [0, 1) of dropping an attention weight in training.

    Raises:
        ValueError: a size or a dropout is out of range, or ``num_heads`` does not divide ``hidden_dim``.

    Differs from torchvision: a layer ``qkv`` instead of a bare ``in_proj_weight``; both are ``(three heads e)``.
    """

    def __init__(self, *, hidden_dim: int, num_heads: int, attention_dropout: float = 0.0) -> None:
        super().__init__()
        arguments.whole_number("hidden_dim", hidden_dim)
        arguments.whole_number("num_heads", num_heads)
        arguments.divisible("hidden_dim", hidden_dim, "num_heads", num_heads)
        arguments.probability("attention_dropout", attention_dropout)
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim)
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)
        self.out_proj = nn.Linear(hidden_dim, hidden_dim)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d"]:
        """Let every token attend to all tokens, with PyTorch's fused attention."""
        arguments.shaped("x", x, "b s d", (None, None, self.qkv.in_features))
        thirds = self.qkv(x).chunk(3, dim=-1)  # first: the backward pass copies once instead of twice
        pattern = "b s (heads e) -> b heads s e"
        query, key, value = (rearrange(third, pattern, heads=self.num_heads) for third in thirds)
        dropout = self.attention_dropout if self.training else 0.0
        out = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        return self.out_proj(rearrange(out, "b heads s e -> b s (heads e)"))
