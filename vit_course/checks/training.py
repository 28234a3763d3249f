"""Checks of lesson 06's parts: the schedule, one step, the evaluation, and two small helpers."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from numbers import Real
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import vit_course
from vit_course import augmentation, training
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


FALLS: list[tuple[str, Callable[[float, float, float], float]]] = [
    ("", fall),
    (
        "the rate goes down to 0: final has no effect. It goes from peak to final: "
        "final + (peak - final) * (1 + cos) / 2.",
        lambda progress, peak, final: fall(progress, peak, 0.0),
    ),
]


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


def joined(*sentences: str) -> str:
    """Return the sentences that are not empty, as one text."""
    first, *rest = filter(None, sentences)
    return " ".join([first] + [sentence[0].upper() + sentence[1:] for sentence in rest])


SCHEDULE_MISTAKES = [
    *(
        Suspect(joined(*sentences), schedule_with(*parts))
        for sentences, parts in (zip(*chosen, strict=True) for chosen in product(WARMUPS, PROGRESSES, ENDS, FALLS))
        if any(sentences)
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
        plain(
            kinds, "the rates come as tensors. An optimizer wants plain numbers: use math instead of torch, or .item()."
        )
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
    if isinstance(value, bool) or not (isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)):
        came = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise CheckFailed(f"{what} must be a number; got {came}.")
    return value.item() if isinstance(value, Tensor) else float(value)


def plain(kinds: Iterable[type], fault: str) -> None:
    """Check that right values came as plain numbers."""
    if any(issubclass(kind, Tensor) for kind in kinds):
        raise CheckFailed(f"the values are right, but {fault}")


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
    Case("smoothing and clipping together", (normed, sgd), dict(label_smoothing=0.1, max_grad_norm=0.2)),
]
BATCHES = [  # images and labels, one step each
    (formula(count, 2, 2, 3, start=start), (torch.arange(count) ** 2 + start) % CLASSES)
    for count, start in ((7, 1), (7, 101), (4, 201))
]


@dataclass
class Trial:
    """What became of a model, step by step."""

    losses: list[float] = field(default_factory=list)
    kinds: set[type] = field(default_factory=set)  # of what was returned
    weights: list[Tensor] = field(default_factory=list)
    calls: list[list[Call]] = field(default_factory=list)
    events: list[list[str]] = field(default_factory=list)  # "backward", "step", and "empty step" without gradients

    def outcome(self) -> "Outcome":
        """Return what is compared."""
        return Outcome(self.losses[0], self.weights[0], self.weights[-1], self.losses[-1])


class Outcome(NamedTuple):
    """What a trial is judged by."""

    the_returned_loss: float
    the_weights_after_one_step: Tensor
    the_weights_after_three_steps: Tensor
    the_loss_of_the_third_step: float


def try_steps(step: Callable, case: Case) -> Trial:
    """Train a fresh model for a few steps, handed over in eval mode each time, and note what happens."""
    build_model, build_optimizer = case.args
    model, trial = build_model(), Trial()
    optimizer = build_optimizer(model)

    def note_step(*_: object) -> None:
        gradients = [parameter.grad for parameter in model.parameters()]
        empty = all(gradient is None or not gradient.any() for gradient in gradients)
        trial.events[-1].append("empty step" if empty else "step")

    next(model.parameters()).register_hook(lambda _: trial.events[-1].append("backward"))
    optimizer.register_step_pre_hook(note_step)
    for images, labels in BATCHES:
        model.eval()
        model.calls = []
        trial.events.append([])
        given = images.clone(), labels.clone()
        with learners("train_step", step, f"on {case.label}"), torch.enable_grad():
            loss = step(model, optimizer, *given, **case.kwargs)
        unchanged((images, labels), given, case.label)
        trial.losses.append(number(loss, "the loss"))
        trial.kinds.add(type(loss))
        trial.weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
        trial.calls.append(model.calls)
    return trial


def verify_events(trial: Trial) -> None:
    """Name what each step must do, and did not: the model in train mode, one backward, then one step."""
    for calls, events in zip(trial.calls, trial.events, strict=True):
        steps = [event for event in events if event.endswith("step")]
        if not calls:
            raise CheckFailed("the model is never called. Begin with logits = model(images).")
        if False in calls[0].modes:
            raise CheckFailed(
                "the model, or a layer in it, is not in train mode: dropout stays off and BatchNorm uses old means. "
                "An evaluation may have left it in eval mode, so call model.train() first."
            )
        if not steps:
            raise CheckFailed(
                "optimizer.step() is never called, so the optimizer moves no weight. Call it after loss.backward()."
            )
        if len(steps) > 1:
            raise CheckFailed(f"optimizer.step() is called {len(steps)} times. Once a batch.")
        if steps == ["empty step"] and "backward" not in events:
            raise CheckFailed("loss.backward() is missing: there are no gradients when optimizer.step() runs.")
        if steps == ["empty step"] and events[0] == "backward":
            raise CheckFailed(
                "the gradients are cleared between backward() and step(), so no weight moves. Call "
                "optimizer.zero_grad() before loss.backward()."
            )
        if steps == ["empty step"]:
            raise CheckFailed(
                "optimizer.step() runs before loss.backward(): there are no gradients yet. The order is zero_grad(), "
                "backward(), step()."
            )


Loss = Callable[[Tensor, Tensor, float], Tensor]


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the right loss."""
    return F.cross_entropy(logits, labels, label_smoothing=smoothing)


def one_hot(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the labels as probabilities."""
    return F.one_hot(labels, logits.shape[-1]).to(logits.dtype)


def smoothed_over_others(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the loss whose smoothing leaves the right class out."""
    right = one_hot(logits, labels)
    target = right * (1 - smoothing) + (1 - right) * smoothing / (logits.shape[-1] - 1)
    return F.cross_entropy(logits, target)


def each_clipped(parameters: list[nn.Parameter], limit: float) -> None:
    """Clip each parameter's gradient on its own."""
    for parameter in parameters:
        nn.utils.clip_grad_norm_([parameter], limit)


def always_scaled(parameters: list[nn.Parameter], limit: float) -> None:
    """Scale short gradients up as well."""
    norm = torch.stack([parameter.grad.norm() for parameter in parameters]).norm()
    for parameter in parameters:
        parameter.grad.mul_(limit / norm)


def step_with(
    loss: Loss = cross_entropy,
    *,
    clear: bool = True,
    backwards: int = 1,
    clip: Callable[[list[nn.Parameter], float], object] = nn.utils.clip_grad_norm_,
    returns: Callable[[Tensor, Callable[[], Tensor], int], Tensor] = lambda before, after, count: before,
) -> Callable:
    """Return a training step with one thing replaced."""

    def step(
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        images: Tensor,
        labels: Tensor,
        *,
        label_smoothing: float = 0.0,
        max_grad_norm: float | None = None,
    ) -> float:
        model.train()
        before = loss(model(images), labels, label_smoothing)
        if clear:
            optimizer.zero_grad()
        for _ in range(backwards):
            before.backward(retain_graph=True)
        if max_grad_norm is not None:
            clip(list(model.parameters()), max_grad_norm)
        optimizer.step()
        return returns(before, lambda: loss(model(images), labels, label_smoothing), len(images)).item()

    return step


STEP_MISTAKES: list[tuple[str, Callable]] = [
    (
        "there is a softmax before cross-entropy, which has its own: the loss can then never come near 0. Hand the "
        "logits over as the model returns them.",
        step_with(lambda z, y, s: cross_entropy(z.softmax(dim=-1), y, s)),
    ),
    (
        "gradients are accumulated: backward() adds to those of the batches before. Call optimizer.zero_grad() before "
        "loss.backward(), in every step.",
        step_with(clear=False),
    ),
    (
        "backward() has run twice, which adds every gradient twice. Once is enough.",
        step_with(backwards=2),
    ),
    (
        "the loss is summed over the batch, so a larger batch takes larger steps. Take the mean, F.cross_entropy's "
        "default.",
        step_with(lambda z, y, s: F.cross_entropy(z, y, label_smoothing=s, reduction="sum")),
    ),
    (
        "the mean loss is divided by the batch size once more. F.cross_entropy has taken the mean already.",
        step_with(lambda z, y, s: cross_entropy(z, y, s) / len(y)),
    ),
    (
        "nll_loss gets raw logits. It wants logarithms of probabilities: use F.cross_entropy, which takes logits.",
        step_with(lambda z, y, s: F.nll_loss(z, y)),
    ),
    (
        "nll_loss gets probabilities. It wants their logarithms: use F.cross_entropy, which takes logits.",
        step_with(lambda z, y, s: F.nll_loss(z.softmax(dim=-1), y)),
    ),
    (
        "the loss is a squared error between logits and one-hot labels. Use F.cross_entropy(logits, labels).",
        step_with(lambda z, y, s: F.mse_loss(z, one_hot(z, y))),
    ),
    (
        "the loss is a squared error between probabilities and one-hot labels. Use F.cross_entropy(logits, labels).",
        step_with(lambda z, y, s: F.mse_loss(z.softmax(dim=-1), one_hot(z, y))),
    ),
    (
        "the loss is binary cross-entropy, one yes or no for each class. The classes exclude each other: use "
        "F.cross_entropy(logits, labels).",
        step_with(lambda z, y, s: F.binary_cross_entropy_with_logits(z, one_hot(z, y))),
    ),
    (
        "label_smoothing has no effect. Pass it on: F.cross_entropy(..., label_smoothing=label_smoothing).",
        step_with(lambda z, y, s: F.cross_entropy(z, y)),
    ),
    (
        "label_smoothing is always 0.1. Pass on the argument.",
        step_with(lambda z, y, s: cross_entropy(z, y, 0.1)),
    ),
    (
        "the smoothed share goes to the other classes alone. It is spread evenly over all k classes, the right one "
        "included.",
        step_with(smoothed_over_others),
    ),
    (
        "max_grad_norm has no effect on the step. Clip between backward() and step(), when the gradients are there: "
        "nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm).",
        step_with(clip=lambda parameters, limit: None),
    ),
    (
        "each parameter's gradient is clipped on its own, which turns the direction of the step. Clip the norm of all "
        "of them together: nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm).",
        step_with(clip=each_clipped),
    ),
    (
        "every single number of the gradient is clipped, as clip_grad_value_ does, which turns the direction of the "
        "step. Clip the norm of all of them together: nn.utils.clip_grad_norm_.",
        step_with(clip=nn.utils.clip_grad_value_),
    ),
    (
        "gradients shorter than max_grad_norm are scaled up to it. Scale down only, by min(1, max_grad_norm / norm).",
        step_with(clip=always_scaled),
    ),
    (
        "the returned loss is that after the step. Return the one that the gradients were taken of.",
        step_with(returns=lambda before, after, count: after()),
    ),
    (
        "the returned loss is multiplied by the batch size. Return the mean loss.",
        step_with(returns=lambda before, after, count: before * count),
    ),
    (
        "the returned loss is divided by the batch size once more. Return the mean loss.",
        step_with(returns=lambda before, after, count: before / count),
    ),
]


def train_step(function: Callable) -> Verdict:
    """Check a ``train_step(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None)``.

    Verified, on small classifiers with SGD and AdamW, handed over in eval mode: that the model runs in train mode; the
    returned loss and all weights after one step and after three, also with label smoothing and clipping; that backward
    and step happen once, in this order; that the loss is a plain number and the batch is left as it is.

    Args:
        function: the learner's function.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the arguments, the mode, the loss, the weights or the returned type are wrong.
    """
    name = "train_step"

    def verify() -> str:
        calls = [(case,) for case in STEPS]
        suspects = [
            Suspect(sentence, lambda case, step=step: try_steps(step, case).outcome())
            for sentence, step in STEP_MISTAKES
        ]
        actual, expected, kinds = [], [], set()
        for case in STEPS:
            with earlier_first(STEPS, actual, expected, suspects, calls):
                takes(function, training.train_step, (None,) * 4, case.kwargs)
                trial = try_steps(function, case)
                verify_events(trial)
            actual.append(trial.outcome())
            expected.append(try_steps(training.train_step, case).outcome())
            kinds |= trial.kinds
        judge(STEPS, actual, expected, with_results(suspects, calls))
        plain(kinds, "the loss comes as a tensor, which may keep its whole graph in memory. Return loss.item().")
        return "right loss and weights after one step and three, in train mode, with smoothing and clipping."

    return check(name, function, verify)


# --- evaluation ------------------------------------------------------------------------------------------------------


def all_training(model: nn.Module) -> None:
    """Put everything into train mode."""
    model.train()


def all_evaluating(model: nn.Module) -> None:
    """Put everything into eval mode."""
    model.eval()


def partly_frozen(model: nn.Module) -> None:
    """Put everything into train mode but its BatchNorm, as one does to keep its means."""
    model.train().layers[2].eval()


EVALUATIONS = [  # a model, its mode, and how many images from where in the formula
    Case("two batches of 5", (linear, all_training, 10, 1), dict(batch_size=5)),
    Case("batches of 4, 4 and 2", (normed, all_training, 10, 101), dict(batch_size=4)),
    Case("one image at a time", (linear, all_evaluating, 7, 201), dict(batch_size=1)),
    Case("fewer images than a batch", (normed, partly_frozen, 9, 301)),
]


def images_of(case: Case) -> tuple[Tensor, Tensor]:
    """Return a case's images, and labels of which the model gets every third wrong, its second best among them."""
    build_model, _, number_of_images, start = case.args
    images = formula(number_of_images, 2, 2, 3, start=start)
    with torch.no_grad():
        ranked = build_model()(images).argsort(dim=-1, descending=True)
    ranks = torch.tensor([1 + place // 3 if place % 3 == 1 else 0 for place in range(number_of_images)])
    return images, ranked[torch.arange(number_of_images), ranks]


Batches = list[tuple[Tensor, Tensor]]  # logits and labels


class Measured(NamedTuple):
    """What an evaluation is judged by."""

    the_loss: float
    the_accuracy: float


def batches_of(case: Case) -> Batches:
    """Return the right logits of a case, in its batches, with their labels."""
    images, labels = images_of(case)
    size = case.kwargs.get("batch_size", 256)
    model = case.args[0]().eval()
    with torch.no_grad():
        return [(model(x), y) for x, y in zip(images.split(size), labels.split(size), strict=True)]


def full_only(batches: Batches) -> Batches:
    """Return the batches that are as long as the first one."""
    return [(logits, labels) for logits, labels in batches if len(labels) == len(batches[0][1])]


def count(batches: Batches) -> int:
    """Return the number of images."""
    return sum(len(labels) for _, labels in batches)


def losses(batches: Batches, change: Callable = lambda logits: logits, reduction: str = "sum") -> list[float]:
    """Return the loss of every batch."""
    return [F.cross_entropy(change(logits), labels, reduction=reduction).item() for logits, labels in batches]


def correct(batches: Batches, dim: int = -1) -> list[int]:
    """Return the number of right answers in every batch."""
    return [(logits.argmax(dim=dim) == labels).sum().item() for logits, labels in batches]


def shares(batches: Batches) -> list[float]:
    """Return the accuracy of every batch."""
    return [right / len(labels) for right, (_, labels) in zip(correct(batches), batches, strict=True)]


def mean(values: Sequence[float]) -> float:
    """Return the mean of numbers."""
    return sum(values) / len(values)


def right_loss(batches: Batches) -> float:
    """Return the mean loss over all images."""
    return sum(losses(batches)) / count(batches)


def right_accuracy(batches: Batches) -> float:
    """Return the share of right answers among all images."""
    return sum(correct(batches)) / count(batches)


def batch_means(batches: Batches) -> list[float]:
    """Return the mean loss of every batch."""
    return losses(batches, reduction="mean")


# Mistakes in both numbers at once, then those in one of them; "" is right.
BOTH: list[tuple[str, Callable[[Batches], tuple[float, float]]]] = [
    (
        "it takes the mean over batches of unequal size, so images in a smaller batch count more. Add up over images, "
        "then divide by len(dataset).",
        lambda batches: (mean(batch_means(batches)), mean(shares(batches))),
    ),
    (
        "the last batch is dropped where it is not full. Every image counts.",
        lambda batches: (right_loss(full_only(batches)), right_accuracy(full_only(batches))),
    ),
    (
        "the last batch is dropped where it is not full, though all images are divided by. Every image counts.",
        lambda batches: (
            sum(losses(full_only(batches))) / count(batches),
            sum(correct(full_only(batches))) / count(batches),
        ),
    ),
    (
        "only the last batch counts: each batch overwrites the one before. Add up over all of them, with +=.",
        lambda batches: (right_loss(batches[-1:]), right_accuracy(batches[-1:])),
    ),
    (
        "only the first batch counts. Is a return inside the loop?",
        lambda batches: (right_loss(batches[:1]), right_accuracy(batches[:1])),
    ),
    (
        "the two numbers are swapped. Return the loss first, then the accuracy.",
        lambda batches: (right_accuracy(batches), right_loss(batches)),
    ),
]
LOSSES: list[tuple[str, Callable[[Batches], float]]] = [
    ("", right_loss),
    (
        "the loss takes a softmax before cross-entropy, which has its own. Hand the logits over as they are.",
        lambda batches: sum(losses(batches, lambda logits: logits.softmax(dim=-1))) / count(batches),
    ),
    (
        "the loss is the mean over batches of unequal size, so images in a smaller batch count more. Add up with "
        'reduction="sum", then divide by len(dataset).',
        lambda batches: mean(batch_means(batches)),
    ),
    ("the loss is that of the last batch. Add up over all of them.", lambda batches: batch_means(batches)[-1]),
    ("the loss is that of the first batch. Add up over all of them.", lambda batches: batch_means(batches)[0]),
    ("the loss is not divided by the number of images.", lambda batches: sum(losses(batches))),
    (
        "the loss adds up means of batches. Divide by what was added: sums over images, by len(dataset).",
        lambda batches: sum(batch_means(batches)),
    ),
    (
        'the loss adds up means of batches and divides them by the number of images. Add up with reduction="sum".',
        lambda batches: sum(batch_means(batches)) / count(batches),
    ),
    (
        "the loss takes every batch for a full one, and the last has fewer images. Multiply each mean by len(labels).",
        lambda batches: sum(batch_means(batches)) * len(batches[0][1]) / count(batches),
    ),
    (
        "the loss is divided by the number of batches, though it adds up over images. Divide by len(dataset).",
        lambda batches: sum(losses(batches)) / len(batches),
    ),
    (
        "nll_loss gets raw logits. It wants logarithms of probabilities: use F.cross_entropy, which takes logits.",
        lambda batches: sum(F.nll_loss(z, y, reduction="sum").item() for z, y in batches) / count(batches),
    ),
]
ACCURACIES: list[tuple[str, Callable[[Batches], float]]] = [
    ("", right_accuracy),
    (
        "the accuracy is the mean over batches of unequal size, so images in a smaller batch count more. Count right "
        "answers, then divide by len(dataset).",
        lambda batches: mean(shares(batches)),
    ),
    ("the accuracy is that of the last batch. Count over all of them.", lambda batches: shares(batches)[-1]),
    ("the accuracy is that of the first batch. Count over all of them.", lambda batches: shares(batches)[0]),
    ("the accuracy is in percent. Return a share, from 0 to 1.", lambda batches: 100 * right_accuracy(batches)),
    (
        "the accuracy is a count of right answers. Divide it by len(dataset).",
        lambda batches: sum(correct(batches)),
    ),
    ("the accuracy counts wrong answers.", lambda batches: 1 - right_accuracy(batches)),
    (
        "the accuracy divides right answers by the number of batches. Divide by len(dataset).",
        lambda batches: sum(correct(batches)) / len(batches),
    ),
    (
        "the accuracy adds up those of the batches and divides by the number of images. Count right answers instead.",
        lambda batches: sum(shares(batches)) / count(batches),
    ),
    (
        "argmax runs over the images of the batch. It runs over the classes: dim=-1.",
        lambda batches: sum(correct(batches, dim=0)) / count(batches),
    ),
]
EVALUATE_MISTAKES = BOTH + [
    (joined(first, second), lambda batches, loss=loss, share=share: (loss(batches), share(batches)))
    for (first, loss), (second, share) in product(LOSSES, ACCURACIES)
    if first or second
]


def evaluate(function: Callable) -> Verdict:
    """Check an ``evaluate(model, dataset, *, batch_size=256)``.

    Verified, on small classifiers: loss and accuracy for batches that leave a rest, single images and a data set
    smaller than a batch; eval mode and no gradients inside; no more than ``batch_size`` images at once; that every
    module has its mode back and no weight has changed; that both come as plain numbers.

    Args:
        function: the learner's function; its data set is a ``TensorDataset`` of images and labels.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the arguments, the numbers, the modes or the treatment of the model are wrong.
    """
    name = "evaluate"

    def verify() -> str:
        calls = [(batches_of(case),) for case in EVALUATIONS]
        suspects = [Suspect(sentence, pair) for sentence, pair in EVALUATE_MISTAKES]
        expected = [Measured(right_loss(batches), right_accuracy(batches)) for (batches,) in calls]
        actual, kinds, faults = [], set(), []
        for case in EVALUATIONS:
            with earlier_first(EVALUATIONS, actual, expected[: len(actual)], suspects, calls):
                takes(function, training.evaluate, (None, None), case.kwargs)
                result, found = try_evaluation(function, case)
            faults += found
            kinds |= {type(value) for value in result}
            actual.append(Measured(number(result[0], "the loss"), number(result[1], "the accuracy")))
        judge(EVALUATIONS, actual, expected, with_results(suspects, calls))
        if faults:
            raise CheckFailed(f"the values are right, but {faults[0]}")
        plain(kinds, "they come as tensors. Return plain numbers, with .item().")
        return "right for any batch size, in eval mode and without gradients; every module gets its mode back."

    return check(name, function, verify)


def try_evaluation(function: Callable, case: Case) -> tuple[Sequence, list[str]]:
    """Return what the learner's evaluation returns, and what it does wrong beside that."""
    build_model, prepare, *_ = case.args
    images, labels = images_of(case)
    model, given = build_model(), (images.clone(), labels.clone())
    prepare(model)
    modes = {module: module.training for module in model.modules()}
    state = {key: value.clone() for key, value in model.state_dict().items()}
    with learners("evaluate", function, f"on {case.label}"):
        result = function(model, TensorDataset(*given), **case.kwargs)
    if result is Ellipsis:
        raise NotWritten("not written yet: it returns ...")
    unchanged((images, labels), given, case.label)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise CheckFailed(f"it must return two numbers, (loss, accuracy); got {describe_result(result)}")
    if not model.calls:
        raise CheckFailed("the model is never called. Ask it for the logits of every batch.")
    if any(True in call.modes for call in model.calls):
        raise CheckFailed(
            "the model is not in eval mode: dropout is on and BatchNorm mixes the images of a batch, so the numbers "
            "change from call to call. Call model.eval() before the loop."
        )
    if any(not torch.equal(value, model.state_dict()[key]) for key, value in state.items()):
        raise CheckFailed("it changes the model's weights. An evaluation only measures: no backward, no step.")
    size, largest = case.kwargs.get("batch_size", 256), max(call.size for call in model.calls)
    faults = []
    if any(call.tracked for call in model.calls):
        faults.append(
            "gradients are tracked, which costs memory for nothing: eval() does not stop that. Put the loop under "
            "with torch.no_grad()."
        )
    if largest > size:
        faults.append(
            f"the model gets {largest} images at once where batch_size={size}. Go through the set in batches."
        )
    if any(module.training != mode for module, mode in modes.items()):
        faults.append(mode_lost(prepare))
    return result, faults


def describe_result(result: object) -> str:
    """Say in few words what came instead of two numbers."""
    if result is None:
        return "None: is a return missing?"
    return f"{type(result).__name__} {' '.join(str(result).split())[:40]}"


def mode_lost(prepare: Callable) -> str:
    """Return the words for a mode that was not put back."""
    if prepare is all_training:
        return (
            "the model is left in eval mode, so the next steps train without dropout. Remember model.training at the "
            "start, and put it back at the end."
        )
    if prepare is all_evaluating:
        return (
            "a model that came in eval mode is left in train mode. Remember model.training at the start, and put that "
            "back at the end."
        )
    return (
        "a layer that came in eval mode, inside a model in train mode, is left in train mode: model.train() switches "
        "everything. Remember each module's own, {m: m.training for m in model.modules()}, and put it back."
    )


# --- two helpers -----------------------------------------------------------------------------------------------------


class EveryKind(nn.Module):
    """A model with every kind of parameter that matters to weight decay."""

    def __init__(self) -> None:
        super().__init__()
        self.vit = vit_course.VisionTransformer(
            image_size=4, patch_size=2, num_layers=2, num_heads=2, hidden_dim=4, mlp_dim=6, num_classes=3
        )
        self.conv = nn.Conv2d(3, 4, kernel_size=2)
        self.norm = nn.BatchNorm2d(4)


def parameter_groups(function: Callable) -> Verdict:
    """Check a ``parameter_groups(model, weight_decay)``.

    Verified: that every parameter is in one group; that the weights of linear layers and convolutions, and nothing
    else, are decayed, at the rate that was asked for; that an optimizer takes the groups.

    Args:
        function: the learner's function.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: a parameter is missing, twice there, or wrongly decayed.
    """
    name, rate = "parameter_groups", 0.125

    def verify() -> str:
        takes(function, training.parameter_groups, (None, rate), {})
        model = EveryKind()
        with learners(name, function):
            groups = function(model, rate)
            if groups is Ellipsis:
                raise NotWritten("not written yet: it returns ...")
            groups = [dict(group, params=list(group["params"])) for group in dictionaries(groups)]
            found = [(id(parameter), group.get("weight_decay")) for group in groups for parameter in group["params"]]
            twice_there(model, [place for place, _ in found])
        with learners(name, function, "when AdamW was given its groups"):
            torch.optim.AdamW(groups, lr=1.0)
        verify_decay(model, found, rate)
        return "weights of linear layers and convolutions decayed, all the rest not; every parameter in one group."

    return check(name, function, verify)


def dictionaries(groups: object) -> Sequence[dict]:
    """Return the groups if an optimizer could read them; say what came instead if not."""
    if groups is None:
        raise CheckFailed("it returns None: is a return missing?")
    wanted = 'it must return a list of dictionaries with the keys "params" and "weight_decay"'
    if not isinstance(groups, (list, tuple)):
        raise CheckFailed(f"{wanted}; got {type(groups).__name__}.")
    for group in groups:
        if not isinstance(group, dict):
            raise CheckFailed(f"{wanted}; got a {type(groups).__name__} with a {type(group).__name__} in it.")
        if "params" not in group:
            raise CheckFailed(f"{wanted}; a group has the keys {list(group)}.")
    return groups


def twice_there(model: nn.Module, found: list[int]) -> None:
    """Name the parameters that the groups hold more than once."""
    twice = [key for key, parameter in model.named_parameters() if found.count(id(parameter)) > 1]
    if twice:
        raise CheckFailed(
            f"in more than one parameter group, or twice in one: {few(twice)}. Every parameter belongs to one."
        )


def verify_decay(model: nn.Module, found: list[tuple[int, float | None]], rate: float) -> None:
    """Check the decay of every parameter."""
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    layers = [module for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    wanted = {names[id(layer.weight)] for layer in layers}
    decays = {names[place]: decay for place, decay in found if place in names}
    missing = [key for key in names.values() if key not in decays]
    if missing:
        raise CheckFailed(f"in no group, so they would never train: {few(missing)}. Every parameter belongs to one.")
    unset = [key for key, decay in decays.items() if decay is None]
    if unset:
        raise CheckFailed(
            f"no weight_decay is set for {few(unset)}, and AdamW's default is 0.01, not 0. Write weight_decay=0.0."
        )
    shrunk = [key for key, decay in decays.items() if decay and key not in wanted]
    if shrunk and all(key.endswith(("class_token", "pos_embedding")) for key in shrunk):
        raise CheckFailed(
            f"decayed, though they should not be: {few(shrunk)}. A rule 'two axes or more' takes them along. Go by the "
            "layer instead: the weights of nn.Linear and nn.Conv2d."
        )
    if shrunk:
        raise CheckFailed(
            f"decayed, though they should not be: {few(shrunk)}. Only weights of nn.Linear and nn.Conv2d are decayed."
        )
    kept = [key for key in wanted if not decays[key]]
    if kept:
        raise CheckFailed(
            f"not decayed, though they should be: {few(sorted(kept))}. All weights of nn.Linear and nn.Conv2d are."
        )
    other = {decay for key, decay in decays.items() if key in wanted} - {rate}
    if other:
        raise CheckFailed(f"weight_decay={rate} was asked for, and {other.pop():g} is set. Use the argument.")


def few(names: list[str]) -> str:
    """Return at most three names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


DRAWS = 300  # that one of nine shifts never comes up has probability 9 · (8/9)^300, about 4e-15


def random_shift(function: Callable) -> Verdict:
    """Check a ``random_shift(images, generator)``.

    Verified: that all nine shifts by up to one pixel occur and no others, the whole batch alike; that what comes in
    repeats the edge; that the draws come from ``generator`` alone; that the images are left as they are.

    Args:
        function: the learner's function.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: a shift, an edge or the use of the generator is wrong.
    """
    name = "random_shift"

    def verify() -> str:
        takes(function, augmentation.random_shift, (None, None), {})
        images, generator = formula(3, 2, 4, 5), torch.Generator().manual_seed(0)
        drawn = set()
        for _ in range(DRAWS):
            given, before = images.clone(), generator.get_state()
            with learners(name, function):
                result = function(given, generator)
            if result is Ellipsis:
                raise NotWritten("not written yet: it returns ...")
            unchanged((images,), (given,), "(3, 2, 4, 5)")
            drawn.add(shift_of(result, images))
            with learners(name, function):
                again = function(given, torch.Generator().set_state(before))
            if not same(again, result):
                raise CheckFailed(
                    "the same generator in the same state gives another shift. Draw from it alone: "
                    "torch.randint(..., generator=generator)."
                )
        missing = sorted(SHIFTS - drawn)
        if missing:
            raise CheckFailed(
                f"in {DRAWS} draws {len(missing)} of the 9 shifts never occur, such as (down, right) = {missing[0]}. "
                "Both run over -1, 0 and 1; torch.randint leaves its upper end out."
            )
        return f"all 9 shifts and no others in {DRAWS} draws, edges repeated, from the generator alone."

    return check(name, function, verify)


SHIFTS = set(product((-1, 0, 1), repeat=2))


def padded(images: Tensor, down: int, right: int, reach: int = 1, **pad: object) -> Tensor:
    """Return the images, moved, with what comes in made as ``F.pad`` is told."""
    h, w = images.shape[2:]
    return F.pad(images, [reach] * 4, **pad)[:, :, reach - down :, reach - right :][:, :, :h, :w]


WRONG_EDGES: list[tuple[str, Callable[[Tensor, int, int], Tensor]]] = [
    ('what comes in is 0. It repeats the edge: mode="replicate".', padded),
    (
        'what leaves on one side comes in on the other. What comes in repeats the edge: F.pad with mode="replicate".',
        lambda images, down, right: images.roll((down, right), dims=(2, 3)),
    ),
    (
        'what comes in mirrors the image. It repeats the edge: mode="replicate".',
        lambda images, down, right: padded(images, down, right, mode="reflect"),
    ),
]


def shift_of(result: object, images: Tensor) -> tuple[int, int]:
    """Return the shift (down, right) that a result shows, or name what is wrong with it."""
    if not isinstance(result, Tensor) or result.shape != images.shape:
        raise CheckFailed(f"the images must keep their shape.\n  {describe(result, images)}")

    def found(shift: Callable, some: Tensor, of: Tensor, reach: int = 1) -> tuple[int, int] | None:
        places = product(range(-reach, reach + 1), repeat=2)
        return next((place for place in places if same(some, shift(of, *place))), None)

    def right(images: Tensor, down: int, right: int, reach: int = 1) -> Tensor:
        return padded(images, down, right, reach, mode="replicate")

    place = found(right, result, images)
    if place is not None:
        return place
    for sentence, shift in WRONG_EDGES:
        if found(shift, result, images):
            raise CheckFailed(sentence)
    if found(lambda *args: right(*args, reach=3), result, images, reach=3):
        raise CheckFailed("the images move by more than one pixel.")
    if all(found(right, result[i : i + 1], images[i : i + 1]) for i in range(len(images))):
        raise CheckFailed("each image has a shift of its own. The whole batch moves alike: draw once.")
    raise CheckFailed(
        "the result is none of the nine shifts by up to one pixel, with the edge repeated.\n  not moved: "
        + describe(result, images)
    )
