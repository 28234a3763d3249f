"""Lesson 06: the learning rate, one step, the evaluation and the whole loop; bad input is in ``test_bad_input.py``."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from support import assert_equal, parameters_of, randn, randomize_, small_model
from torch import nn
from torch.utils.data import TensorDataset

from vit_course.training import (
    evaluate,
    fit,
    learning_rate_schedule,
    parameter_groups,
    regularized_train_step,
    train_step,
)


def batch(count: int = 6, *, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images for the small model, and labels."""
    return randn(count, 3, 8, 12, seed=seed), torch.arange(count) % 5


def linear_model() -> nn.Sequential:
    """Return the smallest model there is."""
    return randomize_(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 12, 5)), std=0.05)


class Spy(nn.Module):
    """A model without dropout that keeps what it saw: images, its mode, and whether gradients were on."""

    def __init__(self):
        super().__init__()
        self.model = linear_model()
        self.seen, self.modes, self.gradients = [], [], []

    def forward(self, images):
        self.seen.append(images.detach().clone())
        self.modes.append(self.training)
        self.gradients.append(torch.is_grad_enabled())
        return self.model(images)

    def saw(self, training: bool) -> list[torch.Tensor]:
        """Return the batches that were seen in this mode."""
        return [images for images, mode in zip(self.seen, self.modes, strict=True) if mode is training]


# The learning rate


@pytest.mark.parametrize(
    ("total_steps", "warmup_steps", "final", "expected"),
    [
        (10, 4, 0.0, [0.25, 0.5, 0.75, 1, 0.9330127018922193, 0.75, 0.5, 0.25, 0.0669872981077807, 0, 0, 0]),
        (5, 2, 0.2, [0.5, 1, 0.8, 0.4, 0.2, 0.2]),
        (5, 0, 0.0, [1, 0.8535533905932737, 0.5, 0.14644660940672624, 0, 0]),
        (5, 5, 0.0, [0.2, 0.4, 0.6, 0.8, 1, 0, 0]),
        (1, 1, 0.0, [1, 0, 0]),
    ],
)
def test_schedule_in_numbers(total_steps, warmup_steps, final, expected):
    options = dict(total_steps=total_steps, warmup_steps=warmup_steps, peak=1.0, final=final)
    rates = [learning_rate_schedule(step, **options) for step in range(len(expected))]
    assert rates == pytest.approx(expected, abs=1e-15)


# Weight decay


def test_parameter_groups_decay_the_weights_of_layers_alone_and_hold_every_parameter_once():
    others = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 2)]
    model = nn.Sequential(small_model(), *others)
    decayed, rest = parameter_groups(model, 0.3)
    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    names = {parameter: name for name, parameter in model.named_parameters()}
    layers = ["self_attention.qkv", "self_attention.out_proj", "mlp.linear_1", "mlp.linear_2"]
    expected = [f"0.encoder.layers.{i}.{layer}.weight" for i in range(2) for layer in layers]
    expected += ["0.embedding.patch_embedding.projection.weight", "0.head.weight", "1.weight", "5.weight"]
    assert sorted(names[parameter] for parameter in decayed["params"]) == sorted(expected)
    assert sorted(names[parameter] for parameter in rest["params"]) == sorted(set(names.values()) - set(expected))


# One step


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
@pytest.mark.parametrize("max_grad_norm", [None, 0.1])
def test_two_steps_equal_two_steps_by_hand(label_smoothing, max_grad_norm):
    model = small_model()
    by_hand = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    options = dict(label_smoothing=label_smoothing, max_grad_norm=max_grad_norm)
    for images, labels in (batch(seed=1), batch(seed=2)):
        loss = regularized_train_step(model, optimizer, images, labels, **options)
        target = (1 - label_smoothing) * F.one_hot(labels, 5).double() + label_smoothing / 5
        expected = -(target * by_hand(images).log_softmax(dim=-1)).sum(dim=-1).mean()
        gradients = torch.autograd.grad(expected, list(by_hand.parameters()))
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        scale = min(1, max_grad_norm / (norm + 1e-6)) if max_grad_norm else 1
        assert (scale < 0.9) == (max_grad_norm == 0.1)  # it does clip
        with torch.no_grad():
            for parameter, gradient in zip(by_hand.parameters(), gradients, strict=True):
                parameter -= 0.5 * scale * gradient
        assert type(loss) is float
        assert loss == pytest.approx(expected.item(), abs=1e-12)
        assert_equal(parameters_of(model), parameters_of(by_hand))


def test_the_plain_step_is_the_other_one_without_options():
    plain, other = small_model(), small_model()
    losses = [
        step(model, torch.optim.SGD(model.parameters(), lr=0.5), *batch())
        for step, model in ((train_step, plain), (regularized_train_step, other))
    ]
    assert type(losses[0]) is float
    assert losses[0] == losses[1]
    assert_equal(parameters_of(plain), parameters_of(other), atol=0)


@pytest.mark.parametrize("step", [train_step, regularized_train_step])
def test_a_step_trains_in_train_mode_with_gradients(step):
    spy = Spy().eval()
    step(spy, torch.optim.SGD(spy.parameters(), lr=0.1), *batch())
    assert (spy.modes, spy.gradients) == ([True], [True])
    assert all(module.training for module in spy.modules())


# Evaluation


@pytest.mark.parametrize("batch_size", [4, 256])
def test_evaluate_is_the_mean_over_images_whatever_the_batch_size(batch_size):
    model = small_model(dropout=0.5, attention_dropout=0.5).eval()
    images, labels = batch(10)
    logits = model(images)
    # three labels as the model says, so that the accuracy is neither 0 nor 1; the others moved on by one
    predicted = logits.argmax(dim=-1)
    labels = torch.where(torch.arange(10) < 3, predicted, (predicted + 1) % 5)
    loss, accuracy = evaluate(model.train(), TensorDataset(images, labels), batch_size=batch_size)
    assert loss == pytest.approx(F.cross_entropy(logits, labels).item(), abs=1e-12)
    assert accuracy == pytest.approx(0.3, abs=1e-15)
    assert type(loss) is type(accuracy) is float


def test_evaluate_keeps_no_gradients_and_sees_each_image_once():
    spy, (images, labels) = Spy().train(), batch(10)
    evaluate(spy, TensorDataset(images, labels), batch_size=4)
    assert spy.modes == spy.gradients == [False] * 3
    assert_equal(torch.cat(spy.seen), images, atol=0)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("fails", [False, True])
def test_evaluate_gives_every_module_its_mode_back(fails):
    model = small_model().train()
    model.embedding.eval()  # a part that is frozen
    modes, (images, labels) = [module.training for module in model.modules()], batch()
    if fails:
        with pytest.raises(ValueError, match="labels"):
            evaluate(model, TensorDataset(images, labels + 1))
    else:
        evaluate(model, TensorDataset(images, labels))
    assert [module.training for module in model.modules()] == modes


# The whole loop


TRAIN_SET, VALID_SET = TensorDataset(*batch(10)), TensorDataset(*batch(7, seed=2))


def run(model: nn.Module, **options) -> dict[str, list[float]]:
    """Fit with small numbers: 10 images in batches of 4, 4 and 2, three epochs."""
    options = dict(epochs=3, batch_size=4, peak_lr=1e-2, progress=False) | options
    return fit(model, TRAIN_SET, VALID_SET, **options)


def test_fit_equals_a_loop_by_hand():
    # whole-set batches, so that the order of the images does not matter
    model = small_model()
    by_hand = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(parameter_groups(by_hand, 0.2))
    expected = dict(learning_rate=[0.005, 0.01, 0.005, 0.0], train_loss=[], valid_loss=[], valid_accuracy=[])
    for rate in expected["learning_rate"]:
        for group in optimizer.param_groups:
            group["lr"] = rate
        expected["train_loss"].append(train_step(by_hand, optimizer, *TRAIN_SET.tensors))
        loss, accuracy = evaluate(by_hand, VALID_SET)
        expected["valid_loss"].append(loss)
        expected["valid_accuracy"].append(accuracy)
    history = run(model, epochs=4, batch_size=10, warmup_epochs=2, weight_decay=0.2)
    assert history.keys() == expected.keys()
    for name, values in expected.items():
        assert history[name] == pytest.approx(values, abs=1e-9), name
    for name, value in parameters_of(model).items():
        if not name.endswith("qkv.bias"):  # a key bias has no gradient but rounding, which AdamW blows up
            assert_equal(value, parameters_of(by_hand)[name], atol=1e-9)


def test_every_epoch_takes_every_image_once_in_a_new_order():
    spy = Spy()
    run(spy)
    trained = spy.saw(training=True)
    assert [len(images) for images in trained] == [4, 4, 2] * 3
    orders = []
    for epoch in range(3):
        taken = torch.cat(trained[3 * epoch : 3 * epoch + 3])
        orders.append([TRAIN_SET.tensors[0].eq(each).flatten(1).all(dim=1).nonzero().item() for each in taken])
    assert [sorted(order) for order in orders] == [list(range(10))] * 3
    assert len({tuple(order) for order in [*orders, range(10)]}) == 4


def test_augment_is_given_every_training_batch_and_its_result_is_used():
    calls = []

    def augment(images, generator):
        calls.append((len(images), generator))
        return torch.full_like(images, float(len(calls)))

    spy = Spy()
    run(spy, augment=augment)
    assert [count for count, _ in calls] == [4, 4, 2] * 3
    assert len({generator for _, generator in calls}) == 1
    assert [images.unique().tolist() for images in spy.saw(training=True)] == [[float(call)] for call in range(1, 10)]
    assert_equal(spy.saw(training=False), [VALID_SET.tensors[0]] * 3, atol=0)


def test_a_loss_that_is_not_finite_ends_the_training():
    model = linear_model()
    nn.init.constant_(model[1].bias, math.nan)
    message = "the loss is nan at step 0: lower peak_lr, or look for nan in images"
    with pytest.raises(FloatingPointError, match=message):
        run(model)
