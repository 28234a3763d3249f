"""Lesson 06: parameter groups, the evaluation and the whole loop; bad input is in ``test_bad_input.py``.

The schedule, a step and what an evaluation returns are compared in ``test_checks.py``.
"""

import copy
import math

import pytest
import torch
from support import assert_equal, parameters_of, randn, randomize_, small_model
from torch import nn
from torch.utils.data import TensorDataset

from vit_course.training import evaluate, fit, parameter_groups, train_step

TRAIN_SET, VALID_SET = (TensorDataset(randn(count, 3, 8, 12, seed=count), torch.arange(count) % 5) for count in (10, 7))


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


def test_evaluate_gives_every_module_its_mode_back_when_it_fails():
    model = small_model().train()
    model.embedding.eval()  # a part that is frozen
    modes, (images, labels) = [module.training for module in model.modules()], TRAIN_SET.tensors
    with pytest.raises(ValueError, match="labels"):
        evaluate(model, TensorDataset(images, labels + 1))
    assert [module.training for module in model.modules()] == modes


def run(model: nn.Module, **options) -> dict[str, list[float]]:
    """Fit with small numbers: 10 images in batches of 4, 4 and 2, three epochs."""
    options = dict(epochs=3, batch_size=4, peak_lr=1e-2) | options
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


def test_every_epoch_augments_every_image_once_in_a_new_order_and_trains_on_the_result():
    given, generators, seen = [], set(), {True: [], False: []}

    def augment(images, generator):
        given.append(images)
        generators.add(generator)
        return torch.full_like(images, float(len(given)))

    model = randomize_(nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 12, 5)), std=0.05)
    model.register_forward_pre_hook(lambda module, inputs: seen[module.training].append(inputs[0]))
    run(model, augment=augment)
    assert [len(images) for images in given] == [4, 4, 2] * 3
    taken = [TRAIN_SET.tensors[0].eq(each).flatten(1).all(dim=1).nonzero().item() for each in torch.cat(given)]
    orders = [tuple(taken[start : start + 10]) for start in (0, 10, 20)]
    assert [sorted(order) for order in orders] == [list(range(10))] * 3
    assert len({*orders, tuple(range(10))}) == 4
    assert len(generators) == 1
    assert [images.unique().tolist() for images in seen[True]] == [[float(call)] for call in range(1, 10)]
    assert_equal(seen[False], [VALID_SET.tensors[0]] * 3, atol=0)


def test_a_loss_that_is_not_finite_ends_the_training():
    model = small_model()
    nn.init.constant_(model.head.bias, math.nan)
    with pytest.raises(FloatingPointError, match="the loss is nan at step 0: lower peak_lr, or look for nan in images"):
        run(model)
