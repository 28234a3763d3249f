"""Cases 1 to 6 of the bug clinic."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vit_course import attention
from vit_course.checks.attention import STAGES
from vit_course.checks.clinic.repair import repair, still
from vit_course.checks.compare import formula, same, set_parameters
from vit_course.checks.engine import Case
from vit_course.checks.learner import running
from vit_course.checks.modules import Mapping, build
from vit_course.checks.verdict import fail, sentence

# --- 1 rows, 2 padding -----------------------------------------------------------------------------------------------


def pair_case(label: str, b: int, heads: int, i: int, j: int, e: int, *, size: float = 2.0) -> Case:
    """Return queries and keys without symmetry."""
    return Case(label, (size * formula(b, heads, i, e), size * formula(b, heads, j, e, start=307)))


PAIRS = [
    pair_case("8 heads of width 96", 1, 8, 5, 5, 96),
    pair_case("three heads of width 5", 2, 3, 7, 7, 5),
    pair_case("one head, more keys than queries", 1, 1, 4, 9, 16),
]


def masked_case(label: str, shape: tuple[int, ...], i: int, j: int, heads: int, e: int, *, size: float = 2.0) -> Case:
    """Return queries, keys and a mask that allows every query key 0, and none key 1."""
    mask = formula(*shape, start=41) > -0.3
    mask[..., 0], mask[..., 1] = True, False
    pair = pair_case(label, 2, heads, i, j, e, size=size)
    return Case(label, (*pair.args, mask))


MASKED = [
    masked_case("padding, a mask (b, 1, 1, j)", (2, 1, 1, 8), 5, 8, 3, 4),
    masked_case("a mask (i, j)", (6, 6), 6, 6, 2, 5),
    masked_case("a mask (b, heads, i, j)", (2, 2, 4, 7), 4, 7, 2, 6),
    masked_case("scores in the hundreds", (6, 6), 6, 6, 2, 5, size=40.0),
]


def masked_reference(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """Return attention weights that are 0 where the mask is False."""
    return (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(~mask, -math.inf).softmax(dim=-1)


# --- 3 saved, 4 places -----------------------------------------------------------------------------------------------


class Embedding(nn.Module):
    """A class token before the patches, and a position for each: ``(b, n, d) -> (b, n + 1, d)``."""

    def __init__(self, *, num_patches: int, hidden_dim: int) -> None:
        super().__init__()
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, hidden_dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, num_patches + 1, hidden_dim))

    def forward(self, patches: Tensor) -> Tensor:
        """Prepend, then add."""
        return torch.cat([self.class_token.expand(len(patches), -1, -1), patches], dim=1) + self.positions


EMBEDDED = [
    Case("9 patches", (formula(2, 9, 6),), options=dict(num_patches=9, hidden_dim=6)),
    Case("one image of 4 patches", (formula(1, 4, 8),), options=dict(num_patches=4, hidden_dim=8)),
]


def nothing_saved(cls: type[nn.Module], mapping: Mapping) -> None:
    """Tell a module whose state dict is empty that a copy which loads it is different."""
    if not build(cls, EMBEDDED[0].options).state_dict():
        raise still("clinic.nothing_saved")


def starts_small(**options: int) -> Callable[[type[nn.Module], Mapping], None]:
    """Return a check of the standard deviation that the parameters start with."""

    def behavior(cls: type[nn.Module], mapping: Mapping) -> None:
        with torch.random.fork_rng():
            module = build(cls, options)
        for name, parameter in module.named_parameters():
            if not 0.01 < parameter.std() < 0.03:
                raise fail("clinic.another_start", name=name, came=parameter.std().item())

    return behavior


class Positions(nn.Module):
    """A position for each token: ``(b, s, d) -> (b, s, d)``."""

    def __init__(self, *, batch_size: int, num_tokens: int, hidden_dim: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(1, num_tokens, hidden_dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """Add the table to every image."""
        return tokens + self.positions


PLACES = [
    Case("4 images", (formula(4, 5, 6),), options=dict(batch_size=4, num_tokens=5, hidden_dim=6)),
    Case("a single image", (formula(1, 7, 4),), options=dict(batch_size=3, num_tokens=7, hidden_dim=4)),
]


def what_moves(cls: type[nn.Module], mapping: Mapping) -> None:
    """Name which of the two faults are left: one vector for all tokens of an image, another one for every image."""
    case = PLACES[0]
    tokens = torch.ones_like(case.args[0])
    with running(sentence("engine.on", case=case.label)), torch.no_grad():
        came = set_parameters(build(cls, case.options))(tokens)
    if not isinstance(came, Tensor) or came.shape != tokens.shape:
        return  # the comparison that follows reports it
    moved = came - tokens
    one_vector, own_table = same(moved[:, :1].expand_as(moved), moved), not same(moved[:1].expand_as(moved), moved)
    if one_vector and own_table:
        raise still("clinic.place_in_the_batch")
    if one_vector:
        raise fail("clinic.one_vector")
    if own_table:
        raise fail("clinic.own_table")


# --- 5 paths ---------------------------------------------------------------------------------------------------------

PATHS = [
    Case("evaluation", (formula(5, 3, 4), 0.25, False)),
    Case("training at rate 0", (formula(4, 2, 6), 0.0, True)),
]
RATE, IMAGES = 0.2, 4000


def path_reference(branch: Tensor, rate: float, training: bool) -> Tensor:
    """Drop the branch of whole images, and scale up what is kept."""
    if not training or rate == 0.0:
        return branch
    keep = torch.rand(1, branch.shape[1], 1) >= rate
    return branch * keep / (1 - rate)


def what_is_dropped(function: Callable, mapping: Mapping) -> None:
    """Name what a call in training drops, and how what it keeps is scaled."""
    with torch.random.fork_rng(), running(sentence("engine.on", case=f"{IMAGES} images of ones in training")):
        torch.manual_seed(0)
        came = function(torch.ones(6, IMAGES, 3), RATE, True)
    if came is None:
        raise fail("engine.returns_none")
    if came.shape != (6, IMAGES, 3):
        raise fail("clinic.another_shape", wanted=(6, IMAGES, 3), came=tuple(came.shape))
    scale, kept = came.max().item(), came != 0
    by_token, by_image = bool((kept == kept[:, :1, :1]).all()), bool((kept == kept[:1, :, :1]).all())
    dropped = 1 - kept.float().mean().item()
    if by_token and not by_image:
        raise still("clinic.same_tokens")
    if not by_image:
        raise fail("clinic.single_numbers")
    if kept.all() or not kept.any():
        raise fail("clinic.all_or_none")
    if abs(dropped - RATE) > 0.05:
        raise fail("clinic.another_rate", wanted=RATE, came=dropped)
    if abs(scale - 1 / (1 - RATE)) > 1e-4:
        raise fail("clinic.another_scale", came=scale, rate=RATE)


# --- 6 grid ----------------------------------------------------------------------------------------------------------

GRIDS = [
    Case("a square grid", (formula(3, 4, 4), 6, 6)),
    Case("a wide grid", (formula(2, 5, 5), 3, 8)),
    Case("a tall grid from a table that is not square", (formula(2, 3, 4), 7, 5)),
]


def grid_reference(table: Tensor, gh: int, gw: int) -> Tensor:
    """Resample a table of positions ``(d, h, w)``."""
    return F.interpolate(table[None], size=(gh, gw), mode="bilinear", align_corners=True)[0].flatten(1).T


# --- the cases -------------------------------------------------------------------------------------------------------

FIRST = [
    repair("rows", "attention_weights", attention.attention_weights, [PAIRS], "rows attention_weights", stages=STAGES),
    repair("padding", "masked_weights", masked_reference, [MASKED], "masked_weights"),
    repair("saved", "class_and_positions", Embedding, [EMBEDDED], "class_and_positions", before=[nothing_saved],
           behaviors=[starts_small(num_patches=99, hidden_dim=100)]),
    repair("places", "table_of_positions", Positions, [PLACES], "table_of_positions", before=[what_moves],
           behaviors=[starts_small(batch_size=3, num_tokens=99, hidden_dim=100)]),
    repair("paths", "drop_path", path_reference, [PATHS], "drop_path", before=[what_is_dropped]),
    repair("grid", "resampled_positions", grid_reference, [GRIDS], "resampled_positions"),
]  # fmt: skip
