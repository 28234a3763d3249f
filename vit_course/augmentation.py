"""Shifted, mirrored and smaller copies of training images, for lesson 06 and for the training command."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vit_course import arguments


def random_shift(images: Float[Tensor, "b c h w"], generator: torch.Generator) -> Float[Tensor, "b c h w"]:
    """Shift the whole batch by up to one pixel, down or up and right or left; the edge is repeated where needed."""
    arguments.float_tensor("images", images, "b c h w")
    h, w = images.shape[2:]
    top, left = torch.randint(3, (2,), generator=generator).tolist()
    return F.pad(images, [1, 1, 1, 1], mode="replicate")[:, :, top : top + h, left : left + w]


def random_crop(images: Float[Tensor, "b c h w"], padding: int, generator: torch.Generator) -> Float[Tensor, "b c h w"]:
    """Shift every image separately, by up to ``padding`` pixels each way; the edge is repeated where needed.

    The generator is always one of the CPU, on whichever device the images are.
    """
    arguments.float_tensor("images", images, "b c h w")
    arguments.whole_number("padding", padding, minimum=0)
    h, w = images.shape[2:]
    tops, lefts = torch.randint(2 * padding + 1, (2, len(images)), generator=generator)
    windows = F.pad(images, [padding] * 4, mode="replicate").unfold(2, h, 1).unfold(3, w, 1)  # all positions, a view
    return windows[torch.arange(len(images)), :, tops, lefts]


def random_flip(images: Float[Tensor, "b c h w"], generator: torch.Generator) -> Float[Tensor, "b c h w"]:
    """Mirror every image left to right with probability one half."""
    arguments.float_tensor("images", images, "b c h w")
    flips = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(rearrange(flips, "b -> b 1 1 1").to(images.device), images.flip(-1), images)


def shrunk(images: Float[Tensor, "b c h w"], side: int) -> Float[Tensor, "b c side side"]:
    """Return the images with another height and width, interpolated without aliasing."""
    return F.interpolate(images, size=(side, side), mode="bilinear", antialias=True)
