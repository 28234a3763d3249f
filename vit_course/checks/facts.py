"""What can be said of wrong values without knowing the mistake: other places, a factor, rows that do not sum to 1."""

from collections.abc import Sequence
from itertools import permutations

import torch
from torch import Tensor

from vit_course.checks.compare import same
from vit_course.checks.verdict import sentence


def fact(results: Sequence, expected: Sequence, given: Sequence[Sequence[Tensor]] = ()) -> str:
    """Return what all pairs of results and expected tensors have in common, if the evidence is clear; else "".

    Args:
        results: what came.
        expected: what was wanted.
        given: for each pair the tensors that were given, which tell whether values were only reshaped.
    """
    pairs = [(r.detach(), e) for r, e in zip(results, expected, strict=True) if isinstance(r, Tensor)]
    if len(pairs) < len(expected) or not all(isinstance(e, Tensor) and r.numel() == e.numel() >= 4 for r, e in pairs):
        return ""
    if all(same(r, e) for r, e in pairs):
        return ""
    if all(same(r.reshape(e.shape), e) for r, e in pairs):
        return sentence("facts.shape")
    axes = {tensor.ndim for pair in pairs for tensor in pair}
    orders = permutations(range(axes.pop())) if len(axes) == 1 and max(axes) <= 5 else ()
    if any(all(same(r.permute(order), e) for r, e in pairs) for order in orders):
        return sentence("facts.axes")
    if all(same(r.flatten().sort().values, e.flatten().sort().values) for r, e in pairs):
        reshaped = given and all(
            any(same(r.flatten(), arg.flatten()) for arg in args) for (r, _), args in zip(pairs, given, strict=True)
        )
        return sentence("facts.reshaped" if reshaped else "facts.places")
    return _scaled(pairs) if all(r.shape == e.shape for r, e in pairs) else ""


def _scaled(pairs: Sequence[tuple[Tensor, Tensor]]) -> str:
    """Return whether values differ by one factor or one shift, or rows do not sum to 1 although they should."""
    first, wanted = (tensor.double() for tensor in pairs[0])
    size = first.abs().sum() / wanted.abs().sum()
    for factor in (size, -size):
        if factor.isfinite() and factor and all(same(r / factor, e.double()) for r, e in pairs):
            return sentence("facts.factor", factor=factor.item())
    shift = (first - wanted).mean()
    if shift.isfinite() and shift and all(same(r.double() - shift, e.double()) for r, e in pairs):
        return sentence("facts.plus" if shift > 0 else "facts.minus", shift=shift.abs().item())
    sums = [(r.double().sum(dim=-1), e.double().sum(dim=-1)) for r, e in pairs if r.ndim]
    if sums and all(same(e, torch.ones_like(e)) and not same(r, torch.ones_like(r)) for r, e in sums):
        furthest = max(sums[0][0].flatten().tolist(), key=lambda total: abs(total - 1))
        return sentence("facts.rows", total=furthest)
    return ""
