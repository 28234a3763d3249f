"""The tests that give points: inputs drawn again at every run, values and gradients compared with the reference.

``hidden.NAME(subject)`` is the test of the part that ``vit_course.checks`` declares under this name, on the declared
cases with other sizes and values. For what an assignment has of its own, there are ``same_values`` and ``same_module``.

Students can read this file. That does not help them: nobody knows beforehand what is drawn, and the only way to give
the right values is to compute them. The subject of a test is an ordinary function or class, or a :class:`Remote`, the
name of one in a student's process; answers come from there, and the comparison is made here. What can only be seen
inside the student's process (whether two instances share weights, the mode in which a model was left) is a claim of
that process, and worth as much as the effort of rewriting ``answers.py`` at run time.

Values are compared in single precision with the reference in double precision; nan is equal to nothing.
"""

import functools
import secrets
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, product

import torch
from torch import Tensor

import vit_course.checks  # noqa: F401  it declares all parts
from grader.answers import SmallModel, perform
from vit_course import training
from vit_course.checks.compare import named
from vit_course.checks.declare import CHECKS, Case, Check
from vit_course.checks.dropout import Draws
from vit_course.checks.verdict import CheckFailed

# of all inputs: nobody knows them before, and no two runs have the same
generator = torch.Generator()
numbers = secrets.SystemRandom()
whole, uniform = numbers.randint, numbers.uniform  # both with a lowest and a highest number, which may be drawn, too


class Wrong(CheckFailed):
    """A hidden test refused an answer; the message says where it differs."""


class Fault(RuntimeError):
    """Nothing can be marked, and not because of the answer: a matter for the teacher, not for the mark."""


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
        raise TypeError("a student's value is compared by hidden.same_values")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = __int__ = __len__ = _no_comparison


def hidden_test(test: Callable) -> Callable:
    """Draw again, leave torch's own random numbers as they are, and put the subject's name before a message."""

    @functools.wraps(test)
    def run(subject: object, *args: object, **kwargs: object) -> None:
        generator.manual_seed(secrets.randbits(63))
        try:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.manual_seed(secrets.randbits(63))
                test(subject, *args, **kwargs)
        except Wrong as wrong:
            raise Wrong(f"{_name(subject)}: {wrong}") from None

    return run


# --- draws -----------------------------------------------------------------------------------------------------------


def normal(*shape: int) -> Tensor:
    """Draw a float32 tensor from the standard normal distribution."""
    return torch.randn(shape, generator=generator)


def images(b: int, c: int, h: int, w: int) -> Tensor:
    """Draw a batch of float32 images with values in [0, 1)."""
    return torch.rand((b, c, h, w), generator=generator)


def choice(*options: object) -> object:
    """Draw one of the options."""
    return numbers.choice(options)


def _between(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Draw a tensor whose values lie between the smallest and the largest one of another.

    The numbers of a row differ clearly: of nearly equal ones, a variance is nearly 0, and right code may round it away.
    """
    low, size = like.min(), like.max() - like.min()
    drawn = low + size * torch.rand(shape, generator=generator)
    while shape[-1] > 1 and (narrow := drawn.std(dim=-1, correction=0) < 0.2 * size).any():
        drawn[narrow] = low + size * torch.rand((int(narrow.sum()), shape[-1]), generator=generator)
    return drawn


def _drawn(draw: Callable) -> tuple:
    try:
        return draw()
    except Exception as error:
        raise Fault(f"the draw: {type(error).__name__}: {error}") from error


# --- any function, any class -----------------------------------------------------------------------------------------


@hidden_test
def same_values(
    function: object, reference: Callable, draw: Callable, *, times: int = 8, gradients: bool = False
) -> None:
    """Compare a function with a reference on arguments drawn several times.

    Args:
        function: the student's.
        reference: the same function, right, on this side.
        draw: returns positional arguments, a tuple; or ``(args, kwargs)``.
        times: how often.
        gradients: compare those of the floating-point arguments too.
    """
    for _ in range(times):
        drawn = _drawn(draw)
        is_both = len(drawn) == 2 and isinstance(drawn[0], tuple) and isinstance(drawn[1], dict)
        args, kwargs = drawn if is_both else (drawn, {})
        _compare_call(function, reference, args, kwargs, gradients=gradients)


@hidden_test
def same_module(cls: object, reference: Callable, draw: Callable, *, times: int = 4) -> None:
    """Compare a class with a reference in eval mode, with drawn weights; parameters are named as the reference's.

    The arguments are those of :func:`same_values`, but ``draw`` returns constructor options, a dict, and an input.
    """
    for options, x in [_drawn(draw) for _ in range(times)]:
        state = {name: normal(*parameter.shape) for name, parameter in reference(**options).named_parameters()}
        _compare_module(cls, reference, Case("", (x,), options=options), state)


# --- what vit_course.checks declares ---------------------------------------------------------------------------------


def __getattr__(name: str) -> Callable:
    """Return the hidden test of the part that ``vit_course.checks`` declares under this name."""
    if name not in CHECKS or CHECKS[name].run is not Check.run:
        raise AttributeError(name)
    return functools.partial(_same_part, check=CHECKS[name])


@hidden_test
def _same_part(subject: object, check: Check) -> None:
    for case in chain(*check.cases):
        drops = case.training and any("dropout" in name for name in case.options)
        case = case if drops else _redrawn(case, check.is_class)  # what dropout leaves is judged for given values only
        if not check.is_class:
            _compare_call(subject, check.reference, case.args, case.kwargs, gradients=True)
            continue
        module = check.reference(**case.options)
        with torch.no_grad():
            case.weights(module)
        weights = {name: parameter.detach() for name, parameter in module.named_parameters()}
        state = weights if drops else {name: _between(x, x.shape) for name, x in weights.items()}
        _compare_module(subject, check.reference, case, state)


def _redrawn(case: Case, is_class: bool) -> Case:
    """Return a case with other sizes and values, in which all sizes still fit together."""
    more, tall, wide, factor = whole(0, 2), whole(1, 2), whole(1, 2), whole(1, 2)
    sizes = case.options | case.kwargs
    is_side = isinstance(sizes.get("image_size"), int)  # one number for a square, and it stays one
    rows = tall
    if "patch_size" in case.kwargs:  # patches instead of images: (b, n, c·p·p)
        rows, wide = tall**2 if is_side else tall, 1
    elif is_side:
        wide = tall

    def drawn(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        shape = [*value.shape]
        if value.ndim > 2 and shape[0] > 1:
            shape[0] += more
        shape[-2:] = [size * by for size, by in zip(shape[-2:], [rows, wide][-value.ndim :], strict=True)]
        return _between(value, shape)

    changes = {name: sizes[name] + more for name in ("mlp_dim", "num_classes") if name in sizes}
    if "image_size" in sizes:
        size = sizes["image_size"]
        changes["image_size"] = size * tall if is_side else (size[0] * tall, size[1] * wide)
    if "hidden_dim" in sizes:
        changes["hidden_dim"] = sizes["hidden_dim"] * (factor if "image_size" in sizes else wide)
    changed = {"options" if is_class else "kwargs": sizes | changes}
    return replace(case, args=tuple(map(drawn, case.args)), **changed)


CHECK_OF_CLASS = {check.reference.__name__: name for name, check in CHECKS.items() if check.is_class}  # for mine.part


# --- comparing -------------------------------------------------------------------------------------------------------

TOLERANCE = 2e-5  # of the largest expected value


def _name(subject: object) -> str:
    return getattr(subject, "__name__", type(subject).__name__)


def _answers(
    subject: object, reference: Callable, operation: str, *, gradients: bool = False, **details: object
) -> tuple[dict, dict, dict]:
    """Have an operation of ``answers.py`` done with the subject, here or where it lives, and with the reference.

    Returns the subject's answer, and the reference's in double and, where rounding is judged by it, in single
    precision. An error in the subject is a ``Wrong`` answer, an error in the reference a ``Fault``.
    """

    def right(details: dict) -> dict:
        answer = perform({"reference": reference}, dict(name="reference", operation=operation, details=details))
        if "error" in answer:
            raise Fault(f"the reference: {answer['error']}")
        return answer

    exact = right(_double(details))
    if gradients:
        details["cotangent"] = normal(*exact["result"].shape)
        exact = right(_double(details))
    request = dict(name=_name(subject), operation=operation, details=details)
    answer = subject._ask(request) if isinstance(subject, Remote) else perform({request["name"]: subject}, request)
    if "error" in answer:
        raise Wrong(str(answer["error"]))
    return answer, exact, right(details) if gradients or operation == "call" else exact


def _double(value: object) -> object:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _double(item) for key, item in value.items()}
    return type(value)(map(_double, value)) if isinstance(value, (list, tuple)) else value


def compare(actual: object, expected: object, where: str, *, limit: float | None = None, floor: float = 1e-3) -> None:
    """Raise ``Wrong`` unless two values are equal.

    Numbers may differ by ``limit``, by default by rounding: in proportion to the largest value expected, or to
    ``floor``, the size of what they were computed from, where they are small because terms cancel.
    """
    if isinstance(expected, (tuple, list)):
        if not isinstance(actual, (tuple, list)) or len(actual) != len(expected):
            raise Wrong(f"{where}: expected {len(expected)} values, got {named(actual)}")
        for index, (one, right) in enumerate(zip(actual, expected, strict=True)):
            compare(one, right, f"{where}, value {index + 1}", limit=limit, floor=floor)
        return
    if not _is_numeric(expected):
        if type(actual) is not type(expected) or actual != expected:
            raise Wrong(f"{where}: expected {expected!r}, got {named(actual)}")
        return
    if not _is_numeric(actual):
        raise Wrong(f"{where}: expected a {type(expected).__name__.lower()}, got {named(actual)}")
    right, came = torch.as_tensor(expected).double(), torch.as_tensor(actual).double()
    if came.shape != right.shape:
        raise Wrong(f"{where}: expected shape {tuple(right.shape)}, got {tuple(came.shape)}")
    if limit is None:
        limit = TOLERANCE * max(floor, float(right.abs().max())) if right.numel() else 0.0
    wrong = ~((came - right).abs() <= limit)  # nan is wrong
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        values = f"expected {float(right[tuple(at)]):.6g}, got {float(came[tuple(at)]):.6g}"
        raise Wrong(f"{where}: at {at} {values} ({int(wrong.sum())} of {wrong.numel()} differ)")


def _is_numeric(value: object) -> bool:
    return isinstance(value, (Tensor, int, float)) and not isinstance(value, bool)


def _compare_number(actual: object, expected: float, where: str, **how: float) -> None:
    """Compare with a plain number, which a tensor is not."""
    if isinstance(actual, Tensor):
        raise Wrong(f"{where}: expected a number, got a tensor")
    compare(actual, expected, where, **how)


def _size(value: object) -> float:
    """Return the largest absolute value in a tensor of floating-point numbers, 0 for anything else."""
    is_real = isinstance(value, Tensor) and value.is_floating_point() and value.numel()
    return float(value.abs().max()) if is_real else 0.0


def _slack(rounded: object, right: object) -> float:
    """Return how far right code may be off where terms cancel, judged by the reference's own answer in float32."""
    return 30 * _size(rounded - right) if isinstance(right, Tensor) and right.is_floating_point() else 0.0


def _compare_gradients(answer: dict, right: dict, rounded: dict, where: str) -> None:
    """Compare gradients, if there are any, loosely: one that is wrong is so by far more than rounding."""
    expected, actual = right.get("gradients", {}), answer.get("gradients")
    if expected and actual is None:
        raise Wrong(f"the values are right, but the result has no gradient {where}")
    largest = max(map(_size, expected.values()), default=0.0)
    for name, gradient in expected.items():
        limit = 1e-3 * _size(gradient) + TOLERANCE * largest + _slack(rounded["gradients"][name], gradient)
        compare(actual[name], gradient, f"the values are right, the gradient of {name} is not, {where}", limit=limit)


def _compare_call(subject: object, reference: Callable, args: tuple, kwargs: dict, *, gradients: bool) -> None:
    where = f"for ({', '.join([*map(named, args), *(f'{key}={named(value)}' for key, value in kwargs.items())])})"
    answer, right, rounded = _answers(subject, reference, "call", gradients=gradients, args=args, kwargs=kwargs)
    given = [*args, *kwargs.values()]
    sizes = filter(None, map(_size, given))
    floor = max(min(1.0, max(sizes, default=1e-3)), _slack(rounded["result"], right["result"]) / TOLERANCE)
    compare(answer["result"], right["result"], where, floor=floor)
    for before, after in zip(given, answer["after"], strict=True):
        if isinstance(before, Tensor):
            compare(after, before, f"its argument was changed {where}")
    _compare_gradients(answer, right, rounded, where)


def _compare_module(subject: object, reference: Callable, case: Case, state: dict) -> None:
    (x,) = case.args
    mode = "in train mode " if case.training else ""
    where = f"{mode}with {_options(case.options)} for input of shape {tuple(x.shape)}"
    details = dict(options=case.options, state=state, x=x, training=case.training)
    answer, right, rounded = _answers(subject, reference, "module", gradients=not case.training, **details)
    _compare_parameters(answer["parameters"], right["parameters"])
    if answer["frozen"]:
        raise Wrong(f"requires_grad is off for {str(answer['frozen'])[:200]}: it could never be trained")
    if answer["shared"]:
        raise Wrong(f"two instances share {str(answer['shared'])[:200]}: make parameters in __init__")
    expected, actual = case.shows(right["result"]), answer["result"]
    if isinstance(actual, Tensor) and actual.shape == right["result"].shape:
        actual = case.shows(actual.double())
    if not isinstance(expected, Draws):
        limit = 5e-6 * max(1.0, _size(expected))  # a block whose GELU is by tanh is off by more, right code by less
        compare(actual, expected, where, limit=limit)
    elif not expected.matches(actual):
        raise Wrong(f"{where}: after dropout expected {expected}, got {actual}")
    compare(answer["after"][0], x, f"its input was changed {where}")
    _compare_gradients(answer, right, rounded, where)


def _compare_parameters(actual: dict, expected: dict) -> None:
    for name, shape in expected.items():
        if name not in actual:
            raise Wrong(f"it has no parameter {name}; it has {', '.join(actual)[:300] or 'none'}")
        if tuple(actual[name]) != shape:
            raise Wrong(f"its parameter {name} has shape {tuple(actual[name])}, expected {shape}")
    if unknown := [name for name in actual if name not in expected]:
        raise Wrong(f"it has parameters that are not expected: {', '.join(unknown)[:300]}")


def _options(options: dict) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in options.items())


# --- training --------------------------------------------------------------------------------------------------------


@hidden_test
def learning_rate_schedule(function: object) -> None:
    """Test a ``learning_rate_schedule(step, *, total_steps, warmup_steps, peak, final=0.0)`` over whole curves."""
    total, peak = whole(20, 40), uniform(1e-4, 1e-1)
    plans = [dict(warmup_steps=warmup) for warmup in (whole(3, 9), 0, 1, total)]
    plans.append(dict(warmup_steps=whole(3, 9), final=peak * uniform(0.05, 0.5)))
    plans.append(dict(warmup_steps=0, total_steps=1))
    schedule = training.learning_rate_schedule
    for plan, step in product(plans, range(total + whole(4, 60))):
        options = dict(total_steps=total, peak=peak) | plan
        actual, expected, _ = _answers(function, schedule, "call", args=(step,), kwargs=options)
        where = f"at step {step} with {_options(options)}"
        _compare_number(actual["result"], expected["result"], where, limit=1e-6 * peak)


def regularized_train_step(function: object) -> None:
    """Test a ``train_step(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None)``."""
    smooth, clip = dict(label_smoothing=uniform(0.1, 0.3)), dict(max_grad_norm=uniform(0.1, 0.2))
    runs = [[{}, {}, {}], [smooth, clip, smooth | clip, dict(max_grad_norm=1e3)]]
    same_training(function, training.regularized_train_step, *runs)


@hidden_test
def same_training(function: object, reference: Callable, *runs: list[dict], in_parts: bool = False) -> None:
    """Compare a training step with a reference over short runs, each given by the keyword arguments of its steps.

    With ``in_parts``, ``backward`` must have run for a part of a batch before the next part goes through the model.
    """
    optimizers = dict(SGD=dict(momentum=0.9, weight_decay=0.01), Adam=dict(eps=0.1))
    for (kind, fixed), run in product(optimizers.items(), runs):
        state, side = _classifier()
        steps = []
        for kwargs in run:
            b = whole(6, 8)
            labels = torch.randint(len(state["head.bias"]), (b,), generator=generator)
            steps.append(((3 * normal(b, 2, side, side), labels), kwargs))
        details = dict(state=state, kind=kind, options=dict(lr=uniform(0.05, 0.2), **fixed), steps=steps)
        actual, expected, _ = _answers(function, reference, "training", **details)
        if in_parts and actual["waiting"] > 1:
            raise Wrong(f"backward must run after each part; {actual['waiting']} parts are in memory at once")
        for step, kwargs in enumerate(run):
            where = f"step {step + 1} of {len(run)}" + (f", with {_options(kwargs)}" if kwargs else "")
            _compare_number(actual["losses"][step], expected["losses"][step], f"the loss, {where}", floor=1.0)
            for name, right in expected["states"][step].items():
                compare(actual["states"][step][name], right, f"{name} after {where}", floor=1.0)


def _classifier() -> tuple[dict[str, Tensor], int]:
    """Draw the state of a small classifier, and the side of its images."""
    side, classes, d = whole(2, 3), whole(4, 6), whole(5, 8)
    weights = {
        "linear.weight": normal(d, 2 * side**2) / (2 * side**2) ** 0.5,
        "head.weight": normal(classes, d) / d**0.5,
    }
    norm = {"norm.weight": 1 + 0.3 * normal(d), "norm.bias": 0.5 * normal(d)}
    running = {"norm.running_mean": 0.5 + normal(d).abs(), "norm.running_var": 0.5 + normal(d).abs()}
    rest = {"head.bias": 0.5 * normal(classes), "norm.num_batches_tracked": torch.tensor(0)}
    return weights | norm | running | rest, side


def _decided_images(state: dict[str, Tensor], shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Draw images for which the classifier's first class is ahead by more than rounding can move it, and labels.

    The labels of three images are the classifier's first, second and third class, in places drawn at random: whoever
    counts more than the first one is found out in every draw.
    """
    model = SmallModel(state).eval()
    while True:
        drawn = normal(*shape)
        with torch.no_grad():
            values, classes = model(drawn).sort(dim=-1, descending=True)
        if float((values[:, 0] - values[:, 1]).min()) > 1e-3:
            break
    ranks = torch.randint(len(state["head.bias"]), (len(drawn),), generator=generator)
    ranks[:3] = torch.arange(3)
    ranks = ranks[torch.randperm(len(drawn), generator=generator)]
    return drawn, classes.gather(1, ranks[:, None])[:, 0]


@hidden_test
def evaluate(function: object) -> None:
    """Test an ``evaluate(model, dataset, *, batch_size=256)``."""
    for size, options in [(whole(9, 11), dict(batch_size=4)), (7, dict(batch_size=whole(2, 3))), (whole(5, 9), {})]:
        state, side = _classifier()
        batch, labels = _decided_images(state, (size, 2, side, side))
        modes = [True, choice(True, False), False, True]
        details = dict(state=state, modes=modes, options=options, images=batch, labels=labels)
        actual, expected, _ = _answers(function, training.evaluate, "evaluation", **details)
        where = f"{size} images, {_options(options)}"
        if not isinstance(actual["result"], (tuple, list)) or len(actual["result"]) != 2:
            raise Wrong("expected two numbers, loss and accuracy")
        for name, came, right in zip(["loss", "accuracy"], actual["result"], expected["result"], strict=True):
            _compare_number(came, right, f"the {name} over {where}", floor=1.0)
        if not actual["seen"]:
            raise Wrong("the model was not called")
        if (largest := max(seen[0] for seen in actual["seen"])) > options.get("batch_size", size):
            raise Wrong(f"{largest} images go through the model at once, {where}")
        if any(mode or gradients for _, mode, gradients in actual["seen"]):
            raise Wrong("the model must be called in eval mode and without gradients")
        if not actual["gradients"]:
            raise Wrong("gradients must be switched on again afterwards")
        if actual["modes"] != modes:
            raise Wrong("every module must get back the mode that it had")
        for name, right in expected["state"].items():
            compare(actual["state"][name], right, f"{name} after evaluating")
