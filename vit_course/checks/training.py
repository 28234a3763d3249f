"""Checks of lesson 06's parts: the schedule, one step, the evaluation, and two small helpers."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from numbers import Real

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import vit_course
from vit_course import training
from vit_course.checks.evidence import (
    Case,
    CheckFailed,
    NotWritten,
    Suspect,
    Verdict,
    check,
    describe,
    earlier_first,
    formula,
    judge,
    learners,
    same,
    set_parameters,
    takes,
    unchanged,
    with_results,
)

# --- the schedule ----------------------------------------------------------------------------------------------------


def plan(label: str, total: int, warmup: int, peak: float, final: float | None = None) -> Case:
    """Return a plan, to be asked for its rate at every step and well beyond the last one."""
    rates = {"peak": peak} if final is None else {"peak": peak, "final": final}
    return Case(label, kwargs=dict(total_steps=total, warmup_steps=warmup) | rates)


PLANS = [
    plan("10 steps with 3 of warm-up", 10, 3, 2.0),
    plan("21 steps with 5 of warm-up", 21, 5, 0.5),
    plan("a final rate above 0", 12, 4, 1.5, 0.4),
    plan("one step of warm-up", 8, 1, 2.0),
    plan("no warm-up", 9, 0, 3.0, 0.5),
    plan("warm-up in all steps but one", 7, 6, 2.0, 0.5),
    plan("warm-up in all steps", 6, 6, 2.0, 0.5),
]


def rates_of(schedule: Callable, total_steps: int, **rest: float) -> Tensor:
    """Return the rates of a plan, from step 0 to three times its length."""
    return torch.tensor(
        [schedule(step, total_steps=total_steps, **rest) for step in range(3 * total_steps)], dtype=torch.float64
    )


# Each of the ways to go wrong has a form for the warm-up, for the progress of the cosine and for its end; "" is right.
WARMUPS: list[tuple[str, Callable]] = [
    ("", lambda t, w: (t + 1) / w),
    (
        "the warm-up starts from 0, so the first step trains nothing, and it reaches the peak a step late: "
        "peak * (step + 1) / warmup_steps.",
        lambda t, w: t / w,
    ),
    (
        "the warm-up stops short of the peak: it divides by warmup_steps + 1. At step warmup_steps - 1 the rate is "
        "the peak: peak * (step + 1) / warmup_steps.",
        lambda t, w: (t + 1) / (w + 1),
    ),
    (
        "the warm-up starts from 0, so the first step trains nothing: peak * (step + 1) / warmup_steps.",
        lambda t, w: t / max(w - 1, 1),
    ),
    ("there is no warm-up: the rate starts at the peak.", lambda t, w: 1.0),
]
PROGRESSES: list[tuple[str, Callable]] = [
    ("", lambda t, w, total: (t - max(w - 1, 0)) / max(total - 1 - max(w - 1, 0), 1)),
    (
        "the cosine starts a step late, so the rate is not yet final at step total_steps - 1. Its progress is "
        "(step - (warmup_steps - 1)) / (total_steps - warmup_steps).",
        lambda t, w, total: (t - w) / max(total - w, 1),
    ),
    (
        "the cosine starts a step late, so the peak comes twice. Its progress is "
        "(step - (warmup_steps - 1)) / (total_steps - warmup_steps).",
        lambda t, w, total: (t - w) / max(total - 1 - w, 1),
    ),
    (
        "the rate jumps after the warm-up: the cosine runs over all steps. It runs over those that are left, from "
        "progress 0 at step warmup_steps - 1 to progress 1 at step total_steps - 1.",
        lambda t, w, total: t / (total - 1),
    ),
    (
        "the rate jumps after the warm-up: the cosine runs over all steps, and ends a step late. It runs over those "
        "that are left, from progress 0 at step warmup_steps - 1 to progress 1 at step total_steps - 1.",
        lambda t, w, total: t / total,
    ),
    (
        "the cosine divides by total_steps, though only a part of them is left after the warm-up: the rate is far from "
        "final at the last step. Divide by total_steps - warmup_steps.",
        lambda t, w, total: (t - w) / total,
    ),
    (
        "without warm-up the cosine starts too far on: at step 0 the rate must be the peak. Count from "
        "max(warmup_steps - 1, 0).",
        lambda t, w, total: (t - (w - 1)) / max(total - w, 1),
    ),
]
ENDS: list[tuple[str, Callable[[float], float]]] = [
    ("", lambda progress: min(progress, 1.0)),
    (
        "after total_steps the rate rises again: a cosine comes back up. Clamp the progress with min(progress, 1.0).",
        lambda progress: progress,
    ),
]


def fall(progress: float, peak: float, final: float) -> float:
    """Return the right rate on the cosine."""
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


def schedule_with(
    warmup: Callable = WARMUPS[0][1],
    progress: Callable = PROGRESSES[0][1],
    end: Callable = ENDS[0][1],
    curve: Callable = fall,
) -> Callable:
    """Return the rates of a schedule with some of its steps replaced."""

    def schedule(step: int, total_steps: int, warmup_steps: int, peak: float, final: float = 0.0) -> float:
        if step < warmup_steps:
            return peak * warmup(step, warmup_steps)
        return curve(end(progress(step, warmup_steps, total_steps)), peak, final)

    return lambda **kwargs: rates_of(schedule, **kwargs)


def shaped(curve: Callable) -> Callable:
    """Return the rates of a schedule that goes down in another way."""
    return schedule_with(curve=curve)


def changed(change: Callable) -> Callable:
    """Return the right rates, changed as a whole."""
    return lambda **kwargs: change(rates_of(training.learning_rate_schedule, **kwargs), **kwargs)


def from_final(total_steps: int, warmup_steps: int, peak: float, final: float = 0.0) -> Tensor:
    """Return the rates of a schedule that warms up from ``final``."""
    rates = rates_of(
        training.learning_rate_schedule, total_steps=total_steps, warmup_steps=warmup_steps, peak=peak, final=final
    )
    for step in range(warmup_steps):
        rates[step] = final + (peak - final) * (step + 1) / warmup_steps
    return rates


SCHEDULE_MISTAKES = [
    *(
        Suspect(" ".join(filter(None, (first, second, third))), schedule_with(warmup, progress, end))
        for (first, warmup), (second, progress), (third, end) in product(WARMUPS, PROGRESSES, ENDS)
        if first or second or third
    ),
    Suspect(
        "it returns a share of the peak. Return the rate itself: multiply by peak.",
        changed(lambda rates, peak, **rest: rates / peak),
    ),
    Suspect(
        "the rate falls along a straight line. After the warm-up it follows a cosine: (1 + cos(π · progress)) / 2.",
        shaped(lambda progress, peak, final: peak + (final - peak) * progress),
    ),
    Suspect(
        "the rate stays at its peak after the warm-up. It falls along a cosine: (1 + cos(π · progress)) / 2.",
        shaped(lambda progress, peak, final: peak),
    ),
    Suspect(
        "final has no effect: the rate goes down to 0. It goes from peak to final: "
        "final + (peak - final) * (1 + cos) / 2.",
        shaped(lambda progress, peak, final: fall(progress, peak, 0.0)),
    ),
    Suspect(
        "final is added to a cosine that starts at the peak, so the rate jumps above it. The cosine spans what lies "
        "between: final + (peak - final) * (1 + cos) / 2.",
        shaped(lambda progress, peak, final: final + fall(progress, peak, 0.0)),
    ),
    Suspect(
        "the cosine goes down to 0 and is cut off at final. It goes from peak to final: "
        "final + (peak - final) * (1 + cos) / 2.",
        shaped(lambda progress, peak, final: max(final, fall(progress, peak, 0.0))),
    ),
    Suspect(
        "the warm-up starts from final. It starts from 0: peak * (step + 1) / warmup_steps.",
        from_final,
    ),
    Suspect(
        "the cosine gets degrees. math.cos takes radians: a half turn is math.pi.",
        shaped(lambda progress, peak, final: final + (peak - final) * (1 + math.cos(180 * progress)) / 2),
    ),
    Suspect(
        "the cosine makes a full turn, so the rate ends at its peak. Half a turn is wanted: cos(π · progress).",
        shaped(lambda progress, peak, final: fall(2 * progress, peak, final)),
    ),
    Suspect(
        "it is a quarter of a cosine: cos(π · progress / 2). Half of one is wanted: (1 + cos(π · progress)) / 2.",
        shaped(lambda progress, peak, final: final + (peak - final) * math.cos(math.pi * progress / 2)),
    ),
    Suspect(
        "π is missing inside the cosine: cos(π · progress).",
        shaped(lambda progress, peak, final: final + (peak - final) * (1 + math.cos(progress)) / 2),
    ),
    Suspect(
        "the rate becomes negative: the cosine itself goes from 1 to -1. Use (1 + cos) / 2.",
        shaped(lambda progress, peak, final: final + (peak - final) * math.cos(math.pi * progress)),
    ),
    Suspect(
        "the rate starts at twice the peak: halve it, (1 + cos) / 2.",
        shaped(lambda progress, peak, final: final + (peak - final) * (1 + math.cos(math.pi * progress))),
    ),
    Suspect(
        "the cosine goes up: (1 - cos) / 2. Use (1 + cos) / 2, which goes from 1 to 0.",
        shaped(lambda progress, peak, final: fall(1 - progress, peak, final)),
    ),
]


def learning_rate_schedule(function: Callable) -> Verdict:
    """Check a ``learning_rate_schedule(step, *, total_steps, warmup_steps, peak, final=0.0)``.

    Verified: the rate at every step of seven plans and beyond their ends, with and without warm-up, with and without a
    ``final`` rate, and that it comes as a plain number.

    Args:
        function: the learner's function.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the arguments, a rate or its type are wrong.
    """
    name = "learning_rate_schedule"

    def verify() -> str:
        takes(function, training.learning_rate_schedule, (0,), PLANS[2].kwargs)
        expected = [rates_of(training.learning_rate_schedule, **case.kwargs) for case in PLANS]
        suspects = [Suspect(s.sentence, lambda case, s=s: s.result(**case.kwargs)) for s in SCHEDULE_MISTAKES]
        calls, actual, kinds = [(case,) for case in PLANS], [], set()
        for case in PLANS:
            with earlier_first(PLANS, actual, expected[: len(actual)], suspects, calls):
                rates = []
                for step in range(3 * case.kwargs["total_steps"]):
                    with learners(name, function, f"with step={step}, {words(case.kwargs)}"):
                        rate = function(step, **case.kwargs)
                    rates.append(number(rate, "a rate"))
                    kinds.add(type(rate))
            actual.append(torch.tensor(rates, dtype=torch.float64))
        judge(PLANS, actual, expected, with_results(suspects, calls))
        plain(kinds, "rates")
        return "right at every step and beyond the last, with warm-up and without, for any peak and final."

    return check(name, function, verify)


def words(options: dict) -> str:
    """Return options as they are written in a call."""
    return ", ".join(f"{key}={value}" for key, value in options.items())


def number(value: object, what: str) -> float:
    """Return a number, or a tensor that holds one, as a float."""
    if value is Ellipsis:
        raise NotWritten("not written yet: it returns ...")
    if value is None:
        raise CheckFailed(f"{what} is None: is a return missing?")
    if isinstance(value, bool) or not (isinstance(value, Real) or isinstance(value, Tensor) and value.numel() == 1):
        came = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise CheckFailed(f"{what} must be a number; got {came}.")
    return float(value)


def plain(kinds: Iterable[type], what: str) -> None:
    """Check that right values came as plain numbers."""
    if any(issubclass(kind, Tensor) for kind in kinds):
        raise CheckFailed(
            f"the values are right, but {what} come as tensors. Return plain numbers: .item(), or math instead of "
            "torch. A loss that stays a tensor keeps its whole graph in memory."
        )


# --- models that note what is done to them ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One batch that a model was given."""

    size: int
    modes: frozenset[bool]  # train mode or not, of the model and of everything in it
    tracked: bool  # whether the output can be walked back


class Noting(nn.Module):
    """A small classifier with weights from a formula, which notes every call."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), *layers)
        self.calls: list[Call] = []
        set_parameters(self)
        for layer in layers:
            if isinstance(layer, nn.BatchNorm1d):
                layer.running_mean.copy_(formula(layer.num_features))
                layer.running_var.copy_(1.5 + formula(layer.num_features, start=53))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, ``(b, k)``."""
        out = self.layers(images)
        modes = frozenset(module.training for module in self.modules())
        self.calls.append(Call(len(images), modes, out.requires_grad))
        return out


CLASSES = 5


def linear() -> Noting:
    """Return a linear classifier of images ``(2, 2, 3)``."""
    return Noting(nn.Linear(12, CLASSES))


def normed() -> Noting:
    """Return a classifier with dropout and BatchNorm, which is another one in train mode; its dropout drops nothing."""
    return Noting(nn.Linear(12, 6, bias=False), nn.BatchNorm1d(6), nn.Dropout(0.0), nn.Linear(6, CLASSES))


def batch(count: int, start: int) -> tuple[Tensor, Tensor]:
    """Return images and labels from a formula."""
    return formula(count, 2, 2, 3, start=start), (torch.arange(count) ** 2 + start) % CLASSES


# --- one step --------------------------------------------------------------------------------------------------------


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return plain gradient steps."""
    return torch.optim.SGD(model.parameters(), lr=0.5)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Return AdamW with weight decay."""
    return torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.5)


STEPS = [
    Case("a linear model and SGD", (linear, sgd)),
    Case("a model with BatchNorm", (normed, sgd)),
    Case("AdamW", (linear, adamw)),
    Case("label_smoothing=0.3", (linear, sgd), dict(label_smoothing=0.3)),
    Case("max_grad_norm=0.05", (linear, sgd), dict(max_grad_norm=0.05)),
    Case("max_grad_norm=100, which no gradient exceeds", (linear, sgd), dict(max_grad_norm=100.0)),
    Case("smoothing and clipping together", (normed, adamw), dict(label_smoothing=0.1, max_grad_norm=0.2)),
]
BATCHES = [batch(7, 1), batch(7, 101), batch(4, 201)]  # one step each


@dataclass
class Trial:
    """What became of a model in a few steps."""

    losses: list[object] = field(default_factory=list)  # as they were returned
    weights: list[Tensor] = field(default_factory=list)  # all of them, after every step
    calls: list[list[Call]] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)  # gradients that came before the first optimizer.step()
    late: list[int] = field(default_factory=list)  # and after it
    steps: list[int] = field(default_factory=list)
    nothing: list[bool] = field(default_factory=list)  # whether there was no gradient when optimizer.step() ran

    def values(self) -> list[Tensor]:
        """Return what is compared, as :func:`quantities` names it."""
        first, *_, last = (torch.tensor(number(loss, "the loss"), dtype=torch.float64) for loss in self.losses)
        return [first, self.weights[0], self.weights[-1], last]


def quantities(cases: Sequence[Case]) -> list[Case]:
    """Return a label for each value of each trial."""
    named = (
        "the returned loss",
        "the weights after one step",
        f"the weights after {len(BATCHES)} steps",
        f"the loss of step {len(BATCHES)}",
    )
    return [Case(f"{case.label}, {quantity}") for case in cases for quantity in named]
