"""The check of a small function: its values against an independent computation."""

from collections.abc import Callable
from itertools import permutations
from numbers import Number

import numpy as np
import torch
from torch import Tensor

from vit_course.checks.evidence import CheckFailed, NotWritten, Verdict, check, describe, differs, learners


def same_values(function: Callable, oracle: Callable, *inputs: object) -> Verdict:
    """Check a function by another that computes the same in its own way.

    Verified: for every input, the kind of the result (array, tensor, number, list), its shape and its values: whole
    numbers exactly, others to 1e-5 of the largest; that the input is left as it is. Gradients are not looked at. Where
    the values are wrong, the message says whether they are the right ones with the axes in another order, in other
    places, or multiplied by one factor.

    Args:
        function: the learner's function.
        oracle: a function of the same arguments, right by other means than the answer's own line: a loop, another
            library's call.
        inputs: each is one call. A tuple is taken as several arguments; arrays, tensors, numbers and lists of them as
            one.

    Returns:
        One line that says on how many inputs the values are equal, or that the function is not written yet.

    Raises:
        CheckFailed: a result is of another kind or shape or has other values, or an input was changed.
        ValueError: no inputs.

    Example::

        checks.same_values(channels_first, lambda images: images.transpose(0, 3, 1, 2), test_images)
    """
    if not inputs:
        raise ValueError("inputs must be at least one: same_values(function, oracle, *inputs)")
    name = getattr(function, "__name__", type(function).__name__).replace("<lambda>", "your function")

    def verify() -> str:
        pairs = []
        for place, given in enumerate(inputs, start=1):
            label = f"input {place}" if len(inputs) > 1 else "the input"
            args = given if isinstance(given, tuple) else (given,)
            before = [duplicate(arg) for arg in args]
            theirs = [duplicate(arg) for arg in args]
            try:
                with learners(name, function, f"on {label}, {' and '.join(map(kind, args))}"):
                    result = function(*theirs)
            except CheckFailed as failure:
                if not pairs:
                    raise
                compare(pairs)
                right = ", ".join(earlier for earlier, *_ in pairs)
                raise CheckFailed(f"right for {right}; {failure}") from failure.__cause__
            if result is Ellipsis:
                raise NotWritten("not written yet: it returns ...")
            if not all(unchanged(a, b) for a, b in zip(before, theirs, strict=True)):
                raise CheckFailed(f"it changes {label} in place, and the caller's with it. Return a new one instead.")
            pairs.append((label, result, oracle(*before), before))
        compare(pairs)
        count = "the input" if len(inputs) == 1 else f"{len(inputs)} inputs"
        return f"equal to an independent computation on {count}."

    return check(name, function, verify)


def compare(pairs: list[tuple[str, object, object, list]]) -> None:
    """Compare (label, result, expected, arguments) one by one; raise ``CheckFailed`` with the likeliest cause."""
    wrong = [(label, *found) for label, result, expected, _ in pairs if (found := first_difference(result, expected))]
    if not wrong:
        return
    label, where, result, expected = wrong[0]
    right = [name for name, *_ in pairs if name not in {entry[0] for entry in wrong}]
    cause = cause_of([(r, e) for _, r, e, _ in pairs], [args for *_, args in pairs])
    if result is None and not where and not right:
        cause = "it returns None: is a return missing?"
    elif cause is None and right:
        cause = f"right for {', '.join(right)}; wrong for {label}."
    elif cause is None and is_array(expected) and alike(result, expected) and result.shape != expected.shape:
        cause = "wrong shape."
    elif cause is None:
        cause = "wrong values." if alike(result, expected) else "another kind of result is wanted."
    raise CheckFailed(f"{cause}\n  {label}{where and f', part {where} of the result'}: {said(result, expected)}")


def first_difference(result: object, expected: object, where: str = "") -> tuple[str, object, object] | None:
    """Return where two results first differ, and both parts there; None if they are equal."""
    if isinstance(expected, (tuple, list)) and isinstance(result, (tuple, list)) and len(result) == len(expected):
        parts = enumerate(zip(result, expected, strict=True))
        found = (first_difference(r, e, f"{where}[{place}]") for place, (r, e) in parts)
        return next((difference for difference in found if difference), None)
    if is_array(expected) or is_scalar(expected):
        equal = alike(result, expected) and equal_tensors(as_tensor(result), as_tensor(expected))
    else:
        equal = alike(result, expected) and result == expected
    return None if equal else (where, result, expected)


def alike(result: object, expected: object) -> bool:
    """Whether two results are of one kind: numbers, tensors, arrays, or one type."""
    if is_scalar(expected):
        return is_scalar(result)
    kinds = (Tensor, np.ndarray, (tuple, list), type(expected))
    return next(isinstance(result, kind) for kind in kinds if isinstance(expected, kind))


def equal_tensors(result: Tensor, expected: Tensor) -> bool:
    """Whether two tensors are equal: whole numbers exactly, others to rounding."""
    return result.shape == expected.shape and not differs(result, expected).any()


def cause_of(pairs: list[tuple[object, object]], given: list[list]) -> str | None:
    """Return what all pairs of results and expected arrays have in common, if the evidence is clear.

    Where the values are in other places, the arguments tell whether they were reshaped only.
    """
    if not all(is_array(e) and alike(r, e) for r, e in pairs):
        return None
    tensors = [(as_tensor(r), as_tensor(e)) for r, e in pairs]
    if any(r.numel() != e.numel() or e.numel() < 4 for r, e in tensors):
        return None
    if all(equal_tensors(r.reshape(e.shape), e) for r, e in tensors):
        return "the values are right and in the right order, but the shape is another."
    axes = {tensor.ndim for pair in tensors for tensor in pair}
    orders = permutations(range(axes.pop())) if len(axes) == 1 and max(axes) <= 5 else ()
    if any(all(equal_tensors(r.permute(order), e) for r, e in tensors) for order in orders):
        return "the values are right, but the axes stand in another order."
    if all(equal_tensors(r.flatten().sort().values, e.flatten().sort().values) for r, e in tensors):
        if all(in_given_order(r, args) for (r, _), args in zip(tensors, given, strict=True)):
            return (
                "the values are the right ones, but in other places, in the order of the input: reshape moves no "
                "value, permute and rearrange do."
            )
        return (
            "the values are the right ones, but in other places. Where axes are taken apart, or parts put together, "
            "look at the order."
        )
    if all(r.shape == e.shape for r, e in tensors):
        size = tensors[0][0].double().abs().sum() / tensors[0][1].double().abs().sum()
        for factor in (size, -size):
            if factor.isfinite() and factor and all(equal_tensors(r / factor, e.double()) for r, e in tensors):
                return f"each value is the right one times {factor:.4g}."
        shift = (tensors[0][0].double() - tensors[0][1].double()).mean()
        if shift.isfinite() and shift and all(equal_tensors(r.double() - shift, e.double()) for r, e in tensors):
            return f"each value is the right one {'plus' if shift > 0 else 'minus'} {shift.abs():.4g}."
        sums = [(r.double().sum(dim=-1), e.double().sum(dim=-1)) for r, e in tensors]
        one = torch.tensor(1.0)
        if all(equal_tensors(e, one.expand(e.shape)) and not equal_tensors(r, one.expand(r.shape)) for r, e in sums):
            furthest = max(sums[0][0].flatten().tolist(), key=lambda total: abs(total - 1))
            return f"each row must add up to 1; one of yours adds up to {furthest:.3f}."
    return None


def in_given_order(result: Tensor, args: list) -> bool:
    """Whether a result holds the values of an argument, first to last, in whatever shape."""
    return any(is_array(arg) and equal_tensors(result.flatten(), as_tensor(arg).flatten()) for arg in args)


def said(result: object, expected: object) -> str:
    """Say small what was expected and what came."""
    if is_array(expected) and is_array(result) and alike(result, expected):
        return describe(as_tensor(result), as_tensor(expected))
    if is_scalar(expected) and is_scalar(result):
        return f"expected {as_tensor(expected).item():.10g}, got {as_tensor(result).item():.10g}"
    return f"expected {kind(expected)}, got {kind(result)}"


def kind(value: object) -> str:
    """Name a value small: an array by its shape, others as they are."""
    if is_array(value) and value.ndim == 0:
        return f"the number {value.item():.6g}"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, (tuple, list)) and any(is_array(part) for part in value):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, float):
        return f"{value:.6g}"
    value = tuple(value) if isinstance(value, torch.Size) else value
    return repr(value) if len(repr(value)) <= 60 else f"a {type(value).__name__}, {repr(value)[:50]}..."


def is_array(value: object) -> bool:
    """Whether this is a tensor or a numpy array."""
    return isinstance(value, (Tensor, np.ndarray))


def is_scalar(value: object) -> bool:
    """Whether this is a number, be it in an array or a tensor without axes."""
    return isinstance(value, (Number, np.generic)) or (is_array(value) and value.ndim == 0)


def as_tensor(value: object) -> Tensor:
    """Return numbers and arrays as tensors, with nothing lost; a Python float is in double precision."""
    return value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))


def duplicate(value: object) -> object:
    """Return a copy that shares no memory with the value, or the value itself if it cannot be changed."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (tuple, list)):
        return type(value)(map(duplicate, value))
    return value


def unchanged(before: object, after: object) -> bool:
    """Whether a copy that was passed on is still as it was, bit by bit."""
    if isinstance(before, (tuple, list)):
        return len(before) == len(after) and all(map(unchanged, before, after))
    if not is_array(before):
        return True
    before, after = as_tensor(before), as_tensor(after)
    return before.shape == after.shape and bool(((before == after) | ((before != before) & (after != after))).all())
