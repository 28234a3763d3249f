"""Augmentation in tensors, image by image, for the training command; lesson 06 shifts a whole batch instead."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vit_course import arguments


def random_flip(images: Float[Tensor, "b c h w"], generator: torch.Generator) -> Float[Tensor, "b c h w"]:
    """Mirror every image left to right with probability one half."""
    arguments.float_tensor("images", images, "b c h w")
    flips = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(rearrange(flips, "b -> b 1 1 1").to(images.device), images.flip(-1), images)


def random_crop(images: Float[Tensor, "b c h w"], padding: int, generator: torch.Generator) -> Float[Tensor, "b c h w"]:
    """Shift every image on its own, by up to ``padding`` pixels each way; what comes in repeats the edge.

    Args:
        images: ``(b, c, h, w)``.
        padding: pixels put around the image before a window of its size is cut out at random.
        generator: draws the windows, on the CPU whatever the images' device.
    """
    b, c, h, w = arguments.float_tensor("images", images, "b c h w").shape
    padding = arguments.whole_number("padding", padding, minimum=0)
    top, left = torch.randint(2 * padding + 1, (2, b, 1), generator=generator).to(images.device)
    rows = rearrange(top + torch.arange(h, device=images.device), "b h -> b 1 h 1")
    columns = rearrange(left + torch.arange(w, device=images.device), "b w -> b 1 1 w")
    batch = torch.arange(b, device=images.device).view(b, 1, 1, 1)
    channel = torch.arange(c, device=images.device).view(1, c, 1, 1)
    return F.pad(images, [padding] * 4, mode="replicate")[batch, channel, rows, columns]
