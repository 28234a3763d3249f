"""What lesson 08 says under "Our results" of partial fine-tuning."""

import pytest
from torch import nn

from tools import train_few_labels
from vit_course import transfer
from vit_course.checks import twins
from vit_course.data import load_dataset
from vit_course.weights import load_trained


def valid_accuracy(model: nn.Module, seed):
    """Train a model on 10 labels per digit as the lesson's ``adapt`` does; return its accuracy in percent."""
    about = load_trained("fashion_mnist")[1]
    train_set = train_few_labels.enlarged(load_dataset("digits")[0], about)
    train_set, valid_set = train_set.split(0.15)
    few = transfer.few_labels(train_set, 10, seed=seed)
    transfer.fine_tune(model, few.images, few.labels, steps=100, peak=2e-3, seed=seed)
    return 100 * train_few_labels.evaluate(model, valid_set)[1]


@pytest.mark.parametrize("seed", [0, 1])
def test_two_blocks_are_the_smallest_number_that_is_clearly_better_than_the_probe(seed):
    found = {}
    for count in range(5):
        model = twins.unfreeze_last(train_few_labels.new_model("linear probe", seed), count)
        found[count] = valid_accuracy(model, seed)
    assert found[0] == pytest.approx((55, 64)[seed], abs=4)
    assert found[1] == pytest.approx(81, abs=2.5)
    assert found[2] == pytest.approx(88, abs=2.5)
    assert found[3] == pytest.approx(90, abs=2.5)
    assert found[4] == pytest.approx(90, abs=2.5)
    probe = (80, 70)[seed]
    assert found[2] - probe > 6
    assert (found[1] - probe > 6) == (seed == 1)
    assert max(found[3], found[4]) - found[2] < 6
