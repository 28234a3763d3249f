"""Cases 7 to 12 of the bug clinic."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vit_course.checks import twins
from vit_course.checks.clinic.repair import repair
from vit_course.checks.compare import formula
from vit_course.checks.engine import Case, call


def rebuild_case(label: str, orders: list[list[int]], visible: int) -> Case:
    """Return visible and predicted patches of images with these orders of the patches."""
    order, n = torch.tensor(orders), len(orders[0])
    patches = formula(len(orders), n, 3)
    return Case(label, (patches[:, :visible], patches[:, visible:], order[:, :visible], order[:, visible:]))


ORDERS = [
    rebuild_case("two images, 2 of 6 patches visible", [[3, 0, 5, 1, 4, 2], [1, 5, 0, 2, 3, 4]], 2),
    rebuild_case("one image, 3 of 5 patches visible", [[4, 2, 3, 0, 1]], 3),
]


def colorful(b: int, h: int, w: int) -> Tensor:
    """Return images from -1 to 1 with a white and a black corner."""
    images = formula(b, 3, h, w)
    images[..., :2, :2], images[..., -2:, -2:] = 1.0, -1.0
    return images


PAINTED = [
    Case("16 patches, 3 bits", (colorful(2, 8, 8), 2, 3)),
    Case("12 patches, 2 bits", (colorful(1, 6, 8), 2, 2)),
]

ROTATED = [
    Case("5 tokens, 8 features", (formula(2, 3, 5, 8), torch.tensor([0.0, 1.0, 2.0, 7.0, 40.0]))),
    Case("2 tokens, 4 features", (formula(1, 1, 2, 4), torch.tensor([3.0, 100.0]))),
]


class Mixed(NamedTuple):
    """What CutMix returns."""

    images: Tensor
    label_weight: float


def mixed(function: Callable, case: Case) -> object:
    """Return the learner's pair with names, and the weight as a number, for messages."""
    result = call(function, case)
    if not isinstance(result, tuple) or len(result) != 2:
        return result
    images, weight = result
    return Mixed(images, weight.item() if isinstance(weight, Tensor) and weight.numel() == 1 else weight)


MIXES = [
    Case("a wide image, a box at its border", (formula(2, 1, 8, 16), 0.5, 3, 1)),
    Case("a square image, a box in the middle", (formula(3, 2, 9, 9), 0.4, 4, 4)),
    Case("a tall image, a box in a corner", (formula(2, 1, 12, 5), 0.2, 11, 4)),
]

WINDOWS = [
    Case("8 × 8 tokens, windows of 4, shifted by 2", kwargs=dict(size=8, window=4, shift=2)),
    Case("9 × 9 tokens, windows of 3, shifted by 1", kwargs=dict(size=9, window=3, shift=1)),
]


def settings(function: Callable, case: Case) -> Tensor:
    """Return scale and weight decay of the parameters of a ViT."""
    blocks = case.kwargs["num_blocks"]
    tokens = [("cls_token", 3), ("reg_token", 3), ("pos_embed", 3)]
    layers = [("patch_embed.proj.weight", 4), ("patch_embed.proj.bias", 1), ("norm.weight", 1), ("head.weight", 2)]
    inside = [
        (f"blocks.{k}.{name}", ndim) for k in range(blocks) for name, ndim in [("qkv.weight", 2), ("qkv.bias", 1)]
    ]
    return torch.tensor([function(name, ndim, blocks) for name, ndim in tokens + layers + inside])


DEPTHS = [Case(f"{blocks} blocks", kwargs=dict(num_blocks=blocks)) for blocks in (12, 3)]

SECOND = [
    repair("rebuild", "rebuild_patches", twins.rebuild_patches, [ORDERS], "rebuild_patches"),
    repair("colors", "color_labels", twins.color_labels, [PAINTED], "color_labels", gradients=False),
    repair("rotary", "rotate_pairs", twins.rotate_pairs, [ROTATED], "rotate_pairs"),
    repair("cutmix", "cutmix", twins.cutmix, [MIXES], "cutmix", run=mixed, gradients=False),
    repair("windows", "window_mask", twins.window_mask, [WINDOWS], "window_mask", gradients=False),
    repair(
        "registers", "layer_settings", twins.layer_settings, [DEPTHS], "layer_settings", run=settings, gradients=False
    ),
]
