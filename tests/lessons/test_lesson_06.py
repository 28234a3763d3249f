"""Lesson 6: the numbers that its sentences quote."""

import torch
from support import parameter_count


def test_every_image_lies_in_one_set(lesson):
    sets = [each.images for each in (lesson.train_set, lesson.valid_set, lesson.test_set)]
    assert len(torch.unique(torch.cat(sets).flatten(1), dim=0)) == sum(map(len, sets)) == 1797


def test_the_first_hundred_images_are_overfitted_and_all_of_them_less(lesson):
    gap = lesson.few_valid_loss[-1] - lesson.few_train_loss[-1]
    assert gap > 0.4 > 0.1 > lesson.valid_loss[-1] - lesson.train_loss[-1] > 0
    assert lesson.valid_accuracy[-1] > 0.95 > 0.92 > lesson.few_accuracy[-1]
    assert lesson.train_loss[9] < 0.4 < 2 < lesson.train_loss[0]  # the first ten epochs


def test_the_recorded_runs_have_the_lessons_recipe_and_it_alone_was_tested(lesson):
    assert all(len(runs) == 5 for runs in lesson.by_change.values())
    assert all((run["test_accuracy"] is None) == bool(run["changes"]) for run in lesson.log)
    for run in lesson.by_change["the recipe"]:
        assert run["recipe"]["model"] == lesson.MODEL
        fit = dict(epochs=30, batch_size=64, peak_lr=2e-3, warmup_epochs=3, weight_decay=0.05)
        assert run["recipe"]["fit"] == fit


def test_the_rates_differ_as_the_text_says(lesson):
    tiny, small, recipe, large, huge = lesson.percent.double()
    assert lesson.rates == [2e-4, 6e-4, 2e-3, 6e-3, 2e-2]
    assert abs(recipe.mean() - large.mean()) < 100 / 216  # less than one image
    assert tiny.mean() < small.mean() < min(recipe.mean(), large.mean())
    assert huge.max() < recipe.min()
    for name, runs in lesson.by_change.items():
        assert "shift" in name or sum(run["valid_accuracy"] for run in runs) / 5 < recipe.mean() / 100 + 1 / 216


def test_the_readers_own_model_reaches_the_recorded_accuracy(lesson):
    """Every part of it, its step, its schedule and its evaluation come from ``my_vit.py``."""
    parts = lesson.VisionTransformer, lesson.train_step, lesson.learning_rate_schedule, lesson.evaluate
    assert {part.__module__ for part in parts} == {"my_vit"}
    (recorded,) = [run["test_accuracy"] for run in lesson.by_change["the recipe"] if run["seed"] == 0]
    deviation = (recorded * (1 - recorded) / 360) ** 0.5
    assert abs(lesson.test_accuracy - recorded) <= deviation


def test_the_baselines_are_as_good_as_the_text_says(lesson):
    test_set, linear, cnn = lesson.test_set, lesson.linear, lesson.cnn
    of_linear = (lesson.linear_digits(test_set.images) == test_set.labels).float().mean().item()
    assert abs(lesson.test_accuracy - of_linear - 0.005) < 0.015  # half a point, in this run
    assert parameter_count(cnn) == 7450
    assert linear.coef_.size + linear.intercept_.size == 650
    evaluate, valid_set, moved_set = lesson.evaluate, lesson.valid_set, lesson.moved_set
    assert abs(evaluate(cnn, test_set)[1] - lesson.median) < 0.02
    wrong = (lesson.copy_nearest(test_set.images) != test_set.labels).sum().item()
    best = max(lesson.test_accuracy, *(run["test_accuracy"] for run in lesson.by_change["the recipe"]))
    assert wrong == 4 < 360 * (1 - best)
    assert evaluate(cnn, moved_set)[1] > 0.75 > 0.6 > evaluate(lesson.vit, moved_set)[1]
    assert evaluate(cnn, valid_set)[1] - evaluate(cnn, moved_set)[1] < 0.15
    assert evaluate(lesson.vit, valid_set)[1] - evaluate(lesson.vit, moved_set)[1] > 0.35
    for predict in lesson.simple.values():
        on_valid, on_moved = ((predict(x) == y).float().mean() for x, y in (valid_set[:], moved_set[:]))
        assert on_valid - on_moved > 0.35
