"""The reader's own model, with every worked solution kept, trains as the reference does; lesson 6 trains it on."""

import contextlib

import pytest
import torch

from tools import train_digits
from vit_course import VisionTransformer, mine, training
from vit_course.data import load_dataset


@pytest.fixture(scope="module")
def own(kept):
    """Return the parts of a ``my_vit.py`` that holds every worked solution."""
    with contextlib.chdir(kept):
        return {name: mine.part(name) for name in ("VisionTransformer", "evaluate", "fit")}


@pytest.fixture(scope="module")
def sets():
    """Return the three sets of lesson 6."""
    train_part, test_set = (part.normalized() for part in load_dataset("digits"))
    return *train_part.split(0.15), test_set


def trained(model_class, fit, sets, *, seed):
    """Train by the recipe of lesson 6, for two epochs; return the model and the history."""
    torch.manual_seed(seed)
    model = model_class(**train_digits.MODEL)
    options = train_digits.FIT | dict(epochs=2, warmup_epochs=1)
    return model, fit(model, *sets[:2], seed=seed, progress=False, **options)


@pytest.mark.parametrize("seed", train_digits.SEEDS)
def test_own_model_and_reference_give_the_same_numbers(seed, own, sets):
    """Every loss, every accuracy and every parameter, bit by bit: then so are the epochs that follow."""
    mine_, history = trained(own["VisionTransformer"], own["fit"], sets, seed=seed)
    reference, expected = trained(VisionTransformer, training.fit, sets, seed=seed)
    assert own["VisionTransformer"] is not VisionTransformer
    assert history == expected
    torch.testing.assert_close(dict(mine_.state_dict()), dict(reference.state_dict()), rtol=0, atol=0)
    assert own["evaluate"](mine_, sets[2]) == training.evaluate(reference, sets[2])
