"""Checks of lesson 07's parts: rollout, attention distance, nearest neighbours, and heads that are silenced."""

import copy
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import product
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vit_course
from vit_course import inside
from vit_course.checks.evidence import (
    Case,
    CheckFailed,
    Suspect,
    Verdict,
    check,
    formula,
    place,
    same,
    set_parameters,
    verify_function,
)
from vit_course.checks.training import joined


def some_maps(layers: int, b: int, heads: int, s: int) -> list[Tensor]:
    """Return attention weights without symmetry, one tensor ``(b, heads, s, s)`` a layer: every row sums to 1."""
    return list((3 * formula(layers, b, heads, s, s)).softmax(dim=-1))


def combined(*steps: Sequence[tuple]) -> list[tuple]:
    """Return every choice of one way for each step that is wrong in some, the fewest mistakes first.

    A way begins with its sentence, which is empty where it is right.
    """
    choices = [chosen for chosen in product(*steps) if any(sentence for sentence, *_ in chosen)]
    return sorted(choices, key=lambda chosen: sum(bool(sentence) for sentence, *_ in chosen))


# --- rollout ---------------------------------------------------------------------------------------------------------

ROLLED = [
    Case("three layers", (some_maps(3, 2, 3, 5),)),
    Case("two layers, one head and a batch of one", (some_maps(2, 1, 1, 4),)),
    Case("four layers", (some_maps(4, 3, 2, 6),)),
    Case("one layer", (some_maps(1, 2, 2, 3),)),
]


def sums_to_one(weights: Tensor) -> Tensor:
    """Return the weights with each row divided by its sum."""
    return weights / weights.sum(dim=-1, keepdim=True)


def chained(matrices: Iterable[Tensor], step: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return what comes of taking the matrices, first layer first, into what has come so far."""
    first, *rest = matrices
    for matrix in rest:
        first = step(matrix, first)
    return first


# Each of the ways to go wrong has a form for the heads, for the skip path and for the layers; "" is right.
HEADS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("", lambda weights: weights.mean(dim=1)),
    ("the largest weight among the heads is taken. Take their mean.", lambda weights: weights.amax(dim=1)),
    ("the smallest weight among the heads is taken. Take their mean.", lambda weights: weights.amin(dim=1)),
    ("the heads are added up. Take their mean.", lambda weights: weights.sum(dim=1)),
    ("only the first head is used. Take the mean of all.", lambda weights: weights[:, 0]),
    ("only the last head is used. Take the mean of all.", lambda weights: weights[:, -1]),
]
SKIPS: list[tuple[str, Callable[[Tensor, Tensor], Tensor]]] = [
    ("", lambda weights, identity: (weights + identity) / 2),
    ("", lambda weights, identity: sums_to_one(weights + identity)),
    (
        "the skip path is missing: each layer's matrix is half the attention and half the identity, 0.5 A + 0.5 I.",
        lambda weights, identity: weights,
    ),
    (
        "the identity is added, but the sum is not halved, so the first row adds up to {total:.3f}, not 1: "
        "0.5 A + 0.5 I.",
        lambda weights, identity: weights + identity,
    ),
    (
        "half the identity is added to the whole attention, so the first row adds up to {total:.3f}, not 1: "
        "0.5 A + 0.5 I.",
        lambda weights, identity: weights + identity / 2,
    ),
    (
        "a softmax runs over the sum of attention and identity. The rows of A sum to 1 already: 0.5 A + 0.5 I.",
        lambda weights, identity: (weights + identity).softmax(dim=-1),
    ),
    (
        "a softmax runs over 0.5 A + 0.5 I. Its rows sum to 1 already: leave it out.",
        lambda weights, identity: ((weights + identity) / 2).softmax(dim=-1),
    ),
    (
        "ones are added in all places. The skip path leaves each token where it is: add the identity, torch.eye.",
        lambda weights, identity: (weights + 1) / 2,
    ),
    (
        "each layer's matrix is transposed: row i must hold how token i looks.",
        lambda weights, identity: (weights.mT + identity) / 2,
    ),
]
JOINS: list[tuple[str, Callable[[Sequence[Tensor]], Tensor]]] = [
    ("", lambda layers: chained(layers, torch.matmul)),
    (
        "the layers are multiplied in the wrong order. The last one stands on the left: "
        "rollout = layer @ rollout, first layer first.",
        lambda layers: chained(reversed(layers), torch.matmul),
    ),
    (
        "the layers are averaged. What a token reads has been mixed by the layers below: multiply their matrices.",
        lambda layers: torch.stack(layers).mean(dim=0),
    ),
    (
        "the layers are multiplied entry by entry, with *. Multiply them as matrices, with @.",
        lambda layers: chained(layers, torch.mul),
    ),
    (
        "the layers are multiplied entry by entry, with *. Multiply them as matrices, with @.",
        lambda layers: sums_to_one(chained(layers, torch.mul)),
    ),
    ("the layers are added up. Multiply their matrices.", lambda layers: sum(layers)),
    ("only the last layer is used. Multiply the matrices of all.", lambda layers: layers[-1]),
    ("only the first layer is used. Multiply the matrices of all.", lambda layers: layers[0]),
]


def rollout_with(heads: Callable = HEADS[0][1], skip: Callable = SKIPS[0][1], join: Callable = JOINS[0][1]) -> Callable:
    """Return a rollout with some of its steps replaced."""
    return lambda maps: join([skip(heads(layer), torch.eye(layer.shape[-1])) for layer in maps])


def rolled_then(change: Callable[[Tensor], Tensor]) -> Callable:
    """Return the right rollout, changed as a whole."""
    return lambda maps: change(inside.attention_rollout(maps))


ROLLOUT_MISTAKES = [
    Suspect(
        "the result is transposed. Row i shares out token i of the last layer; the columns are the input's tokens.",
        rolled_then(lambda rollout: rollout.mT),
    ),
    Suspect(
        "a softmax runs over the result. A product of matrices whose rows sum to 1 has rows that sum to 1: leave it "
        "out.",
        rolled_then(lambda rollout: rollout.softmax(dim=-1)),
    ),
    Suspect(
        "the identity is added once, to the product of all layers. Every layer has a skip path: 0.5 A + 0.5 I before "
        "multiplying.",
        lambda maps: (rollout_with(skip=SKIPS[2][1])(maps) + torch.eye(maps[0].shape[-1])) / 2,
    ),
    *(
        Suspect("only the first image is rolled out. All of the batch are wanted, (b, s, s).", rolled_then(part))
        for part in (lambda rollout: rollout[0], lambda rollout: rollout[:1])
    ),
    Suspect(
        "the images of the batch are averaged. Each has a rollout of its own, (b, s, s).",
        rolled_then(lambda rollout: rollout.mean(dim=0)),
    ),
    *(
        Suspect(
            "only the class token's row is returned. The whole matrix is wanted, (b, s, s).",
            rolled_then(lambda rollout, first=first: rollout[:, 0, first:]),
        )
        for first in (0, 1)
    ),
    Suspect(
        "the heads are still there, (b, heads, s, s): each is rolled out on its own. Take their mean first.",
        lambda maps: rollout_with(heads=lambda weights: weights)(maps),
    ),
    Suspect(
        "the rollout after every layer is returned. The last one is wanted, (b, s, s).",
        lambda maps: torch.stack([inside.attention_rollout(maps[: end + 1]) for end in range(len(maps))]),
    ),
    *(
        Suspect(
            joined(*sentences),
            rollout_with(*parts),
            lambda maps, parts=parts: {"total": rollout_with(*parts)(maps)[0, 0].sum()},
        )
        for sentences, parts in (zip(*chosen, strict=True) for chosen in combined(HEADS, SKIPS, JOINS))
    ),
]


def attention_rollout(function: Callable) -> Verdict:
    """Check an ``attention_rollout(maps)``: the product over the layers of 0.5 A + 0.5 I, the last one on the left.

    Verified: the values for one to four layers, one and more heads and images; that the maps are left as they are.
    Gradients are not looked at.

    Args:
        function: takes a list with ``(b, heads, s, s)`` for every layer, and returns ``(b, s, s)``.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the values or the treatment of the input are wrong.
    """
    name = "attention_rollout"

    def verify() -> str:
        verify_function(name, function, inside.attention_rollout, ROLLED, ROLLOUT_MISTAKES, gradients=False)
        return "right for one to four layers, any number of heads and images; every row sums to 1."

    return check(name, function, verify)


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


def between(measure: Callable[[Tensor], Tensor], *, exchanged: bool = False) -> Callable[[int, int], Tensor]:
    """Return distances ``(n, n)`` on a grid from the steps down and along; ``exchanged`` takes rows for columns."""

    def distances(gh: int, gw: int) -> Tensor:
        place = torch.arange(gh * gw)
        side = gh if exchanged else gw
        centres = torch.stack([place // side, place % side], dim=-1).float()
        return measure(centres[:, None] - centres)

    return distances


TOKENS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("", lambda weights: weights[..., 1:, 1:]),
    (
        "the last patch is left out instead of the class token, so that every patch is taken for its neighbour. The "
        "class token comes first: [..., 1:, 1:].",
        lambda weights: weights[..., :-1, :-1],
    ),
    (
        "the class token is left out as key and the last patch as query. The class token comes first on both sides: "
        "[..., 1:, 1:].",
        lambda weights: weights[..., :-1, 1:],
    ),
    (
        "the class token is left out as query and the last patch as key. The class token comes first on both sides: "
        "[..., 1:, 1:].",
        lambda weights: weights[..., 1:, :-1],
    ),
]
SHARES: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("", sums_to_one),
    (
        "the weights of the patches do not sum to 1 once the class token is left out: divide each row by its sum.",
        lambda weights: weights,
    ),
    (
        "it measures from how far away a patch is looked at: the weights are shared out over the queries. Divide by "
        "the sum over the keys, dim=-1.",
        lambda weights: weights / weights.sum(dim=-2, keepdim=True),
    ),
    (
        "all weights of an image are divided by one sum, so that queries which look at the class token count less. "
        "Divide each row by its own.",
        lambda weights: weights * weights.shape[-1] / weights.sum(dim=(-2, -1), keepdim=True),
    ),
    (
        "a softmax runs over the attention weights. They are shares already: divide each row by its sum.",
        lambda weights: weights.softmax(dim=-1),
    ),
    (
        "only the key with the largest weight counts. Weigh the distances to all keys by attention.",
        lambda weights: F.one_hot(weights.argmax(dim=-1), weights.shape[-1]).float(),
    ),
    (
        "all keys count the same: attention has no effect. Weigh the distances by it.",
        lambda weights: torch.full_like(weights, 1 / weights.shape[-1]),
    ),
]
EXCHANGED = (
    "rows and columns of the grid are exchanged. Patch i lies in row i // gw and column i % gw, for grid_size=(gh, gw)."
)
METRICS: list[tuple[str, Callable[[int, int], Tensor]]] = [
    ("", between(lambda steps: steps.norm(dim=-1))),
    (EXCHANGED, between(lambda steps: steps.norm(dim=-1), exchanged=True)),
    ("the distances are squared: take the root.", between(lambda steps: steps.square().sum(dim=-1))),
    (
        "the steps down and along are added up. The distance is the straight line: the root of the sum of their "
        "squares.",
        between(lambda steps: steps.abs().sum(dim=-1)),
    ),
    (
        "the larger of the steps down and along is taken. The distance is the straight line: the root of the sum of "
        "their squares.",
        between(lambda steps: steps.abs().amax(dim=-1)),
    ),
    (
        "the distance is taken between the numbers of the patches. Neighbours in a column are gw numbers apart: go "
        "from a number to its row, i // gw, and its column, i % gw.",
        lambda gh, gw: (torch.arange(gh * gw)[:, None] - torch.arange(gh * gw)).abs().float(),
    ),
    ("only rows count: columns are missing from the distance.", between(lambda steps: steps[..., 0].abs())),
    ("only columns count: rows are missing from the distance.", between(lambda steps: steps[..., 1].abs())),
]


def spread(
    maps: list[Tensor],
    grid_size: tuple[int, int],
    tokens: Callable = TOKENS[0][1],
    share: Callable = SHARES[0][1],
    metric: Callable = METRICS[0][1],
) -> Tensor:
    """Return the weighted distances before any sum, ``(layers, b, heads, i, j)``, with some of the steps replaced."""
    return share(tokens(torch.stack(maps))) * metric(*grid_size)


def summed(maps: list[Tensor], grid_size: tuple[int, int], *steps: Callable) -> Tensor:
    """Return distances summed over the keys, with mean over queries and images: ``(layers, heads)``."""
    return spread(maps, grid_size, *steps).sum(dim=-1).mean(dim=(1, 3))


def reduced(finish: Callable[[Tensor], Tensor]) -> Callable:
    """Return distances that are right but for what becomes of the axes ``(layers, b, heads, i, j)``."""
    return lambda maps, grid_size: finish(spread(maps, grid_size))


DISTANCE_MISTAKES = [
    Suspect(
        "the class token is still there as a query, at distance 0, and as a key that takes weight away. Leave it out "
        "on both sides, then divide each row by its sum.",
        lambda maps, grid_size: torch.stack(
            [(F.pad(METRICS[0][1](*grid_size), (1, 0, 1, 0)) * layer).sum(dim=-1).mean(dim=(0, 2)) for layer in maps]
        ),
    ),
    Suspect(
        "the root of the mean squared distance is taken. Take the root before weighing: the mean of the distances.",
        lambda maps, grid_size: summed(maps, grid_size, TOKENS[0][1], SHARES[0][1], METRICS[2][1]).sqrt(),
    ),
    Suspect(
        "the mean over the keys is taken, though the weights sum to 1 already. Sum over the keys, then take the mean "
        "over queries and images.",
        reduced(lambda spread: spread.mean(dim=(1, 3, 4))),
    ),
    Suspect(
        "the query patches are added up. Take their mean.",
        reduced(lambda spread: spread.sum(dim=(3, 4)).mean(dim=1)),
    ),
    Suspect(
        "the images are added up. Take their mean.", reduced(lambda spread: spread.sum(dim=-1).mean(dim=3).sum(dim=1))
    ),
    Suspect(
        "only the first image is measured. Take the mean over the batch.",
        reduced(lambda spread: spread.sum(dim=-1).mean(dim=3)[:, 0]),
    ),
    Suspect(
        "only the first query patch is measured. Take the mean over all.",
        reduced(lambda spread: spread.sum(dim=-1).mean(dim=1)[..., 0]),
    ),
    Suspect(
        "layers and heads are exchanged, (heads, layers). One row a layer is wanted: (layers, heads).",
        reduced(lambda spread: spread.sum(dim=-1).mean(dim=(1, 3)).T),
    ),
    Suspect(
        "the images are still there, (layers, b, heads). Take their mean.",
        reduced(lambda spread: spread.sum(dim=-1).mean(dim=3)),
    ),
    Suspect(
        "the heads are averaged. Each has a distance of its own, (layers, heads).",
        reduced(lambda spread: spread.sum(dim=-1).mean(dim=(1, 2, 3))),
    ),
    Suspect(
        "there is one number an image and layer, (layers, b). Take the mean over images, not over heads.",
        reduced(lambda spread: spread.sum(dim=-1).mean(dim=(2, 3))),
    ),
    Suspect(
        "the query patches are still there, (layers, heads, n). Take their mean.",
        reduced(lambda spread: spread.sum(dim=-1).mean(dim=1)),
    ),
    *(
        Suspect(joined(*sentences), lambda maps, grid_size, parts=parts: summed(maps, grid_size, *parts))
        for sentences, parts in (zip(*chosen, strict=True) for chosen in combined(TOKENS, SHARES, METRICS))
    ),
]


def attention_distance(function: Callable) -> Verdict:
    """Check an ``attention_distance(maps, grid_size)``: how far each head looks, in patches.

    Verified: the values for square and rectangular grids, one and more layers, heads and images; that the maps are left
    as they are. Gradients are not looked at.

    Args:
        function: takes a list with ``(b, heads, n + 1, n + 1)`` for every layer and a grid ``(gh, gw)``, and returns
            ``(layers, heads)``.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the arguments, the values or the treatment of the input are wrong.
    """
    name = "attention_distance"

    def reference(maps: list[Tensor], grid_size: tuple[int, int]) -> Tensor:
        return inside.attention_distance(maps, grid_size=grid_size)

    def verify() -> str:
        verify_function(name, function, reference, GRIDS, DISTANCE_MISTAKES, gradients=False)
        return "right for square and rectangular grids, any number of layers, heads and images."

    return check(name, function, verify)


# --- nearest neighbours ----------------------------------------------------------------------------------------------


class Neighbours(NamedTuple):
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
    Case("one query and one neighbour", (vectors(6, 3, start=31), vectors(1, 3, start=71), 1)),
    Case("all of the features", (vectors(4, 6, start=47), vectors(5, 6, start=59), 4)),
]


def unit(x: Tensor, dim: int | None = -1) -> Tensor:
    """Return vectors of length 1."""
    return F.normalize(x, dim=dim) if dim is not None else x / x.norm()


def apart(features: Tensor, queries: Tensor) -> Tensor:
    """Return Euclidean distances, ``(m, n)``."""
    return (queries[:, None] - features).norm(dim=-1)


BOTH = "Cosine similarity is the dot product of vectors of length 1: divide both by their norms."
# What is compared: a likeness (m, n), and what is returned in its place
LIKENESSES: list[tuple[str, Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]] = [
    ("", lambda f, q: unit(q) @ unit(f).T, lambda x: x),
    (f"the dot product is used, so long vectors win. {BOTH}", lambda f, q: q @ f.T, lambda x: x),
    (
        f"only the features are normalised, so that the order is right and the values are not. {BOTH}",
        lambda f, q: q @ unit(f).T,
        lambda x: x,
    ),
    (f"only the queries are normalised, so long features win. {BOTH}", lambda f, q: unit(q) @ f.T, lambda x: x),
    *(
        (
            "the Euclidean distance is used, which also depends on the lengths. Cosine similarity is the dot product "
            "of vectors of length 1.",
            lambda f, q, power=power: -(apart(f, q) ** power),
            sign,
        )
        for power in (1, 2)
        for sign in (torch.neg, lambda x: x)
    ),
    *(
        (
            "the values are distances between the normalised vectors. They have the right order; return the dot "
            "products instead.",
            lambda f, q, power=power: -(apart(unit(f), unit(q)) ** power),
            sign,
        )
        for power in (1, 2)
        for sign in (torch.neg, lambda x: x)
    ),
    (
        "the values are 1 - cosine, a distance. Return the cosine similarity itself.",
        lambda f, q: unit(q) @ unit(f).T,
        lambda x: 1 - x,
    ),
    (
        "the vectors are normalised over the wrong axis: each column has length 1, not each row. Use dim=-1.",
        lambda f, q: unit(q, 0) @ unit(f, 0).T,
        lambda x: x,
    ),
    (
        f"each set is divided by one norm, that of the whole matrix. {BOTH} Use dim=-1.",
        lambda f, q: unit(q, None) @ unit(f, None).T,
        lambda x: x,
    ),
    (
        "the dot products are divided by the squares of the norms. Divide by the norms.",
        lambda f, q: (q / q.square().sum(dim=-1, keepdim=True)) @ (f / f.square().sum(dim=-1, keepdim=True)).T,
        lambda x: x,
    ),
    (
        "the vectors are divided by the sums of their values. Divide by their norms, the roots of the sums of squares.",
        lambda f, q: (q / q.sum(dim=-1, keepdim=True)) @ (f / f.sum(dim=-1, keepdim=True)).T,
        lambda x: x,
    ),
    (
        "each vector's mean is taken off first, which makes it a correlation. Normalise the vectors as they are.",
        lambda f, q: unit(q - q.mean(dim=-1, keepdim=True)) @ unit(f - f.mean(dim=-1, keepdim=True)).T,
        lambda x: x,
    ),
    (
        "the sign is dropped, so that vectors in the opposite direction count as near.",
        lambda f, q: (unit(q) @ unit(f).T).abs(),
        lambda x: x,
    ),
    (
        "a softmax runs over the similarities. Return them as they are.",
        lambda f, q: (unit(q) @ unit(f).T).softmax(dim=-1),
        lambda x: x,
    ),
]
PICKS: list[tuple[str, Callable[[Tensor, int], tuple[Tensor, Tensor]]]] = [
    ("", lambda likeness, count: likeness.topk(count)),
    ("the least similar are picked. The best are wanted.", lambda likeness, count: likeness.topk(count, largest=False)),
    (
        "the right ones are picked, but the worst of them comes first. The best comes first.",
        lambda likeness, count: tuple(part.flip(-1) for part in likeness.topk(count)),
    ),
    (
        "the most similar one is left out. A query is not always among the features: return it too.",
        lambda likeness, count: tuple(part[:, 1 : count + 1] for part in likeness.sort(descending=True)),
    ),
    (
        "all features are returned. Only the first count are wanted.",
        lambda likeness, count: likeness.topk(likeness.shape[1]),
    ),
    (
        "the best are picked for every feature, among the queries. The other way round is wanted: a row for every "
        "query, (m, count).",
        lambda likeness, count: likeness.T.topk(count),
    ),
    (
        "the axes are exchanged, (count, m): a row for every query is wanted, (m, count).",
        lambda likeness, count: tuple(part.T for part in likeness.topk(count)),
    ),
    (
        "the best are picked along the queries' axis. Pick along the features, dim=-1 of (m, n).",
        lambda likeness, count: likeness.topk(count, dim=0),
    ),
]
ORDERS: list[tuple[str, Callable[[Tensor, Tensor], Neighbours]]] = [
    ("", Neighbours),
    (
        "values and indices are exchanged: return (values, indices).",
        lambda values, indices: Neighbours(indices, values),
    ),
]


def found(likeness: Callable, value: Callable, pick: Callable, order: Callable) -> Callable:
    """Return a search with some of its steps replaced."""

    def search(features: Tensor, queries: Tensor, count: int) -> Neighbours:
        values, indices = pick(likeness(features, queries), count)
        return order(value(values), indices)

    return search


NEAREST_MISTAKES = [
    Suspect(joined(first, second, third), found(likeness, value, pick, order))
    for (first, likeness, value), (second, pick), (third, order) in combined(LIKENESSES, PICKS, ORDERS)
]


def nearest(function: Callable) -> Verdict:
    """Check a ``nearest(features, queries, count)``: the features of the highest cosine similarity, best first.

    Verified: values and indices for one and more queries and neighbours, for queries among the features, and for all
    features in order; that the input is left as it is. Gradients are not looked at.

    Args:
        function: takes features ``(n, d)``, queries ``(m, d)`` and a number, and returns values and indices,
            ``(m, count)`` each.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: values, indices or the treatment of the input are wrong.
    """

    def reference(features: Tensor, queries: Tensor, count: int) -> Neighbours:
        return Neighbours(*inside.nearest(features, queries, count))

    @wraps(function, updated=())
    def paired(features: Tensor, queries: Tensor, count: int) -> Neighbours:
        result = function(features, queries, count)
        if result is None or result is Ellipsis:
            return result
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            came = f"{len(result)} results" if isinstance(result, (tuple, list)) else f"a {type(result).__name__}"
            raise CheckFailed(f"two results are wanted, the values and the indices; got {came}.")
        if any(part is Ellipsis for part in result):
            return ...
        kinds = [part.is_floating_point() if isinstance(part, Tensor) else None for part in result]
        if None in kinds:
            came = " and ".join(type(part).__name__ for part in result)
            raise CheckFailed(f"values and indices must be tensors; got {came}.")
        if kinds == [True, True]:
            raise CheckFailed(
                "the indices are floating point: whole numbers are wanted, as topk and argsort give them."
            )
        return Neighbours(*result)

    def verify() -> str:
        verify_function("nearest", paired, reference, SEARCHES, NEAREST_MISTAKES, gradients=False)
        return "right for one and more queries and neighbours, whatever the lengths of the vectors; best first."

    return check("nearest", function, verify)


# --- silenced heads --------------------------------------------------------------------------------------------------

Heads = list[tuple[int, int]]


def model_case(label: str, heads: Heads, *, training: bool = False, **options) -> Case:
    """Return a model with parameters from a formula, and the heads to be silenced in it."""
    sizes = dict(image_size=(4, 6), patch_size=2, in_channels=1, num_classes=5, mlp_dim=10)
    model = set_parameters(vit_course.VisionTransformer(**sizes | options))
    return Case(label, (model.train(training), heads))


def model_cases() -> list[Case]:
    """Return the cases of :func:`silence_heads`; the models are built when they are wanted."""
    deep = dict(num_layers=3, num_heads=3, hidden_dim=12)
    wide = dict(num_layers=2, num_heads=4, hidden_dim=8, pool="mean")
    return [
        model_case("one head", [(2, 1)], **deep),
        model_case("several heads, two of one layer", [(1, 0), (0, 2), (2, 1), (0, 1)], **deep),
        model_case("a model in train mode", [(1, 0), (0, 1)], training=True, **wide),
        model_case("all heads of a layer", [(0, head) for head in range(4)], **wide),
        model_case("no head", [], **deep),
    ]


@torch.no_grad()
def logits_of(model: nn.Module, given: nn.Module) -> Tensor:
    """Return a model's logits for three images without symmetry, of the size that the ``given`` model reads."""
    embedding = given.embedding.patch_embedding
    return model(2 * formula(3, embedding.in_channels, *embedding.image_size))


def span(attention: nn.Module, head: int) -> slice:
    """Return the features of one head among those of all."""
    width = attention.hidden_dim // attention.num_heads
    return slice(head * width, (head + 1) * width)


def columns(features: Callable[[nn.Module, int], slice]) -> Callable[[nn.Module, int], None]:
    """Return the change that zeroes columns of ``out_proj.weight``."""

    def change(attention: nn.Module, head: int) -> None:
        attention.out_proj.weight[:, features(attention, head)] = 0

    return change


def rows_of_qkv(*thirds: int, bias: bool = True) -> Callable[[nn.Module, int], None]:
    """Return the change that zeroes a head's rows in query (0), key (1) or value (2)."""

    def change(attention: nn.Module, head: int) -> None:
        for third in thirds:
            attention.qkv.weight.chunk(3)[third][span(attention, head)] = 0
            if bias:
                attention.qkv.bias.chunk(3)[third][span(attention, head)] = 0

    return change


def values_by_head(attention: nn.Module, head: int) -> None:
    """Zero what would be the head's values if ``qkv`` were laid out head by head, ``(heads three e)``."""
    width = attention.hidden_dim // attention.num_heads
    rows = slice((3 * head + 2) * width, (3 * head + 3) * width)
    attention.qkv.weight[rows], attention.qkv.bias[rows] = 0, 0


def rows_of_out_proj(attention: nn.Module, head: int) -> None:
    """Zero the head's rows in ``out_proj.weight``."""
    attention.out_proj.weight[span(attention, head)] = 0


def with_bias(attention: nn.Module, head: int) -> None:
    """Silence the head rightly, and the layer's bias too."""
    HEAD_COLUMNS(attention, head)
    attention.out_proj.bias[:] = 0


def with_slice_of_bias(attention: nn.Module, head: int) -> None:
    """Silence the head rightly, and its slice of the layer's bias too."""
    HEAD_COLUMNS(attention, head)
    attention.out_proj.bias[span(attention, head)] = 0


HEAD_COLUMNS = columns(span)  # what is right


def changed(
    change: Callable[[nn.Module, int], None] = HEAD_COLUMNS, which: Callable[[Heads], Iterable] = lambda heads: heads
) -> Callable[[nn.Module, Heads], Tensor]:
    """Return the logits of a copy with something changed for every pair that ``which`` leaves."""

    def result(model: nn.Module, heads: Heads) -> Tensor:
        other = copy.deepcopy(model)
        for layer, head in which(heads):
            change(other.encoder.layers[layer].self_attention, head)
        return logits_of(other, model)

    return result


def others_silenced(model: nn.Module, heads: Heads) -> Tensor:
    """Return the logits where only the named heads still add something."""
    layers = model.encoder.layers
    every = [(layer, head) for layer in range(len(layers)) for head in range(layers[layer].self_attention.num_heads)]
    return changed()(model, [pair for pair in every if pair not in heads])


def others_in_layer_silenced(model: nn.Module, heads: Heads) -> Tensor:
    """Return the logits where, in the layers named, only the named heads still add something."""
    layers = {layer for layer, _ in heads}
    every = [(layer, head) for layer in layers for head in range(model.encoder.layers[layer].self_attention.num_heads)]
    return changed()(model, [pair for pair in every if pair not in heads])


SILENCE_MISTAKES = [
    Suspect("the copy is unchanged: every head still adds to its layer's output.", changed(which=lambda heads: [])),
    Suspect(
        "rows of out_proj.weight are zeroed. Its columns belong to the heads, which it reads; its rows are the "
        "features that it writes: weight[:, head * e : (head + 1) * e].",
        changed(rows_of_out_proj),
    ),
    Suspect(
        "every num_heads-th column is zeroed, head::heads, so that each head loses a part. A head's columns stand "
        "together: head * e to (head + 1) * e.",
        changed(columns(lambda attention, head: slice(head, None, attention.num_heads))),
    ),
    Suspect(
        "the columns head to head + e are zeroed. Head number head begins at head * e.",
        changed(columns(lambda a, head: slice(head, head + a.hidden_dim // a.num_heads))),
    ),
    Suspect(
        "a single column is zeroed. A head has e of them: head * e to (head + 1) * e.",
        changed(columns(lambda attention, head: slice(head, head + 1))),
    ),
    Suspect(
        "a head is taken to be num_heads wide. It is e = hidden_dim // num_heads wide.",
        changed(columns(lambda a, head: slice(head * a.num_heads, (head + 1) * a.num_heads))),
    ),
    Suspect(
        "the columns from the head's first to the last of all are zeroed, and with them the heads behind it. Stop at "
        "(head + 1) * e.",
        changed(columns(lambda a, head: slice(span(a, head).start, None))),
    ),
    Suspect(
        "the columns of the heads before it are zeroed too. Start at head * e.",
        changed(columns(lambda a, head: slice(0, span(a, head).stop))),
    ),
    Suspect(
        "all heads of the layer are silenced. Zero the columns head * e to (head + 1) * e alone.",
        changed(columns(lambda attention, head: slice(None))),
    ),
    Suspect(
        "layer and head are exchanged: the pairs are (layer, head).",
        changed(which=lambda heads: [pair[::-1] for pair in heads]),
    ),
    Suspect(
        "layers are counted from 1. The first is 0.",
        changed(which=lambda heads: [(layer - 1, head) for layer, head in heads]),
    ),
    Suspect("heads are counted from 1. The first is 0.", changed(columns(lambda a, head: span(a, head - 1)))),
    Suspect(
        "the bias of out_proj becomes zero too. It belongs to the layer, not to a head: leave it.",
        changed(with_bias),
    ),
    Suspect(
        "a slice of out_proj's bias becomes zero too. The bias belongs to the layer, not to a head: leave it.",
        changed(with_slice_of_bias),
    ),
    *(
        Suspect(
            "the head's queries or keys are zero, so that its scores are all the same: it now averages the values of "
            "all tokens, and still adds that. Zero its columns of out_proj.weight, or its values.",
            changed(rows_of_qkv(*thirds, bias=bias)),
        )
        for thirds, bias in (((0, 1), True), ((0, 1), False), ((0,), True), ((1,), True), ((1,), False))
    ),
    Suspect(
        "the head's query weights are zero, so that all tokens look the same way: it still adds what they see. Zero "
        "its columns of out_proj.weight, or its values.",
        changed(rows_of_qkv(0, bias=False)),
    ),
    Suspect(
        "the head's value weights are zero, but their bias is not: the head still adds a constant. Zero the bias of "
        "its values too, or its columns of out_proj.weight.",
        changed(rows_of_qkv(2, bias=False)),
    ),
    Suspect(
        "the rows of qkv are taken head by head, (heads three e). They stand as (three heads e): the values of all "
        "heads are the last third.",
        changed(values_by_head),
    ),
    Suspect(
        "only the last of the pairs is silenced. Make one copy before the loop, and silence all pairs in it.",
        changed(which=lambda heads: heads[-1:]),
    ),
    Suspect(
        "only the first of the pairs is silenced. Return after the loop, not in it.",
        changed(which=lambda heads: heads[:1]),
    ),
    Suspect(
        "of several heads in one layer only the last is silenced: a dict keeps one for each layer.",
        changed(which=lambda heads: dict(heads).items()),
    ),
    Suspect(
        "the named heads are kept, and all others silenced. The other way round is wanted.",
        others_silenced,
    ),
    Suspect(
        "the named heads are kept, and the others of their layers silenced. The other way round is wanted.",
        others_in_layer_silenced,
    ),
    Suspect(
        "the copy answers 0 for every class, as a new model does. Copy the weights as well: copy.deepcopy(model).",
        lambda model, heads: torch.zeros(3, model.head.out_features),
    ),
]


def silence_heads(function: Callable) -> Verdict:
    """Check a ``silence_heads(model, heads)``: a copy of the model in which the named heads add nothing.

    Verified: the logits of the copy, in eval and in train mode, for no head, one, several, and all heads of a layer;
    that it is in the model's mode; that the model itself, its parameters and its logits are as they were.

    Args:
        function: takes a ``VisionTransformer`` and a list of pairs ``(layer, head)``, and returns a model.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the logits are wrong, the copy is in another mode, or the model was changed.
    """
    name = "silence_heads"

    def reference(model: nn.Module, heads: Heads) -> Tensor:
        return logits_of(inside.silence_heads(model, heads), model)

    @wraps(function, updated=())
    def logits(model: nn.Module, heads: Heads) -> Tensor:
        before = copy.deepcopy(model)
        result = call_on_parameters(function, model, heads)
        if result is None or result is Ellipsis:
            return result
        if result is model:
            raise CheckFailed(
                "it returns the model that it was given: its caller's heads would be silent as well. Work on a copy: "
                "copy.deepcopy(model)."
            )
        verify_left_alone(before, model)
        if not isinstance(result, nn.Module):
            raise CheckFailed(f"a model is wanted; got {type(result).__name__}.")
        out = logits_of(result, before)
        if not same(logits_of(model, before), logits_of(before, before)):
            raise CheckFailed(
                "the model that it was given computes something else now, though its parameters are the same: a hook "
                "or another forward is left on it. Work on a copy: copy.deepcopy(model)."
            )
        if any(part.training != before.training for part in result.modules()):
            mode, other = ("train", "eval") if before.training else ("eval", "train")
            raise CheckFailed(
                f"the model was in {mode} mode, and the copy has parts in {other} mode. Leave it as it was: "
                "copy.deepcopy does."
            )
        return out

    def verify() -> str:
        with torch.no_grad():
            cases = model_cases()
        verify_function(name, logits, reference, cases, SILENCE_MISTAKES, gradients=False)
        return "right for one and several heads, in either mode; the bias stays, and the model itself is left alone."

    return check(name, function, verify)


def call_on_parameters(function: Callable, model: nn.Module, heads: Heads) -> object:
    """Call the learner's function as a notebook does, with gradients on, and name the error that this may bring."""
    try:
        with torch.enable_grad():
            return function(model, heads)
    except RuntimeError as error:
        if "leaf" not in str(error):
            raise
        raise CheckFailed(
            f"PyTorch refuses to write into a parameter while it keeps track of gradients{place(error, function)}. "
            "Put that line into a block `with torch.no_grad():`."
        ) from error


def verify_left_alone(before: nn.Module, after: nn.Module) -> None:
    """Check that parameters, buffers and mode of a model are what they were."""
    old, new = before.state_dict(), after.state_dict()
    other = next((key for key in old if key not in new or not torch.equal(old[key], new[key])), None)
    if other is not None or len(old) != len(new):
        raise CheckFailed(
            f"it changes {other or 'the parameters'} of the model that it was given, not of a copy alone. "
            "copy.copy(model) shares its layers with the model: copy.deepcopy(model) does not."
        )
    if any(a.training != b.training for a, b in zip(before.modules(), after.modules(), strict=False)):
        raise CheckFailed("it switches the model that it was given between train and eval mode. Leave it as it was.")
    if [p.requires_grad for p in before.parameters()] != [p.requires_grad for p in after.parameters()]:
        raise CheckFailed("it switches requires_grad off in the model that it was given: it could never train again.")
