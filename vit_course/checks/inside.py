"""Checks of lesson 09's parts: rollout, attention distance, nearest neighbors, and heads that are silenced."""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vit_course
from vit_course import inside
from vit_course.checks.compare import formula, named, same, set_parameters
from vit_course.checks.declare import Case, declare
from vit_course.checks.verdict import fail, refuse, sentence


def _maps(layers: int, b: int, heads: int, s: int) -> list[Tensor]:
    """Return attention weights without symmetry, one tensor ``(b, heads, s, s)`` per layer: every row sums to 1."""
    return list((3 * formula(layers, b, heads, s, s)).softmax(dim=-1))


# --- rollout ---------------------------------------------------------------------------------------------------------

ROLLED = [
    Case("three layers", (_maps(3, 2, 3, 5),)),
    Case("two layers, one head and a batch of one", (_maps(2, 1, 1, 4),)),
    Case("four layers", (_maps(4, 3, 2, 6),)),
    Case("one layer", (_maps(1, 2, 2, 3),)),
]
declare("attention_rollout", inside.attention_rollout, [ROLLED], stages=["attention", "rollout"], most=3)

# --- attention distance ----------------------------------------------------------------------------------------------


def _on_grid(label: str, layers: int, b: int, heads: int, gh: int, gw: int) -> Case:
    return Case(label, (_maps(layers, b, heads, gh * gw + 1),), dict(grid_size=(gh, gw)))


GRIDS = [
    _on_grid("a grid of 2 x 3", 3, 2, 4, 2, 3),
    _on_grid("a grid of 4 x 2 and one image", 2, 1, 3, 4, 2),
    _on_grid("a square grid, one layer and one head", 1, 3, 1, 3, 3),
    _on_grid("a grid of one row", 2, 3, 5, 1, 4),
]

declare("attention_distance", inside.attention_distance, [GRIDS], stages=["distance weights", "spread"], most=3)

# --- nearest neighbors -----------------------------------------------------------------------------------------------


def _vectors(rows: int, d: int, *, start: int = 1) -> Tensor:
    # of many lengths, 0.3 to 3
    return F.normalize(formula(rows, d, start=start), dim=-1) * (1.65 + 1.35 * formula(rows, 1, start=start + 5))


FEATURES = _vectors(9, 5)
SEARCHES = [
    Case("three best of nine", (FEATURES, _vectors(4, 5, start=211), 3)),
    Case("queries that are among the features", (FEATURES, FEATURES[[2, 7, 0]], 2)),
    Case("all features as queries", (FEATURES, FEATURES, 2)),
    Case("vectors with an offset in common", (_vectors(8, 4, start=17) + 1.5, _vectors(5, 4, start=97) + 1.5, 3)),
    Case("one query and one neighbor", (_vectors(6, 3, start=31), _vectors(1, 3, start=71), 1)),
    Case("all of the features", (_vectors(4, 6, start=47), _vectors(5, 6, start=59), 4)),
]


def _neighbors(search: Callable, case: Case) -> dict[str, Tensor]:
    result = search(*case.args)
    refuse(not isinstance(result, (tuple, list)) or len(result) != 2, "nearest.two_results", came=named(result))
    if not all(isinstance(part, Tensor) for part in result):
        raise fail("nearest.tensors", came=" and ".join(type(part).__name__ for part in result))
    refuse(all(part.is_floating_point() for part in result), "nearest.float_indices")
    return dict(zip(["values", "indices"], result, strict=True))


declare(
    "nearest", inside.nearest, [SEARCHES], stages=["features queries", "similarity", "values"], run=_neighbors, most=3
)

# --- silenced heads --------------------------------------------------------------------------------------------------


def _model_case(label: str, heads: list[tuple[int, int]], *, training: bool = False, **options: object) -> Case:
    sizes = dict(image_size=(4, 6), patch_size=2, in_channels=1, num_classes=5, mlp_dim=10)
    model = set_parameters(vit_course.VisionTransformer(**sizes | options))
    return Case(label, (model.train(training), heads))


DEEP = dict(num_layers=3, num_heads=3, hidden_dim=12)
BROAD = dict(num_layers=2, num_heads=4, hidden_dim=8, pool="mean")
MODELS = [
    _model_case("one head", [(2, 1)], **DEEP),
    _model_case("several heads with one listed twice", [(1, 0), (0, 2), (2, 1), (0, 1), (0, 2)], **DEEP),
    _model_case("four heads in two layers", [(1, 3), (0, 1)], **BROAD),
    _model_case("a model in train mode", [(1, 0), (0, 1)], training=True, **BROAD),
    _model_case("all heads of a layer", [(0, head) for head in range(4)], **BROAD),
    _model_case("no head", [], **DEEP),
]


@torch.no_grad()
def _logits(model: nn.Module) -> Tensor:
    return model(2 * formula(3, 1, 4, 6))


def _logits_of_copy(function: Callable, case: Case) -> Tensor:
    """Return the logits of the copy, once it is sure that the model itself was left alone."""
    given, heads = case.args
    model = copy.deepcopy(given)
    with torch.enable_grad():
        result = function(model, heads)
    refuse(result is model, "silence_heads.same_model")
    _left_alone(given, model)
    refuse(not isinstance(result, nn.Module), "silence_heads.not_a_model", came=named(result))
    out = _logits(result)
    refuse(not same(_logits(model), _logits(given)), "silence_heads.hook_left")
    if any(part.training != given.training for part in result.modules()):
        raise fail("silence_heads.other_mode", mode="train" if given.training else "eval")
    return out


@torch.no_grad()
def _logits_of_changed(twin: Callable, case: Case) -> Tensor:
    """Return the logits of a model that a twin writes into, and put back its parameters: quicker than a copy."""
    model, heads = case.args
    kept = [parameter.clone() for parameter in model.parameters()]
    try:
        return _logits(twin(model, heads))
    finally:
        for parameter, value in zip(model.parameters(), kept, strict=True):
            parameter.copy_(value)


def _left_alone(before: nn.Module, after: nn.Module) -> None:
    """Check that parameters, buffers and mode of a model are what they were."""
    old, new = before.state_dict(), after.state_dict()
    other = next((key for key in old if key not in new or not torch.equal(old[key], new[key])), None)
    if other is not None or len(old) != len(new):
        raise fail("silence_heads.changed", name=other or sentence("silence_heads.the_parameters"))
    if any(a.training != b.training for a, b in zip(before.modules(), after.modules(), strict=False)):
        raise fail("silence_heads.switched")
    if [p.requires_grad for p in before.parameters()] != [p.requires_grad for p in after.parameters()]:
        raise fail("silence_heads.never_trains")


def _forgets_earlier_calls(function: Callable, mapping: None) -> None:
    model, heads = MODELS[0].args
    function(model, [(0, 1)])
    refuse(not same(_logits(function(model, heads)), _logits(inside.silence_heads(model, heads))), "silence_heads.kept")


declare(
    "silence_heads",
    inside.silence_heads,
    [MODELS],
    run=_logits_of_copy,
    run_twin=_logits_of_changed,
    behaviors=[_forgets_earlier_calls],
    most_calls=300,
)
