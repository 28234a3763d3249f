"""Lesson 06: the learning rate, one step, the evaluation and the whole loop."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from support import assert_equal, parameters_of, randn, randomize_, small_model
from torch import nn
from torch.utils.data import TensorDataset

from vit_course import VisionTransformer
from vit_course.augmentation import random_shift
from vit_course.data import load_test_images
from vit_course.training import evaluate, fit, learning_rate_schedule, parameter_groups, train_step


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


# The learning rate


def rates(steps: int, **options) -> list[float]:
    return [learning_rate_schedule(step, **options) for step in range(steps)]


def test_schedule_in_numbers():
    # warm-up in quarters; then a cosine over six steps: (1 + cos(30°)) / 2, (1 + cos(60°)) / 2 ...
    expected = [0.25, 0.5, 0.75, 1, 0.9330127018922193, 0.75, 0.5, 0.25, 0.0669872981077807, 0, 0, 0]
    assert rates(12, total_steps=10, warmup_steps=4, peak=1.0) == pytest.approx(expected, abs=1e-15)
    raised = [0.2 + 0.8 * rate if step > 3 else rate for step, rate in enumerate(expected)]
    assert rates(12, total_steps=10, warmup_steps=4, peak=1.0, final=0.2) == pytest.approx(raised, abs=1e-15)


@pytest.mark.parametrize(
    ("total_steps", "warmup_steps", "expected"),
    [
        (5, 0, [1, 0.8535533905932737, 0.5, 0.14644660940672624, 0, 0]),
        (5, 1, [1, 0.8535533905932737, 0.5, 0.14644660940672624, 0, 0]),
        (5, 4, [0.25, 0.5, 0.75, 1, 0, 0]),
        (5, 5, [0.2, 0.4, 0.6, 0.8, 1, 0, 0]),
        (1, 1, [1, 0, 0]),
        (2, 0, [1, 0, 0]),
    ],
)
def test_schedule_at_its_edges(total_steps, warmup_steps, expected):
    ours = rates(len(expected), total_steps=total_steps, warmup_steps=warmup_steps, peak=1.0)
    assert ours == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("total_steps", "warmup_steps", "final"), [(20, 5, 0.0), (33, 2, 1e-4), (8, 7, 0.0)])
def test_schedule_equals_torchs_schedulers(total_steps, warmup_steps, final):
    def torchs(scheduler, steps):
        for _ in range(steps):
            yield optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()

    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=3e-3)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warmup_steps, total_iters=warmup_steps - 1)
    expected = list(torchs(warm_up, warmup_steps - 1))
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=3e-3)
    cosine_steps = total_steps - warmup_steps
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cosine_steps, eta_min=final)
    expected += list(torchs(cosine, cosine_steps + 1))
    ours = rates(total_steps, total_steps=total_steps, warmup_steps=warmup_steps, peak=3e-3, final=final)
    assert ours == pytest.approx(expected, rel=1e-12, abs=1e-18)


# Weight decay


def test_parameter_groups_decay_the_weights_of_layers_alone():
    model = small_model()
    decayed, rest = parameter_groups(model, 0.3)
    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
    names = {parameter: name for name, parameter in model.named_parameters()}
    layers = ["self_attention.qkv", "self_attention.out_proj", "mlp.linear_1", "mlp.linear_2"]
    expected = {f"encoder.layers.{i}.{layer}.weight" for i in range(2) for layer in layers}
    expected |= {"embedding.patch_embedding.projection.weight", "head.weight"}
    assert {names[parameter] for parameter in decayed["params"]} == expected
    assert {names[parameter] for parameter in rest["params"]} == set(names.values()) - expected


def test_parameter_groups_hold_every_parameter_once():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    decayed, rest = parameter_groups(model, 0.1)
    grouped = [id(parameter) for group in (decayed, rest) for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in model.parameters())
    assert {id(parameter) for parameter in decayed["params"]} == {id(model[0].weight), id(model[4].weight)}


# One step


@pytest.mark.parametrize("label_smoothing", [0.0, 0.2])
@pytest.mark.parametrize("max_grad_norm", [None, 0.1, 1e6])
def test_two_steps_equal_two_steps_by_hand(label_smoothing, max_grad_norm):
    model = small_model()
    by_hand = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for images, labels in (batch(seed=1), batch(seed=2)):
        loss = train_step(
            model, optimizer, images, labels, label_smoothing=label_smoothing, max_grad_norm=max_grad_norm
        )
        target = (1 - label_smoothing) * F.one_hot(labels, 5).double() + label_smoothing / 5
        expected = -(target * by_hand(images).log_softmax(dim=-1)).sum(dim=-1).mean()
        gradients = torch.autograd.grad(expected, list(by_hand.parameters()))
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        scale = min(1, max_grad_norm / (norm + 1e-6)) if max_grad_norm else 1
        if max_grad_norm == 0.1:
            assert scale < 0.9  # it does clip
        with torch.no_grad():
            for parameter, gradient in zip(by_hand.parameters(), gradients, strict=True):
                parameter -= 0.5 * scale * gradient
        assert type(loss) is float
        assert loss == pytest.approx(expected.item(), abs=1e-12)
        assert_equal(parameters_of(model), parameters_of(by_hand))


def test_gradients_from_before_are_cleared():
    spoilt, clean = linear_model(), linear_model()
    for parameter in spoilt.parameters():
        parameter.grad = torch.full_like(parameter, 1e3)
    for model in (spoilt, clean):
        train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), *batch())
    assert_equal(parameters_of(spoilt), parameters_of(clean), atol=0)


def test_a_step_trains_in_train_mode_with_gradients():
    spy = Spy().eval()
    train_step(spy, torch.optim.SGD(spy.parameters(), lr=0.1), *batch())
    assert (spy.modes, spy.gradients, spy.training) == ([True], [True], True)
    assert all(module.training for module in spy.modules())


# Evaluation


@pytest.mark.parametrize("batch_size", [1, 3, 4, 10, 256])
def test_evaluate_is_the_mean_over_images_whatever_the_batch_size(batch_size):
    model = small_model()
    images, labels = batch(10)
    logits = model(images)
    # three labels as the model says, so that the accuracy is neither 0 nor 1; the others moved on by one
    predicted = logits.argmax(dim=-1)
    labels = torch.where(torch.arange(10) < 3, predicted, (predicted + 1) % 5)
    loss, accuracy = evaluate(model, TensorDataset(images, labels), batch_size=batch_size)
    assert loss == pytest.approx(F.cross_entropy(logits, labels).item(), abs=1e-12)
    assert accuracy == pytest.approx(0.3, abs=1e-15)
    assert type(loss) is type(accuracy) is float


def test_evaluate_runs_in_eval_mode_without_gradients_and_sees_each_image_once():
    spy = Spy().train()
    images, labels = batch(10)
    evaluate(spy, TensorDataset(images, labels), batch_size=4)
    assert spy.modes == spy.gradients == [False] * 3
    assert_equal(torch.cat(spy.seen), images, atol=0)
    assert all(parameter.grad is None for parameter in spy.parameters())
    assert torch.is_grad_enabled()


def test_evaluate_is_without_dropout_and_without_chance():
    model = small_model(dropout=0.5, attention_dropout=0.5).train()
    dataset = TensorDataset(*batch())
    assert evaluate(model, dataset) == evaluate(small_model(), dataset)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_evaluate_gives_every_module_its_mode_back(training, fails):
    model = small_model().train(training)
    model.embedding.train(not training)  # a part that is frozen, or thawed
    modes = [module.training for module in model.modules()]
    assert len(set(modes)) == 2
    images, labels = batch()
    if fails:
        with pytest.raises(ValueError, match="labels"):
            evaluate(model, TensorDataset(images, labels + 1))
    else:
        evaluate(model, TensorDataset(images, labels))
    assert [module.training for module in model.modules()] == modes


# The whole loop


def train_set(count: int = 10) -> TensorDataset:
    return TensorDataset(*batch(count))


def valid_set(count: int = 7, *, seed: int = 2) -> TensorDataset:
    return TensorDataset(*batch(count, seed=seed))


def run(model: nn.Module, valid: TensorDataset | None = None, **options) -> dict[str, list[float]]:
    """Fit with small numbers: 10 images in batches of 4, 4 and 2, three epochs."""
    options = dict(epochs=3, batch_size=4, peak_lr=1e-2, progress=False) | options
    return fit(model, train_set(), valid or valid_set(), **options)


def test_fit_equals_a_loop_by_hand():
    # whole-set batches, so that the order of the images does not matter
    model = small_model()
    by_hand = copy.deepcopy(model)
    images, labels = train_set().tensors
    optimizer = torch.optim.AdamW(
        [
            {"params": [each for each in by_hand.parameters() if each.ndim == 2], "weight_decay": 0.2},
            {"params": [each for each in by_hand.parameters() if each.ndim != 2], "weight_decay": 0.0},
        ]
    )
    expected = dict(learning_rate=[0.005, 0.01, 0.005, 0.0], train_loss=[], valid_loss=[], valid_accuracy=[])
    for rate in expected["learning_rate"]:
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = F.cross_entropy(by_hand(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        valid_images, valid_labels = valid_set().tensors
        logits = by_hand(valid_images)
        expected["train_loss"].append(loss.item())
        expected["valid_loss"].append(F.cross_entropy(logits, valid_labels).item())
        expected["valid_accuracy"].append((logits.argmax(dim=-1) == valid_labels).double().mean().item())
    history = run(model, epochs=4, batch_size=10, warmup_epochs=2, weight_decay=0.2)
    assert history.keys() == expected.keys()
    for name, values in expected.items():
        assert history[name] == pytest.approx(values, abs=1e-9), name
    # a key bias has no gradient but rounding, which AdamW blows up; it changes no output
    difference = {
        name: (value - parameters_of(by_hand)[name]).abs().max()
        for name, value in parameters_of(model).items()
        if not name.endswith("qkv.bias")
    }
    assert max(difference.values()) < 1e-9


def test_every_epoch_takes_every_image_once_in_a_new_order():
    spy = Spy()
    run(spy)
    trained = [images for images, training in zip(spy.seen, spy.modes, strict=True) if training]
    assert [len(images) for images in trained] == [4, 4, 2] * 3
    images = train_set().tensors[0]
    orders = []
    for epoch in range(3):
        taken = torch.cat(trained[3 * epoch : 3 * epoch + 3])
        orders.append([images.eq(each).flatten(1).all(dim=1).nonzero().item() for each in taken])
    assert [sorted(order) for order in orders] == [list(range(10))] * 3
    assert len({tuple(order) for order in [*orders, range(10)]}) == 4


def test_the_training_loss_is_the_mean_over_images_each_with_its_own_label():
    # at a learning rate of zero it is that of the first weights, although the last batch is smaller
    model = linear_model()
    before = parameters_of(model)
    history = run(model, peak_lr=0.0)
    loss, _ = evaluate(model, train_set())
    assert history["train_loss"] == pytest.approx([loss] * 3, abs=1e-12)
    assert_equal(parameters_of(model), before, atol=0)


def test_same_seed_same_weights_bit_for_bit():
    def weights(seed):
        torch.manual_seed(0)  # dropout's
        model = small_model(dropout=0.2)
        history = run(model, seed=seed, augment=random_shift)
        return parameters_of(model), history

    first, again, other = weights(3), weights(3), weights(4)
    assert_equal(again[0], first[0], atol=0)
    assert again[1] == first[1]
    assert other[1]["train_loss"] != first[1]["train_loss"]


def test_the_validation_set_does_not_touch_the_weights():
    weights, losses = [], []
    for valid in (valid_set(), valid_set(3, seed=5)):
        torch.manual_seed(0)
        model = small_model(dropout=0.2, attention_dropout=0.2)
        losses.append(run(model, valid)["valid_loss"])
        weights.append(parameters_of(model))
    assert losses[0] != losses[1]
    assert_equal(weights[0], weights[1], atol=0)


def test_augment_is_given_every_training_batch_and_its_result_is_used():
    calls = []

    def augment(images, generator):
        calls.append((len(images), generator))
        return torch.full_like(images, float(len(calls)))

    spy = Spy()
    run(spy, augment=augment)
    assert [count for count, _ in calls] == [4, 4, 2] * 3
    assert isinstance(calls[0][1], torch.Generator)
    assert len({id(generator) for _, generator in calls}) == 1
    trained = [images for images, training in zip(spy.seen, spy.modes, strict=True) if training]
    assert [images.unique().tolist() for images in trained] == [[float(call)] for call in range(1, 10)]
    validated = [images for images, training in zip(spy.seen, spy.modes, strict=True) if not training]
    assert_equal(validated, [valid_set().tensors[0]] * 3, atol=0)


def test_a_loss_that_is_not_finite_ends_the_training():
    model = linear_model()
    nn.init.constant_(model[1].bias, math.nan)
    with pytest.raises(
        FloatingPointError, match=r"the loss is nan at step 0: lower peak_lr, or look for nan in images"
    ):
        run(model)


def test_progress_is_shown_or_not(capsys):
    run(linear_model())
    assert capsys.readouterr() == ("", "")
    run(linear_model(), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "3/3" in err
    assert "valid accuracy" in err


def test_a_small_model_learns_the_test_images_by_heart():
    model = VisionTransformer(
        image_size=96, patch_size=16, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=6
    )
    letters = TensorDataset(2 * load_test_images() - 1, torch.arange(6))
    history = fit(model, letters, letters, epochs=40, batch_size=3, peak_lr=1e-2, progress=False)
    assert history["train_loss"][0] == pytest.approx(math.log(6), abs=0.3)
    assert history["valid_loss"][-1] < 0.3
    assert history["valid_accuracy"][-1] == 1.0
