"""The functions of lesson 08."""

import pytest
import torch

from vit_course import transfer
from vit_course.data import load_dataset


def test_few_labels_draws_each_class_equally_often_and_repeatably():
    digits = load_dataset("digits")[0]
    few, again, other = (transfer.few_labels(digits, 7, seed=seed) for seed in (0, 0, 1))
    assert few.labels.bincount().tolist() == [7] * 10
    assert torch.equal(few.images, again.images)
    assert not torch.equal(few.images, other.images)
    with pytest.raises(ValueError, match="per_class"):
        transfer.few_labels(digits, 1000, seed=0)
