"""Checks of lesson 08's functions, which change a model: a new head on a frozen model, and the fine-tuning loop."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vit_course
from vit_course import training, transfer
from vit_course.checks.compare import formula, named, set_parameters
from vit_course.checks.learner import check, running
from vit_course.checks.modules import takes
from vit_course.checks.verdict import NotWritten, Verdict, fail, sentence

SIZES = dict(image_size=4, patch_size=2, in_channels=1, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12)


def small_model(num_classes: int = 3, **changes: int) -> nn.Module:
    """Return a small Vision Transformer with parameters from a formula."""
    return set_parameters(vit_course.VisionTransformer(**SIZES | changes, num_classes=num_classes))


def values(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def name_of(function: Callable, usual: str) -> str:
    """Return the name under which a verdict speaks of the function."""
    return getattr(function, "__name__", usual).replace("<lambda>", usual)


# --- a new head on a frozen model ------------------------------------------------------------------------------------

HEADS = [(small_model, dict(num_classes=5)), (lambda: small_model(4, hidden_dim=6), dict(num_classes=2))]


def replace_head(function: Callable) -> Verdict:
    """Check a ``replace_head(model, num_classes)``.

    Verified: that the same model comes back; that its head is a new linear layer of the right size, filled with zeros
    and trained; that all other parameters have kept their values and are frozen.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the message names the mistake.
    """

    def verify() -> str:
        takes(function, transfer.replace_head, (None, 3), {})
        for build, options in HEADS:
            one_head(function, build(), **options)
        return sentence("transfer.head_verified")

    return check(name_of(function, "replace_head"), function, verify)


def one_head(function: Callable, model: nn.Module, num_classes: int) -> None:
    """Give one model a new head, and look at everything that must hold afterwards."""
    before, old_head = values(model), model.head
    with running(sentence("engine.on", case=f"a model with {old_head.out_features} classes, for {num_classes}")):
        result = function(model, num_classes)
    if result is Ellipsis:
        raise NotWritten(sentence("learner.returns_ellipsis"))
    if result is None:
        raise fail("engine.returns_none")
    if result is not model:
        raise fail("transfer.another_model", came=named(result))
    head = model.head
    if not isinstance(head, nn.Linear):
        raise fail("transfer.head_is_no_layer", came=type(head).__name__)
    if head is old_head:
        raise fail("transfer.old_head")
    wanted, came = (old_head.in_features, num_classes), (head.in_features, head.out_features)
    if came != wanted:
        raise fail("transfer.head_size", wanted=wanted, came=came)
    body = {name: parameter for name, parameter in model.named_parameters() if not name.startswith("head.")}
    if changed := [name for name, value in body.items() if not torch.equal(value, before[name])]:
        raise fail("transfer.body_changed", name=changed[0])
    if free := [name for name, parameter in body.items() if parameter.requires_grad]:
        raise fail("transfer.not_frozen", count=len(free), name=free[0])
    if not all(parameter.requires_grad for parameter in head.parameters()):
        raise fail("transfer.head_frozen")
    for name, parameter in head.named_parameters():
        if parameter.any():
            raise fail("transfer.head_not_zero", name=f"head.{name}")


# --- the loop --------------------------------------------------------------------------------------------------------

IMAGES, LABELS = formula(9, 1, 4, 4), torch.tensor([0, 2, 1, 1, 0, 2, 2, 1, 0])
RUNS = {
    "20 steps, all parameters trained": (False, dict(steps=20, peak=0.01, batch_size=4)),
    "20 steps with another seed": (False, dict(steps=20, peak=0.02, batch_size=4, seed=3)),
    "a frozen model with a new head": (True, dict(steps=12, peak=0.05, batch_size=5, seed=1)),
}


def start(frozen: bool) -> nn.Module:
    """Return the model before the first step."""
    return transfer.replace_head(small_model(), 3) if frozen else small_model()


def loop(model: nn.Module, *, steps: int, peak: float, batch_size: int, seed: int = 0, slip: str = "") -> list[float]:
    """Return the losses of the loop that the lesson describes, with one mistake made on purpose."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = (torch.optim.Adam if slip == "adam" else torch.optim.AdamW)(trained, lr=peak)
    generator, losses = torch.Generator().manual_seed(0 if slip == "seed" else seed), []
    warmup = 0 if slip == "warm_up" else steps // 10
    for step in range(steps):
        if slip != "schedule":
            plan = dict(total_steps=steps, warmup_steps=warmup, peak=peak)
            optimizer.param_groups[0]["lr"] = training.learning_rate_schedule(step, **plan)
        if slip == "without_replacement":
            batch = torch.randperm(len(IMAGES), generator=generator)[:batch_size]
        else:
            batch = torch.randint(len(IMAGES), (batch_size,), generator=generator)
        losses.append(training.train_step(model, optimizer, IMAGES[batch], LABELS[batch]))
    return losses


SLIPS = ("schedule", "warm_up", "seed", "without_replacement", "adam")


def fine_tune(function: Callable) -> Verdict:
    """Check a ``fine_tune(model, images, labels, *, steps, peak, batch_size=32, seed=0)``.

    Verified: on a model whose parameters are all trained and on a frozen one, the losses of all steps and the
    parameters after the last one; that frozen parameters and the images are left as they are.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the message names the mistake.
    """

    def verify() -> str:
        options = dict(steps=1, peak=0.1, batch_size=32, seed=0)
        takes(function, transfer.fine_tune, (None, None, None), options)
        for label, (frozen, settings) in RUNS.items():
            one_run(function, label, frozen, settings)
        return sentence("transfer.loop_verified", count=len(RUNS))

    return check(name_of(function, "fine_tune"), function, verify)


def one_run(function: Callable, label: str, frozen: bool, settings: dict) -> None:
    """Train one model with the learner's loop, and compare it with the lesson's."""
    model, images, labels = start(frozen), IMAGES.clone(), LABELS.clone()
    before = values(model)
    with running(sentence("engine.on", case=label)):
        losses = function(model, images, labels, **settings)
    if losses is Ellipsis:
        raise NotWritten(sentence("learner.returns_ellipsis"))
    if losses is None:
        raise fail("engine.returns_none")
    if not (torch.equal(images, IMAGES) and torch.equal(labels, LABELS)):
        raise fail("engine.in_place", label)
    after = values(model)
    moved = [name for name, value in after.items() if not torch.equal(value, before[name])]
    if not moved:
        raise fail("transfer.nothing_trained", label)
    if frozen and (wrong := [name for name in moved if not name.startswith("head.")]):
        raise fail("transfer.frozen_moved", label, name=wrong[0])
    right = start(frozen)
    expected = loop(right, **settings)
    if not isinstance(losses, (list, tuple)) or len(losses) != len(expected):
        count = len(losses) if isinstance(losses, (list, tuple)) else named(losses)
        raise fail("transfer.losses", label, wanted=len(expected), came=count)
    if agrees(model, losses, right, expected):
        return
    for slip in SLIPS:
        wrong_model = start(frozen)
        if agrees(model, losses, wrong_model, loop(wrong_model, **settings, slip=slip)):
            raise fail(f"transfer.{slip}", label)
    raise fail("transfer.other_values", label, wanted=f"{expected[-1]:.5f}", came=f"{float(losses[-1]):.5f}")


def agrees(model: nn.Module, losses: list, other: nn.Module, expected: list) -> bool:
    """Whether two runs have the same losses and end with the same parameters, to rounding."""
    ours, theirs = values(model), values(other)
    close = all(torch.allclose(value, theirs[name], rtol=1e-4, atol=1e-5) for name, value in ours.items())
    return close and torch.allclose(torch.tensor([float(loss) for loss in losses]), torch.tensor(expected), atol=1e-4)
