"""The check of lesson 10, the bug clinic: a repaired piece of code against the right one, by value and behavior.

Code that still behaves exactly as the case's broken code, which is the mistake called "symptom", is told so quietly.
Anything else that is wrong is refused, and the message names it. If one of a case's two faults is repaired, it does
not say which one is left, because finding it is the exercise.
"""

from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor, nn

from vit_course.checks import twins
from vit_course.checks.attention import STAGES, queries_and_keys, tensors
from vit_course.checks.compare import formula, named, same, set_parameters
from vit_course.checks.declare import Case, Check, declare
from vit_course.checks.learner import check, running, shown
from vit_course.checks.modules import Mapping, build
from vit_course.checks.verdict import CheckFailed, NotWritten, Verdict, fail, refuse, sentence


def _still(symptom: str) -> NotWritten:
    """Return the quiet verdict that the code behaves as it did when it came in, for what no edit of a twin shows."""
    return NotWritten(sentence("declare.not_repaired", symptom=sentence(f"clinic.{symptom}")))


# --- 1 rows, 2 padding -----------------------------------------------------------------------------------------------


PAIRS = [
    tensors("8 heads of width 96", 1, 8, 5, 5, 96),
    tensors("three heads of width 5", 2, 3, 7, 7, 5),
    tensors("one head, more keys than queries", 1, 1, 4, 9, 16),
]


def _masked_case(
    label: str, shape: tuple[int, ...], i: int, j: int, heads: int, e: int, *, size: float = 2.0, fault: str = ""
) -> Case:
    """Return queries, keys and a mask that allows every query key 0, and none key 1."""
    mask = formula(*shape, start=41) > -0.3
    mask[..., 0], mask[..., 1] = True, False
    query, key, _ = tensors(label, 2, heads, i, j, e, size=size).args
    return Case(label, (query, key, mask), fault=fault)


MASKED = [
    _masked_case("padding, a mask (b, 1, 1, j)", (2, 1, 1, 8), 5, 8, 3, 4),
    _masked_case("a mask (i, j)", (6, 6), 6, 6, 2, 5),
    _masked_case("a mask (b, heads, i, j)", (2, 2, 4, 7), 4, 7, 2, 6),
    _masked_case("scores in the hundreds", (6, 6), 6, 6, 2, 5, size=40.0, fault="clinic.large_scores"),
]


# --- 3 places, 4 saved -----------------------------------------------------------------------------------------------


class Embedding(nn.Module):
    """A class token before the patches, and a position for each: ``(b, n, d) -> (b, n + 1, d)``."""

    def __init__(self, *, num_patches: int, hidden_dim: int) -> None:
        super().__init__()
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, hidden_dim))
        self.positions = nn.Parameter(0.02 * torch.randn(1, num_patches + 1, hidden_dim))

    forward = twins.class_and_positions


EMBEDDED = [
    Case("9 patches", (formula(2, 9, 6),), options=dict(num_patches=9, hidden_dim=6)),
    Case("one image of 4 patches", (formula(1, 4, 8),), options=dict(num_patches=4, hidden_dim=8)),
]


def _nothing_saved(cls: type[nn.Module], mapping: Mapping) -> None:
    """Tell a module whose state dict is empty that a copy which loads it is different."""
    if not build(cls, EMBEDDED[0].options).state_dict():
        raise _still("nothing_saved")


def _starts_small(**options: int) -> Callable[[type[nn.Module], Mapping], None]:
    """Return a check of the standard deviation that the parameters start with."""

    def behavior(cls: type[nn.Module], mapping: Mapping) -> None:
        for name, parameter in build(cls, options).named_parameters():
            refuse(not 0.01 < parameter.std() < 0.03, "clinic.another_start", name=name, came=parameter.std().item())

    return behavior


class Positions(nn.Module):
    """A position for each token: ``(b, s, d) -> (b, s, d)``."""

    def __init__(self, *, batch_size: int, num_tokens: int, hidden_dim: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.02 * torch.randn(1, num_tokens, hidden_dim))

    forward = twins.table_of_positions


PLACES = [
    Case("4 images", (formula(4, 5, 6),), options=dict(batch_size=4, num_tokens=5, hidden_dim=6)),
    Case("a single image", (formula(1, 7, 4),), options=dict(batch_size=3, num_tokens=7, hidden_dim=4)),
]


def _what_moves(cls: type[nn.Module], mapping: Mapping) -> None:
    """Tell both faults from one: one vector for all tokens of an image, and another one for every image."""
    case = PLACES[0]
    tokens = torch.ones_like(case.args[0])
    with running(sentence("declare.on", case=case.label)), torch.no_grad():
        module = set_parameters(build(cls, case.options))
        came, again = module(tokens.clone()), module(tokens.clone())
    if not isinstance(came, Tensor) or came.shape != tokens.shape:
        return  # the comparison that follows reports it
    refuse(not same(came, again), "clinic.random_table")
    moved = came - tokens
    one_vector, own_table = same(moved[:, :1].expand_as(moved), moved), not same(moved[:1].expand_as(moved), moved)
    if one_vector and own_table:
        raise _still("place_in_the_batch")
    refuse(one_vector or own_table, "clinic.half_repair")


# --- 5 paths ---------------------------------------------------------------------------------------------------------

PATHS = [Case("evaluation", (formula(5, 3, 4), 0.25, False)), Case("training at rate 0", (formula(4, 2, 6), 0.0, True))]
RATE, IMAGES = 0.2, 4000


def _what_is_dropped(function: Callable, mapping: Mapping) -> None:
    """Name what a call in training drops, and how what it keeps is scaled."""
    with torch.random.fork_rng(), running(sentence("declare.on", case=f"{IMAGES} images of ones in training")):
        torch.manual_seed(0)
        came, again = (function(torch.ones(6, IMAGES, 3), RATE, True) for _ in range(2))
    shape = 6, IMAGES, 3
    refuse(getattr(came, "shape", ()) != shape, "clinic.another_shape", wanted=shape, came=named(came))
    scale, kept = came.max().item(), came != 0
    by_token, by_image = bool((kept == kept[:, :1, :1]).all()), bool((kept == kept[:1, :, :1]).all())
    dropped = 1 - kept.float().mean().item()
    if by_token and not by_image:
        raise _still("no_image")
    refuse(not by_image, "clinic.single_numbers")
    refuse(kept.all() or not kept.any(), "clinic.all_or_none")
    refuse(abs(dropped - RATE) > 0.05, "clinic.another_rate", wanted=RATE, came=dropped)
    refuse(abs(scale - 1 / (1 - RATE)) > 1e-4, "clinic.another_scale", came=scale, rate=RATE)
    refuse(same(came, again), "clinic.same_drops")


# --- 6 grid ----------------------------------------------------------------------------------------------------------

GRIDS = [
    Case("a square grid", (formula(3, 4, 4), 6, 6)),
    Case("a wide grid", (formula(2, 5, 5), 3, 8)),
    Case("a tall grid from a table that is not square", (formula(2, 3, 4), 7, 5)),
]

# --- 7 colors, 8 rebuild, 9 cutmix, 10 rotary, 11 windows, 12 registers -----------------------------------------------


def _rebuild_case(label: str, orders: list[list[int]], visible: int) -> Case:
    order, n = torch.tensor(orders), len(orders[0])
    patches = formula(len(orders), n, 3)
    args = patches[:, :visible], patches[:, visible:], order[:, :visible], order[:, visible:]
    return Case(label, args, fault="clinic.out_of_place")


ORDERS = [
    _rebuild_case("two images, 2 of 6 patches visible", [[3, 0, 5, 1, 4, 2], [1, 5, 0, 2, 3, 4]], 2),
    _rebuild_case("one image, 3 of 5 patches visible", [[4, 2, 3, 0, 1]], 3),
]


def _colorful(b: int, h: int, w: int) -> Tensor:
    """Return images from -1 to 1 with a white and a black corner."""
    images = formula(b, 3, h, w)
    images[..., :2, :2], images[..., -2:, -2:] = 1.0, -1.0
    return images


PAINTED = [
    Case("16 patches, 3 bits", (_colorful(2, 8, 8), 2, 3)),
    Case("12 patches, 2 bits", (_colorful(1, 6, 8), 2, 2)),
    Case("images from -0.8 to 0.4", (0.6 * formula(2, 3, 8, 8) - 0.2, 2, 3)),
]

ROTATED = [
    Case("5 tokens, 8 features", (formula(2, 3, 5, 8), torch.tensor([0.0, 1.0, 2.0, 7.0, 40.0]))),
    Case("2 tokens, 4 features", (formula(1, 1, 2, 4), torch.tensor([3.0, 100.0]))),
]


def _mixed(function: Callable, case: Case) -> dict[str, object]:
    """Return the learner's pair with names, and the weight as a number, for messages."""
    result = function(*case.args)
    refuse(not isinstance(result, tuple) or len(result) != 2, "clinic.two_results", came=named(result))
    images, weight = result
    is_number = isinstance(weight, Tensor) and weight.numel() == 1
    return {"images": images, "label weight": weight.item() if is_number else weight}


BACKGROUND = formula(2, 1, 8, 16).where(torch.arange(16) % 4 == 0, 0.5)
MIXES = [
    Case("a wide image, a box at its border", (formula(2, 1, 8, 16), 0.5, 3, 1)),
    Case("a square image, a box in the middle", (formula(3, 2, 9, 9), 0.4, 4, 4)),
    Case("a tall image, a box in a corner", (formula(2, 1, 12, 5), 0.2, 11, 4)),
    Case("two images with the same background", (BACKGROUND, 0.5, 3, 1)),
    Case("half sides that are whole numbers", (formula(2, 1, 8, 16), 0.75, 4, 8)),
]


def _allowed(function: Callable, case: Case) -> object:
    mask = function(**case.kwargs)
    if isinstance(mask, Tensor) and mask.dtype != torch.bool:
        raise fail("clinic.not_boolean", came=mask.dtype)
    return mask


def _windows(size: int, window: int, shift: int) -> Case:
    label = f"{size} × {size} tokens, windows of {window}, shifted by {shift}"
    return Case(label, kwargs=dict(size=size, window=window, shift=shift), fault="clinic.other_pairs")


WINDOWS = [_windows(8, 4, 2), _windows(9, 3, 1), _windows(8, 4, 1)]


def _settings(function: Callable, case: Case) -> Tensor:
    tokens = [("cls_token", 3), ("reg_token", 3), ("pos_embed", 3)]
    layers = [("patch_embed.proj.weight", 4), ("patch_embed.proj.bias", 1), ("norm.weight", 1), ("head.weight", 2)]
    blocks = range(case.kwargs["num_blocks"])
    inside = [(f"blocks.{k}.{name}", ndim) for k in blocks for name, ndim in [("qkv.weight", 2), ("qkv.bias", 1)]]
    pairs = []
    for name, ndim in tokens + layers + inside:
        came = function(name, ndim, len(blocks))
        is_pair = isinstance(came, (tuple, list)) and len(came) == 2 and all(isinstance(one, Real) for one in came)
        refuse(not is_pair, "clinic.two_numbers", name=name, came=named(came))
        pairs.append([float(one) for one in came])
    return torch.tensor(pairs)


ROWS = (
    "row 0 cls_token, 1 reg_token, 2 pos_embed, 3 and 4 patch_embed, 5 norm, 6 head, then two for each block; "
    "column 0 factor, 1 weight decay"
)
DEPTHS = [Case(f"{blocks} blocks ({ROWS})", kwargs=dict(num_blocks=blocks)) for blocks in (12, 3)]


def _whole_labels(function: Callable, case: Case) -> object:
    labels = function(*case.args)
    if isinstance(labels, Tensor) and labels.is_floating_point():
        raise fail("clinic.float_labels", came=labels.dtype)
    return labels


# --- the cases -------------------------------------------------------------------------------------------------------


CLINIC: dict[str, Check] = {}


def _repair(name: str, reference: Callable, cases: list, twin: str = "", **rest: object) -> None:
    declare(name, reference, [cases], twin=twin or reference.__name__, among=CLINIC, **rest)


_repair("rows", twins.attention_weights, queries_and_keys(PAIRS), mistakes="rows attention_weights", stages=STAGES)
_repair("padding", twins.masked_weights, MASKED)
_repair(
    "places",
    Positions,
    PLACES,
    "table_of_positions",
    before=[_what_moves],
    behaviors=[_starts_small(batch_size=3, num_tokens=99, hidden_dim=100)],
)
_repair(
    "saved",
    Embedding,
    EMBEDDED,
    twin="class_and_positions",
    before=[_nothing_saved],
    behaviors=[_starts_small(num_patches=99, hidden_dim=100)],
)
_repair("paths", twins.drop_path, PATHS, before=[_what_is_dropped])
_repair("grid", twins.resampled_positions, GRIDS)
_repair("colors", twins.color_labels, PAINTED, run=_whole_labels)
_repair("rebuild", twins.rebuild_patches, ORDERS)
_repair("cutmix", twins.cutmix, MIXES, run=_mixed)
_repair("rotary", twins.rotate_pairs, ROTATED)
_repair("windows", twins.window_mask, WINDOWS, run=_allowed)
_repair("registers", twins.layer_settings, DEPTHS, run=_settings)
LEFT = "One of the two faults is left."  # mistakes that say so; if one is the only one, the other fault is repaired
HALF_REPAIRS = {known.id for check in CLINIC.values() for known in check.known() if known.template == LEFT}
NAMES = list(CLINIC)


def clinic(case: int | str, repaired: Callable) -> Verdict:
    """Check a repair of lesson 10: the values and the behavior of the piece of code that was broken.

    Verified: that the symptom is gone, and that everything else is as it should be – values for several sizes, other
    than the lesson's too, train and eval mode where they matter, gradients, the caller's tensors.

    Args:
        case: the number, 1 to 12, or the name, such as ``"rows"``.
        repaired: the function or class, with the arguments that the broken one had.

    Returns:
        One line that says what was verified. It is False, and names the symptom, for code that still behaves exactly
        as the broken code does.

    Raises:
        CheckFailed: outside of notebooks, when something else is wrong; the message names it, but not the second of
            two faults.
        ValueError: there is no such case.
    """
    numbers = dict(enumerate(NAMES, start=1))
    if type(case) not in (int, str) or (name := numbers.get(case, case)) not in CLINIC:
        known = ", ".join(f'{number} or "{name}"' for number, name in numbers.items())
        raise ValueError(sentence("clinic.unknown", known=known, came=repr(case)))

    def verify() -> str:
        try:
            return CLINIC[name].verify(repaired)
        except CheckFailed as failure:
            if len(failure.mistakes) == 1 and failure.mistakes[0] in HALF_REPAIRS:
                failure.args = (sentence("clinic.half_repair"),)
            raise

    return shown(lambda: check(f"case {NAMES.index(name) + 1}, {name}", repaired, verify))
