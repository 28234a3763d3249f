"""Checks of lesson 06's parts: the schedule, the plain and the regularized step, the evaluation, and two helpers."""

from collections import namedtuple
from collections.abc import Callable
from functools import cache
from numbers import Real

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch.utils.data import TensorDataset

from vit_course import training
from vit_course.checks.compare import duplicate, formula, named, set_parameters, unchanged
from vit_course.checks.declare import Case, declare
from vit_course.checks.learner import running
from vit_course.checks.trace import never_seeds
from vit_course.checks.verdict import fail, refuse, sentence


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not (isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)):
        raise fail("training.not_a_number", what=what, came=named(value))
    return value.item() if isinstance(value, Tensor) else float(value)


# --- the schedule ----------------------------------------------------------------------------------------------------


def _plan(label: str, total_steps: int, warmup_steps: int, **rates: float) -> Case:
    return Case(label, kwargs=dict(total_steps=total_steps, warmup_steps=warmup_steps, **rates))


PLANS = [
    _plan("10 steps with 3 of warm-up", 10, 3, peak=2.0),
    _plan("the same steps with peak=1e-5", 10, 3, peak=1e-5),
    _plan("21 steps with 5 of warm-up", 21, 5, peak=0.5),
    _plan("a final rate above 0", 12, 4, peak=1.5, final=0.4),
    _plan("one step of warm-up", 8, 1, peak=2.0),
    _plan("no warm-up", 9, 0, peak=3.0, final=0.5),
    _plan("warm-up in all steps but one", 7, 6, peak=2.0, final=0.5),
    _plan("warm-up in all steps", 6, 6, peak=2.0, final=0.5),
    _plan("a plan of one step", 1, 0, peak=2.0),
]


def _phases(schedule: Callable, case: Case) -> dict[str, Tensor]:
    """Return the rates of a plan, from step 0 to three times its length."""
    total, warmup = case.kwargs["total_steps"], case.kwargs["warmup_steps"]
    rates = [_number(schedule(step, **case.kwargs), "a rate") for step in range(3 * total)]
    rates = torch.tensor(rates, dtype=torch.float64)
    phases = {"the warm-up": rates[:warmup], "the cosine": rates[warmup:total]}
    return phases | {"what comes after": rates[total:]}


def _rates_are_plain(schedule: Callable, mapping: None) -> None:
    if any(isinstance(schedule(step, **PLANS[0].kwargs), Tensor) for step in range(30)):
        raise fail("training.rates_are_tensors")


declare(
    "learning_rate_schedule",
    training.learning_rate_schedule,
    [PLANS],
    run=_phases,
    behaviors=[_rates_are_plain],
    most=3,
    most_calls=30_000,
)

# --- models that note what is done to them ---------------------------------------------------------------------------


# One batch that a model was given: its size, the modes of all layers, and whether the output has a gradient.
Call = namedtuple("Call", "size modes tracked")


class Noting(nn.Module):
    """A small classifier of images ``(2, 2, 3)`` with weights from a formula, which notes every call."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), *layers)
        calls = self.calls = []
        self.note = calls.append  # a copy's calls, too
        set_parameters(self)
        for layer in layers:
            if isinstance(layer, nn.BatchNorm1d):
                layer.running_mean.copy_(formula(layer.num_features))
                layer.running_var.copy_(1.5 + formula(layer.num_features, start=53))

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, ``(b, k)``."""
        out = self.layers(images)
        self.note(Call(len(images), frozenset(part.training for part in self.modules()), out.requires_grad))
        return out


CLASSES = 5


def _linear() -> Noting:
    return Noting(nn.Linear(12, CLASSES))


def _normed() -> Noting:  # BatchNorm makes it another one in train mode; its dropout drops nothing
    return Noting(nn.Linear(12, 6, bias=False), nn.BatchNorm1d(6), nn.Dropout(0.0), nn.Linear(6, CLASSES))


# --- one step --------------------------------------------------------------------------------------------------------


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([dict(params=[each]) for each in model.parameters()], lr=0.5)  # a group is not all of them


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    first, *others = model.parameters()
    groups = dict(params=[first], weight_decay=0.5), dict(params=others, weight_decay=0.0)
    return torch.optim.AdamW(groups, lr=0.02)


def _sure() -> Noting:
    model = _linear()
    for parameter in model.requires_grad_(False).parameters():
        parameter *= 100
    return model.requires_grad_(True)


STEPS = [
    Case("a linear model and SGD", (_linear, _sgd)),
    Case("a model with BatchNorm", (_normed, _sgd)),
    Case("AdamW", (_linear, _adamw)),
    Case("logits of about 100", (_sure, _sgd)),
]
REGULARIZED_STEPS = [
    *STEPS,
    Case("label_smoothing=0.3", (_linear, _sgd), dict(label_smoothing=0.3)),
    Case("max_grad_norm=0.05", (_linear, _sgd), dict(max_grad_norm=0.05)),
    Case("max_grad_norm=0.05 and AdamW", (_linear, _adamw), dict(max_grad_norm=0.05)),
    Case("max_grad_norm=100, which no gradient exceeds", (_linear, _sgd), dict(max_grad_norm=100.0)),
    Case("smoothing and clipping together", (_normed, _sgd), dict(label_smoothing=0.1, max_grad_norm=0.2)),
]
BATCHES = [  # images and labels, one step each
    (formula(count, 2, 2, 3, start=start), (torch.arange(count) ** 2 + start) % CLASSES)
    for count, start in ((7, 1), (7, 101), (4, 201))
]

# One training step: the model's calls, "backward", "step" and "empty step" in order, the loss, the weights.
Taken = namedtuple("Taken", "calls events loss weights")


def _take(step: Callable, case: Case, *, left_over: bool = False) -> list[Taken]:
    """Take three steps of a model, with gradients left over or none, which is handed over in eval mode each time."""
    model = case.args[0]()
    for parameter in model.parameters():
        parameter.grad = formula(*parameter.shape) if left_over else None
    optimizer, events, taken = case.args[1](model), [], []

    def note_step(*_: object) -> None:
        gradients = [parameter.grad for parameter in model.parameters()]
        empty = all(gradient is None or not gradient.any() for gradient in gradients)
        events.append("empty step" if empty else "step")

    next(model.parameters()).register_hook(lambda _: events.append("backward"))
    optimizer.register_step_pre_hook(note_step)
    for batch in BATCHES:
        model.eval().calls.clear()
        events.clear()
        with torch.enable_grad():
            loss = step(model, optimizer, *batch, **case.kwargs)
        _number(loss, "the loss")
        taken.append(Taken(model.calls[:], events[:], loss, parameters_to_vector(model.parameters()).detach()))
    return taken


def _outcome(step: Callable, case: Case) -> dict[str, float | Tensor]:
    first, _, third = _take(step, case, left_over=True)
    return {
        "the returned loss": float(first.loss),
        "the weights after one step": first.weights,
        "the weights after three steps": third.weights,
        "the loss of the third step": float(third.loss),
    }


def _events(step: Callable, mapping: None) -> None:
    """Name what each step must do, and does not: the model in train mode, one backward, then one step."""
    for case in STEPS[:2]:
        with running(sentence("declare.on", case=case.label)):
            taken = _take(step, case)
        changed = any(not torch.equal(taken[0].weights, later.weights) for later in taken[1:])
        for calls, events, *_ in taken:
            steps = [event for event in events if event != "backward"]
            refuse(not calls, "training.model_never_called")
            refuse(False in calls[0].modes, "training.not_in_train_mode")
            refuse(not steps, "training.own_optimizer" if changed else "training.no_step")
            refuse(len(steps) > 1, "training.many_steps", count=len(steps))
            if steps == ["empty step"]:
                order = "cleared" if events[0] == "backward" else "step_first"
                raise fail(f"training.{order if 'backward' in events else 'no_backward'}")


def _loss_is_plain(step: Callable, mapping: None) -> None:
    refuse(any(isinstance(taken.loss, Tensor) for taken in _take(step, STEPS[0])), "training.loss_is_tensor")


def _step_of_new_model(step: Callable) -> None:
    model = _linear()
    step(model, _sgd(model), *BATCHES[0])


NEVER_SEEDS = never_seeds("training.seeded", _step_of_new_model)
STEP = dict(run=_outcome, before=[_events], behaviors=[_loss_is_plain, NEVER_SEEDS], most_calls=750)
declare("train_step", training.train_step, [STEPS], **STEP)
declare(
    "regularized_train_step",
    training.regularized_train_step,
    [REGULARIZED_STEPS],
    twin="train_step",
    mistakes="regularized_train_step train_step",
    **STEP,
)

# --- evaluation ------------------------------------------------------------------------------------------------------


def _partly_frozen(model: nn.Module) -> None:
    model.train().layers[2].eval()  # BatchNorm alone, as one does to keep its means
    model.layers[1].requires_grad_(False)


EVALUATIONS = [  # a model, its mode, and how many images from where in the formula
    Case("two batches of 5", (_linear, nn.Module.train, 10, 1), dict(batch_size=5)),
    Case("batches of 4, 4 and 2", (_normed, nn.Module.train, 10, 101), dict(batch_size=4)),
    Case("one image at a time", (_linear, nn.Module.eval, 7, 201), dict(batch_size=1)),
    Case("fewer images than a batch", (_normed, _partly_frozen, 9, 301)),
]
MODE_LOST = {nn.Module.train: "left_in_eval", nn.Module.eval: "left_in_train", _partly_frozen: "layer_left"}


@cache
def _images_of(build_model: Callable, prepare: Callable, count: int, start: int) -> tuple[Tensor, Tensor]:
    """Return images, and labels of which the model gets every third wrong: its second best, its third and its worst."""
    images = formula(count, 2, 2, 3, start=start)
    with torch.no_grad():
        ranked = build_model()(images).argsort(dim=-1, descending=True)
    ranks = torch.tensor([(1, 2, CLASSES - 1)[place // 3 % 3] if place % 3 == 1 else 0 for place in range(count)])
    return images, ranked[torch.arange(count), ranks]


def _measured(function: Callable, case: Case, faults: list[str] | None = None) -> dict[str, float]:
    """Return what an evaluation returns; ``faults`` collects what it does wrong although its values may be right."""
    build_model, prepare, *_ = case.args
    model, images = build_model(), _images_of(*case.args)
    given = TensorDataset(*duplicate(images))
    prepare(model)
    modes = {module: module.training for module in model.modules()}
    trained = [parameter.requires_grad for parameter in model.parameters()]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.enable_grad():
        result = function(model, given, **case.kwargs)
        switched_off = not torch.is_grad_enabled()
    refuse(not unchanged(images, given.tensors), "declare.in_place", case.label)
    refuse(not isinstance(result, (tuple, list)) or len(result) != 2, "evaluate.two_numbers", came=named(result))
    refuse(not model.calls, "training.model_never_called")
    refuse(any(True in call.modes for call in model.calls), "evaluate.train_mode")
    if any(not torch.equal(value, model.state_dict()[key]) for key, value in state.items()):
        raise fail("evaluate.weights_changed")
    size, largest = case.kwargs.get("batch_size", 256), max(call.size for call in model.calls)
    found = {
        "tracked": any(call.tracked for call in model.calls),
        "too_many": largest > size,
        MODE_LOST[prepare]: any(module.training != mode for module, mode in modes.items()),
        "switched_off": switched_off,
        "unfrozen": trained != [parameter.requires_grad for parameter in model.parameters()],
        "tensors": any(isinstance(value, Tensor) for value in result),
    }
    if faults is not None:
        faults += [sentence(f"evaluate.{name}", count=largest, size=size) for name, wrong in found.items() if wrong]
    return {what: _number(value, what) for what, value in zip(["the loss", "the accuracy"], result, strict=True)}


def _leaves_alone(function: Callable, mapping: None) -> None:
    faults = []
    for case in EVALUATIONS:
        _measured(function, case, faults)
    if faults:
        raise fail("evaluate.right_but", fault=faults[0])


declare("evaluate", training.evaluate, [EVALUATIONS], run=_measured, behaviors=[_leaves_alone])
