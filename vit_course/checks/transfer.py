"""Checks of lesson 08's parts: a new head on a frozen model, the fine-tuning loop, and resized positions."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

import vit_course
from vit_course import transfer
from vit_course.checks.compare import formula, named, set_parameters
from vit_course.checks.engine import Case, declare
from vit_course.checks.training import arguments
from vit_course.checks.verdict import fail

SIZES = dict(image_size=4, patch_size=2, in_channels=1, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12)


def small_model(num_classes: int = 3, **changes: int) -> nn.Module:
    """Return a small Vision Transformer with parameters from a formula."""
    return set_parameters(vit_course.VisionTransformer(**SIZES | changes, num_classes=num_classes))


def flat(parameters: Iterable[Tensor]) -> Tensor:
    """Return a copy of all values in one row."""
    return torch.cat([parameter.detach().clone().flatten() for parameter in parameters])


# --- a new head on a frozen model ------------------------------------------------------------------------------------


class Adapted(NamedTuple):
    """What a model with a new head is judged by."""

    the_head: Tensor
    the_other_parameters: Tensor
    what_is_trained: Tensor


def with_new_head(function: Callable, case: Case) -> object:
    """Give a model a new head, and return what has become of it."""
    model, num_classes = case.args[0](), case.kwargs["num_classes"]
    old_head = model.head
    with torch.enable_grad():
        result = function(model, num_classes)
    if result is None or result is Ellipsis:
        return result
    if result is not model:
        raise fail("replace_head.another_model", came=named(result))
    head = model.head
    if not isinstance(head, nn.Linear):
        raise fail("replace_head.no_layer", came=type(head).__name__)
    if head is old_head:
        raise fail("replace_head.old_head")
    wanted, came = (old_head.in_features, num_classes), (head.in_features, head.out_features)
    if came != wanted:
        raise fail("replace_head.size", wanted=wanted, came=came)
    for name, parameter in head.named_parameters():
        if parameter.any():
            raise fail("replace_head.not_zero", name=f"head.{name}")
    body = [parameter for name, parameter in model.named_parameters() if not name.startswith("head.")]
    trained = torch.tensor([parameter.requires_grad for parameter in model.parameters()])
    return Adapted(flat(head.parameters()), flat(body), trained)


replace_head = declare(
    "replace_head",
    "replace_head",
    transfer.replace_head,
    [
        [
            Case("a model with 3 classes, for 5", (small_model,), dict(num_classes=5)),
            Case("a model with 4 classes, for 2", (lambda: small_model(4, hidden_dim=6),), dict(num_classes=2)),
        ]
    ],
    "replace_head",
    run=with_new_head,
    gradients=False,
    before=[arguments(transfer.replace_head, None, 3)],
)

# --- the loop --------------------------------------------------------------------------------------------------------

IMAGES, LABELS = formula(9, 1, 4, 4), torch.tensor([0, 2, 1, 1, 0, 2, 2, 1, 0])


def frozen_model() -> nn.Module:
    """Return a model of which only the new head is trained."""
    return transfer.replace_head(small_model(), 3)


class Tuned(NamedTuple):
    """What a fine-tuning loop is judged by."""

    the_losses: Tensor
    the_parameters: Tensor


def tuned(function: Callable, case: Case) -> object:
    """Train one model with a fine-tuning loop."""
    model, images, labels = case.args[0](), IMAGES.clone(), LABELS.clone()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    with torch.enable_grad():
        losses = function(model, images, labels, **case.kwargs)
    if losses is None or losses is Ellipsis:
        return losses
    if not (torch.equal(images, IMAGES) and torch.equal(labels, LABELS)):
        raise fail("engine.in_place", case.label)
    moved = [name for name, value in model.named_parameters() if not torch.equal(value, before[name])]
    if not moved:
        raise fail("fine_tune.nothing_trained", case.label)
    if wrong := [name for name in frozen if name in moved]:
        raise fail("fine_tune.frozen_moved", case.label, name=wrong[0])
    if not isinstance(losses, (list, tuple)) or len(losses) != case.kwargs["steps"]:
        count = len(losses) if isinstance(losses, (list, tuple)) else named(losses)
        raise fail("fine_tune.losses", case.label, wanted=case.kwargs["steps"], came=count)
    return Tuned(torch.tensor([float(loss) for loss in losses]), flat(model.parameters()))


fine_tune = declare(
    "fine_tune",
    "fine_tune",
    transfer.fine_tune,
    [
        [
            Case("20 steps, all parameters trained", (small_model,), dict(steps=20, peak=0.01, batch_size=4)),
            Case("20 steps with another seed", (small_model,), dict(steps=20, peak=0.02, batch_size=4, seed=3)),
            Case("a frozen model with a new head", (frozen_model,), dict(steps=12, peak=0.05, batch_size=5, seed=1)),
        ]
    ],
    "fine_tune",
    run=tuned,
    gradients=False,
    before=[arguments(transfer.fine_tune, None, None, None, steps=1, peak=0.1, batch_size=32, seed=0)],
    most_tries=30,
)

# --- position embeddings ---------------------------------------------------------------------------------------------

resize_positions = declare(
    "resize_positions",
    "resize_positions",
    transfer.resize_positions,
    [
        [
            Case("7 x 7 patches, to 14 x 14", (formula(1, 50, 4), (7, 7), (14, 14))),
            Case("7 x 7 patches, to 5 x 9", (formula(1, 50, 4), (7, 7), (5, 9))),
            Case("2 x 3 patches, to 4 x 3", (formula(1, 7, 4), (2, 3), (4, 3))),
        ]
    ],
    "resize_positions",
    stages=["picture", "resized", "patches"],
)
