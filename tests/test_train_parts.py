"""Parts of the training command: Muon, smaller images first, and recipes; wrong settings are in ``test_train.py``."""

import copy

import pytest
import torch
from support import SMALL, assert_equal

from vit_course import VisionTransformer, datasets
from vit_course.augmentation import shrunk
from vit_course.muon import Muon, muon_groups
from vit_course.train.loop import MODEL_SETTINGS
from vit_course.train.recipes import PRESETS, preset
from vit_course.transfer import AnySize, resize_positions

POSITIONS = "embedding.pos_embedding"
SHAPES = {"digits": (1437, 1, 8, 8), "fashion_mnist": (60_000, 1, 28, 28), "cifar10": (50_000, 3, 32, 32)}


@pytest.mark.parametrize("parts", [3, 2, 1])
def test_muon_treats_a_stacked_weight_as_its_parts_and_each_as_torchs_own_optimizer_does(parts):
    stacked = torch.nn.Parameter(torch.randn(48, 16))
    split = [torch.nn.Parameter(part.clone()) for part in stacked.detach().chunk(parts)]
    settings = dict(lr=0.05, weight_decay=0.1)
    ours = Muon([dict(params=[stacked], parts=parts)], **settings)
    theirs = torch.optim.Muon(split, **settings, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        stacked.grad = torch.randn(48, 16)
        for part, gradient in zip(split, stacked.grad.chunk(parts), strict=True):
            part.grad = gradient.clone()
        before = stacked.detach().clone()
        ours.step(), theirs.step()
        moved = (stacked - before).detach().norm()
        assert (stacked - torch.cat(split)).detach().norm() < 0.04 * moved  # bfloat16 has three digits


def test_all_that_is_no_matrix_of_the_encoder_is_trained_by_adamw():
    model = VisionTransformer(**SMALL | dict(image_size=8))
    torch.nn.init.eye_(model.head.weight)
    twin = copy.deepcopy(model)
    for each, kind in ((model, Muon), (twin, torch.optim.AdamW)):
        each(torch.ones(3, 3, 8, 8)).square().sum().backward()
        kind(muon_groups(each, 0.05), lr=0.01).step()
    for (name, mine), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        matrix = name.startswith("encoder.layers") and name.endswith("weight") and ".ln_" not in name
        assert torch.equal(mine, other) != matrix, name


def test_smaller_images_pass_through_the_same_weights_with_interpolated_positions():
    whole, small = (VisionTransformer(**SMALL | dict(image_size=size, dropout=0.5)) for size in ((16, 24), (8, 12)))
    torch.nn.init.normal_(whole.head.weight)
    state = whole.state_dict()
    small.load_state_dict(state | {POSITIONS: resize_positions(state[POSITIONS], (4, 6), (2, 3))})
    images, models = torch.randn(3, 3, 8, 12), (small, AnySize(whole))
    for mode in (True, False):  # dropout follows the model's mode
        logits = []
        for each in models:
            torch.manual_seed(1)
            logits.append(each.train(mode)(images))
        assert_equal(logits[1], logits[0], atol=1e-5)
    sum(each.square().sum() for each in logits).backward()
    for (name, ours), theirs in zip(whole.named_parameters(), small.parameters(), strict=True):
        if name == POSITIONS:
            assert ours.grad.abs().min() > 0  # the interpolation uses each position
        else:
            assert_equal(ours.grad, theirs.grad, atol=1e-4)


def test_shrunk_images_are_means_where_the_sides_are_halved_in_smooth_areas():
    ramp = torch.arange(16.0).expand(1, 1, 16, 16)
    assert_equal(shrunk(ramp, 8)[..., 1:-1], (torch.arange(8.0) * 2 + 0.5).expand(1, 1, 8, 8)[..., 1:-1], atol=1e-5)


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
