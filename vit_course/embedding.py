"""Lesson 02: from an image to a sequence of tokens (Section 3.1, Eq. 1)."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vit_course import arguments

Size = int | tuple[int, int]  # the side of a square image in pixels, or (height, width)


def patchify(images: Float[Tensor, "b c h w"], patch_size: int) -> Float[Tensor, "b n c*{patch_size}**2"]:
    """Cut images into square patches and flatten each one: x_p of Section 3.1.

    Args:
        patch_size: side ``p`` of a patch in pixels; divides ``h`` and ``w``.

    Returns:
        Patches row by row from the top left, each flattened as ``(c p1 p2)``.

    Raises:
        ValueError: ``images`` is not a float tensor with four axes, or ``patch_size`` does not divide ``h`` and ``w``.
    """
    arguments.divisible_images(images, patch_size)
    return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size)


def unpatchify(
    patches: Float[Tensor, "b n patch_dim"], *, patch_size: int, image_size: Size, channels: int = 3
) -> Float[Tensor, "b c h w"]:
    """Put patches back together into images, the exact inverse of :func:`patchify`.

    Args:
        patches: each flattened as ``(c p1 p2)``.
        patch_size: side ``p`` of a patch in pixels.
        image_size: side of the square image in pixels, or ``(height, width)``.
        channels: channels ``c`` of the image.

    Raises:
        ValueError: the number of patches, or of values in a patch, does not fit the sizes.
    """
    gh, gw = arguments.patch_grid(image_size, patch_size)
    arguments.whole_number("channels", channels)
    arguments.shaped("patches", patches, "b n patch_dim", (None, gh * gw, channels * patch_size**2))
    return rearrange(patches, "b (gh gw) (c p1 p2) -> b c (gh p1) (gw p2)", gh=gh, gw=gw, p1=patch_size, p2=patch_size)


class PatchEmbedding(nn.Module):
    """Linear projection of flattened patches: ``x_p E`` of Eq. 1.

    Args:
        image_size: side of the square image in pixels, or ``(height, width)``.
        patch_size: side of a patch in pixels; divides both sides of the image.
        hidden_dim: width ``d`` of a token, which is independent of the patch size.
        in_channels: channels ``c`` of the image.

    Raises:
        ValueError: a size is not a positive whole number, or ``patch_size`` does not divide ``image_size``.

    Differs from torchvision: ``Linear`` instead of ``Conv2d``; with the weight ``conv.weight.flatten(1)`` it is equal.
    """

    def __init__(self, *, image_size: Size, patch_size: int, hidden_dim: int, in_channels: int = 3) -> None:
        super().__init__()
        arguments.patch_grid(image_size, patch_size)
        arguments.whole_number("in_channels", in_channels)
        arguments.whole_number("hidden_dim", hidden_dim)
        height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
        self.image_size = (height, width)
        self.patch_size = patch_size
        self.in_channels = in_channels
        self.grid_size = (height // patch_size, width // patch_size)
        self.projection = nn.Linear(in_channels * patch_size**2, hidden_dim)
        nn.init.trunc_normal_(self.projection.weight, std=self.projection.in_features**-0.5)
        nn.init.zeros_(self.projection.bias)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        """Embed every patch. Raise a ``ValueError`` for images of another shape."""
        arguments.shaped("images", images, "b c h w", (None, self.in_channels, *self.image_size))
        return self.projection(patchify(images, self.patch_size))


class ImageEmbedding(nn.Module):
    """Eq. 1: ``z_0 = [x_class; x_p E] + E_pos``, the sequence of tokens for the encoder.

    Args:
        image_size, patch_size, hidden_dim, in_channels: see :class:`PatchEmbedding`.
        dropout: probability in [0, 1), applied after the positions are added.
    """

    def __init__(
        self, *, image_size: Size, patch_size: int, hidden_dim: int, in_channels: int = 3, dropout: float = 0.0
    ) -> None:
        super().__init__()
        arguments.probability("dropout", dropout)
        self.patch_embedding = PatchEmbedding(
            image_size=image_size, patch_size=patch_size, hidden_dim=hidden_dim, in_channels=in_channels
        )
        gh, gw = self.patch_embedding.grid_size
        self.class_token = nn.Parameter(torch.zeros(1, 1, hidden_dim))
        self.pos_embedding = nn.Parameter(torch.empty(1, gh * gw + 1, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b s d"]:
        """Turn images into ``s = n + 1`` tokens, the class token first."""
        patch_tokens = self.patch_embedding(images)
        class_token = self.class_token.expand(len(images), -1, -1)
        tokens = torch.cat([class_token, patch_tokens], dim=1)
        return self.dropout(tokens + self.pos_embedding)
