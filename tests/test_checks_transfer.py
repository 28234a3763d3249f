"""The checks of lesson 08: right code in other styles passes, and mistakes that are no edits are named."""

import re

import pytest
import torch
from torch import nn

from vit_course import checks, transfer
from vit_course.training import learning_rate_schedule, train_step

pytestmark = pytest.mark.usefixtures("as_readers_run_it")


def head_of(model, num_classes):
    model.head = nn.Linear(model.head.in_features, num_classes)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)


def in_another_style(model, num_classes):
    model.requires_grad_(False)
    model.head = nn.utils.skip_init(nn.Linear, model.head.in_features, num_classes)
    model.head.load_state_dict({name: torch.zeros_like(value) for name, value in model.head.state_dict().items()})
    return model


def nothing_returned(model, num_classes):
    model.requires_grad_(False)
    head_of(model, num_classes)


def random_head(model, num_classes):
    model.requires_grad_(False)
    model.head = nn.Linear(model.head.in_features, num_classes)
    return model


def wrong_size(model, num_classes):
    model.requires_grad_(False)
    head_of(model, num_classes + 1)
    return model


def old_head(model, num_classes):
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    return model


def head_alone(model, num_classes):
    model.requires_grad_(False)
    head_of(model, num_classes)
    return model.head


def body_of_zeros(model, num_classes):
    for parameter in model.parameters():
        nn.init.zeros_(parameter).requires_grad_(False)
    head_of(model, num_classes)
    return model


HEADS = [
    (nothing_returned, "returns None"),
    (random_head, "head.weight is not zero"),
    (wrong_size, "must go from 8 features to 5 classes"),
    (old_head, "still the old layer"),
    (head_alone, "return this same model"),
    (body_of_zeros, "the other parameters"),
]


def name(case):
    return getattr(case, "__name__", "")


@pytest.mark.parametrize("right", [transfer.replace_head, in_another_style], ids=name)
def test_a_right_head_passes(right):
    assert checks.replace_head(right).passed


@pytest.mark.parametrize(("wrong", "message"), HEADS, ids=name)
def test_a_wrong_head_is_refused_with_its_mistake(wrong, message):
    with pytest.raises(checks.CheckFailed, match=re.escape(message)):
        checks.replace_head(wrong)


def loop(optimizer_class=torch.optim.AdamW, frozen_too=False, cut=0):
    """Return the fine-tuning loop in another style, with some of its parts changed."""

    def fine_tune(model, images, labels, *, steps, peak, batch_size=32, seed=0):
        if frozen_too:
            model.requires_grad_()
        optimizer = optimizer_class(filter(lambda parameter: parameter.requires_grad, model.parameters()), lr=peak)
        losses, generator = [], torch.Generator().manual_seed(seed)
        while len(losses) < steps:
            plan = dict(total_steps=steps, warmup_steps=int(0.1 * steps), peak=peak)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate_schedule(len(losses), **plan)
            batch = torch.randint(0, len(labels), [batch_size], generator=generator)
            losses += [train_step(model, optimizer, images[batch], labels[batch])]
        return losses[cut:]

    return fine_tune


LOOPS = [
    (loop(torch.optim.SGD), "the losses"),
    (loop(frozen_too=True), "is frozen, and has changed"),
    (loop(cut=1), "20 numbers; yours is 19 long"),
    (lambda model, images, labels, *, steps, peak, batch_size=32, seed=0: [0.0] * steps, "No parameter has changed"),
    (lambda model, images, labels, *, steps, peak, batch_size=32, seed=0: None, "returns None"),
    (lambda model, images, labels, steps: [], "must take the arguments"),
]


@pytest.mark.parametrize("right", [transfer.fine_tune, loop()], ids=["the course's", "another"])
def test_a_right_loop_passes(right):
    assert checks.fine_tune(right).passed


@pytest.mark.parametrize(("wrong", "message"), LOOPS, ids=[message for _, message in LOOPS])
def test_a_wrong_loop_is_refused_with_its_mistake(wrong, message):
    with pytest.raises(checks.CheckFailed, match=re.escape(message)):
        checks.fine_tune(wrong)


def replace_head(model, num_classes):
    """Return nothing yet."""
    ...


def test_a_stub_is_not_written_yet():
    verdict = checks.exercise(replace_head)
    assert verdict.state == "empty"
    assert verdict == "replace_head: not written yet."


# The package's functions


def test_few_labels_draws_each_class_equally_often_and_repeatably():
    from vit_course.data import load_dataset

    digits = load_dataset("digits")[0]
    few, again, other = (transfer.few_labels(digits, 7, seed=seed) for seed in (0, 0, 1))
    assert few.labels.bincount().tolist() == [7] * 10
    assert torch.equal(few.images, again.images)
    assert not torch.equal(few.images, other.images)
    with pytest.raises(ValueError, match="per_class"):
        transfer.few_labels(digits, 1000, seed=0)
