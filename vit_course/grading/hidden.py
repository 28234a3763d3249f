"""The tests behind the marks: inputs drawn afresh at every run, values and gradients compared with the reference.

Students can read this file. That helps nobody: what is drawn is not known before, and the only way to give the right
values is to compute them. The subject of a test is an ordinary function or class, or a :class:`Remote`, the name of
one in a student's process; from there come answers, and the comparison is made here.

Computing the reference's values is enough to pass, wherever the code comes from: a copied solution is not told from
an own one. What can only be seen inside the student's process (whether an input was written into, whether two
instances share weights, which mode a model was left in) is that process's claim. It is asked for with the rest, and
is worth as much as the effort of rewriting ``answers.py`` at run time.

Values are compared in single precision with the reference in double precision; nan is equal to nothing.
"""

import functools
import math
import secrets
from collections.abc import Callable, Iterable
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vit_course
from vit_course import training
from vit_course.grading.answers import SmallModel, perform

_generator = torch.Generator()


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
        ask: sends a request for :func:`vit_course.grading.answers.perform` there and returns the answer.
    """

    def __init__(self, name: str, ask: Callable) -> None:
        self.__name__, self._ask = name, ask

    def _no_comparison(self, *_: object) -> bool:
        raise TypeError("a student's value is compared by hidden.number, hidden.value or hidden.same_values")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __float__ = __int__ = __len__ = _no_comparison
    __hash__ = None


def ask(subject: object, operation: str, **details: object) -> dict:
    """Have an operation of ``answers.py`` done with the subject, here or where it lives; ``Wrong`` for an error."""
    request = dict(name=_name(subject), operation=operation, details=details)
    answer = subject._ask(request) if isinstance(subject, Remote) else perform({request["name"]: subject}, request)
    if "error" in answer:
        raise Wrong(str(answer["error"]))
    return answer


def _name(subject: object) -> str:
    return getattr(subject, "__name__", type(subject).__name__)


def _hidden_test(test: Callable) -> Callable:
    """Draw anew, leave torch's own random numbers as they are, and put the subject's name before a message."""

    @functools.wraps(test)
    def run(subject: object, *args: object, **kwargs: object) -> None:
        _generator.manual_seed(secrets.randbits(63))
        try:
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                test(subject, *args, **kwargs)
        except Wrong as wrong:
            raise Wrong(f"{_name(subject)}: {wrong}") from None

    return run


# --- drawing ---------------------------------------------------------------------------------------------------------


def normal(*shape: int) -> Tensor:
    """Draw a float32 tensor from the standard normal distribution."""
    return torch.randn(shape, generator=_generator)


def images(b: int, c: int, h: int, w: int) -> Tensor:
    """Draw a batch of float32 images with values in [0, 1)."""
    return torch.rand((b, c, h, w), generator=_generator)


def whole(low: int, high: int) -> int:
    """Draw a whole number from ``low`` to ``high``, both included."""
    return int(torch.randint(low, high + 1, (), generator=_generator))


def choice(*options: object) -> object:
    """Draw one of the options."""
    return options[whole(0, len(options) - 1)]


def uniform(low: float, high: float) -> float:
    """Draw a number between ``low`` and ``high``."""
    return low + (high - low) * float(torch.rand((), generator=_generator, dtype=torch.float64))


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Draw every parameter of a model anew, at a scale that keeps the values of deep models moderate."""
    return {name: _weight(name, parameter) for name, parameter in model.named_parameters()}


def _weight(name: str, parameter: Tensor) -> Tensor:
    drawn = normal(*parameter.shape)
    if parameter.ndim == 2:
        return drawn * parameter.shape[1] ** -0.5
    return 1 + 0.3 * drawn if name.endswith("weight") else 0.5 * drawn


# --- comparing -------------------------------------------------------------------------------------------------------


TOLERANCE = 2e-5  # of the largest expected value


def _compare(
    actual: object, expected: object, where: str, *, limit: int | float | None = None, floor: float = 1e-3
) -> None:
    """Raise ``Wrong`` unless two values are equal.

    Numbers may differ by ``limit``, by default by rounding: in proportion to the largest value expected, or to
    ``floor``, the size of what they were computed from, where they are small because terms cancel.
    """
    if isinstance(expected, (tuple, list)):
        if not isinstance(actual, (tuple, list)) or len(actual) != len(expected):
            raise Wrong(f"{where}: expected {len(expected)} values, got {_shown(actual)}")
        for index, (one, right) in enumerate(zip(actual, expected, strict=True)):
            _compare(one, right, f"{where}, value {index + 1}", limit=limit, floor=floor)
        return
    if not isinstance(expected, (Tensor, int, float)) or isinstance(expected, bool):
        if type(actual) is not type(expected) or actual != expected:
            raise Wrong(f"{where}: expected {expected!r}, got {_shown(actual)}")
        return
    if not isinstance(actual, (Tensor, int, float)) or isinstance(actual, bool):
        raise Wrong(f"{where}: expected a {type(expected).__name__.lower()}, got {_shown(actual)}")
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
    """Return the largest value in the floating-point tensors, at most 1, for :func:`_compare`'s ``floor``."""
    tensors = [x for x in values if isinstance(x, Tensor) and x.is_floating_point() and x.numel()]
    return min(1.0, max((float(x.abs().max()) for x in tensors), default=1e-3))


def _compare_numbers(actual: object, expected: int | float, where: str, **how: int | float) -> None:
    """Compare with a plain number, which a tensor is not."""
    if isinstance(actual, Tensor):
        raise Wrong(f"{where}: expected a number, got a tensor")
    _compare(actual, expected, where, **how)


def _double(value: object) -> object:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: _double(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_double(item) for item in value)
    return value


def _right(reference: object, operation: str, **details: object) -> dict:
    """Return the reference's answer in double precision; an error in it is the test's own."""
    request = dict(name="reference", operation=operation, details=_double(details))
    answer = perform({"reference": reference}, request)
    if "error" in answer:
        raise Fault(f"the reference: {answer['error']}")
    return answer


def _label(args: tuple, kwargs: dict) -> str:
    shown = [_shown(value) for value in args] + [f"{key}={_shown(value)}" for key, value in kwargs.items()]
    return f"for ({', '.join(shown)})"


def _shown(value: object) -> str:
    return f"tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:60]


def _function(subject: object, reference: Callable, cases: list, *, gradients: bool) -> None:
    """Compare values, the arguments after the call and, if asked, gradients, on every case ``(args, kwargs)``."""
    for args, kwargs in cases:
        where = _label(args, kwargs)
        expected = _right(reference, "call", args=args, kwargs=kwargs)["result"]
        answer = ask(subject, "call", args=args, kwargs=kwargs)
        _compare(answer["result"], expected, where, floor=_size([*args, *kwargs.values()]))
        for before, after in zip(args, answer["arguments"], strict=True):
            if isinstance(before, Tensor):
                _compare(after, before, f"its argument was changed {where}")
        for key, before in kwargs.items():
            if isinstance(before, Tensor):
                _compare(answer["keywords"][key], before, f"its argument {key} was changed {where}")
        if gradients:
            details = dict(args=args, kwargs=kwargs, cotangent=normal(*expected.shape))
            right = _right(reference, "call", **details)["gradients"]
            _compare_gradients(ask(subject, "call", **details)["gradients"], right, where)


def _compare_gradients(actual: object, expected: object, where: str) -> None:
    if actual is None:
        raise Wrong(f"the values are right, but the result has no gradient {where}")
    pairs = list(expected.items() if isinstance(expected, dict) else enumerate(expected))
    largest = max((float(gradient.abs().max()) for _, gradient in pairs if gradient.numel()), default=0.0)
    for key, gradient in pairs:
        of = key if isinstance(key, str) else f"argument {key + 1}"
        limit = 1e-3 * float(gradient.abs().max()) + TOLERANCE * largest if gradient.numel() else 0.0
        _compare(actual[key], gradient, f"the values are right, the gradient of {of} is not, {where}", limit=limit)


def _module(subject: object, reference: Callable, cases: list, *, method: str = "forward", quiet: int = 0) -> None:
    """Compare values in eval mode, gradients, and whether two instances are independent; cases: options and input.

    The first ``quiet`` cases are compared a second time with tokens so small that the eps of LayerNorm counts.
    """
    drawn = [(options, x, weights(reference(**options)), "") for options, x in cases]
    drawn += [(options, SMALL * x, _quiet(state), "small ") for options, x, state, _ in drawn[:quiet]]
    for options, x, state, kind in drawn:
        where = f"with {_shown_options(options)} for {kind}input of shape {tuple(x.shape)}"
        details = dict(options=options, state=state, inputs=[x], method=method)
        expected = _right(reference, "module", **details)["results"][0]
        answer = ask(subject, "module", **details)
        _compare_parameters(answer["parameters"], details["state"])
        _compare(answer["results"][0], expected, where, floor=1.0)
        _compare(answer["arguments"][0], x, f"its input was changed {where}")
        if not any("dropout" in key for key in options):
            answer = ask(subject, "module", training=True, **details)
            _compare(answer["results"][0], expected, f"in train mode without dropout {where}", floor=1.0)
        if isinstance(expected, Tensor):
            details["cotangent"] = normal(*expected.shape)
            right = _right(reference, "module", **details)["gradients"]
            _compare_gradients(ask(subject, "module", **details)["gradients"], right, where)
        if shared := ask(subject, "instances", options=options)["shared"]:
            raise Wrong(f"two instances share {str(shared)[:200]}: make parameters in __init__")


SMALL = 0.003  # variance 1e-5: an eps of 1e-6 is a tenth of it


def _quiet(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Scale down what is added to the stream, in the embedding and at the end of every branch."""
    return {
        name: SMALL * tensor if any(part in name for part in ("embedding", "out_proj", "linear_2")) else tensor
        for name, tensor in state.items()
    }


def _compare_parameters(actual: dict, state: dict[str, Tensor]) -> None:
    for name, tensor in state.items():
        if name not in actual:
            raise Wrong(f"it has no parameter {name}; it has {', '.join(actual)[:300] or 'none'}")
        if tuple(actual[name]) != tuple(tensor.shape):
            raise Wrong(f"its parameter {name} has shape {tuple(actual[name])}, expected {tuple(tensor.shape)}")
    if unknown := [name for name in actual if name not in state]:
        raise Wrong(f"it has parameters that are not expected: {', '.join(unknown)[:300]}")


def _shown_options(options: dict) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in options.items())


# --- dropout ---------------------------------------------------------------------------------------------------------
# Weights are set, not drawn, so that the result in train mode takes few values, known exactly; how often each of them
# comes up is held to eight standard deviations, which a right implementation leaves less than once in 10^14 runs.

RATE = 0.25
KEPT = 1 / (1 - RATE)
HIDDEN, BIAS = 1.5, 0.7  # constants set in an MLP
GELU = float(F.gelu(torch.tensor(HIDDEN, dtype=torch.float64)))
ONE_DROPOUT = {0.0: RATE, KEPT: 1 - RATE}  # of ones
MLP_DROPOUT = {  # of HIDDEN, through an identity, GELU, dropout, an identity with BIAS, and dropout again
    0.0: RATE,
    KEPT * BIAS: (1 - RATE) * RATE,
    KEPT * (KEPT * GELU + BIAS): (1 - RATE) ** 2,
}


def _train(subject: object, options: dict, state: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the result in train mode."""
    result = ask(subject, "module", options=options, state=state, inputs=[x], training=True)["results"][0]
    if not isinstance(result, Tensor) or not result.is_floating_point():
        raise Wrong(f"in train mode: expected a tensor, got {_shown(result)}")
    return result.double()


def _constant(model: nn.Module, **values: float | Tensor) -> dict[str, Tensor]:
    """Return a state of zeros, the norms' weights ones, and the parameters that end in these names (_ for .) set."""
    state = {}
    for name, parameter in model.named_parameters():
        own = [value for ending, value in values.items() if name.replace(".", "_").endswith(ending)]
        norm = parameter.ndim == 1 and name.endswith("weight")
        state[name] = torch.zeros_like(parameter.detach()) + (own[0] if own else float(norm))
    return state


def _identity_mlp(d: int, *, bias: float = BIAS) -> dict[str, float | Tensor]:
    """Return values for :func:`_constant` with which an MLP gives GELU(x) + bias."""
    return dict(linear_1_weight=torch.eye(d), linear_2_weight=torch.eye(d), linear_2_bias=bias)


def _even_attention(d: int) -> dict[str, Tensor]:
    """Return values for :func:`_constant` with which attention gives the mean of its input over all tokens."""
    only_values = torch.cat([torch.zeros(2 * d, d), torch.eye(d)])
    return dict(qkv_weight=only_values, out_proj_weight=torch.eye(d))


def _values_and_shares(result: Tensor, shares: dict[float, float], place: str) -> None:
    """Check that a result takes only these values, each as often as it should, and that no two tokens are alike."""
    counted = 0
    for value, share in shares.items():
        hits = int(((result - value).abs() < 1e-4).sum())
        counted += hits
        if abs(hits - share * result.numel()) > 8 * math.sqrt(share * (1 - share) * result.numel()):
            raise Wrong(
                f"in train mode, dropout {place}: {share:.0%} of the values should be {value:.2f}, "
                f"{hits / result.numel():.0%} are"
            )
    if counted != result.numel():
        raise Wrong(f"in train mode, dropout {place}: values other than {', '.join(f'{v:.2f}' for v in shares)}")
    _no_shared_mask(result, place)


def _no_shared_mask(result: Tensor, place: str) -> None:
    rows = result.round(decimals=4).flatten(0, -2)
    if len(rows.unique(dim=0)) != len(rows):
        raise Wrong(f"in train mode, dropout {place}: tokens share one mask")


def _attention_shares(result: Tensor, heads: int) -> None:
    """Check what is left of values that are all one when each of the weights 1/s may be dropped: so many KEPT/s."""
    b, s, d = result.shape
    counts = (result * s / KEPT).reshape(b, s, heads, d // heads)
    if float((counts - counts.round()).abs().max()) > 1e-3 or float((counts - counts[..., :1]).abs().max()) > 1e-3:
        raise Wrong("in train mode, attention_dropout: it must drop weights after the softmax, and scale the rest")
    counts = counts[..., 0].round()
    for axis, name in enumerate(["images", "tokens", "heads"]):
        if bool((counts == counts.narrow(axis, 0, 1)).all()):
            raise Wrong(f"in train mode, attention_dropout: all {name} share one mask, or nothing is dropped")
    mean, variance = s * (1 - RATE), s * RATE * (1 - RATE)
    if abs(float(counts.mean()) - mean) > 8 * math.sqrt(variance / counts.numel()):
        raise Wrong(f"in train mode, attention_dropout: of {s} weights {float(counts.mean()):.2f} are kept, not {mean}")
    fourth = variance * (1 + 3 * (s - 2) * RATE * (1 - RATE))  # central moment of the binomial distribution
    spread = float(((counts - mean) ** 2).mean())
    if abs(spread - variance) > 12 * math.sqrt((fourth - variance**2) / counts.numel()):
        raise Wrong("in train mode, attention_dropout: the weights must be dropped one by one")


def _two_values(result: Tensor, share: float, place: str) -> None:
    """Check tokens that are normalised behind a dropout of constants: two values in each, the upper one so often."""
    low, high = result.amin(dim=-1, keepdim=True), result.amax(dim=-1, keepdim=True)
    if not bool((high - low > 0.1).all()):
        raise Wrong(f"in train mode, dropout {place}: nothing is dropped")
    is_high = (result - high).abs() < 1e-3
    if not bool((is_high | ((result - low).abs() < 1e-3)).all()):
        raise Wrong(f"in train mode, dropout {place}: something else is dropped too")
    if abs(float(is_high.double().mean()) - share) > 8 * math.sqrt(share * (1 - share) / result.numel()):
        raise Wrong(f"in train mode, dropout {place}: {float(is_high.double().mean()):.0%} are kept, not {share:.0%}")
    _no_shared_mask(is_high.double(), place)


# --- any function, class or variable ---------------------------------------------------------------------------------


@_hidden_test
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
    cases = [_drawn(draw) for _ in range(times)]
    _function(function, reference, cases, gradients=gradients)


def _draw(draw: Callable) -> tuple:
    try:
        return draw()
    except Exception as error:
        raise Fault(f"the draw: {type(error).__name__}: {error}") from error


def _drawn(draw: Callable) -> tuple[tuple, dict]:
    drawn = _draw(draw)
    if len(drawn) == 2 and isinstance(drawn[0], tuple) and isinstance(drawn[1], dict):
        return drawn
    return drawn, {}


@_hidden_test
def same_module(cls: object, reference: Callable, draw: Callable, *, times: int = 4, method: str = "forward") -> None:
    """Compare a class with a reference in eval mode, with drawn weights; parameters are named as the reference's.

    Args:
        cls: the student's.
        reference: the same class, right, on this side.
        draw: returns constructor options, a dict, and an input.
        times: how often.
        method: what is called.
    """
    _module(cls, reference, [_draw(draw) for _ in range(times)], method=method)


@_hidden_test
def number(subject: object, expected: int | float, tolerance: int | float = 0) -> None:
    """Compare a variable that holds a number, or a tensor of one.

    Args:
        subject: the student's.
        expected: what it must be.
        tolerance: largest difference that is still right.
    """
    _compare(ask(subject, "value")["result"], expected, "the number", limit=tolerance)


@_hidden_test
def value(subject: object, expected: object) -> None:
    """Compare a variable that holds a text, a tensor, or a tuple or list of such and of numbers."""
    _compare(ask(subject, "value")["result"], expected, "the value")


# --- functions -------------------------------------------------------------------------------------------------------


@_hidden_test
def patchify(function: object) -> None:
    """Test a ``patchify(images, patch_size)``."""
    cases = [
        ((images(b, c, gh * p, gw * p) * choice(1, 100), p), {})
        for b, c, p, gh, gw in [
            (whole(2, 3), 3, whole(2, 4), 3, 3),
            (whole(2, 3), 3, whole(2, 4), whole(1, 2), whole(3, 5)),
            (1, 1, whole(2, 5), whole(4, 5), whole(2, 3)),
            (1, 3, 1, whole(2, 5), whole(2, 5)),
            (whole(2, 4), whole(2, 5), 3, 1, 1),
        ]
    ]
    _function(function, vit_course.patchify, cases, gradients=True)


@_hidden_test
def unpatchify(function: object) -> None:
    """Test an ``unpatchify(patches, *, patch_size, image_size, channels=3)``."""
    cases = []
    for b, c, p, gh, gw in [
        (whole(2, 3), 3, whole(2, 4), whole(2, 3), whole(4, 5)),
        (1, 1, whole(2, 4), whole(4, 5), whole(2, 3)),
        (whole(2, 3), whole(2, 5), whole(1, 3), whole(1, 2), whole(3, 4)),
    ]:
        sizes = dict(patch_size=p, image_size=(gh * p, gw * p), channels=c)
        cases.append(((normal(b, gh * gw, c * p * p),), sizes))
    g, p = whole(2, 4), whole(2, 3)
    cases.append(((normal(2, g * g, 3 * p * p),), dict(patch_size=p, image_size=g * p)))
    _function(function, vit_course.unpatchify, cases, gradients=True)


@_hidden_test
def scaled_dot_product_attention(function: object) -> None:
    """Test a ``scaled_dot_product_attention(query, key, value)``."""
    cases = []
    for b, heads, i, j, e in [
        (2, 3, whole(2, 4), whole(5, 7), whole(4, 9)),
        (1, 1, whole(5, 7), whole(2, 4), whole(2, 3)),
        (whole(2, 3), 2, 5, 5, whole(6, 8)),
        (whole(2, 3), whole(4, 5), 1, whole(2, 3), 1),
    ]:
        cases.append(((normal(b, heads, i, e) * choice(1, 4), normal(b, heads, j, e), normal(b, heads, j, e)), {}))
    _function(function, vit_course.scaled_dot_product_attention, cases, gradients=True)
    large = dict(args=(100 * normal(1, 2, 3, 4), 10 * normal(1, 2, 5, 4), normal(1, 2, 5, 4)), kwargs={})
    expected = _right(vit_course.scaled_dot_product_attention, "call", **large)["result"]
    _compare(ask(function, "call", **large)["result"], expected, "with scores too large for exp", limit=0.01)


@_hidden_test
def layer_norm(function: object) -> None:
    """Test a ``layer_norm(x, weight, bias, eps)``, over the last axis."""

    def reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)

    cases = []
    for shape, scale, eps in product([(2, 3, 5), (1, whole(4, 6), whole(7, 9))], [0.003, 1, 30], [1e-6, 0.1]):
        d = shape[-1]
        cases.append(((normal(*shape) * scale, 1 + normal(d) / 3, normal(d), eps), {}))
    _function(function, reference, cases, gradients=True)


# --- classes ---------------------------------------------------------------------------------------------------------


def _image_options() -> list[tuple[dict, Tensor]]:
    """Draw sizes and a batch for the classes that read images: square, rectangular, one channel, a batch of one."""
    cases = []
    for b, c, p, gh, gw in [
        (whole(2, 3), 3, whole(2, 4), 2, 2),
        (whole(2, 3), 1, whole(2, 4), whole(1, 2), whole(3, 4)),
        (1, 3, whole(2, 3), whole(3, 4), whole(1, 2)),
    ]:
        options = dict(image_size=gh * p if gh == gw else (gh * p, gw * p), patch_size=p)
        cases.append((options | ({} if c == 3 else dict(in_channels=c)), images(b, c, gh * p, gw * p)))
    return cases


@_hidden_test
def patch_embedding(cls: object) -> None:
    """Test a class like ``PatchEmbedding``."""
    cases = [(dict(hidden_dim=whole(5, 11), **options), x) for options, x in _image_options()]
    _module(cls, vit_course.PatchEmbedding, cases)


@_hidden_test
def image_embedding(cls: object) -> None:
    """Test a class like ``ImageEmbedding``, its dropout too."""
    cases = [
        (dict(hidden_dim=d, **dropout, **options), x)
        for d, dropout, (options, x) in zip(
            [8, whole(5, 11), whole(5, 11)], [{}, dict(dropout=0.5), {}], _image_options(), strict=True
        )
    ]
    _module(cls, vit_course.ImageEmbedding, cases)
    options = dict(image_size=8, patch_size=2, hidden_dim=128, dropout=RATE)
    state = _constant(vit_course.ImageEmbedding(**options), class_token=0.25, pos_embedding=0.75, projection_bias=0.25)
    _values_and_shares(_train(cls, options, state, images(8, 3, 8, 8)), ONE_DROPOUT, "after the positions are added")


@_hidden_test
def multi_head_attention(cls: object) -> None:
    """Test a class like ``MultiHeadSelfAttention``, its attention dropout too."""
    cases = [
        (dict(hidden_dim=heads * e, num_heads=heads, **dropout), normal(b, s, heads * e) * choice(1, 3))
        for b, s, heads, e, dropout in [
            (2, whole(4, 6), 3, whole(4, 6), {}),
            (1, whole(2, 3), 1, whole(8, 12), dict(attention_dropout=0.4)),
            (whole(2, 3), 1, whole(4, 5), 2, {}),
            (whole(2, 3), 7, 2, whole(3, 5), dict(attention_dropout=0.2)),
        ]
    ]
    _module(cls, vit_course.MultiHeadSelfAttention, cases)
    heads, d = 4, 16
    options = dict(hidden_dim=d, num_heads=heads, attention_dropout=RATE)
    state = _constant(vit_course.MultiHeadSelfAttention(**options), **_even_attention(d))
    _attention_shares(_train(cls, options, state, torch.ones(64, 16, d)), heads)


@_hidden_test
def mlp_block(cls: object) -> None:
    """Test a class like ``MLPBlock``, both dropouts too."""
    cases = [
        (dict(hidden_dim=d, mlp_dim=m, **dropout), 2 * normal(*shape, d))
        for shape, d, m, dropout in [
            ((2, whole(3, 5)), whole(4, 7), whole(9, 14), {}),
            ((1, 1), whole(9, 12), whole(3, 7), dict(dropout=0.3)),
            ((3, whole(2, 4)), 8, 8, dict(dropout=0.5)),
        ]
    ]
    _module(cls, vit_course.MLPBlock, cases)
    options = dict(hidden_dim=128, mlp_dim=128, dropout=RATE)
    state = _constant(vit_course.MLPBlock(**options), **_identity_mlp(128))
    x = torch.full((8, 16, 128), HIDDEN)
    _values_and_shares(_train(cls, options, state, x), MLP_DROPOUT, "after GELU and at the end")


@_hidden_test
def encoder_block(cls: object) -> None:
    """Test a class like ``EncoderBlock``: pre-norm, both residuals, dropout on the branches only."""
    rates = dict(dropout=choice(0.1, 0.5), attention_dropout=choice(0.2, 0.4))
    cases = [
        (dict(hidden_dim=heads * e, num_heads=heads, mlp_dim=m, **options), normal(b, s, heads * e) * choice(1, 3))
        for b, s, heads, e, m, options in [
            (2, whole(3, 5), 3, whole(4, 6), whole(5, 9), {}),
            (1, whole(3, 5), 1, whole(12, 14), whole(15, 20), rates),
            (whole(2, 3), 2, 2, 6, 12, {}),
        ]
    ]
    _module(cls, vit_course.EncoderBlock, cases, quiet=1)
    d, heads = 128, 4
    sizes = dict(hidden_dim=d, num_heads=heads, mlp_dim=d)
    model, x = vit_course.EncoderBlock(**sizes), normal(8, 16, d)
    still = _train(cls, dict(dropout=RATE, attention_dropout=RATE, **sizes), _constant(model), x)
    _compare(still, x.double(), "in train mode, with branches that give zero, dropout reaches the skip path")
    attention = dict(ln_1_weight=0.0, ln_1_bias=1.0, **_even_attention(d))
    mlp = dict(ln_2_weight=0.0, ln_2_bias=HIDDEN, **_identity_mlp(d))
    for place, values, shares in [
        ("on the attention branch", attention, ONE_DROPOUT),
        ("on the MLP branch", mlp, MLP_DROPOUT),
    ]:
        result = _train(cls, dict(dropout=RATE, **sizes), _constant(model, **values), x)
        _values_and_shares(result - x.double(), shares, place)
    result = _train(cls, dict(attention_dropout=RATE, **sizes), _constant(model, **attention), x)
    _attention_shares(result - x.double(), heads)


@_hidden_test
def encoder(cls: object) -> None:
    """Test a class like ``Encoder``: the blocks in order, then the final LayerNorm; every dropout is passed on."""
    rates = dict(dropout=choice(0.1, 0.5), attention_dropout=choice(0.2, 0.4))
    cases = [
        (
            dict(num_layers=layers, hidden_dim=heads * e, num_heads=heads, mlp_dim=whole(5, 9), **options),
            normal(b, s, heads * e),
        )
        for b, s, layers, heads, e, options in [
            (2, whole(3, 5), 3, 3, whole(4, 6), {}),
            (1, whole(2, 4), 1, 2, whole(6, 8), rates),
            (whole(2, 3), 2, 2, 1, whole(12, 14), {}),
        ]
    ]
    _module(cls, vit_course.Encoder, cases, quiet=1)
    sizes = dict(num_layers=2, hidden_dim=128, num_heads=4, mlp_dim=128)
    _dropouts_of_blocks(cls, vit_course.Encoder(**sizes), sizes, torch.zeros(64, 5, 128))


def _dropouts_of_blocks(cls: object, model: nn.Module, sizes: dict, x: Tensor) -> None:
    """Check each dropout in a stack of blocks, by weights with which one block alone adds something to the stream."""
    d, layer = sizes["hidden_dim"], f"layers_{whole(0, sizes['num_layers'] - 1)}"
    attention = {
        f"{layer}_ln_1_bias": 1.0,
        **{f"{layer}_self_attention_{name}": value for name, value in _even_attention(d).items()},
    }
    mlp = {
        f"{layer}_ln_2_bias": HIDDEN,
        **{f"{layer}_mlp_{name}": value for name, value in _identity_mlp(d, bias=0.0).items()},
    }
    for place, values, share in [
        ("on the attention branch", attention, 1 - RATE),
        ("on the MLP branch", mlp, (1 - RATE) ** 2),
    ]:
        state = _constant(model, head_weight=torch.eye(d), **values)
        _two_values(_train(cls, dict(dropout=RATE, **sizes), state, x), share, place)
    state = _constant(model, head_weight=torch.eye(d), **attention)
    result = _train(cls, dict(attention_dropout=RATE, **sizes), state, x)
    if not float((result.std(dim=-1) > 1e-3).double().mean()) > 0.5:
        raise Wrong("in train mode, attention_dropout: nothing is dropped")
    heads = result.unflatten(-1, (sizes["num_heads"], -1))
    if float((heads - heads[..., :1]).abs().max()) > 1e-3:
        raise Wrong("in train mode, attention_dropout: something else than attention weights is dropped")


@_hidden_test
def vision_transformer(cls: object) -> None:
    """Test a class like ``VisionTransformer``: both ways of pooling, rectangular images, every dropout."""
    cases = []
    rates = dict(dropout=choice(0.1, 0.5), attention_dropout=choice(0.2, 0.4))
    pools = [dict(pool="token"), dict(pool="mean"), {}]
    for (image, x), pool, extra, layers in zip(_image_options(), pools, [{}, rates, rates], [2, 1, 3], strict=True):
        heads = whole(2, 3)
        sizes = dict(hidden_dim=heads * whole(6, 8), num_heads=heads, mlp_dim=whole(7, 11), num_layers=layers)
        cases.append((dict(**image, **sizes, num_classes=whole(2, 6), **pool, **extra), x))
    _module(cls, vit_course.VisionTransformer, cases, quiet=1)
    d = 128
    sizes = dict(image_size=8, patch_size=4, num_layers=2, hidden_dim=d, num_heads=4, mlp_dim=d, num_classes=d)
    model, x = vit_course.VisionTransformer(**sizes), images(64, 3, 8, 8)
    _dropouts_of_blocks(cls, model, sizes, x)
    state = _constant(model, class_token=1.0, head_weight=torch.eye(d))
    _two_values(_train(cls, dict(dropout=RATE, **sizes), state, x), 1 - RATE, "after the positions are added")


# --- training --------------------------------------------------------------------------------------------------------


@_hidden_test
def learning_rate_schedule(function: object) -> None:
    """Test a ``learning_rate_schedule(step, *, total_steps, warmup_steps, peak, final=0.0)`` over whole curves."""
    total, peak = whole(20, 40), uniform(1e-4, 1e-1)
    for options in [
        dict(total_steps=total, warmup_steps=whole(3, 9), peak=peak),
        dict(total_steps=total, warmup_steps=whole(3, 9), peak=peak, final=peak * uniform(0.05, 0.5)),
        dict(total_steps=total, warmup_steps=0, peak=peak),
        dict(total_steps=total, warmup_steps=1, peak=peak),
        dict(total_steps=total, warmup_steps=total, peak=peak),
    ]:
        steps = range(options["total_steps"] + whole(4, 60))
        arguments = [((step,), options) for step in steps]
        expected = _right(training.learning_rate_schedule, "calls", arguments=arguments)["results"]
        actual = ask(function, "calls", arguments=arguments)["results"]
        for step, came, right in zip(steps, actual, expected, strict=True):
            _compare_numbers(came, right, f"at step {step} with {_shown_options(options)}", limit=1e-6 * peak)


def _classifier() -> tuple[dict, dict[str, Tensor], int]:
    """Draw the sizes and the state of a small classifier, and the side of its images."""
    side, classes = whole(2, 3), whole(4, 6)
    sizes = dict(in_features=2 * side * side, hidden_dim=whole(5, 8), num_classes=classes)
    model = SmallModel(**sizes)
    running = {name: 0.5 + abs(normal(*x.shape)) for name, x in model.state_dict().items() if "running" in name}
    return sizes, dict(model.state_dict()) | weights(model) | running, side


def _decided_images(sizes: dict, state: dict[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """Draw images for which the classifier's first class is ahead by more than rounding can move it."""
    model = SmallModel(**sizes).eval()
    model.load_state_dict(state)
    while True:
        drawn = normal(*shape)
        with torch.no_grad():
            first, second = model(drawn).topk(2, dim=-1).values.unbind(-1)
        if float((first - second).min()) > 1e-3:
            return drawn


@_hidden_test
def train_step(function: object) -> None:
    """Test a ``train_step(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None)``."""
    optimizers = [
        dict(kind="SGD", options=dict(lr=uniform(0.05, 0.2), momentum=0.9, weight_decay=0.01)),
        dict(kind="Adam", options=dict(lr=uniform(0.05, 0.2), eps=0.1)),
    ]
    plain = [{}, {}, {}]
    smooth, clip = dict(label_smoothing=uniform(0.1, 0.3)), dict(max_grad_norm=uniform(0.1, 0.2))
    full = [smooth, clip, smooth | clip, dict(max_grad_norm=1e3)]
    for optimizer, options in product(optimizers, [plain, full]):
        sizes, state, side = _classifier()
        steps = []
        for kwargs in options:
            b = whole(6, 9)
            labels = torch.randint(sizes["num_classes"], (b,), generator=_generator)
            steps.append(((3 * normal(b, 2, side, side), labels), kwargs))
        details = dict(sizes=sizes, state=state, optimizer=optimizer, steps=steps)
        expected, actual = _right(training.train_step, "training", **details), ask(function, "training", **details)
        for step, kwargs in enumerate(options):
            where = f"step {step + 1} of {len(options)}" + (f", with {_shown_options(kwargs)}" if kwargs else "")
            _compare_numbers(actual["losses"][step], expected["losses"][step], f"the loss, {where}", floor=1.0)
            for name, right in expected["states"][step].items():
                _compare(actual["states"][step][name], right, f"{name} after {where}", floor=1.0)


@_hidden_test
def evaluate(function: object) -> None:
    """Test an ``evaluate(model, dataset, *, batch_size=256)``."""
    for size, options in [(whole(9, 11), dict(batch_size=4)), (7, dict(batch_size=whole(2, 3))), (whole(5, 9), {})]:
        sizes, state, side = _classifier()
        modes = [True, choice(True, False), False, True]
        batch = _decided_images(sizes, state, (size, 2, side, side))
        details = dict(sizes=sizes, state=state, modes=modes, options=options, images=batch)
        details["labels"] = torch.randint(sizes["num_classes"], (size,), generator=_generator)
        expected, actual = _right(training.evaluate, "evaluation", **details), ask(function, "evaluation", **details)
        where = f"{size} images, {_shown_options(options) or 'batch_size not given'}"
        result = actual["result"]
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise Wrong("expected two numbers, loss and accuracy")
        for name, came, right in zip(["loss", "accuracy"], result, expected["result"], strict=True):
            _compare_numbers(came, right, f"the {name} over {where}", floor=1.0)
        largest = max(seen[0] for seen in actual["seen"])
        if largest > options.get("batch_size", size):
            raise Wrong(f"{largest} images go through the model at once, {where}")
        if any(mode or gradients for _, mode, gradients in actual["seen"]):
            raise Wrong("the model must be called in eval mode and without gradients")
        if actual["modes"] != modes:
            raise Wrong("every module must get back the mode that it had")
        for name, right in expected["state"].items():
            _compare(actual["state"][name], right, f"{name} after evaluating")
