"""Comparing a learner's values with the right ones, and describing the first difference.

Values are compared in single precision to 1e-5 of the largest one, which no correct order of computation exceeds.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from vit_course.checks.verdict import sentence

TOLERANCE = 1e-5  # of the largest expected value


def formula(*shape: int, start: int = 1) -> Tensor:
    """Return a float32 tensor of values in -1 .. 1 from whole-number arithmetic: no symmetry, the same everywhere."""
    k = torch.arange(start, start + torch.Size(shape).numel(), dtype=torch.int64)
    return (((k * k * 71 + k * 29 + 13) % 997).to(torch.float32) / 498 - 1).reshape(shape)


def set_parameters(module: nn.Module, *, start: int = 1) -> nn.Module:
    """Give every parameter values from a formula, so that zeros and ones at the start hide no fault; eval mode."""
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            values = formula(*parameter.shape, start=start + 1000 * place)
            parameter.copy_(0.5 * values if parameter.ndim < 2 else values * parameter[0].numel() ** -0.5)
    return module.eval()


def flat(parameters: Iterable[Tensor]) -> Tensor:
    """Return a copy of all values in one row."""
    return torch.cat([parameter.detach().clone().flatten() for parameter in parameters])


def same(actual: object, expected: object) -> bool:
    """Whether two results are equal in shape and, to rounding, in value; nan is equal to nothing."""
    if hasattr(expected, "matches"):
        return expected.matches(actual)
    if isinstance(expected, (tuple, list)):
        return (
            isinstance(actual, (tuple, list))
            and len(actual) == len(expected)
            and all(same(a, e) for a, e in zip(actual, expected, strict=True))
        )
    if isinstance(actual, (int, float)):
        actual = torch.tensor(float(actual))
    if isinstance(expected, (int, float)):
        expected = torch.tensor(float(expected))
    if not isinstance(actual, Tensor) or actual.shape != expected.shape:
        return False
    return not differs(actual, expected).any()


def differs(actual: Tensor, expected: Tensor) -> Tensor:
    """Return where two tensors of one shape differ by more than rounding; where whole numbers are wanted, at all.

    An infinity is equal to itself, nan never.
    """
    tolerance = TOLERANCE if expected.is_floating_point() else 0.0
    actual, expected = actual.detach().double().cpu(), expected.detach().double().cpu()
    finite = expected[expected.isfinite()].abs()
    scale = max(1e-3, finite.max().item()) if finite.numel() else 1.0
    return ~(((actual - expected).abs() <= tolerance * scale) | (actual == expected))


def describe(actual: object, expected: object) -> str:
    """Say in few words what was expected and what came: types, then shapes, then the first value that differs."""
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return sentence("compare.values", wanted=f"{expected:.6g}", came=f"{actual:.6g}")
    if isinstance(expected, tuple) and hasattr(expected, "_fields") and isinstance(actual, tuple):
        parts = zip(expected._fields, actual, expected, strict=True)
        return next(f"{name.replace('_', ' ')}: {describe(a, e)}" for name, a, e in parts if not same(a, e))
    if not isinstance(expected, Tensor) or not isinstance(actual, Tensor):
        return sentence("compare.values", wanted=named(expected), came=named(actual))
    if actual.shape != expected.shape:
        return sentence("compare.shapes", wanted=tuple(expected.shape), came=tuple(actual.shape))
    wrong = differs(actual, expected)
    at = wrong.nonzero()[0].tolist()
    wanted, came = expected[tuple(at)].item(), actual[tuple(at)].item()
    digits = ".4f" if abs(wanted - came) > 1e-3 else ".7g"
    values = sentence("compare.values", wanted=f"{wanted:{digits}}", came=f"{came:{digits}}")
    if not at:
        return values
    return sentence("compare.elements", at=at, values=values, wrong=int(wrong.sum()), total=wrong.numel())


def named(value: object) -> str:
    """Name a value in a message: a tensor by its shape, a list of tensors too, a model by its class."""
    if isinstance(value, Tensor):
        return sentence("compare.tensor", shape=tuple(value.shape))
    if isinstance(value, tuple) and any(isinstance(part, Tensor) for part in value):
        return sentence("compare.tuple", count=len(value))
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return sentence("compare.list", count=len(value), shape=tuple(value[0].shape))
    if value is None or isinstance(value, nn.Module):
        return type(value).__name__ if value is not None else "None"
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."


def duplicate(value: object) -> object:
    """Return a copy that shares no memory with the value, or the value itself if it holds no numbers."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    return type(value)(map(duplicate, value)) if type(value) in (list, tuple) else value


def unchanged(before: object, after: object) -> bool:
    """Whether a copy that was handed over is still as it was, bit by bit."""
    if isinstance(before, (list, tuple)):
        return len(before) == len(after) and all(map(unchanged, before, after))
    if isinstance(before, np.ndarray):
        before, after = torch.from_numpy(before), torch.from_numpy(after)
    if isinstance(before, Tensor):
        same_shape = before.shape == after.shape
        return same_shape and bool(((before == after) | ((before != before) & (after != after))).all())
    return before is after or isinstance(before, nn.Module) or before == after
