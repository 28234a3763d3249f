"""What lesson 08 says under "Our results": partial fine-tuning, and fine-tuning with as many steps as from scratch."""

import json
from statistics import median

import pytest
from torch import nn

from tools import train_few_labels
from tools.site_links import ROOT
from vit_course import transfer
from vit_course.checks import twins
from vit_course.data import load_dataset
from vit_course.weights import load_trained

RECORD = json.loads((ROOT / "resources" / "runs" / "few_labels.json").read_text(encoding="utf-8"))["runs"]


def recorded(method, part):
    """Return the recorded accuracies with 100 labels per digit in percent, by seed."""
    runs = [run for run in RECORD if (run["method"], run["per_class"]) == (method, 100)]
    return [100 * run[f"{part}_accuracy"] for run in sorted(runs, key=lambda run: run["seed"])]


def adapted(model: nn.Module, per_class, steps, seed):
    """Train a model as the lesson's ``adapt`` does; return its accuracies in percent."""
    about = load_trained("fashion_mnist")[1]
    train_set, test_set = (train_few_labels.enlarged(part, about) for part in load_dataset("digits"))
    train_set, valid_set = train_set.split(0.15)
    few = transfer.few_labels(train_set, per_class, seed=seed)
    transfer.fine_tune(model, few.images, few.labels, steps=steps, peak=2e-3, seed=seed)
    return {
        name: 100 * train_few_labels.evaluate(model, part)[1]
        for name, part in (("valid", valid_set), ("test", test_set))
    }


@pytest.mark.parametrize("seed", [0, 1])
def test_the_last_two_blocks_give_most_of_the_gain(seed):
    found = {}
    for count in range(5):
        model = twins.unfreeze_last(train_few_labels.new_model("linear probe", seed), count)
        found[count] = adapted(model, 10, 100, seed)["valid"]
    assert found[0] == pytest.approx((55, 64)[seed], abs=4)
    assert found[1] == pytest.approx(81, abs=2.5)
    assert found[2] == pytest.approx(88, abs=2.5)
    assert found[3] == pytest.approx(90, abs=2.5)
    assert found[4] == pytest.approx(90, abs=2.5)


@pytest.mark.parametrize("seed", [0, 1])
def test_with_equal_steps_fine_tuning_is_ahead_with_100_labels_too(seed):
    scratch = "ViT from scratch, 600 steps"
    assert [round(value, 1) for value in recorded(scratch, "valid")[:2]] == [98.6, 95.4]
    assert [round(value, 1) for value in (median(recorded(scratch, "test")), max(recorded(scratch, "test")))] == [
        95.3,
        96.4,
    ]
    found = adapted(train_few_labels.new_model("fine-tuning", seed), 100, 600, seed)
    assert found["valid"] == pytest.approx(98.1, abs=1.5)
    assert max(recorded(scratch, "test")) < found["test"] < 98.6
