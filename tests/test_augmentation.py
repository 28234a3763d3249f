"""Augmentation: a batch shifted for lesson 06; each image shifted and mirrored on its own for the command."""

import pytest
import torch
from support import assert_equal, randn

from vit_course.augmentation import random_crop, random_flip, random_shift


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shifted(images: torch.Tensor, most: int) -> list[torch.Tensor]:
    """Return the images shifted in every way by up to ``most`` pixels, their edges repeated."""
    rows, columns = (torch.arange(size) for size in images.shape[-2:])
    ways = [(down, right) for down in range(-most, most + 1) for right in range(-most, most + 1)]
    return [
        images[..., (rows - down).clamp(0, len(rows) - 1), :][..., (columns - right).clamp(0, len(columns) - 1)]
        for down, right in ways
    ]


def test_shift_moves_the_whole_batch_by_up_to_one_pixel_and_repeats_the_edge():
    images, drawn, met = randn(2, 3, 5, 6), generator(), set()
    for _ in range(100):
        new = random_shift(images, drawn)
        met.add([torch.equal(new, way) for way in shifted(images, 1)].index(True))
    assert len(met) == 9


@pytest.mark.parametrize("padding", [0, 1, 2, 5])
def test_crop_shifts_each_image_every_way_equally_often(padding):
    image, count = randn(2, 3, 4), 100 * (2 * padding + 1) ** 2 if padding < 2 else 50
    counts = torch.zeros((2 * padding + 1) ** 2)
    for new in random_crop(image.expand(count, 2, 3, 4), padding, generator()):
        counts[[torch.equal(new, way) for way in shifted(image, padding)].index(True)] += 1
    assert padding > 1 or (counts - 100).abs().max() < 45  # standard deviation 9.4


def test_flip_mirrors_half_of_the_images_left_to_right():
    images = randn(400, 2, 3, 5)
    flipped = random_flip(images, generator())
    mirrored = (flipped == images.flip(-1)).flatten(1).all(dim=1)
    assert_equal(flipped[~mirrored], images[~mirrored], atol=0)
    assert 160 < mirrored.sum() < 240  # 200 expected, standard deviation 10


@pytest.mark.parametrize("augment", [random_shift, random_flip, lambda images, draw: random_crop(images, 1, draw)])
def test_all_draw_from_their_generator_alone_and_leave_the_images_as_they_are(augment):
    images = randn(64, 1, 4, 3)
    first = augment(images, generator(3))
    torch.rand(7)
    assert_equal(augment(images, generator(3)), first, atol=0)
    assert any(not torch.equal(augment(images, generator(seed)), first) for seed in (4, 5, 6))
    drawn = generator(3)
    assert len({tuple(augment(images, drawn).flatten().tolist()) for _ in range(9)}) > 1  # the next batch is another
    assert_equal(images, randn(64, 1, 4, 3), atol=0)
