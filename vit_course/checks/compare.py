"""Comparing a learner's values with the right ones, and describing the first difference.

Values are compared in single precision to 1e-5 of the largest one, which no correct order of computation exceeds.
"""

from collections.abc import Sequence
from itertools import permutations
from numbers import Number

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from vit_course.checks.verdict import sentence

TOLERANCE = 1e-5  # of the largest expected value
OBJECTS = (nn.Module, Dataset, DataLoader)  # named by their class


def formula(*shape: int, start: int = 1) -> Tensor:
    """Return a float32 tensor of values in -1 .. 1 from whole-number arithmetic: no symmetry, the same everywhere."""
    k = torch.arange(start, start + torch.Size(shape).numel(), dtype=torch.int64)
    return (((k * k * 71 + k * 29 + 13) % 997).to(torch.float32) / 498 - 1).reshape(shape)


def set_parameters(module: nn.Module) -> nn.Module:
    """Give every parameter values from a formula, so that zeros and ones at the start hide no fault; eval mode."""
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            values = formula(*parameter.shape, start=1 + 1000 * place)
            parameter.copy_(0.5 * values if parameter.ndim < 2 else values * parameter[0].numel() ** -0.5)
    return module.eval()


def same(actual: object, expected: object) -> bool:
    """Whether two results are of one kind, and equal in shape and, to rounding, in value; nan is equal to nothing."""
    if hasattr(expected, "matches"):
        return expected.matches(actual)
    if not alike(actual, expected):
        return False
    if isinstance(expected, (tuple, list, dict)):
        pairs = _pairs(actual, expected)
        return pairs is not None and all(same(a, e) for a, e in pairs.values())
    if not (is_array(expected) or _is_scalar(expected)):
        return actual == expected
    actual, expected = as_tensor(actual), as_tensor(expected)
    return actual.shape == expected.shape and not differs(actual, expected).any()


def alike(actual: object, expected: object) -> bool:
    """Whether two results are of one kind: numbers, tensors, arrays, lists or tuples, or one type; or both complex."""
    if _is_complex(actual) != _is_complex(expected):
        return False
    if _is_scalar(expected):
        return _is_scalar(actual)
    kinds = (Tensor, np.ndarray, (tuple, list), type(expected))
    return next(isinstance(actual, kind) for kind in kinds if isinstance(expected, kind))


def _pairs(actual: object, expected: tuple | list | dict) -> dict[object, tuple] | None:
    """Return the parts of two results side by side, by name or place; None if one has others than the other."""
    own, wanted = (parts if isinstance(parts, dict) else dict(enumerate(parts)) for parts in (actual, expected))
    return {key: (own[key], wanted[key]) for key in wanted} if own.keys() == wanted.keys() else None


def is_array(value: object) -> bool:
    """Whether a value is a tensor or an array."""
    return isinstance(value, (Tensor, np.ndarray))


def _is_complex(value: object) -> bool:
    is_number = isinstance(value, (Number, np.generic, np.ndarray))
    return value.is_complex() if isinstance(value, Tensor) else is_number and np.iscomplexobj(value)


def _is_scalar(value: object) -> bool:
    return isinstance(value, (Number, np.generic)) or (is_array(value) and value.ndim == 0)


def as_tensor(value: object) -> Tensor:
    """Return a number or an array as a tensor, with nothing lost: a Python float is in double precision.

    What no tensor holds, such as texts and integers of more than 64 bits, is nan, which is equal to nothing.
    """
    if isinstance(value, Tensor):
        return value
    array = np.array(value)
    return torch.from_numpy(array) if array.dtype.kind in "biufc" else torch.full(array.shape, torch.nan)


def differs(actual: Tensor, expected: Tensor) -> Tensor:
    """Return where two tensors of one shape differ by more than rounding; where whole numbers are wanted, at all.

    An infinity is equal to itself, nan never.
    """
    tolerance = TOLERANCE if expected.is_floating_point() else 0.0
    kind = torch.complex128 if expected.is_complex() else torch.float64
    actual, expected = (each.detach().to("cpu", kind) for each in (actual, expected))
    finite = expected[expected.isfinite()].abs()
    scale = max(1e-3, finite.max().item()) if finite.numel() else 1.0
    return ~torch.isclose(actual, expected, rtol=0.0, atol=tolerance * scale)


def describe(actual: object, expected: object) -> str:
    """Say in few words what was expected and what came: types, then shapes, then the first value that differs."""
    pairs = _pairs(actual, expected) if isinstance(expected, (tuple, list, dict)) and alike(actual, expected) else {}
    for key, (one, right) in (pairs or {}).items():
        if not same(one, right):
            names = getattr(expected, "_fields", None)  # of a named tuple
            name = key if isinstance(expected, dict) else names[key] if names else sentence("compare.part", place=key)
            return f"{name}: {describe(one, right)}"
    if not alike(actual, expected) or not (is_array(expected) or _is_scalar(expected)):
        return sentence("compare.values", wanted=named(expected), came=named(actual))
    whole, actual, expected = actual, as_tensor(actual), as_tensor(expected)
    if actual.shape != expected.shape:
        return sentence("compare.shapes", wanted=tuple(expected.shape), came=tuple(actual.shape))
    wrong = differs(actual, expected)
    at = wrong.nonzero()[0].tolist()
    wanted, came = expected[tuple(at)].item(), actual[tuple(at)].item()
    digits = ".10g" if isinstance(wanted, int) else ".4f" if abs(wanted - came) > 1e-3 else ".7g"
    came = named(whole) if isinstance(whole, int) else f"{came:{digits}}"
    values = sentence("compare.values", wanted=f"{wanted:{digits}}", came=came)
    if not at:
        return values
    return sentence("compare.elements", at=at, values=values, wrong=int(wrong.sum()), total=wrong.numel())


def named(value: object) -> str:
    """Name a value in a message: a tensor by its shape, a list of tensors too, a model by its class."""
    if is_array(value):
        kind = "tensor" if isinstance(value, Tensor) else "array"
        return sentence(f"compare.{kind}", shape=tuple(value.shape))
    if isinstance(value, (tuple, list)) and any(map(is_array, value)):
        return sentence("compare.several", kind=type(value).__name__, parts=", ".join(map(named, value)))
    if isinstance(value, OBJECTS):
        return type(value).__name__
    if isinstance(value, dict):
        return sentence("compare.dictionary", count=len(value))
    said = repr(tuple(value) if isinstance(value, torch.Size) else value)
    return said if len(said) <= 60 else f"{said[:57]}..."


def duplicate(value: object) -> object:
    """Return a copy that shares no memory with the value, or the value itself if it holds no numbers."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: duplicate(part) for key, part in value.items()}
    return type(value)(map(duplicate, value)) if type(value) in (list, tuple) else value


def unchanged(before: object, after: object) -> bool:
    """Whether a copy that was handed over is still as it was, bit by bit."""
    if isinstance(before, (dict, list, tuple)):
        pairs = _pairs(before, after)
        return pairs is not None and all(unchanged(*pair) for pair in pairs.values())
    if is_array(before):
        before, after = as_tensor(before), as_tensor(after)
        same_shape = before.shape == after.shape
        return same_shape and bool(((before == after) | ((before != before) & (after != after))).all())
    return before is after or isinstance(before, nn.Module) or before == after


# --- what can be said of wrong values without knowing the mistake ----------------------------------------------------


def other_kind(actual: object, expected: object) -> str:
    """Return how the kind of a result differs from what is wanted, a name of a sentence; empty if it does not."""
    if alike(actual, expected):
        return ""
    if _is_complex(actual):
        return "complex"
    if not isinstance(expected, Tensor):
        return "other_kind"
    if isinstance(actual, (tuple, list)) and expected.ndim and list(map(named, actual)) == list(map(named, expected)):
        return "stack"
    return "wrong_shape" if isinstance(actual, Tensor) else "kind"  # a number has axes in one of them


def fact(trials: Sequence) -> str:
    """Return what all results have in common with what is wanted, if the evidence is clear; else "".

    Args:
        trials: :class:`vit_course.checks.declare.Trial`; their cases' tensors tell whether values were only reshaped.
    """
    if not all(is_array(one.wanted) and alike(one.came, one.wanted) for one in trials):
        return ""
    pairs = [(as_tensor(one.came).detach(), as_tensor(one.wanted)) for one in trials]
    if not all(r.numel() == e.numel() >= 4 for r, e in pairs):
        return ""
    if all(same(r.reshape(e.shape), e) for r, e in pairs):
        return sentence("facts.shape")
    axes = {tensor.ndim for pair in pairs for tensor in pair}
    orders = permutations(range(axes.pop())) if len(axes) == 1 and max(axes) <= 5 else ()
    if any(all(same(r.permute(order), e) for r, e in pairs) for order in orders):
        return sentence("facts.axes")
    if all(same(r.flatten().sort().values, e.flatten().sort().values) for r, e in pairs):
        in_order = [(as_tensor(one.came).flatten(), filter(is_array, one.case.args)) for one in trials]
        reshaped = all(any(same(came, as_tensor(arg).flatten()) for arg in args) for came, args in in_order)
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
