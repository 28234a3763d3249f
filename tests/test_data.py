"""The six test images, the digits and labelled images; bad files: test_bad_input.py."""

import numpy as np
import pytest
import torch
from support import assert_equal

from tools.draw_test_images import make_test_images
from vit_course import transfer
from vit_course.data import LabelledImages, load_dataset, load_test_images
from vit_course.resource_files import resource

FIXTURE = resource("test_images.npy")


# The six test images


def test_test_images_come_channels_first_from_what_the_script_draws():
    images = load_test_images()
    stored = np.load(FIXTURE, allow_pickle=False)
    for channel in range(3):
        assert_equal(images[:, channel], torch.from_numpy(stored[..., channel]), atol=0)
    difference = np.abs(make_test_images() - stored)
    # another machine's sine may round a value that lies between two 255ths the other way
    assert difference.max() < 1.5 / 255
    assert np.count_nonzero(difference) <= 20


# The digits


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


# Labelled images


def colours(count: int = 10) -> LabelledImages:
    """Return images whose channels differ, each with its own number in every pixel."""
    numbers = torch.arange(float(count)).view(-1, 1, 1, 1).expand(count, 2, 3, 3)
    about = dict(class_names=["even", "odd"], mean=torch.tensor([1.0, 2.0]), std=torch.tensor([4.0, 5.0]))
    return LabelledImages(numbers.clone(), torch.arange(count) % 2, **about)


def test_normalized_takes_each_channels_mean_and_std():
    dataset = colours()
    normalized, again = dataset.normalized(), dataset.normalized().normalized()
    assert_equal(normalized.images[:, 0], (colours().images[:, 0] - 1) / 4, atol=1e-6)
    assert_equal(normalized.images[:, 1], (colours().images[:, 1] - 2) / 5, atol=1e-6)
    assert_equal([normalized.labels, again.images], [dataset.labels, normalized.images], atol=0)
    assert normalized.class_names == dataset.class_names
    assert_equal(dataset.images, colours().images, atol=0)


def test_split_covers_everything_once():
    dataset = colours(100)
    rest, drawn = dataset.split(0.2)
    assert (len(rest), len(drawn)) == (80, 20)
    numbers = torch.cat([part.images[:, 0, 0, 0] for part in (rest, drawn)])
    assert_equal(numbers.sort().values, torch.arange(100.0), atol=0)
    assert not torch.equal(drawn.images[:, 0, 0, 0], torch.arange(80.0, 100.0))  # drawn at random
    for part in (rest, drawn):
        assert_equal(part.labels, part.images[:, 0, 0, 0].long() % 2, atol=0)  # each with its own label
        assert part.class_names == dataset.class_names
        assert_equal([part.mean, part.std], [dataset.mean, dataset.std], atol=0)


# The first thousand images of Fashion-MNIST's test set


def test_few_labels_draws_each_class_equally_often_and_repeatably():
    digits = load_dataset("digits")[0]
    few, again, other = (transfer.few_labels(digits, 7, seed=seed) for seed in (0, 0, 1))
    assert few.labels.bincount().tolist() == [7] * 10
    assert torch.equal(few.images, again.images)
    assert not torch.equal(few.images, other.images)
    with pytest.raises(ValueError, match="per_class"):
        transfer.few_labels(digits, 1000, seed=0)
