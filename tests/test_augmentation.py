"""Augmentation: a whole batch shifted for lesson 06; every image shifted and mirrored on its own for the command."""

import pytest
import torch
import torch.nn.functional as F
from support import assert_equal, randn

from vit_course.augmentation import random_crop, random_flip, random_shift


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def windows(image: torch.Tensor, padding: int) -> list[torch.Tensor]:
    """Return every window of an image's size, cut out of the image with its edge repeated around it."""
    h, w = image.shape[1:]
    padded = F.pad(image, [padding] * 4, mode="replicate")
    corners = [(top, left) for top in range(2 * padding + 1) for left in range(2 * padding + 1)]
    return [padded[:, top : top + h, left : left + w] for top, left in corners]


def crop_by_one(images: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    return random_crop(images, 1, draws)


def test_shift_moves_the_whole_batch_by_up_to_one_pixel_and_repeats_the_edge():
    images = randn(2, 3, 5, 6)
    rows, columns = torch.arange(5), torch.arange(6)
    expected = [
        images[:, :, (rows - down).clamp(0, 4)][..., (columns - right).clamp(0, 5)]
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
    ]
    drawn, met = generator(), set()
    for _ in range(100):
        shifted = random_shift(images, drawn)
        (which,) = [number for number, candidate in enumerate(expected) if torch.equal(shifted, candidate)]
        met.add(which)
    assert len(met) == 9


def test_flip_mirrors_left_to_right_or_leaves_an_image_alone():
    images = randn(400, 2, 3, 5)
    flipped = random_flip(images, generator())
    mirrored = [torch.equal(new, old.flip(-1)) for new, old in zip(flipped, images, strict=True)]
    same = [torch.equal(new, old) for new, old in zip(flipped, images, strict=True)]
    assert all(one != other for one, other in zip(mirrored, same, strict=True))
    assert 160 < sum(mirrored) < 240  # 200 expected, standard deviation 10


@pytest.mark.parametrize("padding", [0, 1, 2, 5])
def test_crop_cuts_each_image_out_of_its_repeated_edge(padding):
    images = randn(6, 2, 3, 4)
    for new, old in zip(random_crop(images, padding, generator()), images, strict=True):
        assert any(torch.equal(new, window) for window in windows(old, padding))


def test_crop_shifts_every_way_equally_often():
    image = randn(1, 2, 3, 4)[0]
    counts = torch.zeros(9)
    for new in random_crop(image.expand(900, 2, 3, 4), 1, generator()):
        counts[[torch.equal(new, window) for window in windows(image, 1)].index(True)] += 1
    assert (counts - 100).abs().max() < 45  # standard deviation 9.4


@pytest.mark.parametrize("augment", [random_shift, random_flip, crop_by_one])
def test_all_draw_from_their_generator_alone_and_leave_the_images_as_they_are(augment):
    images = randn(64, 1, 4, 3)
    first = augment(images, generator(3))
    torch.rand(7)
    assert_equal(augment(images, generator(3)), first, atol=0)
    assert any(not torch.equal(augment(images, generator(seed)), first) for seed in (4, 5, 6))
    drawn = generator(3)
    assert len({tuple(augment(images, drawn).flatten().tolist()) for _ in range(9)}) > 1  # the next batch is another
    assert_equal(images, randn(64, 1, 4, 3), atol=0)


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
        for augment in (random_flip, random_shift):
            with pytest.raises(ValueError, match=message):
                augment(images, generator())
