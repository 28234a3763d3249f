"""Comparing a student's answers with the reference, on the side that the student's process cannot reach.

Values are in single precision, the reference's in double precision; nan is equal to nothing.
"""

import functools
import secrets
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from grader.answers import perform

generator = torch.Generator()  # of all inputs: nobody knows them before, and no two runs have the same


class Wrong(AssertionError):
    """A hidden test refused an answer; the message says where it differs."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class Fault(RuntimeError):
    """A hidden test is at fault itself, whatever the answer: a matter for the teacher, not for the mark."""


class Remote:
    """A name in a student's process. It can be tested, not looked into, compared or called.

    A reference that calls one, because a hidden test has not imported what it uses, must fail: its values would be
    the student's.

    Args:
        name: the name there.
        ask: sends a request for :func:`grader.answers.perform` there and returns the answer.
    """

    def __init__(self, name: str, ask: Callable) -> None:
        self.__name__, self._ask = name, ask

    def _no_comparison(self, *_: object) -> bool:
        raise TypeError("a student's value is compared by hidden.value or hidden.same_values")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = __int__ = __len__ = _no_comparison
    __hash__ = None


def ask(subject: object, operation: str, **details: object) -> dict:
    """Have an operation of ``answers.py`` done with the subject, here or where it lives; ``Wrong`` for an error."""
    request = dict(name=name_of(subject), operation=operation, details=details)
    answer = subject._ask(request) if isinstance(subject, Remote) else perform({request["name"]: subject}, request)
    if "error" in answer:
        raise Wrong(str(answer["error"]))
    return answer


def name_of(subject: object) -> str:
    """Return what messages call the subject."""
    return getattr(subject, "__name__", type(subject).__name__)


def hidden_test(test: Callable) -> Callable:
    """Draw anew, leave torch's own random numbers as they are, and put the subject's name before a message."""

    @functools.wraps(test)
    def run(subject: object, *args: object, **kwargs: object) -> None:
        generator.manual_seed(secrets.randbits(63))
        try:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.manual_seed(secrets.randbits(63))
                test(subject, *args, **kwargs)
        except Wrong as wrong:
            raise Wrong(f"{name_of(subject)}: {wrong}") from None

    return run


# --- draws -----------------------------------------------------------------------------------------------------------


def normal(*shape: int) -> Tensor:
    """Draw a float32 tensor from the standard normal distribution."""
    return torch.randn(shape, generator=generator)


def images(b: int, c: int, h: int, w: int) -> Tensor:
    """Draw a batch of float32 images with values in [0, 1)."""
    return torch.rand((b, c, h, w), generator=generator)


def whole(low: int, high: int) -> int:
    """Draw a whole number from ``low`` to ``high``, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def choice(*options: object) -> object:
    """Draw one of the options."""
    return options[whole(0, len(options) - 1)]


def uniform(low: float, high: float) -> float:
    """Draw a number between ``low`` and ``high``."""
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Draw every parameter of a model, at a scale that keeps the values of deep models moderate."""

    def drawn(name: str, parameter: Tensor) -> Tensor:
        values = normal(*parameter.shape)
        if parameter.ndim == 2:
            return values * parameter.shape[1] ** -0.5
        return 1 + 0.3 * values if name.endswith("weight") else 0.5 * values

    return {name: drawn(name, parameter) for name, parameter in model.named_parameters()}


# --- values ----------------------------------------------------------------------------------------------------------

TOLERANCE = 2e-5  # of the largest expected value


def compare(
    actual: object, expected: object, where: str, *, limit: int | float | None = None, floor: float = 1e-3
) -> None:
    """Raise ``Wrong`` unless two values are equal.

    Numbers may differ by ``limit``, by default by rounding: in proportion to the largest value expected, or to
    ``floor``, the size of what they were computed from, where they are small because terms cancel.
    """
    if isinstance(expected, (tuple, list)):
        if not isinstance(actual, (tuple, list)) or len(actual) != len(expected):
            raise Wrong(f"{where}: expected {len(expected)} values, got {shown(actual)}")
        for index, (one, right) in enumerate(zip(actual, expected, strict=True)):
            compare(one, right, f"{where}, value {index + 1}", limit=limit, floor=floor)
        return
    if not isinstance(expected, (Tensor, int, float)) or isinstance(expected, bool):
        if type(actual) is not type(expected) or actual != expected:
            raise Wrong(f"{where}: expected {expected!r}, got {shown(actual)}")
        return
    if not isinstance(actual, (Tensor, int, float)) or isinstance(actual, bool):
        raise Wrong(f"{where}: expected a {type(expected).__name__.lower()}, got {shown(actual)}")
    right, came = torch.as_tensor(expected).double(), torch.as_tensor(actual).double()
    if came.shape != right.shape:
        raise Wrong(f"{where}: expected shape {tuple(right.shape)}, got {tuple(came.shape)}")
    if limit is None:
        limit = TOLERANCE * max(floor, float(right.abs().max())) if right.numel() else 0.0
    if not bool((wrong := ~((came - right).abs() <= limit)).any()):  # nan is wrong
        return
    at = wrong.nonzero()[0].tolist()
    came, right = float(came[tuple(at)]), float(right[tuple(at)])
    index = f"at {at} " if at else ""
    raise Wrong(f"{where}: {index}expected {right:.6g}, got {came:.6g} ({int(wrong.sum())} of {wrong.numel()} differ)")


def _size(values: Iterable) -> float:
    """Return the largest value in the floating-point tensors, at most 1, for :func:`compare`'s ``floor``."""
    tensors = [x for x in values if isinstance(x, Tensor) and x.is_floating_point() and x.numel()]
    return min(1.0, max((float(x.abs().max()) for x in tensors), default=1e-3))


def compare_numbers(actual: object, expected: int | float, where: str, **how: int | float) -> None:
    """Compare with a plain number, which a tensor is not."""
    if isinstance(actual, Tensor):
        raise Wrong(f"{where}: expected a number, got a tensor")
    compare(actual, expected, where, **how)


def _double(value: object) -> object:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _double(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_double(item) for item in value)
    return value


def right_answer(reference: object, operation: str, **details: object) -> dict:
    """Return the reference's answer in double precision; an error in it is the test's own."""
    request = dict(name="reference", operation=operation, details=_double(details))
    answer = perform({"reference": reference}, request)
    if "error" in answer:
        raise Fault(f"the reference: {answer['error']}")
    return answer


def _label(args: tuple, kwargs: dict) -> str:
    parts = [shown(value) for value in args] + [f"{key}={shown(value)}" for key, value in kwargs.items()]
    return f"for ({', '.join(parts)})"


def shown(value: object) -> str:
    """Return a value for a message: a tensor by its shape, the rest as it is, cut."""
    return f"tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:60]


def compare_functions(subject: object, reference: Callable, cases: list, *, gradients: bool) -> None:
    """Compare values, the arguments after the call and, if asked, gradients, on every case ``(args, kwargs)``."""
    for args, kwargs in cases:
        where = _label(args, kwargs)
        expected = right_answer(reference, "call", args=args, kwargs=kwargs)["result"]
        answer = ask(subject, "call", args=args, kwargs=kwargs)
        compare(answer["result"], expected, where, floor=_size([*args, *kwargs.values()]))
        for before, after in zip(args, answer["arguments"], strict=True):
            if isinstance(before, Tensor):
                compare(after, before, f"its argument was changed {where}")
        for key, before in kwargs.items():
            if isinstance(before, Tensor):
                compare(answer["keywords"][key], before, f"its argument {key} was changed {where}")
        if gradients:
            details = dict(args=args, kwargs=kwargs, cotangent=normal(*expected.shape))
            right = right_answer(reference, "call", **details)["gradients"]
            compare_gradients(ask(subject, "call", **details)["gradients"], right, where)


def compare_gradients(actual: object, expected: object, where: str) -> None:
    """Compare gradients, a list or a dict of them, loosely: one that is wrong is so by far more than rounding."""
    if actual is None:
        raise Wrong(f"the values are right, but the result has no gradient {where}")
    pairs = list(expected.items() if isinstance(expected, dict) else enumerate(expected))
    largest = max((float(gradient.abs().max()) for _, gradient in pairs if gradient.numel()), default=0.0)
    for key, gradient in pairs:
        of = key if isinstance(key, str) else f"argument {key + 1}"
        limit = 1e-3 * float(gradient.abs().max()) + TOLERANCE * largest if gradient.numel() else 0.0
        compare(actual[key], gradient, f"the values are right, the gradient of {of} is not, {where}", limit=limit)


def compare_modules(
    subject: object, reference: Callable, cases: list, *, method: str = "forward", quiet: int = 0
) -> None:
    """Compare values in eval mode, gradients, and whether two instances are independent; cases: options and input.

    The first ``quiet`` cases are compared a second time with tokens so small that the eps of LayerNorm counts.
    """
    drawn = [(options, x, weights(reference(**options)), "") for options, x in cases]
    drawn += [(options, SMALL * x, _quiet(state), "small ") for options, x, state, _ in drawn[:quiet]]
    for options, x, state, kind in drawn:
        where = f"with {shown_options(options)} for {kind}input of shape {tuple(x.shape)}"
        details = dict(options=options, state=state, inputs=[x], method=method)
        expected = right_answer(reference, "module", **details)["results"][0]
        answer = ask(subject, "module", **details)
        compare_parameters(answer["parameters"], details["state"])
        compare(answer["results"][0], expected, where, floor=1.0)
        compare(answer["arguments"][0], x, f"its input was changed {where}")
        if not any("dropout" in key for key in options):
            answer = ask(subject, "module", training=True, **details)
            compare(answer["results"][0], expected, f"in train mode without dropout {where}", floor=1.0)
        if isinstance(expected, Tensor):
            details["cotangent"] = normal(*expected.shape)
            right = right_answer(reference, "module", **details)["gradients"]
            compare_gradients(ask(subject, "module", **details)["gradients"], right, where)
        if shared := ask(subject, "instances", options=options)["shared"]:
            raise Wrong(f"two instances share {str(shared)[:200]}: make parameters in __init__")


SMALL = 0.003  # variance 1e-5: an eps of 1e-6 is a tenth of it


def _quiet(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Scale down what is added to the stream, in the embedding and at the end of every branch."""
    return {
        name: SMALL * tensor if any(part in name for part in ("embedding", "out_proj", "linear_2")) else tensor
        for name, tensor in state.items()
    }


def compare_parameters(actual: dict, state: dict[str, Tensor]) -> None:
    """Compare the names and shapes of parameters with those of a state."""
    for name, tensor in state.items():
        if name not in actual:
            raise Wrong(f"it has no parameter {name}; it has {', '.join(actual)[:300] or 'none'}")
        if tuple(actual[name]) != tuple(tensor.shape):
            raise Wrong(f"its parameter {name} has shape {tuple(actual[name])}, expected {tuple(tensor.shape)}")
    if unknown := [name for name in actual if name not in state]:
        raise Wrong(f"it has parameters that are not expected: {', '.join(unknown)[:300]}")


def shown_options(options: dict) -> str:
    """Return keyword arguments for a message."""
    return ", ".join(f"{key}={value!r}" for key, value in options.items())
