"""Checks of lesson 07's parts: rollout, attention distance, nearest neighbors, and heads that are silenced."""

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
from vit_course.checks.variants import table
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
HEADS, HALF, PRODUCT = "layer.mean(dim=1)", "(attention + identity) / 2", "rollout = matrix @ rollout"
LAYERS, RETURN = "matrices[1:]", "return rollout"
TOTAL = {"total": "rollout[0, 0].sum().item()"}
ROLLOUT = table(
    "attention_rollout",
    ("largest_head", {HEADS: "layer.amax(dim=1)"}),
    ("largest_head/shared", {HEADS: "layer.amax(dim=1)", HALF: "(attention + identity) / (attention + identity).sum(dim=-1, keepdim=True)"}),
    ("smallest_head", {HEADS: "layer.amin(dim=1)"}),
    ("heads_added", {HEADS: "layer.sum(dim=1)"}),
    ("first_head", {HEADS: "layer[:, 0]"}),
    ("last_head", {HEADS: "layer[:, -1]"}),
    ("heads_kept", {HEADS: "layer"}),
    ("no_skip", {HALF: "attention"}),
    ("not_halved", {HALF: "attention + identity"}, "", TOTAL),
    ("half_identity", {HALF: "attention + identity / 2"}, "", TOTAL),
    ("half_attention", {HALF: "attention / 2 + identity"}, "", TOTAL),
    ("softmax_of_sum", {HALF: "(attention + identity).softmax(dim=-1)"}),
    ("softmax_of_half", {HALF: f"({HALF}).softmax(dim=-1)"}),
    ("ones", {HALF: "(attention + 1) / 2"}),
    ("layers_transposed", {HALF: "(attention.mT + identity) / 2"}),
    ("other_order", {PRODUCT: "rollout = rollout @ matrix"}),
    ("averaged", {RETURN: "return torch.stack(matrices).mean(dim=0)"}),
    ("elementwise", {PRODUCT: "rollout = matrix * rollout"}),
    ("elementwise/shared", {PRODUCT: "rollout = matrix * rollout", RETURN: "return rollout / rollout.sum(dim=-1, keepdim=True)"}),
    ("added", {PRODUCT: "rollout = matrix + rollout"}),
    ("last_layer", {RETURN: "return matrices[-1]"}),
    ("first_layer", {RETURN: "return matrices[0]"}),
    ("transposed", {RETURN: "return rollout.mT"}),
    ("softmax_of_result", {RETURN: "return rollout.softmax(dim=-1)"}),
    ("skip_once", {HALF: "attention", RETURN: "return (rollout + identity) / 2"}),
    ("first_image", {RETURN: "return rollout[0]"}),
    ("first_image/kept", {RETURN: "return rollout[:1]"}),
    ("images_averaged", {RETURN: "return rollout.mean(dim=0)"}),
    ("token_row", {RETURN: "return rollout[:, 0]"}),
    ("token_row/patches", {RETURN: "return rollout[:, 0, 1:]"}),
    ("every_layer", {"rollout = matrices[0]": "rollout = matrices[0]\n    every = [rollout]", PRODUCT: f"{PRODUCT}\n        every.append(rollout)", RETURN: "return torch.stack(every)"}),
)  # fmt: skip
attention_rollout = declare(
    "attention_rollout", "attention_rollout", inside.attention_rollout, [ROLLED], ROLLOUT, gradients=False, most=3
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
PLACES, DISTANCE, TOKENS = "place // gw, place % gw", "(down**2 + along**2).sqrt()", "[..., 1:, 1:]"
SHARE, END = "weights / weights.sum(dim=-1, keepdim=True)", "spread.sum(dim=-1).mean(dim=(1, 3))"
ALL_TOKENS = "F.pad((down**2 + along**2).sqrt(), (1, 0, 1, 0))"
DISTANCES = table(
    "attention_distance",
    ("last_left_out", {TOKENS: "[..., :-1, :-1]"}),
    ("sides_mixed/key", {TOKENS: "[..., :-1, 1:]"}),
    ("sides_mixed/query", {TOKENS: "[..., 1:, :-1]"}),
    ("not_shared", {SHARE: "weights"}),
    ("over_queries", {SHARE: SHARE.replace("dim=-1", "dim=-2")}),
    ("one_sum", {SHARE: "weights * weights.shape[-1] / weights.sum(dim=(-2, -1), keepdim=True)"}),
    ("softmax", {SHARE: "weights.softmax(dim=-1)"}),
    ("largest", {SHARE: "F.one_hot(weights.argmax(dim=-1), weights.shape[-1]).float()"}),
    ("all_alike", {SHARE: "torch.full_like(weights, 1 / weights.shape[-1])"}),
    ("exchanged", {PLACES: "place // gh, place % gh"}),
    ("squared", {DISTANCE: "down**2 + along**2"}),
    ("city_block", {DISTANCE: "down.abs() + along.abs()"}),
    ("larger_step", {DISTANCE: "torch.maximum(down.abs(), along.abs())"}),
    ("numbers", {DISTANCE: "(place[:, None] - place).abs().float()"}),
    ("rows_only", {DISTANCE: "down.abs()"}),
    ("columns_only", {DISTANCE: "along.abs()"}),
    ("token_kept", {TOKENS: "", SHARE: "weights", DISTANCE: ALL_TOKENS}),
    ("root_of_mean", {DISTANCE: "down**2 + along**2", END: f"({END}).sqrt()"}),
    ("mean_over_keys", {END: "spread.mean(dim=(1, 3, 4))"}),
    ("queries_added", {END: "spread.sum(dim=(3, 4)).mean(dim=1)"}),
    ("images_added", {END: "spread.sum(dim=-1).mean(dim=3).sum(dim=1)"}),
    ("first_image", {END: "spread.sum(dim=-1).mean(dim=3)[:, 0]"}),
    ("first_query", {END: "spread.sum(dim=-1).mean(dim=1)[..., 0]"}),
    ("heads_layers", {END: f"{END}.T"}),
    ("images_kept", {END: "spread.sum(dim=-1).mean(dim=3)"}),
    ("heads_averaged", {END: "spread.sum(dim=-1).mean(dim=(1, 2, 3))"}),
    ("images_for_heads", {END: "spread.sum(dim=-1).mean(dim=(2, 3))"}),
    ("queries_kept", {END: "spread.sum(dim=-1).mean(dim=1)"}),
)


def distance_reference(maps: list[Tensor], grid_size: tuple[int, int]) -> Tensor:
    """Return the course's attention distance, in patches."""
    return inside.attention_distance(maps, grid_size=grid_size)


attention_distance = declare(
    "attention_distance", "attention_distance", distance_reference, [GRIDS], DISTANCES, gradients=False, most=3
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
OF_FEATURES, OF_QUERIES = "features.norm(dim=-1, keepdim=True)", "queries.norm(dim=-1, keepdim=True)"
PRODUCTS, BEST, PAIR = "queries @ features.T", "similarity.topk(count, dim=-1)", "return values, indices"
APART = "-(queries[:, None] - features).norm(dim=-1)"
RAW = {f"features = features / {OF_FEATURES}": "pass", f"queries = queries / {OF_QUERIES}": "pass"}
NEAREST = table(
    "nearest",
    ("dot_product", RAW),
    ("features_only", {f"queries = queries / {OF_QUERIES}": "pass"}),
    ("queries_only", {f"features = features / {OF_FEATURES}": "pass"}),
    ("distance", RAW | {PRODUCTS: APART, PAIR: "return -values, indices"}),
    ("distance/negative", RAW | {PRODUCTS: APART}),
    ("distance/squared", RAW | {PRODUCTS: f"-({APART}) ** 2", PAIR: "return -values, indices"}),
    ("distance/negative_squared", RAW | {PRODUCTS: f"-({APART}) ** 2"}),
    ("unit_distance", {PRODUCTS: APART, PAIR: "return -values, indices"}),
    ("unit_distance/negative", {PRODUCTS: APART}),
    ("unit_distance/squared", {PRODUCTS: f"-({APART}) ** 2", PAIR: "return -values, indices"}),
    ("unit_distance/negative_squared", {PRODUCTS: f"-({APART}) ** 2"}),
    ("one_minus", {PAIR: "return 1 - values, indices"}),
    ("columns", {OF_FEATURES: "features.norm(dim=0)", OF_QUERIES: "queries.norm(dim=0)"}),
    ("whole_matrix", {OF_FEATURES: "features.norm()", OF_QUERIES: "queries.norm()"}),
    ("squares", {OF_FEATURES: f"{OF_FEATURES} ** 2", OF_QUERIES: f"{OF_QUERIES} ** 2"}),
    ("sums", {OF_FEATURES: OF_FEATURES.replace("norm", "sum"), OF_QUERIES: OF_QUERIES.replace("norm", "sum")}),
    ("correlation", {"features = features": "features = features - features.mean(dim=-1, keepdim=True)\n    queries = queries - queries.mean(dim=-1, keepdim=True)\n    features = features"}),
    ("absolute", {PRODUCTS: f"({PRODUCTS}).abs()"}),
    ("softmax", {PRODUCTS: f"({PRODUCTS}).softmax(dim=-1)"}),
    ("least", {BEST: "similarity.topk(count, largest=False)"}),
    ("worst_first", {BEST: f"[part.flip(-1) for part in {BEST}]"}),
    ("best_left_out", {BEST: "[part[:, 1 : count + 1] for part in similarity.sort(descending=True)]"}),
    ("all_returned", {BEST: "similarity.topk(similarity.shape[1])"}),
    ("for_features", {BEST: "similarity.T.topk(count)"}),
    ("axes", {BEST: f"[part.T for part in {BEST}]"}),
    ("along_queries", {BEST: "similarity.topk(count, dim=0)"}),
    ("swapped", {PAIR: "return indices, values"}),
)  # fmt: skip


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


nearest = declare("nearest", "nearest", inside.nearest, [SEARCHES], NEAREST, run=neighbors, gradients=False)

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
COLUMNS, LOOP, KEEP = "weight[:, head * e : (head + 1) * e]", "for layer, head in heads:", "bias[:] = bias"
ZERO = f"{COLUMNS} = 0"
ROWS = "attention.qkv.{kind}.chunk(3)[{third}][head * e : (head + 1) * e] = 0"
EVERY = "[(k, h) for k in {layers} for h in range(model.encoder.layers[k].self_attention.num_heads) if (k, h) not in heads]"
ALL_LAYERS = "range(len(model.encoder.layers))"


def zeroed(*thirds: int, bias: bool = True) -> str:
    """Return code that zeroes a head's rows in query (0), key (1) or value (2)."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return "; ".join(ROWS.format(kind=kind, third=third) for third in thirds for kind in kinds)


SILENCE = table(
    "silence_heads",
    ("nothing", {ZERO: "pass"}),
    ("rows", {COLUMNS: "weight[head * e : (head + 1) * e]"}),
    ("every_nth", {COLUMNS: "weight[:, head :: attention.num_heads]"}),
    ("not_times_e", {COLUMNS: "weight[:, head : head + e]"}),
    ("one_column", {COLUMNS: "weight[:, head : head + 1]"}),
    ("other_width", {"e = attention.hidden_dim // attention.num_heads": "e = attention.num_heads"}),
    ("to_the_end", {COLUMNS: "weight[:, head * e :]"}),
    ("from_the_start", {COLUMNS: "weight[:, : (head + 1) * e]"}),
    ("all_heads", {COLUMNS: "weight[:]"}),
    ("pairs_exchanged", {LOOP: "for head, layer in heads:"}),
    ("layers_from_one", {"layers[layer]": "layers[layer - 1]"}),
    ("heads_from_one", {LOOP: "for layer, head in [(layer, head - 1) for layer, head in heads]:"}),
    ("bias", {KEEP: "bias[:] = 0"}),
    ("slice_of_bias", {KEEP: "bias[head * e : (head + 1) * e] = 0"}),
    ("queries_or_keys/both", {ZERO: zeroed(0, 1)}),
    ("queries_or_keys/weights", {ZERO: zeroed(0, 1, bias=False)}),
    ("queries_or_keys/queries", {ZERO: zeroed(0)}),
    ("queries_or_keys/keys", {ZERO: zeroed(1)}),
    ("queries_or_keys/key_weights", {ZERO: zeroed(1, bias=False)}),
    ("query_weights", {ZERO: zeroed(0, bias=False)}),
    ("value_weights", {ZERO: zeroed(2, bias=False)}),
    ("by_head", {ZERO: "rows = slice((3 * head + 2) * e, (3 * head + 3) * e); attention.qkv.weight[rows] = 0; attention.qkv.bias[rows] = 0"}),
    ("last_pair", {LOOP: "for layer, head in heads[-1:]:"}),
    ("first_pair", {LOOP: "for layer, head in heads[:1]:"}),
    ("last_of_layer", {LOOP: "for layer, head in dict(heads).items():"}),
    ("others", {LOOP: f"for layer, head in {EVERY.format(layers=ALL_LAYERS)}:"}),
    ("others_of_layer", {LOOP: f"for layer, head in {EVERY.format(layers='{k for k, _ in heads}')}:"}),
    ("new_model", {"return model": "model.head.weight[:] = 0; model.head.bias[:] = 0\n    return model"}),
)  # fmt: skip


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
    "silence_heads", "silence_heads", inside.silence_heads, [MODELS], SILENCE, run=silenced, gradients=False, most_tries=300
)
