"""Checks of lesson 06's parts: the schedule, the plain and the regularized step, the evaluation, and two helpers."""

from collections.abc import Callable, Sequence
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
from vit_course.checks.compare import describe, formula, named, same, set_parameters, unchanged
from vit_course.checks.engine import Case, declare
from vit_course.checks.learner import check, running
from vit_course.checks.modules import Mapping, few, takes
from vit_course.checks.verdict import NotWritten, Verdict, fail, sentence


def number(value: object, what: str) -> float:
    """Return a number, or a tensor that holds one, as a float."""
    if value is Ellipsis:
        raise NotWritten(sentence("learner.returns_ellipsis"))
    if value is None:
        raise fail("engine.returns_none")
    if isinstance(value, bool) or not (isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)):
        raise fail("training.not_a_number", what=what, came=named(value))
    return value.item() if isinstance(value, Tensor) else float(value)


class Numbers(NamedTuple):
    """Numbers that a learner's code returned: their values, and whether each was a plain number."""

    values: Tensor
    plain: bool


# --- the schedule ----------------------------------------------------------------------------------------------------


def plan(label: str, total: int, warmup: int, peak: float, final: float | None = None) -> Case:
    """Return a plan, which is tried at every step and well beyond the last one."""
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


def rates_of(schedule: Callable, case: Case) -> Numbers:
    """Return the rates of a plan, from step 0 to three times its length."""
    rates, plain = [], True
    for step in range(3 * case.kwargs["total_steps"]):
        rate = schedule(step, **case.kwargs)
        rates.append(number(rate, "a rate"))
        plain = plain and not isinstance(rate, Tensor)
    return Numbers(torch.tensor(rates, dtype=torch.float64), plain)


class Phases(NamedTuple):
    """The rates of a plan."""

    the_warm_up: Tensor
    the_cosine: Tensor
    what_comes_after: Tensor


def phases(schedule: Callable, case: Case) -> Phases:
    """Return the rates of a plan, phase by phase."""
    rates, (total, warmup) = rates_of(schedule, case).values, list(case.kwargs.values())[:2]
    return Phases(rates[:warmup], rates[warmup:total], rates[total:])


def values_then_plain(key: str, run: Callable[[Callable, Case], Numbers], cases: Sequence[Case]) -> Callable:
    """Return a behavior that refuses right values which come as tensors."""

    def behavior(function: Callable, mapping: Mapping) -> None:
        if not all(run(function, case).plain for case in cases):
            raise fail(key)

    return behavior


def arguments(reference: Callable, *args: object, **kwargs: object) -> Callable:
    """Return a behavior that checks the learner's arguments."""
    return lambda function, mapping: takes(function, reference, args, kwargs)


learning_rate_schedule = declare(
    "learning_rate_schedule",
    "learning_rate_schedule",
    training.learning_rate_schedule,
    [PLANS],
    "learning_rate_schedule",
    run=phases,
    gradients=False,
    before=[arguments(training.learning_rate_schedule, 0, **PLANS[2].kwargs)],
    behaviors=[values_then_plain("training.rates_are_tensors", rates_of, PLANS[:1])],
    most=3,
)

# --- models that note what is done to them ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One batch that a model was given."""

    size: int
    modes: frozenset[bool]  # train mode or not, of the model and of everything in it
    tracked: bool  # whether the output has a gradient


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
]
REGULARIZED_STEPS = [
    *STEPS,
    Case("label_smoothing=0.3", (linear, sgd), dict(label_smoothing=0.3)),
    Case("max_grad_norm=0.05", (linear, sgd), dict(max_grad_norm=0.05)),
    Case("max_grad_norm=100, which no gradient exceeds", (linear, sgd), dict(max_grad_norm=100.0)),
    Case("smoothing and clipping together", (normed, sgd), dict(label_smoothing=0.1, max_grad_norm=0.2)),
]
BATCHES = [  # images and labels, one step each
    (formula(count, 2, 2, 3, start=start), (torch.arange(count) ** 2 + start) % CLASSES)
    for count, start in ((7, 1), (7, 101), (4, 201))
]


class Outcome(NamedTuple):
    """What a training step is judged by."""

    the_returned_loss: float
    the_weights_after_one_step: Tensor
    the_weights_after_three_steps: Tensor
    the_loss_of_the_third_step: float


@dataclass
class Steps:
    """What becomes of a fresh model in a few steps, handed over in eval mode each time."""

    step: Callable
    case: Case
    plain: bool = True
    calls: list[list[Call]] = field(default_factory=list)
    events: list[list[str]] = field(default_factory=list)  # "backward", "step", and "empty step" without gradients
    changed: list[bool] = field(default_factory=list)

    def run(self) -> Outcome:
        """Take the steps."""
        build_model, build_optimizer = self.case.args
        model, losses, weights = build_model(), [], []
        optimizer = build_optimizer(model)

        def note_step(*_: object) -> None:
            gradients = [parameter.grad for parameter in model.parameters()]
            empty = all(gradient is None or not gradient.any() for gradient in gradients)
            self.events[-1].append("empty step" if empty else "step")

        next(model.parameters()).register_hook(lambda _: self.events[-1].append("backward"))
        optimizer.register_step_pre_hook(note_step)
        for images, labels in BATCHES:
            model.eval()
            model.calls = []
            self.events.append([])
            given = images.clone(), labels.clone()
            with torch.enable_grad():
                loss = self.step(model, optimizer, *given, **self.case.kwargs)
            if not unchanged((images, labels), given):
                raise fail("engine.in_place", self.case.label)
            losses.append(number(loss, "the loss"))
            self.plain = self.plain and not isinstance(loss, Tensor)
            before = weights[-1] if weights else None
            weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
            self.changed.append(before is None or not torch.equal(before, weights[-1]))
            self.calls.append(model.calls)
        return Outcome(losses[0], weights[0], weights[-1], losses[-1])


def events(function: Callable, mapping: Mapping) -> None:
    """Name what each step must do, and does not: the model in train mode, one backward, then one step."""
    for case in STEPS[:2]:
        trial = Steps(function, case)
        with running(sentence("engine.on", case=case.label)):
            trial.run()
        for calls, happened in zip(trial.calls, trial.events, strict=True):
            steps = [event for event in happened if event.endswith("step")]
            if not calls:
                raise fail("training.model_never_called")
            if False in calls[0].modes:
                raise fail("training.not_in_train_mode")
            if not steps:
                raise fail("training.own_optimizer" if any(trial.changed[1:]) else "training.no_step")
            if len(steps) > 1:
                raise fail("training.many_steps", count=len(steps))
            if steps == ["empty step"]:
                key = (
                    "cleared"
                    if happened[0] == "backward"
                    else "step_first"
                    if "backward" in happened
                    else "no_backward"
                )
                raise fail(f"training.{key}")


LOSS, BACK = "F.cross_entropy(logits, labels, label_smoothing=label_smoothing)", "loss.backward(retain_graph=True)"
AFTER = LOSS.replace("logits", "model(images)")


def step_is_plain(function: Callable, mapping: Mapping) -> None:
    """Refuse a right loss that comes as a tensor."""
    trial = Steps(function, STEPS[0])
    trial.run()
    if not trial.plain:
        raise fail("training.loss_is_tensor")


train_step = declare(
    "train_step",
    "train_step",
    training.train_step,
    [STEPS],
    "train_step",
    run=lambda step, case: Steps(step, case).run(),
    gradients=False,
    before=[arguments(training.train_step, None, None, None, None), events],
    behaviors=[step_is_plain],
    most_tries=300,
)
regularized_train_step = declare(
    "regularized_train_step",
    "train_step",
    training.regularized_train_step,
    [REGULARIZED_STEPS],
    "regularized_train_step train_step",
    run=lambda step, case: Steps(step, case).run(),
    gradients=False,
    before=[
        arguments(training.regularized_train_step, None, None, None, None, label_smoothing=0.0, max_grad_norm=None),
        events,
    ],
    behaviors=[step_is_plain],
    most_tries=300,
)

# --- evaluation ------------------------------------------------------------------------------------------------------


def partly_frozen(model: nn.Module) -> None:
    """Put everything into train mode but its BatchNorm, as one does to keep its means."""
    model.train().layers[2].eval()


EVALUATIONS = [  # a model, its mode, and how many images from where in the formula
    Case("two batches of 5", (linear, nn.Module.train, 10, 1), dict(batch_size=5)),
    Case("batches of 4, 4 and 2", (normed, nn.Module.train, 10, 101), dict(batch_size=4)),
    Case("one image at a time", (linear, nn.Module.eval, 7, 201), dict(batch_size=1)),
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


class Evaluation(NamedTuple):
    """What an evaluation is judged by."""

    the_loss: float
    the_accuracy: float


def measured(function: Callable, case: Case, faults: list[str] | None = None) -> Evaluation:
    """Return what an evaluation returns, and note what it does wrong beside that."""
    build_model, prepare, *_ = case.args
    images, labels = images_of(case)
    model, given = build_model(), (images.clone(), labels.clone())
    prepare(model)
    modes = {module: module.training for module in model.modules()}
    state = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.enable_grad():
        result = function(model, TensorDataset(*given), **case.kwargs)
    if result is Ellipsis:
        raise NotWritten(sentence("learner.returns_ellipsis"))
    if result is None:
        raise fail("engine.returns_none")
    if not unchanged((images, labels), given):
        raise fail("engine.in_place", case.label)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise fail("evaluate.two_numbers", came=named(result))
    if not model.calls:
        raise fail("training.model_never_called")
    if any(True in call.modes for call in model.calls):
        raise fail("evaluate.train_mode")
    if any(not torch.equal(value, model.state_dict()[key]) for key, value in state.items()):
        raise fail("evaluate.weights_changed")
    size, largest = case.kwargs.get("batch_size", 256), max(call.size for call in model.calls)
    if faults is not None:
        if any(call.tracked for call in model.calls):
            faults.append(sentence("evaluate.tracked"))
        if largest > size:
            faults.append(sentence("evaluate.too_many", count=largest, size=size))
        if any(module.training != mode for module, mode in modes.items()):
            lost = {nn.Module.train: "left_in_eval", nn.Module.eval: "left_in_train"}.get(prepare, "layer_left")
            faults.append(sentence(f"evaluate.{lost}"))
        if any(isinstance(value, Tensor) for value in result):
            faults.append(sentence("evaluate.tensors"))
    return Evaluation(number(result[0], "the loss"), number(result[1], "the accuracy"))


def leaves_alone(function: Callable, mapping: Mapping) -> None:
    """Name what an evaluation does wrong although its values are right."""
    faults = []
    for case in EVALUATIONS:
        measured(function, case, faults)
    if faults:
        raise fail("evaluate.right_but", fault=faults[0])


evaluate = declare(
    "evaluate",
    "evaluate",
    training.evaluate,
    [EVALUATIONS],
    "evaluate",
    run=measured,
    gradients=False,
    before=[arguments(training.evaluate, None, None, batch_size=4)],
    behaviors=[leaves_alone],
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
    rate = 0.125

    def verify() -> str:
        takes(function, training.parameter_groups, (None, rate), {})
        model = EveryKind()
        with running():
            groups = function(model, rate)
            if groups is Ellipsis:
                raise NotWritten(sentence("learner.returns_ellipsis"))
            groups = [dict(group, params=list(group["params"])) for group in dictionaries(groups)]
        found = [(id(parameter), group.get("weight_decay")) for group in groups for parameter in group["params"]]
        places = [place for place, _ in found]
        if twice := [key for key, parameter in model.named_parameters() if places.count(id(parameter)) > 1]:
            raise fail("parameter_groups.twice", names=few(twice, 3))
        with running(sentence("parameter_groups.optimizer")):
            torch.optim.AdamW(groups, lr=1.0)
        verify_decay(model, found, rate)
        return sentence("parameter_groups.verified")

    return check("parameter_groups", function, verify)


def dictionaries(groups: object) -> Sequence[dict]:
    """Return the groups if an optimizer could read them; say what came instead if not."""
    if groups is None:
        raise fail("engine.returns_none")
    parts = groups if isinstance(groups, (list, tuple)) else [groups]
    if isinstance(groups, dict) or not all(isinstance(group, dict) and "params" in group for group in parts):
        came = next((part for part in parts if not isinstance(part, dict) or "params" not in part), groups)
        came = f"the keys {list(came)}" if isinstance(came, dict) else type(came).__name__
        raise fail("parameter_groups.dictionaries", came=came)
    return groups


def verify_decay(model: nn.Module, found: list[tuple[int, float | None]], rate: float) -> None:
    """Check the decay of every parameter."""
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    layers = [module for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    wanted = {names[id(layer.weight)] for layer in layers}
    decays = {names[place]: decay for place, decay in found if place in names}
    shrunk = [key for key, decay in decays.items() if decay and key not in wanted]
    tables = shrunk and all(key.endswith(("class_token", "pos_embedding")) for key in shrunk)
    faults = {
        "missing": [key for key in names.values() if key not in decays],
        "unset": [key for key, decay in decays.items() if decay is None],
        "by_axes" if tables else "wrongly_decayed": shrunk,
        "not_decayed": sorted(key for key in wanted if not decays.get(key)),
    }
    for fault, keys in faults.items():
        if keys:
            raise fail(f"parameter_groups.{fault}", names=few(keys, 3))
    if other := {decay for key, decay in decays.items() if key in wanted} - {rate}:
        raise fail("parameter_groups.other_rate", rate=rate, came=other.pop())


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

    def verify() -> str:
        takes(function, augmentation.random_shift, (None, None), {})
        images, generator = formula(3, 2, 4, 5), torch.Generator().manual_seed(0)
        drawn = set()
        for _ in range(DRAWS):
            given, before = images.clone(), generator.get_state()
            with running():
                result = function(given, generator)
            if result is Ellipsis:
                raise NotWritten(sentence("learner.returns_ellipsis"))
            if not unchanged(images, given):
                raise fail("engine.in_place")
            drawn.add(shift_of(result, images))
            with running():
                again = function(given, torch.Generator().set_state(before))
            if not same(again, result):
                raise fail("random_shift.other_generator")
        if missing := sorted(set(product((-1, 0, 1), repeat=2)) - drawn):
            raise fail("random_shift.missing", draws=DRAWS, count=len(missing), shift=missing[0])
        return sentence("random_shift.verified", draws=DRAWS)

    return check("random_shift", function, verify)


def moved(images: Tensor, down: int, right: int, reach: int = 1, **pad: object) -> Tensor:
    """Return the images, moved, with what comes in made as ``F.pad`` is told."""
    h, w = images.shape[2:]
    return F.pad(images, [reach] * 4, **pad)[:, :, reach - down :, reach - right :][:, :, :h, :w]


EDGES: dict[str, Callable[..., Tensor]] = {
    "zeros": moved,
    "wraps": lambda images, down, right, reach: images.roll((down, right), dims=(2, 3)),
    "mirrors": lambda *args: moved(*args, mode="reflect"),
}


def shift_of(result: object, images: Tensor) -> tuple[int, int]:
    """Return the shift (down, right) that a result shows, or name what is wrong with it."""
    if not isinstance(result, Tensor) or result.shape != images.shape:
        raise fail("random_shift.shape", describe(result, images))

    def replicated(*args: object) -> Tensor:
        return moved(*args, mode="replicate")

    def found(shift: Callable, some: Tensor, of: Tensor, reach: int = 1) -> tuple[int, int] | None:
        places = product(range(-reach, reach + 1), repeat=2)
        return next((place for place in places if same(some, shift(of, *place, reach))), None)

    place = found(replicated, result, images)
    if place is not None:
        return place
    for name, shift in EDGES.items():
        if found(shift, result, images):
            raise fail(f"random_shift.{name}")
    if found(replicated, result, images, reach=3):
        raise fail("random_shift.too_far")
    if all(found(replicated, result[i : i + 1], images[i : i + 1]) for i in range(len(images))):
        raise fail("random_shift.each_its_own")
    raise fail("random_shift.other", describe(result, images))
