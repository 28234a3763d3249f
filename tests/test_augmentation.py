"""Augmentation of the training command: every image flipped and shifted on its own."""

import pytest
import torch
import torch.nn.functional as F
from support import assert_equal, randn

from vit_course.augmentation import random_crop, random_flip


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shifts(image: torch.Tensor, padding: int) -> list[torch.Tensor]:
    """Return every window of an image's size, cut out of the image with its edge repeated around it."""
    h, w = image.shape[1:]
    padded = F.pad(image, [padding] * 4, mode="replicate")
    places = [(top, left) for top in range(2 * padding + 1) for left in range(2 * padding + 1)]
    return [padded[:, top : top + h, left : left + w] for top, left in places]


# Mirrored images


def test_flip_mirrors_left_to_right_or_leaves_an_image_alone():
    images = randn(400, 2, 3, 5)
    before = images.clone()
    flipped = random_flip(images, generator())
    mirrored = [torch.equal(new, old.flip(-1)) for new, old in zip(flipped, images, strict=True)]
    same = [torch.equal(new, old) for new, old in zip(flipped, images, strict=True)]
    assert all(one != other for one, other in zip(mirrored, same, strict=True))
    assert 160 < sum(mirrored) < 240  # 200 expected, standard deviation 10
    assert_equal(images, before, atol=0)


def test_flip_draws_for_each_image_from_its_generator_alone():
    images = randn(64, 1, 2, 3)
    first = random_flip(images, generator(3))
    torch.rand(7)
    assert_equal(random_flip(images, generator(3)), first, atol=0)
    assert not torch.equal(random_flip(images, generator(4)), first)
    drawn = generator(3)
    assert not torch.equal(random_flip(images, drawn), random_flip(images, drawn))  # and the next batch is another


# Shifted images


@pytest.mark.parametrize("padding", [1, 2, 5])
def test_crop_cuts_each_image_out_of_its_repeated_edge(padding):
    images = randn(6, 2, 3, 4)
    before = images.clone()
    for new, old in zip(random_crop(images, padding, generator()), images, strict=True):
        assert any(torch.equal(new, window) for window in shifts(old, padding))
    assert_equal(images, before, atol=0)


def test_crop_shifts_every_way_equally_often():
    image = randn(1, 2, 3, 4)[0]
    windows = shifts(image, 1)
    counts = torch.zeros(9)
    for new in random_crop(image.expand(900, 2, 3, 4), 1, generator()):
        counts[[torch.equal(new, window) for window in windows].index(True)] += 1
    assert (counts - 100).abs().max() < 45  # standard deviation 9.4


def test_crop_without_padding_changes_nothing():
    images = randn(3, 2, 3, 4)
    assert_equal(random_crop(images, 0, generator()), images, atol=0)


def test_crop_draws_for_each_image_from_its_generator_alone():
    images = randn(64, 1, 4, 3)
    first = random_crop(images, 1, generator(3))
    torch.rand(7)
    assert_equal(random_crop(images, 1, generator(3)), first, atol=0)
    assert not torch.equal(random_crop(images, 1, generator(4)), first)
    drawn = generator(3)
    assert not torch.equal(random_crop(images, 1, drawn), random_crop(images, 1, drawn))


BAD = {
    "images without a batch": (randn(1, 3, 3), 1, r"images must have 4 axes, \(b, c, h, w\); got 3"),
    "whole-number images": (torch.zeros(1, 1, 3, 3, dtype=torch.uint8), 1, "images must be floating point; got"),
    "a negative padding": (randn(1, 1, 3, 3), -1, "padding must be a whole number of at least 0; got -1"),
    "half a pixel": (randn(1, 1, 3, 3), 0.5, "padding must be a whole number of at least 0; got 0.5"),
}


@pytest.mark.usefixtures("as_readers_run_it")
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(case):
    images, padding, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        random_crop(images, padding, generator())
    if "images" in case:
        with pytest.raises(ValueError, match=message):
            random_flip(images, generator())
