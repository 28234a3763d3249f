"""Checks of lesson 09's parts: rollout, attention distance, nearest neighbors, and heads that are silenced."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vit_course
from vit_course import inside
from vit_course.checks.compare import formula, named, same, set_parameters, unchanged
from vit_course.checks.engine import Case, call, declare
from vit_course.checks.learner import place
from vit_course.checks.verdict import fail


def some_maps(layers: int, b: int, heads: int, s: int) -> list[Tensor]:
    """Return attention weights without symmetry, one tensor ``(b, heads, s, s)`` per layer: every row sums to 1."""
    return list((3 * formula(layers, b, heads, s, s)).softmax(dim=-1))


# --- rollout ---------------------------------------------------------------------------------------------------------

ROLLED = [
    Case("three layers", (some_maps(3, 2, 3, 5),)),
    Case("two layers, one head and a batch of one", (some_maps(2, 1, 1, 4),)),
    Case("four layers", (some_maps(4, 3, 2, 6),)),
    Case("one layer", (some_maps(1, 2, 2, 3),)),
]
attention_rollout = declare(
    "attention_rollout",
    "attention_rollout",
    inside.attention_rollout,
    [ROLLED],
    "attention_rollout",
    stages=["attention_rollout.attention", "attention_rollout.rollout"],
    gradients=False,
    most=3,
)

# --- attention distance ----------------------------------------------------------------------------------------------


def on_grid(label: str, layers: int, b: int, heads: int, gh: int, gw: int) -> Case:
    """Return attention weights of a class token and of patches on a grid."""
    return Case(label, (some_maps(layers, b, heads, gh * gw + 1),), dict(grid_size=(gh, gw)))


GRIDS = [
    on_grid("a grid of 2 x 3", 3, 2, 4, 2, 3),
    on_grid("a grid of 4 x 2 and one image", 2, 1, 3, 4, 2),
    on_grid("a square grid, one layer and one head", 1, 3, 1, 3, 3),
    on_grid("a grid of one row", 2, 3, 5, 1, 4),
]


attention_distance = declare(
    "attention_distance",
    "attention_distance",
    inside.attention_distance,
    [GRIDS],
    "attention_distance",
    stages=["attention_distance.distance attention_distance.weights", "attention_distance.spread"],
    gradients=False,
    most=3,
)

# --- nearest neighbors -----------------------------------------------------------------------------------------------


class Neighbors(NamedTuple):
    """What is found for every query, ``(m, count)`` each."""

    values: Tensor
    indices: Tensor


def vectors(rows: int, d: int, *, start: int = 1) -> Tensor:
    """Return vectors ``(rows, d)`` of many lengths, 0.3 to 3."""
    return F.normalize(formula(rows, d, start=start), dim=-1) * (1.65 + 1.35 * formula(rows, 1, start=start + 5))


FEATURES = vectors(9, 5)
SEARCHES = [
    Case("three best of nine", (FEATURES, vectors(4, 5, start=211), 3)),
    Case("queries that are among the features", (FEATURES, FEATURES[[2, 7, 0]], 2)),
    Case("vectors with an offset in common", (vectors(8, 4, start=17) + 1.5, vectors(5, 4, start=97) + 1.5, 3)),
    Case("one query and one neighbor", (vectors(6, 3, start=31), vectors(1, 3, start=71), 1)),
    Case("all of the features", (vectors(4, 6, start=47), vectors(5, 6, start=59), 4)),
]


def neighbors(search: Callable, case: Case) -> object:
    """Return values and indices, or say what came in their place."""
    result = call(search, case)
    if result is None or result is Ellipsis:
        return result
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise fail("nearest.two_results", came=named(result))
    if any(part is Ellipsis for part in result):
        return ...
    if not all(isinstance(part, Tensor) for part in result):
        raise fail("nearest.tensors", came=" and ".join(type(part).__name__ for part in result))
    if all(part.is_floating_point() for part in result):
        raise fail("nearest.float_indices")
    return Neighbors(*result)


nearest = declare(
    "nearest",
    "nearest",
    inside.nearest,
    [SEARCHES],
    "nearest",
    stages=["nearest.features nearest.queries", "nearest.similarity", "nearest.values"],
    run=neighbors,
    gradients=False,
    most=3,
)

# --- silenced heads --------------------------------------------------------------------------------------------------

Heads = list[tuple[int, int]]


def model_case(label: str, heads: Heads, *, training: bool = False, **options: object) -> Case:
    """Return a model with parameters from a formula, and the heads to be silenced in it."""
    sizes = dict(image_size=(4, 6), patch_size=2, in_channels=1, num_classes=5, mlp_dim=10)
    model = set_parameters(vit_course.VisionTransformer(**sizes | options))
    return Case(label, (model.train(training), heads))


DEEP = dict(num_layers=3, num_heads=3, hidden_dim=12)
BROAD = dict(num_layers=2, num_heads=4, hidden_dim=8, pool="mean")
MODELS = [
    model_case("one head", [(2, 1)], **DEEP),
    model_case("several heads, two of one layer", [(1, 0), (0, 2), (2, 1), (0, 1)], **DEEP),
    model_case("a model in train mode", [(1, 0), (0, 1)], training=True, **BROAD),
    model_case("all heads of a layer", [(0, head) for head in range(4)], **BROAD),
    model_case("no head", [], **DEEP),
]
ROWS = "attention.qkv.{kind}.chunk(3)[{third}][head * e : (head + 1) * e] = 0"


def zeroed(*thirds: int, bias: bool = True) -> str:
    """Return code that zeroes a head's rows in query (0), key (1) or value (2)."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return "; ".join(ROWS.format(kind=kind, third=third) for third in thirds for kind in kinds)


@torch.no_grad()
def logits_of(model: nn.Module, given: nn.Module) -> Tensor:
    """Return a model's logits for three images without symmetry, of the size that the ``given`` model reads."""
    embedding = given.embedding.patch_embedding
    return model(2 * formula(3, embedding.in_channels, *embedding.image_size))


def logits_of_copy(function: Callable, case: Case) -> object:
    """Return the logits of the copy, once it is sure that the model itself was left alone."""
    given, heads = case.args
    model, pairs = copy.deepcopy(given), copy.deepcopy(heads)
    with torch.enable_grad():
        try:
            result = function(model, pairs)
        except RuntimeError as error:
            if "leaf" not in str(error):
                raise
            raise fail("silence_heads.leaf", place=place(error)) from error
    if result is None or result is Ellipsis:
        return result
    if result is model:
        raise fail("silence_heads.same_model")
    left_alone(given, model)
    if not unchanged(heads, pairs):
        raise fail("engine.in_place", case.label)
    if not isinstance(result, nn.Module):
        raise fail("silence_heads.not_a_model", came=named(result))
    out = logits_of(result, given)
    if not same(logits_of(model, given), logits_of(given, given)):
        raise fail("silence_heads.hook_left")
    if any(part.training != given.training for part in result.modules()):
        raise fail("silence_heads.other_mode", mode="train" if given.training else "eval")
    return out


def left_alone(before: nn.Module, after: nn.Module) -> None:
    """Check that parameters, buffers and mode of a model are what they were."""
    old, new = before.state_dict(), after.state_dict()
    other = next((key for key in old if key not in new or not torch.equal(old[key], new[key])), None)
    if other is not None or len(old) != len(new):
        raise fail("silence_heads.changed", name=other or "the parameters")
    if any(a.training != b.training for a, b in zip(before.modules(), after.modules(), strict=False)):
        raise fail("silence_heads.switched")
    if [p.requires_grad for p in before.parameters()] != [p.requires_grad for p in after.parameters()]:
        raise fail("silence_heads.never_trains")


def silenced(function: Callable, case: Case) -> object:
    """Return the logits of the copy; a twin writes into the model that it is given, and is given one of its own."""
    if "TWIN" not in getattr(function, "__globals__", {}):
        return logits_of_copy(function, case)
    with torch.no_grad():
        return logits_of(function(copy.deepcopy(case.args[0]), case.args[1]), case.args[0])


silence_heads = declare(
    "silence_heads",
    "silence_heads",
    inside.silence_heads,
    [MODELS],
    "silence_heads",
    run=silenced,
    gradients=False,
    most_tries=300,
)
