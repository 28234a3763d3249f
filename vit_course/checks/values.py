"""The check of a small function: its values against an independent computation."""

from collections.abc import Callable
from numbers import Number

import numpy as np
import torch
from torch import Tensor

from vit_course.checks.compare import describe, differs, duplicate
from vit_course.checks.engine import guarded
from vit_course.checks.facts import fact
from vit_course.checks.learner import check, running
from vit_course.checks.verdict import CheckFailed, Verdict, fail, sentence


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
            args = [duplicate(arg) for arg in (given if isinstance(given, tuple) else [given])]
            try:
                with running(sentence("engine.on", case=f"{label}, {' and '.join(map(_kind, args))}")):
                    result = guarded(function, label)(*args)
            except CheckFailed as failure:
                if not pairs:
                    raise
                _compare(pairs)
                right = ", ".join(earlier for earlier, *_ in pairs)
                raise fail("engine.right_but", right=right, failure=failure) from failure.__cause__
            pairs.append((label, result, oracle(*args), args))
        _compare(pairs)
        return sentence(f"same_values.verified{'_once' if len(inputs) == 1 else ''}", count=len(inputs))

    return check(name, function, verify)


def _compare(pairs: list[tuple[str, object, object, list]]) -> None:
    """Compare (label, result, expected, arguments) one by one; raise ``CheckFailed`` with the likeliest cause."""
    wrong = {label: found for label, result, expected, _ in pairs if (found := _first_difference(result, expected))}
    if not wrong:
        return
    label, (where, result, expected) = next(iter(wrong.items()))
    right = [name for name, *_ in pairs if name not in wrong]
    cause = ""
    if all(_is_array(e) and _alike(r, e) for _, r, e, _ in pairs):
        given = [[_tensor(arg) for arg in args if _is_array(arg)] for *_, args in pairs]
        cause = fact([_tensor(r) for _, r, *_ in pairs], [_tensor(e) for _, _, e, _ in pairs], given)
    if not cause and right:
        cause = sentence("engine.right_for", right=", ".join(right), wrong=label)
    elif not cause and not _alike(result, expected):
        cause = sentence("same_values.kind")
    elif not cause:
        another = _is_array(expected) and result.shape != expected.shape
        cause = sentence("engine.wrong_shape" if another else "same_values.wrong")
    at = sentence("same_values.part", label=label, part=where) if where else label
    raise CheckFailed(f"{cause}\n  {at}: {_said(result, expected)}")


def _first_difference(result: object, expected: object, where: str = "") -> tuple[str, object, object] | None:
    """Return where two results first differ, and both parts there; None if they are equal."""
    if isinstance(expected, (tuple, list)) and isinstance(result, (tuple, list)) and len(result) == len(expected):
        parts = enumerate(zip(result, expected, strict=True))
        found = (_first_difference(r, e, f"{where}[{place}]") for place, (r, e) in parts)
        return next((difference for difference in found if difference), None)
    if not _alike(result, expected):
        return where, result, expected
    if _is_array(expected) or _is_scalar(expected):
        pair = _tensor(result), _tensor(expected)
        equal = pair[0].shape == pair[1].shape and not differs(*pair).any()
    else:
        equal = result == expected
    return None if equal else (where, result, expected)


def _alike(result: object, expected: object) -> bool:
    """Whether two results are of one kind: numbers, tensors, arrays, or one type."""
    if _is_scalar(expected):
        return _is_scalar(result)
    kinds = (Tensor, np.ndarray, (tuple, list), type(expected))
    return next(isinstance(result, kind) for kind in kinds if isinstance(expected, kind))


def _said(result: object, expected: object) -> str:
    """Say in few words what was expected and what came."""
    if _is_scalar(expected) and _is_scalar(result):
        wanted, came = (f"{_tensor(value).item():.10g}" for value in (expected, result))
        return sentence("compare.values", wanted=wanted, came=came)
    if _is_array(expected) and _alike(result, expected):
        return describe(_tensor(result), _tensor(expected))
    return sentence("compare.values", wanted=_kind(expected), came=_kind(result))


def _kind(value: object) -> str:
    """Name a value in few words: an array by its shape, others as they are."""
    if _is_array(value) and value.ndim:
        return f"{'a tensor' if isinstance(value, Tensor) else 'an array'} of shape {tuple(value.shape)}"
    if _is_array(value):
        return f"the number {value.item():.6g}"
    if isinstance(value, (tuple, list)) and any(_is_array(part) for part in value):
        return f"a {type(value).__name__} of {len(value)}"
    said = (
        f"{value:.6g}" if isinstance(value, float) else repr(tuple(value) if isinstance(value, torch.Size) else value)
    )
    return said if len(said) <= 60 else f"a {type(value).__name__}, {said[:50]}..."


def _is_array(value: object) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _is_scalar(value: object) -> bool:
    return isinstance(value, (Number, np.generic)) or (_is_array(value) and value.ndim == 0)


def _tensor(value: object) -> Tensor:
    """Return numbers and arrays as tensors, with nothing lost; a Python float is in double precision."""
    return value.detach().cpu() if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
