"""The training command's recipes: presets that fit their data; wrong settings are in ``test_train.py``."""

import pytest
import torch

from vit_course import VisionTransformer, datasets
from vit_course.train.loop import MODEL_SETTINGS
from vit_course.train.recipes import PRESETS, preset

SHAPES = {"digits": (1437, 1, 8, 8), "fashion_mnist": (60_000, 1, 28, 28), "cifar10": (50_000, 3, 32, 32)}


def test_every_data_set_has_a_quick_preset_and_changes_leave_it_alone():
    assert set(PRESETS) == set(datasets.READERS) == set(SHAPES)
    assert all("quick" in presets for presets in PRESETS.values())
    changed, old = preset("fashion_mnist", epochs=3.0, flip=True), preset("fashion_mnist")
    assert (changed.epochs, changed.flip, old.flip, changed.patch_size) == (3, True, False, old.patch_size)


@pytest.mark.parametrize(("dataset", "name"), [(dataset, name) for dataset in PRESETS for name in PRESETS[dataset]])
def test_every_preset_fits_its_data(dataset, name):
    recipe, (count, channels, *image_size) = preset(dataset, name), SHAPES[dataset]
    sizes = {setting: getattr(recipe, setting) for setting in MODEL_SETTINGS}
    model = VisionTransformer(**sizes, in_channels=channels, image_size=tuple(image_size), num_classes=10)
    assert model(torch.randn(2, channels, *image_size)).shape == (2, 10)
    assert recipe.batch_size < count * (1 - recipe.valid_fraction)
    assert count * recipe.valid_fraction >= 200  # fewer would say little
