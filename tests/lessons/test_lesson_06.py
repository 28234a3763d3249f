"""Lesson 6: the numbers that its sentences quote."""

import statistics

import torch

IMAGE = 1 / 216  # one validation image, as a share


def test_the_images_are_counted_rightly_and_lie_in_one_set_each(lesson_06):
    sets = [lesson_06[name] for name in ("train_set", "valid_set", "test_set")]
    assert [len(part) for part in sets] == [1221, 216, 360]
    everything = torch.cat([part.images for part in sets]).flatten(1)
    assert len(torch.unique(everything, dim=0)) == 1797
    counts = lesson_06["train_set"].labels.bincount() / 1221
    assert (counts - 0.1).abs().max() < 0.01
    assert lesson_06["parameters"] == 102_666


def test_the_first_hundred_images_are_overfitted_and_all_of_them_less(lesson_06):
    gap = lesson_06["few_valid_loss"][-1] - lesson_06["few_train_loss"][-1]
    assert gap > 0.3 > 0.15 > lesson_06["valid_loss"][-1] - lesson_06["train_loss"][-1] > 0
    assert lesson_06["valid_accuracy"][-1] > 0.95 > 0.92 > lesson_06["few_accuracy"][-1]
    assert lesson_06["train_loss"][9] < 0.4 < 2 < lesson_06["train_loss"][0]  # the first ten epochs


def test_the_log_says_what_the_text_says_of_it(lesson_06):
    by_change = lesson_06["by_change"]
    valid = {name: [run["valid_accuracy"] for run in runs] for name, runs in by_change.items()}
    moved = {name: statistics.mean(run["shifted_valid_accuracy"] for run in runs) for name, runs in by_change.items()}
    recipe, shift = valid.pop("the recipe"), valid.pop("augment=random_shift")
    assert 0.025 < statistics.mean(recipe) - statistics.mean(shift) < 0.035
    assert moved["augment=random_shift"] > 0.9 > 0.35 > max(moved[name] for name in [*valid, "the recipe"])
    for values in valid.values():
        assert abs(statistics.mean(values) - statistics.mean(recipe)) < 3 * IMAGE
        assert min(values) <= max(recipe)
        assert max(values) >= min(recipe)
    assert all(len(runs) == 5 for runs in by_change.values())
    assert all((run["test_accuracy"] is None) == bool(run["changes"]) for run in lesson_06["log"])


def test_the_recorded_runs_have_the_lessons_recipe(lesson_06):
    for run in lesson_06["by_change"]["the recipe"]:
        assert run["recipe"]["model"] == lesson_06["MODEL"]
        fit = dict(epochs=30, batch_size=64, peak_lr=2e-3, warmup_epochs=3, weight_decay=0.05)
        assert run["recipe"]["fit"] == fit


def test_the_readers_own_model_reaches_the_recorded_accuracy(lesson_06):
    """Every part of it, its step, its schedule and its evaluation come from ``my_vit.py``."""
    names = ("VisionTransformer", "train_step", "learning_rate_schedule", "evaluate")
    assert {lesson_06[name].__module__ for name in names} == {"my_vit"}
    (recorded,) = [run["test_accuracy"] for run in lesson_06["by_change"]["the recipe"] if run["seed"] == 0]
    deviation = (recorded * (1 - recorded) / 360) ** 0.5
    assert abs(lesson_06["test_accuracy"] - recorded) <= deviation


def test_the_baselines_are_as_good_as_the_text_says(lesson_06):
    test_set, moved = lesson_06["test_set"], lesson_06["moved_images"]
    median, linear = lesson_06["median"], lesson_06["linear"]
    right = {name: predict(test_set.images) for name, predict in lesson_06["simple"].items()}
    right = {name: (predicted == test_set.labels).float().mean().item() for name, predicted in right.items()}
    assert 0.005 < median - right["logistic regression"] < 0.015
    assert right["copying"] > median
    assert abs(lesson_06["test_accuracy"] - right["logistic regression"] - 0.005) < 0.015  # half a point, in this run
    cnn = lesson_06["cnn"]
    assert sum(parameter.numel() for parameter in cnn.parameters()) == 7450
    assert linear.coef_.size + linear.intercept_.size == 650
    evaluate, moved_set = lesson_06["evaluate"], lesson_06["moved_set"]
    assert abs(evaluate(cnn, test_set)[1] - median) < 0.02
    assert evaluate(cnn, moved_set)[1] > 0.75 > 0.6 > evaluate(lesson_06["vit"], moved_set)[1]
    assert evaluate(cnn, lesson_06["valid_set"])[1] - evaluate(cnn, moved_set)[1] < 0.2  # the others lose more
    assert (lesson_06["copy_nearest"](moved) == lesson_06["valid_set"].labels).float().mean() < 0.7


def test_two_test_images_are_less_than_the_uncertainty(lesson_06):
    assert 2 / 360 < lesson_06["deviation"] < 4 / 360
    assert lesson_06["scores"][0] > 0.96
