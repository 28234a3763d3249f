"""What every check does: run the learner's code, compare its values, and name a mistake only on evidence.

A mistake is named when the learner's values are, in every case tried, those which that mistake would give. Values are
compared in single precision to 1e-5 of the largest one, which no correct order of computation exceeds.
"""

import copy
import dis
import inspect
import linecache
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

TOLERANCE = 1e-5  # of the largest expected value


class CheckFailed(AssertionError):
    """A check refused the learner's code; the message names the mistake, then what was expected and what came."""

    def _render_traceback_(self) -> list[str]:
        """Show in a notebook the message alone: the way through the check's own code helps nobody."""
        return [f"{type(self).__name__}: {self}"]


class Verdict(str):
    """One line for the learner. ``passed`` is False for a stub that is still empty, and so is its truth value."""

    passed: bool

    def __new__(cls, line: str, *, passed: bool = True) -> "Verdict":
        """Make the line, and remember whether something was verified."""
        verdict = super().__new__(cls, line)
        verdict.passed = passed
        return verdict

    def __repr__(self) -> str:
        return str(self)

    def __bool__(self) -> bool:
        return self.passed


class NotWritten(Exception):
    """The learner's code is a stub; :func:`check` turns this into a verdict."""


@dataclass(frozen=True)
class Case:
    """One input: what is special about it, in words, and the arguments."""

    label: str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)  # of the class, where a class is checked


@dataclass(frozen=True)
class Suspect:
    """A mistake: one sentence that names it and says what to do, and the values that it would give.

    ``result`` takes what the reference takes; for a class, the reference module with the weights, then the input.
    ``numbers`` may take the same and return what stands in braces in the sentence.
    """

    sentence: str
    result: Callable
    numbers: Callable[..., dict] | None = None


def formula(*shape: int, start: int = 1) -> Tensor:
    """Return a float32 tensor of values in -1 .. 1 from whole-number arithmetic: no symmetry, the same everywhere."""
    k = torch.arange(start, start + torch.Size(shape).numel(), dtype=torch.int64)
    return (((k * k * 71 + k * 29 + 13) % 997).to(torch.float32) / 498 - 1).reshape(shape)


def check(name: str, subject: object, verify: Callable[[], str]) -> Verdict:
    """Run ``verify`` and turn what happens into the learner's line or into ``CheckFailed``.

    Torch's random numbers are put back afterwards, so that a check changes nothing in the notebook around it.
    """
    if is_stub(subject):
        return Verdict(f"{name}: not written yet.", passed=False)
    if not callable(subject):
        raise CheckFailed(f"{name}: a function or class is wanted, got {type(subject).__name__}: pass it without ().")
    grad, random = torch.is_grad_enabled(), torch.random.get_rng_state()
    try:
        with torch.enable_grad():
            return Verdict(f"{name}: {verify()}")
    except NotWritten as stub:
        return Verdict(f"{name}: {stub or 'not written yet.'}", passed=False)
    except CheckFailed as failure:
        raise CheckFailed(f"{name}: {failure}") from failure.__cause__
    finally:
        torch.set_grad_enabled(grad)
        torch.random.set_rng_state(random)


# --- running the learner's code --------------------------------------------------------------------------------------


def is_stub(subject: object) -> bool:
    """Whether a function, or the ``forward`` of a class, has an empty body: ``...``, ``pass`` or a docstring alone."""
    if inspect.isclass(subject):
        if issubclass(subject, nn.Module) and subject.forward is nn.Module.forward:
            return True
        subject = getattr(subject, "forward", None)
    code = getattr(inspect.unwrap(subject) if callable(subject) else subject, "__code__", None)
    idle = {"RESUME", "NOP", "COPY_FREE_VARS", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "PRECALL", "CACHE"}
    if code is None or any(step.opname not in idle for step in dis.get_instructions(code)):
        return False
    returned = [step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_CONST", "RETURN_CONST")]
    return all(value in (None, Ellipsis) for value in returned)


@contextmanager
def learners(name: str, subject: object, doing: str = "") -> Iterator[None]:
    """Report an error inside the learner's code as theirs, with the line; ``doing`` says what it was given."""
    try:
        yield
    except (CheckFailed, NotWritten):
        raise
    except Exception as error:
        if isinstance(error, NotImplementedError) and not raised_in_library(error):
            raise CheckFailed(
                "not written yet. Put your code where it raises NotImplementedError, run that cell, then this one."
            ) from error
        if "'ellipsis'" in str(error) or (isinstance(error, TypeError) and "ellipsis" in str(error).lower()):
            raise NotWritten("not written yet: a ... is still in it.") from error
        message = " ".join(str(error).split()) or "no message"
        message = message if len(message) <= 300 else message[:297] + "..."
        if float_for_einops(error):
            message += (
                "\n  A size that einops was given is a float: divide with //. einops remembers such a size, so if "
                "this comes back although your line is mended, restart the kernel."
            )
        given = f" {doing}" if doing else ""
        raise CheckFailed(
            f"your code stopped with {type(error).__name__}{given}{place(error, subject)}:\n  {message}"
        ) from error


def float_for_einops(error: Exception) -> bool:
    """Whether einops stopped at a float among its sizes; its cache takes 3 for 3.0, and so stops again at a whole one.

    The words are torch's, to which einops hands the size: "must be tuple of ints, but found element of type float".
    """
    called = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    through_einops = any("einops" in Path(filename).parts for filename in called)
    return isinstance(error, TypeError) and through_einops and all(word in str(error) for word in ("ints", "float"))


def raised_in_library(error: BaseException) -> bool:
    """Whether an installed library raised the error: torch does for a call of an ``nn.ModuleList``, for example.

    Its compiled code has no frame of its own, and is known by its words: "softmax" not implemented for 'Long'.
    """
    in_library = "site-packages" in traceback.extract_tb(error.__traceback__)[-1].filename
    return in_library or "\" not implemented for '" in str(error)


def place(error: BaseException, subject: object) -> str:
    """Return where in the learner's own code the error came up, as words; empty if it came up nowhere there."""
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).is_relative_to(HERE) and "site-packages" not in frame.filename
    ]
    own = source_file(subject)
    frames = [frame for frame in frames if frame[0] == own] or frames
    if not frames:
        return ""
    filename, number = frames[-1]
    line = linecache.getline(filename, number).strip()
    return f" in line {number}" + (f", `{line}`" if line else "")


HERE = Path(__file__).resolve().parents[1]


def source_file(subject: object) -> str | None:
    """Return the file, or the notebook's cell, that holds the learner's function or class."""
    if inspect.isclass(subject):
        subject = getattr(subject, "forward", None)
    return getattr(getattr(subject, "__code__", None), "co_filename", None)


# --- comparing -------------------------------------------------------------------------------------------------------


def same(actual: object, expected: object) -> bool:
    """Whether two results are equal in shape and, to rounding, in value; nan is equal to nothing."""
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
    """Say small what was expected and what came: types, then shapes, then the first value that differs."""
    if isinstance(expected, (int, float)) and isinstance(actual, (int, float)):
        return f"expected {expected:.6g}, got {actual:.6g}"
    if isinstance(expected, tuple) and hasattr(expected, "_fields"):  # several results under names
        parts = zip(expected._fields, actual, expected, strict=True)
        return next(f"{name.replace('_', ' ')}, {describe(a, e)}" for name, a, e in parts if not same(a, e))
    if isinstance(expected, Tensor) and not isinstance(actual, Tensor):
        came = "None: is a return missing?" if actual is None else f"{type(actual).__name__} {str(actual)[:60]}"
        if isinstance(actual, tuple):
            came = f"a tuple of {len(actual)}: return the tensor alone"
        return f"expected a tensor of shape {tuple(expected.shape)}, got {came}"
    if not isinstance(expected, Tensor) or not isinstance(actual, Tensor):
        return f"expected {str(expected)[:60]}, got {str(actual)[:60]}"
    if actual.shape != expected.shape:
        return f"expected shape {tuple(expected.shape)}, got {tuple(actual.shape)}"
    wrong = differs(actual, expected)
    at = wrong.nonzero()[0].tolist()
    share = f"{int(wrong.sum())} of {wrong.numel()} values differ"
    wanted, came = expected[tuple(at)].item(), actual[tuple(at)].item()
    digits = ".4f" if abs(wanted - came) > 1e-3 else ".7g"
    values = f"expected {wanted:{digits}}, got {came:{digits}}"
    return f"at {at}: {values} ({share})" if at else values


def shape_of(value: object) -> str:
    """Name an argument for a message: a tensor by its shape, a list of them too, a model by its class."""
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        return f"a list of {len(value)} tensors {tuple(value[0].shape)}"
    if isinstance(value, nn.Module):
        return type(value).__name__
    return str(tuple(value.shape)) if isinstance(value, Tensor) else repr(value)


def judge(
    cases: Sequence[Case], actual: Sequence, expected: Sequence, suspects: Iterable[tuple[Suspect, Sequence, tuple]]
) -> None:
    """Compare the learner's results with the expected ones; raise ``CheckFailed`` with the cause, if it is found.

    ``suspects`` come with their results in all cases and with the arguments for their numbers. The first that explains
    every result is named.
    """
    wrong = [not same(a, e) for a, e in zip(actual, expected, strict=True)]
    if not any(wrong):
        return
    first = wrong.index(True)
    lines = []
    for suspect, results, at in suspects:
        if all(same(a, r) for a, r in zip(actual, results, strict=True)):
            lines.append(suspect.sentence.format(**(suspect.numbers(*at) if suspect.numbers else {})))
            break
    else:
        right = [case.label for case, bad in zip(cases, wrong, strict=True) if not bad]
        if right:
            lines.append(f"right for {', '.join(right)}; wrong for {cases[first].label}.")
        else:
            lines.append("the values are wrong." if shapes_agree(actual[first], expected[first]) else "wrong shape.")
    at = cases[first].label if shapes_agree(actual[first], expected[first]) else with_shapes(cases[first])
    lines.append(f"  {at}: {describe(actual[first], expected[first])}")
    raise CheckFailed("\n".join(lines))


def with_shapes(case: Case) -> str:
    """Say what is special about a case, and the shapes and numbers that it gives."""
    named = (f"{key}={shape_of(value)}" for key, value in case.kwargs.items())
    return f"{case.label}, given {', '.join([*map(shape_of, case.args), *named])}"


def shapes_agree(actual: object, expected: object) -> bool:
    """Whether two tensors, or those of two tuples, have one shape; other results have none that could be wrong."""
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        return all(map(shapes_agree, actual, expected))
    if not isinstance(expected, Tensor):
        return True
    return isinstance(actual, Tensor) and isinstance(expected, Tensor) and actual.shape == expected.shape


def with_results(suspects: Sequence[Suspect], calls: Sequence[tuple]) -> Iterator[tuple[Suspect, Sequence, tuple]]:
    """Yield each suspect with its results and the arguments for its numbers, as :func:`judge` wants them.

    Nothing is computed before it is asked for: right values need no suspects.
    """
    return ((s, results, calls[0]) for s in suspects if (results := results_of(s, calls)) is not None)


@contextmanager
def earlier_first(
    cases: Sequence[Case], actual: Sequence, expected: Sequence, suspects: Sequence[Suspect], calls: Sequence[tuple]
) -> Iterator[None]:
    """Where a later case stops, judge the earlier ones first: wrong values there tell more; else say they are right."""
    try:
        yield
    except CheckFailed as failure:
        if not actual:
            raise
        judge(cases[: len(actual)], actual, expected, with_results(suspects, calls[: len(actual)]))
        right, stopped = ", ".join(case.label for case in cases[: len(actual)]), cases[len(actual)].label
        where = "" if stopped in str(failure) else f"wrong for {stopped}: "
        raise CheckFailed(f"right for {right}; {where}{failure}") from failure.__cause__


def results_of(suspect: Suspect, calls: Sequence[tuple]) -> list | None:
    """Return what a mistake gives for all calls; None where it cannot be computed."""
    try:
        with torch.no_grad():
            return [suspect.result(*args) for args in calls]
    except Exception:
        return None


# --- a function ------------------------------------------------------------------------------------------------------


def verify_function(
    name: str,
    function: Callable,
    reference: Callable,
    cases: Sequence[Case],
    suspects: Sequence[Suspect] = (),
    *,
    gradients: bool = True,
) -> None:
    """Check values, that the input is left alone and, unless told otherwise, gradients, for a function of tensors."""
    actual, expected = [], []
    for case in cases:
        takes(function, reference, case.args, case.kwargs)
    calls = [(*case.args, *case.kwargs.values()) for case in cases]
    for case in cases:
        given = copy.deepcopy(case.args)
        with (
            earlier_first(cases, actual, expected, suspects, calls),
            learners(name, function, f"on {case.label}"),
            torch.no_grad(),
        ):
            result = function(*given, **case.kwargs)
        if result is None and not actual:
            raise CheckFailed("it returns None: is a return missing?")
        if result is Ellipsis:
            raise NotWritten("not written yet: it returns ...")
        unchanged(case.args, given, case.label)
        actual.append(result)
        expected.append(reference(*case.args, **case.kwargs))
    judge(cases, actual, expected, with_results(suspects, calls))
    if gradients:
        gradients_of_inputs(name, function, reference, cases[0])


def takes(subject: Callable, reference: Callable, args: Sequence, kwargs: dict) -> None:
    """Check that the learner's function or class can be called as the reference is; what has no signature passes."""
    try:
        inspect.signature(subject).bind(*args, **kwargs)
    except TypeError as error:
        wanted, own = (", ".join(inspect.signature(part).parameters) for part in (reference, subject))
        kind = "__init__" if inspect.isclass(subject) else "it"
        raise CheckFailed(f"{kind} must take the arguments ({wanted}); yours takes ({own}).") from error
    except ValueError:
        return


def unchanged(before: Sequence, after: Sequence, label: str) -> None:
    """Check that no argument was written into."""
    for old, new in zip(before, after, strict=True):
        if isinstance(old, Tensor) and not torch.equal(old, new):
            raise CheckFailed(
                "it changes its input in place, and with it the caller's tensor. Write x = x + ..., not x += ...\n"
                f"  {label}: {describe(new, old)}"
            )
        if isinstance(old, list) and not unchanged_list(old, new):
            raise CheckFailed(
                "it changes the list that it is given, or a tensor in it, and with it the caller's. Make new ones: "
                f"x = x + ..., not x += ...\n  {label}"
            )


def unchanged_list(before: list, after: list) -> bool:
    """Whether a list still holds the same: tensors of the same values, or what is equal otherwise."""
    return len(before) == len(after) and all(
        torch.equal(old, new) if isinstance(old, Tensor) else old == new for old, new in zip(before, after, strict=True)
    )


def gradients_of_inputs(name: str, function: Callable, reference: Callable, case: Case) -> None:
    """Check the gradients of every floating-point argument against the reference's."""

    def gradients(call: Callable) -> list:
        given = [
            arg.clone().requires_grad_() if isinstance(arg, Tensor) and arg.is_floating_point() else arg
            for arg in case.args
        ]
        out = call(*given, **case.kwargs)
        if not out.requires_grad:
            return None
        wanted = [arg for arg in given if isinstance(arg, Tensor) and arg.requires_grad]
        return torch.autograd.grad((out * formula(*out.shape)).sum(), wanted, allow_unused=True)

    with learners(name, function, "while its gradient was computed"):
        came = gradients(function)
    if came is None or any(gradient is None for gradient in came):
        raise CheckFailed(
            "the values are right, but no gradient reaches the input: .detach(), .data, .numpy() or no_grad "
            "cuts it off."
        )
    for actual, expected in zip(came, gradients(reference), strict=True):
        if not same(actual, expected):
            raise CheckFailed(
                f"the values are right, the gradient of the input is not.\n  {describe(actual, expected)}"
            )


# --- a module --------------------------------------------------------------------------------------------------------


def set_parameters(module: nn.Module, *, start: int = 1) -> nn.Module:
    """Give every parameter values from a formula, so that zeros and ones at the start hide no fault; eval mode."""
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            values = formula(*parameter.shape, start=start + 1000 * place)
            parameter.copy_(0.5 * values if parameter.ndim < 2 else values * parameter[0].numel() ** -0.5)
    return module.eval()


def build(name: str, cls: Callable, options: dict) -> nn.Module:
    """Construct the learner's module."""
    given = ", ".join(f"{key}={value}" for key, value in options.items())
    with learners(name, cls, f"when it was built as {getattr(cls, '__name__', name)}({given})"):
        module = cls(**options)
    if not isinstance(module, nn.Module):
        raise CheckFailed(f"it must be a class derived from nn.Module; got {type(module).__name__}.")
    return module


def load(name: str, cls: Callable, module: nn.Module, state: dict, mapping: Callable | None) -> None:
    """Load the reference's parameters into the learner's module; say which are missing, unknown or of another shape."""
    state = {key: value.clone() for key, value in state.items()}
    if mapping is not None:
        with learners(name, mapping, "in the mapping"):
            state = mapping(state)
    own, buffers = module.state_dict(), dict(module.named_buffers())
    missing = [key for key in state if key not in own]
    unknown = [key for key in own if key not in state and key not in buffers]
    for key in state:
        never_trains(module, key)
    if missing or unknown:
        layers_in_a_list(module)
        parts = [f"{kind}: {few(keys)}" for kind, keys in [("missing", missing), ("not expected", unknown)] if keys]
        whose, other = "the course's", "pass mapping=, a function from the course's state dict to yours"
        if mapping is not None:
            whose, other = "your mapping gives", "change the mapping"
        cause = f"its parameters have other names than {whose}."
        if not (missing and unknown):
            cause = "parameters are missing." if missing else "it has parameters that the course's has not."
        hint = f"Register layers and nn.Parameters in __init__ under these names, or {other}."
        if not own:
            hint = "It has no parameters at all: make layers in __init__, not in forward, and keep them as self.…"
        raise CheckFailed("\n  ".join([cause, *parts, hint]))
    for key, value in state.items():
        if mapping is not None and own[key].ndim > value.ndim > 1 and own[key].flatten(1).shape == value.shape:
            state[key] = value = value.reshape(own[key].shape)  # a convolution's weight from a linear layer's
        if own[key].shape != value.shape:
            raise CheckFailed(
                f"{key} has shape {tuple(own[key].shape)}, expected {tuple(value.shape)}"
                + (" in your mapping." if mapping else ".")
            )
    module.load_state_dict(own | state)


def few(keys: Sequence[str]) -> str:
    """Name at most six of the keys."""
    more = [f"and {len(keys) - 6} more"] if len(keys) > 6 else []
    return ", ".join([*keys[:6], *more])


def layers_in_a_list(module: nn.Module) -> None:
    """Name layers that torch cannot see, because they stand in a plain list."""
    for part in module.modules():
        for key, value in vars(part).items():
            if isinstance(value, (list, tuple)) and any(isinstance(layer, nn.Module) for layer in value):
                raise CheckFailed(
                    f"self.{key} is a plain {type(value).__name__}: torch does not see the layers in it, and they "
                    "never train. Make it an nn.ModuleList."
                )


def never_trains(module: nn.Module, key: str) -> None:
    """Name a parameter that is there under its name, but as a plain tensor or a buffer."""
    found = module
    for part in key.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Tensor) and not isinstance(found, nn.Parameter):
        kind = "a buffer" if key in dict(module.named_buffers()) else "a plain tensor, in no state dict"
        raise CheckFailed(f"{key} is {kind}: it never trains. Make it an nn.Parameter in __init__.")


def loaded(name: str, cls: Callable, options: dict, state: dict, mapping: Callable | None) -> nn.Module:
    """Construct the learner's module with the course's parameters in it."""
    module = build(name, cls, options)
    load(name, cls, module, state, mapping)
    return module


def verify_module(
    name: str,
    cls: Callable,
    reference: type[nn.Module],
    cases: Sequence[Case],
    suspects: Sequence[Suspect] = (),
    *,
    mapping: Callable | None = None,
    no_gradient: Callable[[str], bool] = lambda parameter: False,
) -> None:
    """Check a class: names, values in eval mode, input left alone, gradients everywhere, independent instances.

    Args:
        name: what messages call it.
        cls: the learner's class.
        reference: the course's class.
        cases: constructor options, and the input as ``args[0]``; the first one is also used for gradients.
        suspects: mistakes to recognise; their ``result`` takes the reference module and the input.
        mapping: from the reference's state dict to the learner's.
        no_gradient: whether a parameter of the learner's rightly has no gradient.
    """
    if isinstance(cls, nn.Module):
        raise CheckFailed("it is an instance: pass the class itself, without ().")
    takes(cls, reference, (), cases[0].options)
    independent_instances(name, cls, cases[0])
    actual, expected, calls = [], [], []
    for case in cases:
        right = set_parameters(reference(**case.options))
        takes(cls, reference, (), case.options)
        with earlier_first(cases, actual, expected, suspects, calls):
            mine = build(name, cls, case.options)
            try:
                load(name, cls, mine, right.state_dict(), mapping)
            except CheckFailed:
                new_layers_in_forward(mine.eval(), case)
                raise
            mine.eval()
            given = case.args[0].clone()
            with learners(name, cls, f"on {case.label}"), torch.no_grad():
                result = mine(given)
        if result is None and not actual:
            raise CheckFailed("forward returns None: is a return missing?")
        if result is Ellipsis:
            raise NotWritten("not written yet: forward returns ...")
        unchanged(case.args[:1], [given], case.label)
        actual.append(result)
        with torch.no_grad():
            expected.append(right(case.args[0]))
        calls.append((right, case.args[0]))
        if not same(result, expected[-1]):
            new_layers_in_forward(mine, case)
            random_in_eval(mine, case)
    judge(cases, actual, expected, with_results(suspects, calls))
    gradients_of_parameters(name, cls, cases[0], calls[0][0], mapping, no_gradient)


def new_layers_in_forward(module: nn.Module, case: Case) -> None:
    """Name layers that are made in ``forward``: torch reports each parameter that is registered meanwhile."""
    made = []
    hook = nn.modules.module.register_module_parameter_registration_hook(
        lambda layer, key, parameter: made.append(type(layer).__name__)
    )
    try:
        with torch.no_grad():
            module(case.args[0].clone())
    except Exception:
        return
    finally:
        hook.remove()
    if made:
        raise CheckFailed(
            f"a layer ({made[0]}) is made inside forward: it has new random weights at every call, and never trains. "
            "Make it in __init__."
        )


def random_in_eval(module: nn.Module, case: Case) -> None:
    """Name randomness that eval mode does not switch off: two calls with one input differ."""
    with torch.no_grad():
        first, second = module(case.args[0].clone()), module(case.args[0].clone())
    if isinstance(first, Tensor) and isinstance(second, Tensor) and not same(first, second):
        raise CheckFailed(
            "two calls with the same input differ in eval mode: something random is left. F.dropout needs "
            "training=self.training, and nn.Dropout must be made in __init__."
        )


def gradients_of_parameters(
    name: str,
    cls: Callable,
    case: Case,
    right: nn.Module,
    mapping: Callable | None,
    no_gradient: Callable[[str], bool],
) -> None:
    """Check that a gradient reaches every parameter, and the right one reaches the input."""
    mine = loaded(name, cls, case.options, right.state_dict(), mapping).eval()
    gradients = []
    for module in (right, copy.deepcopy(right) if mine is right else mine):
        x = case.args[0].clone().requires_grad_()
        with learners(name, cls, "while its gradients were computed"):
            out = module(x)
            if not out.requires_grad:
                raise CheckFailed("the values are right, but the output has no gradient: .detach(), .data or no_grad.")
            (out * formula(*out.shape)).sum().backward()
        gradients.append(x.grad)
    dead = [
        key
        for key, parameter in mine.named_parameters()
        if not no_gradient(key) and (parameter.grad is None or not parameter.grad.abs().max() > 0)
    ]
    right.zero_grad()
    if dead:
        raise CheckFailed(
            f"the values are right, but no gradient reaches {', '.join(dead)}: it would never train. Look for "
            ".detach(), .data, no_grad, or a tensor that is not an nn.Parameter."
        )
    if gradients[1] is None or not same(gradients[1], gradients[0]):
        came = "none" if gradients[1] is None else describe(gradients[1], gradients[0])
        raise CheckFailed(f"the values are right, the gradient of the input is not.\n  {came}")


def independent_instances(name: str, cls: Callable, case: Case) -> None:
    """Check that two instances do not share a parameter."""
    first, second = build(name, cls, case.options), build(name, cls, case.options)
    storages = {parameter.data_ptr() for parameter in first.parameters() if parameter.numel()}
    shared = [key for key, parameter in second.named_parameters() if parameter.data_ptr() in storages]
    if shared:
        raise CheckFailed(
            f"two instances share {', '.join(shared)}: training one changes the other. Make parameters in __init__, "
            "not in the class body or outside."
        )
