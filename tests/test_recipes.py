"""The training command's recipes: presets that fit their data, and settings that are checked."""

import dataclasses
import math

import pytest
import torch

from vit_course import VisionTransformer, datasets
from vit_course.train.loop import MODEL_SETTINGS
from vit_course.train.recipes import PRESETS, preset

SHAPES = {"digits": (1, 8, 8), "fashion_mnist": (1, 28, 28), "cifar10": (3, 32, 32)}
COUNTS = {"digits": 1437, "fashion_mnist": 60_000, "cifar10": 50_000}
NAMES = [(dataset, name) for dataset in PRESETS for name in PRESETS[dataset]]


def test_every_data_set_has_a_quick_preset():
    assert set(PRESETS) == set(datasets.READERS) == set(SHAPES)
    assert all("quick" in presets for presets in PRESETS.values())


@pytest.mark.parametrize(("dataset", "name"), NAMES)
def test_every_preset_fits_its_data(dataset, name):
    recipe, (channels, *image_size) = preset(dataset, name), SHAPES[dataset]
    sizes = {setting: getattr(recipe, setting) for setting in MODEL_SETTINGS}
    model = VisionTransformer(**sizes, in_channels=channels, image_size=tuple(image_size), num_classes=10)
    model.head.weight.data.normal_()  # fresh, it is zeros
    logits = model(torch.randn(2, *SHAPES[dataset]))
    assert (logits[0] - logits[1]).abs().max() > 1e-3
    assert recipe.batch_size < COUNTS[dataset] * (1 - recipe.valid_fraction)
    assert COUNTS[dataset] * recipe.valid_fraction >= 200  # fewer would say little


def test_changes_replace_settings_and_leave_the_preset_alone():
    changed = preset("fashion_mnist", "quick", epochs=3.0, flip=False)
    assert (changed.epochs, changed.flip) == (3, False)
    old = preset("fashion_mnist")
    assert old == PRESETS["fashion_mnist"]["quick"] == dataclasses.replace(changed, epochs=old.epochs, flip=old.flip)
    assert changed != old


BAD = {
    "a data set that is none": (("mnist", "quick"), {}, "dataset must be one of 'digits', .*; got 'mnist'"),
    "a preset of another": (("digits", "long"), {}, "preset must be one of 'quick'; got 'long'"),
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
def test_a_bad_setting_is_named(case):
    names, changes, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        preset(*names, **changes)
