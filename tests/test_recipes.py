"""The training command's recipes: presets that fit their data, and figures that are checked."""

import dataclasses
import json
import math

import pytest
import torch
from support import assert_equal

from vit_course import datasets
from vit_course.recipes import PRESETS, Recipe, preset

SHAPES = {"digits": (1, 8, 8), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
COUNTS = {"digits": 1437, "fashion_mnist": 60_000, "cifar10": 50_000}
NAMES = [(dataset, name) for dataset in PRESETS for name in PRESETS[dataset]]


def test_every_data_set_has_a_quick_preset():
    assert set(PRESETS) == set(datasets.READERS) == set(SHAPES)
    assert all("quick" in presets for presets in PRESETS.values())


@pytest.mark.parametrize(("dataset", "name"), NAMES)
def test_every_preset_fits_its_data(dataset, name):
    recipe = preset(dataset, name)
    shape = SHAPES[dataset]
    sizes = recipe.model_sizes(torch.zeros(2, *shape), 10)
    model = recipe.build(sizes)
    model.head.weight.data.normal_()  # fresh, it is zeros
    logits = model(torch.randn(2, *shape))
    assert logits.shape == (2, 10)
    assert (logits[0] - logits[1]).abs().max() > 1e-3
    assert recipe.batch_size < COUNTS[dataset] * (1 - recipe.valid_fraction)
    assert COUNTS[dataset] * recipe.valid_fraction >= 200  # fewer would say little


def test_the_model_has_the_recipes_figures():
    figures = dict(patch_size=2, num_layers=3, num_heads=2, hidden_dim=12, mlp_dim=20, pool="mean", dropout=0.25)
    sizes = preset("digits", **figures).model_sizes(torch.zeros(5, 3, 8, 6), 7)
    assert sizes == dict(**figures, in_channels=3, image_size=(8, 6), num_classes=7)
    model = preset("digits", **figures).build(sizes)
    assert model.embedding.pos_embedding.shape == (1, 13, 12)
    assert len(model.encoder.layers) == 3
    assert model.encoder.layers[0].mlp.linear_1.weight.shape == (20, 12)
    assert model.pool == "mean"
    assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}
    assert model.head.weight.shape == (7, 12)


def test_without_positions_they_are_zero_and_not_trained():
    recipe = preset("digits", positions=False)
    sizes = recipe.model_sizes(torch.zeros(1, 1, 8, 8), 10)
    model = recipe.build(sizes)
    assert_equal(model.embedding.pos_embedding.detach(), torch.zeros(1, 5, recipe.hidden_dim), atol=0)
    assert not model.embedding.pos_embedding.requires_grad
    others = [p for name, p in model.named_parameters() if name != "embedding.pos_embedding"]
    assert all(parameter.requires_grad for parameter in others)
    with_positions = preset("digits").build(sizes)
    assert with_positions.embedding.pos_embedding.requires_grad
    assert with_positions.embedding.pos_embedding.abs().max() > 0


def test_changes_replace_figures_and_leave_the_preset_alone():
    changed = preset("fashion_mnist", "quick", epochs=3.0, flip=False)
    assert (changed.epochs, changed.flip) == (3, False)
    old = preset("fashion_mnist")
    assert old == PRESETS["fashion_mnist"]["quick"] == dataclasses.replace(changed, epochs=old.epochs, flip=old.flip)
    assert changed != old


@pytest.mark.parametrize(("dataset", "name"), NAMES)
def test_a_recipe_comes_back_from_json_as_it_was(dataset, name):
    recipe = preset(dataset, name)
    assert Recipe(**json.loads(json.dumps(dataclasses.asdict(recipe)))) == recipe


BAD = {
    "a data set that is none": (("mnist", "quick"), {}, "dataset must be one of 'digits', .*; got 'mnist'"),
    "a preset of another": (("digits", "long"), {}, "preset must be one of 'quick'; got 'long'"),
    "an unknown figure": (("digits", "quick"), dict(lr=1), "a recipe's figure must be one of .*'peak_lr'.*; got 'lr'"),
}
for _value in (0, -1, 1.5, True):
    BAD[f"batch_size {_value}"] = ("digits", "quick"), dict(batch_size=_value), "^batch_size must be a whole number of"
for _name in ("epochs", "peak_lr", "max_grad_norm"):
    for _value in (0, False, -1, math.nan, math.inf, "1"):
        BAD[f"{_name} {_value}"] = ("digits", "quick"), {_name: _value}, f"^{_name} must be a finite number above 0"
for _value in (-1, math.nan, math.inf, "1"):
    BAD[f"weight_decay {_value}"] = ("digits", "quick"), dict(weight_decay=_value), "^weight_decay must be a finite"
for _name in ("warmup", "dropout", "label_smoothing", "valid_fraction"):
    for _value in (-0.1, 1, math.nan):
        BAD[f"{_name} {_value}"] = ("digits", "quick"), {_name: _value}, f"^{_name} must be at least 0 and less than 1"
for _value in (-1, 0.5):
    BAD[f"crop {_value}"] = ("digits", "quick"), dict(crop=_value), "^crop must be a whole number of at least 0"


@pytest.mark.usefixtures("as_readers_run_it")
@pytest.mark.parametrize("case", BAD)
def test_a_bad_figure_is_named(case):
    names, changes, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        preset(*names, **changes)
