"""Checks of lesson 08's parts: a new head on a frozen model, the fine-tuning loop, and resized positions."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

import vit_course
from vit_course import transfer
from vit_course.checks.compare import formula, named, set_parameters
from vit_course.checks.declare import Case, declare
from vit_course.checks.trace import never_seeds
from vit_course.checks.verdict import fail, refuse, sentence

# --- a new head on a frozen model ------------------------------------------------------------------------------------


def _small_model(num_classes: int = 3, hidden_dim: int = 8) -> nn.Module:
    sizes = dict(image_size=4, patch_size=2, in_channels=1, num_layers=2, num_heads=2, mlp_dim=12)
    return set_parameters(vit_course.VisionTransformer(hidden_dim=hidden_dim, num_classes=num_classes, **sizes))


def returned(result: object, model: nn.Module) -> None:
    """Refuse a result that is not the model that was given."""
    if result is not model:
        came = sentence("replace_head.copy") if type(result) is type(model) else named(result)
        raise fail("replace_head.another_model", came=came)


def _with_new_head(function: Callable, case: Case) -> dict[str, Tensor]:
    model, num_classes = case.args[0](), case.args[1]
    old_head = model.head
    with torch.enable_grad():
        result = function(model, num_classes)
    returned(result, model)
    head = model.head
    refuse(not isinstance(head, nn.Linear), "replace_head.no_layer", came=type(head).__name__)
    refuse(head is old_head, "replace_head.old_head")
    wanted, came = (old_head.in_features, num_classes), (head.in_features, head.out_features)
    refuse(came != wanted, "replace_head.size", wanted=wanted, came=came)
    for name, parameter in head.named_parameters():
        refuse(parameter.any(), "replace_head.not_zero", name=f"head.{name}")
    body = [parameter for name, parameter in model.named_parameters() if not name.startswith("head.")]
    trained = torch.tensor([parameter.requires_grad for parameter in model.parameters()])
    parts = {"the head": head.parameters(), "the other parameters": body}
    values = {part: parameters_to_vector(parameters).detach() for part, parameters in parts.items()}
    return values | {"what is trained": trained}


declare(
    "replace_head",
    transfer.replace_head,
    [
        [
            Case("a model with 3 classes for 5", (_small_model, 5)),
            Case("a model with 3 classes for 3 others", (_small_model, 3)),
            Case("a model with 4 classes for 2", (lambda: _small_model(4, hidden_dim=6), 2)),
        ]
    ],
    run=_with_new_head,
)

# --- the loop --------------------------------------------------------------------------------------------------------

IMAGES, LABELS = formula(9, 1, 4, 4), torch.tensor([0, 2, 1, 1, 0, 2, 2, 1, 0])


def _classifier() -> nn.Module:  # small, because dozens of its runs are compared
    layers = dict(rows=nn.Flatten(), body=nn.Linear(16, 8), bend=nn.GELU(), head=nn.Linear(8, 3))
    return set_parameters(nn.Sequential(OrderedDict(layers)))


def _frozen_classifier() -> nn.Module:
    model = _classifier().requires_grad_(False)
    for parameter in model.head.parameters():
        nn.init.zeros_(parameter.requires_grad_(True))
    return model


def _tuned(function: Callable, case: Case) -> dict[str, Tensor]:
    model = case.args[0]()
    before = {name: (each.requires_grad, each.detach().clone()) for name, each in model.named_parameters()}
    with torch.enable_grad():
        losses = function(model, IMAGES, LABELS, **case.kwargs)
    moved = [name for name, value in model.named_parameters() if not torch.equal(value, before[name][1])]
    refuse(not moved, "fine_tune.nothing_trained", case.label)
    if wrong := [name for name in moved if not before[name][0]]:
        raise fail("fine_tune.frozen_moved", case.label, name=wrong[0])
    steps = case.kwargs["steps"]
    refuse(not isinstance(losses, (list, tuple)), "fine_tune.no_list", case.label, wanted=steps, came=named(losses))
    refuse(len(losses) != steps, "fine_tune.losses", case.label, wanted=steps, came=len(losses))
    losses = torch.tensor([float(loss) for loss in losses])
    return {"the losses": losses, "the parameters": parameters_to_vector(model.parameters()).detach()}


def _two_steps(tune: Callable) -> object:
    return tune(_classifier(), IMAGES, LABELS, steps=2, peak=0.01, batch_size=4)


def _draws_the_same_batches(tune: Callable, mapping: None) -> None:
    results = []
    with suppress(Exception), torch.enable_grad():  # the cases name what stops the code
        results = [repr(_two_steps(tune)) for _ in range(2)]  # in which nan equals itself
    refuse(len(set(results)) == 2, "fine_tune.generator")


declare(
    "fine_tune",
    transfer.fine_tune,
    [
        [
            Case(
                "a frozen model with a new head", (_frozen_classifier,), dict(steps=6, peak=0.05, batch_size=5, seed=1)
            ),
            Case("27 steps, all parameters trained", (_classifier,), dict(steps=27, peak=0.01, batch_size=4)),
            Case("10 steps with another seed", (_classifier,), dict(steps=10, peak=0.02, batch_size=4, seed=3)),
        ]
    ],
    run=_tuned,
    before=[_draws_the_same_batches],
    behaviors=[never_seeds("fine_tune.seeded", _two_steps)],
    most_calls=800,
)

# --- position embeddings ---------------------------------------------------------------------------------------------

declare(
    "resize_positions",
    transfer.resize_positions,
    [
        [
            Case("7 x 7 patches to 14 x 14", (formula(1, 50, 4), (7, 7), (14, 14))),
            Case("7 x 7 patches to 5 x 9", (formula(1, 50, 4), (7, 7), (5, 9))),
            Case("2 x 3 patches to 4 x 3", (formula(1, 7, 4), (2, 3), (4, 3))),
            Case("4 x 4 patches to 2 x 8", (formula(1, 17, 4), (4, 4), (2, 8))),
            Case("2 x 8 patches to 4 x 6", (formula(1, 17, 4), (2, 8), (4, 6))),
            Case("2 x 11 patches to 3 x 15", (formula(1, 23, 4), (2, 11), (3, 15))),
        ]
    ],
    stages=["resized", "patches"],
    has_gradients=False,
)
