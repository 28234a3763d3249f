"""The check of a small function: its values against an independent computation."""

from collections.abc import Callable
from numbers import Number

import numpy as np
import torch
from torch import Tensor

from vit_course.checks.compare import describe, differs
from vit_course.checks.compare import unchanged as unchanged_values
from vit_course.checks.facts import fact
from vit_course.checks.learner import check, running
from vit_course.checks.verdict import CheckFailed, NotWritten, Verdict, fail, sentence


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
            label = sentence("same_values.input" if len(inputs) > 1 else "same_values.only_input", place=place)
            args = given if isinstance(given, tuple) else (given,)
            before = [duplicate(arg) for arg in args]
            theirs = [duplicate(arg) for arg in args]
            try:
                with running(sentence("engine.on", case=f"{label}, {' and '.join(map(kind, args))}")):
                    result = function(*theirs)
            except CheckFailed as failure:
                if not pairs:
                    raise
                compare(pairs)
                right = ", ".join(earlier for earlier, *_ in pairs)
                raise fail("engine.right_but", right=right, failure=failure) from failure.__cause__
            if result is Ellipsis:
                raise NotWritten(sentence("learner.returns_ellipsis"))
            if not all(unchanged(a, b) for a, b in zip(before, theirs, strict=True)):
                raise fail("same_values.in_place", label=label)
            pairs.append((label, result, oracle(*before), before))
        compare(pairs)
        key = "same_values.verified_once" if len(inputs) == 1 else "same_values.verified"
        return sentence(key, count=len(inputs))

    return check(name, function, verify)


def compare(pairs: list[tuple[str, object, object, list]]) -> None:
    """Compare (label, result, expected, arguments) one by one; raise ``CheckFailed`` with the likeliest cause."""
    wrong = [(label, *found) for label, result, expected, _ in pairs if (found := first_difference(result, expected))]
    if not wrong:
        return
    label, where, result, expected = wrong[0]
    right = [name for name, *_ in pairs if name not in {entry[0] for entry in wrong}]
    tensors = [(as_tensor(r), as_tensor(e)) for _, r, e, _ in pairs if is_array(e) and alike(r, e)]
    cause = ""
    if len(tensors) == len(pairs):
        given = [[as_tensor(arg) for arg in args if is_array(arg)] for *_, args in pairs]
        cause = fact([r for r, _ in tensors], [e for _, e in tensors], given)
    if result is None and not where and not right:
        cause = sentence("engine.returns_none")
    elif not cause and right:
        cause = sentence("engine.right_for", right=", ".join(right), wrong=label)
    elif not cause and is_array(expected) and alike(result, expected) and result.shape != expected.shape:
        cause = sentence("engine.wrong_shape")
    elif not cause:
        cause = sentence("same_values.wrong" if alike(result, expected) else "same_values.kind")
    at = sentence("same_values.part", label=label, part=where) if where else label
    raise CheckFailed(f"{cause}\n  {at}: {said(result, expected)}")


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


def said(result: object, expected: object) -> str:
    """Say small what was expected and what came."""
    if is_array(expected) and is_array(result) and alike(result, expected):
        return describe(as_tensor(result), as_tensor(expected))
    if is_scalar(expected) and is_scalar(result):
        wanted, came = (f"{as_tensor(value).item():.10g}" for value in (expected, result))
        return sentence("compare.values", wanted=wanted, came=came)
    return sentence("compare.values", wanted=kind(expected), came=kind(result))


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
    """Whether a copy that was handed over is still as it was, bit by bit."""
    if isinstance(before, (tuple, list)):
        return len(before) == len(after) and all(map(unchanged, before, after))
    return not is_array(before) or unchanged_values(as_tensor(before), as_tensor(after))
