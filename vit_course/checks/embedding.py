"""Checks of lesson 02's parts, and of the cutting and putting back that ends lesson 01."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vit_course
from vit_course.checks.compare import formula
from vit_course.checks.declare import Case, declare
from vit_course.checks.dropout import RATE, draws
from vit_course.checks.modules import Mapping, build, own_names
from vit_course.checks.verdict import fail, refuse

# --- cutting and putting back ----------------------------------------------------------------------------------------

IMAGES = [
    Case("square images", (formula(2, 3, 6, 6), 2)),
    Case("rectangular images", (formula(2, 3, 6, 9), 3)),
    Case("one channel", (formula(2, 1, 8, 12), 4)),
    Case("one image with values from -3 to 3", (3 * formula(1, 3, 4, 8), 2)),
    Case("patches of one pixel", (formula(2, 3, 2, 3), 1)),
]

declare("patchify", vit_course.patchify, [IMAGES], stages=["patches"])

PATCHES = [
    Case("square images", (formula(2, 9, 12),), dict(patch_size=2, image_size=6)),
    Case("rectangular images, image_size=(6, 9)", (formula(2, 6, 27),), dict(patch_size=3, image_size=(6, 9))),
    Case("one channel", (formula(2, 8, 16),), dict(patch_size=4, image_size=(16, 8), channels=1)),
    Case(
        "one image with values from -3 to 3",
        (3 * formula(1, 8, 20),),
        dict(patch_size=2, image_size=(4, 8), channels=5),
    ),
    Case("patches of one pixel", (formula(2, 6, 3),), dict(patch_size=1, image_size=(2, 3))),
]
declare("unpatchify", vit_course.unpatchify, [PATCHES])

# --- projecting ------------------------------------------------------------------------------------------------------


def _sized(label: str, shape: tuple[int, ...], **options: object) -> Case:
    return Case(label, (formula(*shape),), options=options)


TO_EMBED = [
    _sized("square images", (2, 3, 6, 6), image_size=6, patch_size=2, hidden_dim=8),
    _sized("rectangular images, image_size=(6, 9)", (2, 3, 6, 9), image_size=(6, 9), patch_size=3, hidden_dim=5),
    _sized("one channel", (3, 1, 8, 4), image_size=(8, 4), patch_size=2, hidden_dim=7, in_channels=1),
    _sized("a batch of one", (1, 3, 4, 12), image_size=(4, 12), patch_size=4, hidden_dim=6),
]
MANY = dict(image_size=16, patch_size=2, hidden_dim=64)  # with eight images: tens of thousands of values
LAST = ("ln.weight", "encoder.ln.weight", "head.weight")  # what comes after all blocks: it changes little where it is 1
NORMALIZATIONS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)


def _never_normalizes(cls: type[nn.Module], mapping: Mapping) -> None:
    for name, layer in build(cls, TO_EMBED[0].options).named_modules() if mapping is None else ():
        if isinstance(layer, NORMALIZATIONS) and list(layer.parameters()):
            raise fail("modules.normalization", name=name, kind=type(layer).__name__)


def modes(options: dict, x: Tensor, *arguments: str) -> list[Case]:
    """Return cases in which dropout must do nothing: in eval mode, and in train mode at a rate of 0."""
    return [
        *(Case(f"eval mode with {name}={RATE}", (x,), options=options | {name: RATE}, fault=f"dropout.eval_{name}")
          for name in arguments),
        Case("train mode without dropout", (x,), options=options, training=True, fault="dropout.own_rate"),
    ]  # fmt: skip


def drawn(
    where: str, rates: str, x: Tensor, options: dict, values: dict, shows: Callable = draws, fault: str = "elsewhere"
) -> Case:
    """Return a case in train mode with dropout at these rates, for arguments by name; the output takes few values.

    All parameters are zeros but for ``values``: matrices, or multiples of the identity and, for vectors, of ones.
    ``fault`` is the sentence, in its section, for a failure that no known mistake explains.
    """

    def weights(module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            value = values.get(name, float(name in LAST))
            whole = parameter.ndim != 2 or (isinstance(value, Tensor) and value.ndim == 2)
            parameter.copy_(value if whole else value * torch.eye(*parameter.shape))

    options = options | dict.fromkeys(rates.split(), RATE)
    label = ", ".join([where, *(f"{name}={RATE}" for name in rates.split())])
    return Case(label, (x,), {}, options, True, weights, shows, f"dropout.{fault}")


def of(part: str, values: dict) -> dict:
    """Return values of a part's parameters, by their names in the whole."""
    return {f"{part}.{name}": value for name, value in values.items()}


declare(
    "patch_embedding",
    vit_course.PatchEmbedding,
    [TO_EMBED, modes(MANY, formula(8, 3, 16, 16))],
    mistakes="patch_embedding patchify",
    stages=["patches", "tokens"],
    before=[_never_normalizes],
)

# --- the whole of Eq. 1 ----------------------------------------------------------------------------------------------


# Every token is 1 before the positions, and every position is 0.5.
PROJECTION = {"weight": torch.full((64, 12), 0.5 / 12), "bias": 0.5}
ONES_AND_HALVES = of("patch_embedding.projection", PROJECTION) | {"class_token": 1.0, "pos_embedding": 0.5}


def starts_small(reference: type[nn.Module], options: dict, spreads: dict[str, float]) -> Callable:
    """Return a behavior that refuses parameters whose values begin with a larger spread than later lessons rely on."""

    def behavior(cls: type[nn.Module], mapping: Mapping) -> None:
        state, module = build(cls, options).state_dict(), reference(**options)
        for part, most in spreads.items():
            marked = own_names(mapping, module, lambda key, zeros, part=part: zeros + (part in key))
            for key in sorted(marked & set(state)):
                refuse(state[key].dtype != torch.float32, "start.dtype", name=key, came=state[key].dtype)
                spread = state[key].square().mean().sqrt().item()
                refuse(not spread <= most, f"start.{part}", name=key, spread=spread)

    return behavior


STARTED = dict(image_size=32, patch_size=4, hidden_dim=48), dict(class_token=0.0, pos_embedding=0.05)
declare(
    "image_embedding",
    vit_course.ImageEmbedding,
    [
        TO_EMBED,
        modes(MANY, formula(8, 3, 16, 16), "dropout"),
        [drawn("train mode", "dropout", torch.ones(8, 3, 16, 16), MANY, ONES_AND_HALVES)],
    ],
    mistakes="image_embedding patch_embedding patchify drop",
    stages=["patch_embedding.patches", "patch_embedding.tokens", "tokens", "summed"],
    before=[_never_normalizes],
    behaviors=[starts_small(vit_course.ImageEmbedding, *STARTED)],
)
