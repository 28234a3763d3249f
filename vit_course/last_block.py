"""The same logits with less work: in the last block, only the token that the head reads."""

import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn


def logits_with_short_last_block(model: nn.Module, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
    """Return ``model(images)``, apart from rounding and from the random numbers that dropout draws.

    All tokens of the last block are keys and values, but only the class token passes through the rest of it. The
    training command runs its model in this way, except on smaller images.

    Args:
        model: a Vision Transformer whose modules have the course's names; with ``pool="mean"``, it runs as it is.
        images: images of the model's size.
    """
    if model.pool != "token":
        return model(images)
    *blocks, last = model.encoder.layers
    tokens = model.embedding(images)
    for block in blocks:
        tokens = block(tokens)
    attention = last.self_attention
    thirds, pattern = attention.qkv(last.ln_1(tokens)).chunk(3, dim=-1), "b s (heads e) -> b heads s e"
    query, key, value = (rearrange(third, pattern, heads=attention.num_heads) for third in thirds)
    dropout = attention.attention_dropout if attention.training else 0.0
    out = F.scaled_dot_product_attention(query[:, :, :1], key, value, dropout_p=dropout)
    out = attention.out_proj(rearrange(out, "b heads s e -> b s (heads e)"))
    token = tokens[:, :1] + last.dropout(out)
    token = token + last.mlp(last.ln_2(token))
    return model.head(model.encoder.ln(token)[:, 0])
