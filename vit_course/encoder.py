"""Lesson 04: the MLP, the encoder block and the encoder (Section 3.1, Eq. 2-4)."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from vit_course import arguments
from vit_course.attention import MultiHeadSelfAttention


class MLPBlock(nn.Module):
    """The MLP of Eq. 3: two linear layers with an exact GELU between them, each followed by dropout.

    Args:
        hidden_dim: width ``d`` of a token.
        mlp_dim: width of the hidden layer, 4 d in the paper's models.
        dropout: probability in [0, 1).

    Raises:
        ValueError: a width is not a positive whole number, or the dropout is outside [0, 1).

    Differs from torchvision: biases start at zero instead of N(0, 1e-12).
    """

    def __init__(self, *, hidden_dim: int, mlp_dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        arguments.whole_number("hidden_dim", hidden_dim)
        arguments.whole_number("mlp_dim", mlp_dim)
        arguments.probability("dropout", dropout)
        self.linear_1 = nn.Linear(hidden_dim, mlp_dim)
        nn.init.xavier_uniform_(self.linear_1.weight)
        nn.init.zeros_(self.linear_1.bias)
        self.linear_2 = nn.Linear(mlp_dim, hidden_dim)
        nn.init.xavier_uniform_(self.linear_2.weight)
        nn.init.zeros_(self.linear_2.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d"]:
        """Transform each token separately."""
        arguments.shaped("x", x, "b s d", (None, None, self.linear_1.in_features))
        x = self.dropout(F.gelu(self.linear_1(x)))
        return self.dropout(self.linear_2(x))


class EncoderBlock(nn.Module):
    """Eq. 2 and 3: attention and then an MLP, each preceded by a LayerNorm and added to the residual stream.

    Args:
        hidden_dim, num_heads, attention_dropout: see :class:`MultiHeadSelfAttention`.
        mlp_dim: width of the MLP's hidden layer.
        dropout: probability in [0, 1), on both branches and inside the MLP, but not on the residual stream.
    """

    def __init__(
        self, *, hidden_dim: int, num_heads: int, mlp_dim: int, dropout: float = 0.0, attention_dropout: float = 0.0
    ) -> None:
        super().__init__()
        arguments.whole_number("hidden_dim", hidden_dim)
        arguments.probability("dropout", dropout)
        self.ln_1 = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.self_attention = MultiHeadSelfAttention(
            hidden_dim=hidden_dim, num_heads=num_heads, attention_dropout=attention_dropout
        )
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(hidden_dim, eps=1e-6)
        self.mlp = MLPBlock(hidden_dim=hidden_dim, mlp_dim=mlp_dim, dropout=dropout)

    def forward(self, x: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d"]:
        """Apply attention and the MLP once, each with its residual connection."""
        x = x + self.dropout(self.self_attention(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """``num_layers`` blocks and the final LayerNorm (the LN of Eq. 4, here for all tokens).

    Args:
        num_layers: number of blocks.
        hidden_dim, num_heads, mlp_dim, dropout, attention_dropout: see :class:`EncoderBlock`.

    Raises:
        ValueError: ``num_layers`` is not a positive whole number, or an argument does not fit :class:`EncoderBlock`.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        hidden_dim: int,
        num_heads: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        arguments.whole_number("num_layers", num_layers)
        options = dict(num_heads=num_heads, mlp_dim=mlp_dim, dropout=dropout, attention_dropout=attention_dropout)
        self.layers = nn.ModuleList(EncoderBlock(hidden_dim=hidden_dim, **options) for _ in range(num_layers))
        self.ln = nn.LayerNorm(hidden_dim, eps=1e-6)

    def forward(self, x: Float[Tensor, "b s d"]) -> Float[Tensor, "b s d"]:
        """Apply all blocks and then the final LayerNorm."""
        for layer in self.layers:
            x = layer(x)
        return self.ln(x)
