"""The six test images, the digits, labeled images and augmentation; bad files: test_bad_input.py."""

import numpy as np
import pytest
import torch
from support import assert_equal, randn

from tools.draw_test_images import make_test_images
from vit_course.augmentation import random_crop, random_flip, random_shift
from vit_course.data import LabeledImages, load_dataset, load_test_images
from vit_course.transfer import few_labels


def test_test_images_come_channels_first_from_what_the_script_draws():
    difference = np.abs(make_test_images() - load_test_images().permute(0, 2, 3, 1).numpy())
    # another machine's sine may round a value that lies between two 255ths the other way
    assert difference.max() < 1.5 / 255
    assert np.count_nonzero(difference) <= 20


def test_digits_have_the_promised_shapes_shares_and_figures():
    digits = load_dataset("digits")
    shares = [torch.bincount(dataset.labels, minlength=10) / len(dataset) for dataset in digits]
    assert (shares[0] - shares[1]).abs().max() < 0.002  # as many of every class in both sets
    for dataset, count in zip(digits, (1437, 360), strict=True):
        assert (dataset.images.shape, dataset.labels.shape) == ((count, 1, 8, 8), (count,))
        assert (dataset.images.dtype, dataset.labels.dtype) == (torch.float32, torch.int64)
        assert (dataset.images.min(), dataset.images.max()) == (0, 1)
        assert dataset.class_names == tuple("0123456789")
        assert dataset.tensors == (dataset.images, dataset.labels)
        assert_equal(dataset.mean, digits[0].images.mean().reshape(1), atol=1e-6)  # of the training images
        assert_equal(dataset.std, digits[0].images.std().reshape(1), atol=1e-6)


def colors(count: int) -> LabeledImages:
    """Return images whose channels differ, each with its own number in every pixel."""
    numbers = torch.arange(float(count)).view(-1, 1, 1, 1).expand(count, 2, 3, 3)
    about = dict(class_names=["even", "odd"], mean=torch.tensor([1.0, 2.0]), std=torch.tensor([4.0, 5.0]))
    return LabeledImages(numbers.clone(), torch.arange(count) % 2, **about)


def test_normalized_takes_each_channels_mean_and_std():
    dataset = colors(10)
    normalized = dataset.normalized()
    assert_equal(normalized.images[:, 0], (colors(10).images[:, 0] - 1) / 4, atol=1e-6)
    assert_equal(normalized.images[:, 1], (colors(10).images[:, 1] - 2) / 5, atol=1e-6)
    assert_equal([normalized.labels, normalized.normalized().images], [dataset.labels, normalized.images], atol=0)
    assert normalized.class_names == dataset.class_names
    assert_equal(dataset.images, colors(10).images, atol=0)


def test_split_covers_everything_once():
    dataset = colors(100)
    rest, drawn = dataset.split(0.2)
    assert (len(rest), len(drawn)) == (80, 20)
    numbers = torch.cat([part.images[:, 0, 0, 0] for part in (rest, drawn)])
    assert_equal(numbers.sort().values, torch.arange(100.0), atol=0)
    assert not torch.equal(drawn.images[:, 0, 0, 0], torch.arange(80.0, 100.0))  # drawn at random
    for part in (rest, drawn):
        assert_equal(part.labels, part.images[:, 0, 0, 0].long() % 2, atol=0)  # each with its own label
        assert part.class_names == dataset.class_names
        assert_equal([part.mean, part.std], [dataset.mean, dataset.std], atol=0)


def test_few_labels_draws_each_class_equally_often_and_repeatably():
    digits = load_dataset("digits")[0]
    few, again, other = (few_labels(digits, 7, seed=seed) for seed in (0, 0, 1))
    assert few.labels.bincount().tolist() == [7] * 10
    assert torch.equal(few.images, again.images)
    assert not torch.equal(few.images, other.images)
    with pytest.raises(ValueError, match="per_class"):
        few_labels(digits, 1000, seed=0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shift_of(new: torch.Tensor, images: torch.Tensor, most: int) -> tuple[int, int]:
    """Return by how many pixels, up to ``most``, images were shifted down and right, their edges repeated."""
    rows, columns = (torch.arange(size) for size in images.shape[-2:])
    for down in range(-most, most + 1):
        for right in range(-most, most + 1):
            from_row, from_column = (rows - down).clamp(0, len(rows) - 1), (columns - right).clamp(0, len(columns) - 1)
            if torch.equal(new, images[..., from_row, :][..., from_column]):
                return down, right
    raise AssertionError(f"not shifted by up to {most} pixels")


def test_shift_moves_the_whole_batch_by_up_to_one_pixel_and_repeats_the_edge():
    images, drawn = randn(2, 3, 5, 6), generator()
    assert len({shift_of(random_shift(images, drawn), images, 1) for _ in range(100)}) == 9


@pytest.mark.parametrize("padding", [0, 1, 2, 5])
def test_crop_shifts_each_image_every_way_equally_often(padding):
    image, ways = randn(2, 3, 4), (2 * padding + 1) ** 2
    batch = image.expand(100 * ways if padding < 2 else 50, 2, 3, 4)
    shifts = [shift_of(new, image, padding) for new in random_crop(batch, padding, generator())]
    if padding < 2:
        assert len(set(shifts)) == ways
        assert all(abs(shifts.count(each) - 100) < 45 for each in set(shifts))  # standard deviation 9.4


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
    drawn = generator(3)
    assert len({tuple(augment(images, drawn).flatten().tolist()) for _ in range(9)}) > 1  # the next batch is another
    assert_equal(images, randn(64, 1, 4, 3), atol=0)
