"""Cases 7 to 12 of the bug clinic."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from vit_course.checks import twins
from vit_course.checks.clinic.repair import repair
from vit_course.checks.compare import formula
from vit_course.checks.engine import Case, call
from vit_course.checks.verdict import fail


def rebuild_case(label: str, orders: list[list[int]], visible: int) -> Case:
    """Return visible and predicted patches of images with these orders of the patches."""
    order, n = torch.tensor(orders), len(orders[0])
    patches = formula(len(orders), n, 3)
    return Case(label, (patches[:, :visible], patches[:, visible:], order[:, :visible], order[:, visible:]),
                fault="clinic.out_of_place")  # fmt: skip


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
    Case("images from -0.8 to 0.4", (0.6 * formula(2, 3, 8, 8) - 0.2, 2, 3)),
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


BACKGROUND = formula(2, 1, 8, 16).where(torch.arange(16) % 4 == 0, 0.5)

MIXES = [
    Case("a wide image, a box at its border", (formula(2, 1, 8, 16), 0.5, 3, 1)),
    Case("a square image, a box in the middle", (formula(3, 2, 9, 9), 0.4, 4, 4)),
    Case("a tall image, a box in a corner", (formula(2, 1, 12, 5), 0.2, 11, 4)),
    Case("two images with the same background", (BACKGROUND, 0.5, 3, 1)),
]


def allowed(function: Callable, case: Case) -> object:
    """Return the learner's mask, which must be one of True and False."""
    mask = call(function, case)
    if isinstance(mask, Tensor) and mask.dtype != torch.bool:
        raise fail("clinic.not_boolean", came=mask.dtype)
    return mask


def window_case(size: int, window: int, shift: int) -> Case:
    """Return a square grid of tokens, cut into square windows."""
    label = f"{size} × {size} tokens, windows of {window}, shifted by {shift}"
    return Case(label, kwargs=dict(size=size, window=window, shift=shift), fault="clinic.other_pairs")


WINDOWS = [window_case(8, 4, 2), window_case(9, 3, 1)]


def settings(function: Callable, case: Case) -> Tensor:
    """Return scale and weight decay of the parameters of a ViT."""
    blocks = case.kwargs["num_blocks"]
    tokens = [("cls_token", 3), ("reg_token", 3), ("pos_embed", 3)]
    layers = [("patch_embed.proj.weight", 4), ("patch_embed.proj.bias", 1), ("norm.weight", 1), ("head.weight", 2)]
    inside = [
        (f"blocks.{k}.{name}", ndim) for k in range(blocks) for name, ndim in [("qkv.weight", 2), ("qkv.bias", 1)]
    ]
    return torch.tensor([function(name, ndim, blocks) for name, ndim in tokens + layers + inside])


ROWS = "rows cls_token, reg_token, pos_embed, …; columns factor, weight decay"
DEPTHS = [Case(f"{blocks} blocks ({ROWS})", kwargs=dict(num_blocks=blocks)) for blocks in (12, 3)]

SECOND = [
    repair("rebuild", "rebuild_patches", twins.rebuild_patches, [ORDERS], "rebuild_patches"),
    repair("colors", "color_labels", twins.color_labels, [PAINTED], "color_labels", gradients=False),
    repair("rotary", "rotate_pairs", twins.rotate_pairs, [ROTATED], "rotate_pairs"),
    repair("cutmix", "cutmix", twins.cutmix, [MIXES], "cutmix", run=mixed, gradients=False),
    repair("windows", "window_mask", twins.window_mask, [WINDOWS], "window_mask", run=allowed, gradients=False),
    repair(
        "registers", "layer_settings", twins.layer_settings, [DEPTHS], "layer_settings", run=settings, gradients=False
    ),
]
