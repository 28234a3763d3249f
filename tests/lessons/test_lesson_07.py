"""Lesson 7: the numbers that its sentences quote, and what its figures show."""

import statistics

import torch

from tools.benchmarks import report
from tools.write_run_pages import read


def test_the_recorded_runs_end_where_the_text_says(lesson_07):
    runs = {
        (run["config"]["dataset"], run["config"]["preset"], run["config"]["seed"]): run
        for run in lesson_07["image_runs"]
    }
    long, quick = runs["fashion_mnist", "long", 0]["result"], runs["fashion_mnist", "quick", 0]["result"]
    assert [round(value, 1) for value in lesson_07["apart"].tolist()] == [5.8, 4.4, 5.5]
    best = {"cifar10": [], "fashion_mnist": []}
    for run in read("best"):
        best[run["config"]["dataset"]].append(run["result"])
    accuracy = {name: 100 * statistics.median(run["test_accuracy"] for run in found) for name, found in best.items()}
    assert (round(accuracy["cifar10"]), round(accuracy["fashion_mnist"], 1)) == (79, 92.7)
    assert round(statistics.median(run["seconds"] for run in best["cifar10"]) / 60) == 23
    curves = {key: [line["valid_accuracy"] for line in run["log"]] for key, run in runs.items()}
    fine, coarse = curves["fashion_mnist", "long", 0], curves["fashion_mnist", "quick", 0]
    assert all(large > small for large, small in zip(coarse, fine, strict=False))
    assert 0.015 < fine[-1] - coarse[-1] < 0.03
    pace = {key: run["times"][-1]["seconds"] / len(run["times"]) for key, run in runs.items()}
    assert 4 < pace["fashion_mnist", "long", 0] / pace["fashion_mnist", "quick", 0] < 6
    assert 14 < long["seconds"] / quick["seconds"] < 15


def test_the_ablation_shows_what_the_text_says(lesson_07):
    gains, preset = lesson_07["gains"], lesson_07["preset"]
    means = {change: gain.mean().item() for change, gain in gains.items()}
    assert {change for change, mean in means.items() if mean < -2} == {"patch 7", "patch 4"}
    spread = (preset.max() - preset.min()).item()
    others = set(means) - {"patch 7", "patch 4", "shifts by up to a pixel"}
    assert all(abs(means[change]) < spread for change in others)
    budgets = {}
    for run in read("ablation"):
        recipe = run["config"]["recipe"]
        budgets.setdefault((recipe["patch_size"], recipe["epochs"]), []).append(run["result"]["seconds"])
        assert run["config"]["threads"] == run["sessions"][0]["processes"] == 1
    assert 35 < min(budgets[14, 4.2]) < max(budgets[14, 4.2]) < 45
    assert 50 < min(budgets[4, 0.8]) < max(budgets[4, 0.8]) < 60
    assert all(gains[change].max() > -0.3 for change in others - {"no positions"})


def test_only_a_whole_checkpoint_continues_the_same_run(lesson_07):
    resumed, whole = lesson_07["resumed"], lesson_07["uninterrupted"]
    assert torch.equal(resumed("model, optimizer, step"), whole)
    assert (resumed("model, step") - whole).abs().max() > 1e-3
    assert (resumed("model, optimizer") - whole).abs().max() > 1e-3


def test_the_weighted_average_is_the_gradient_of_the_whole_batch(lesson_07):
    torch.testing.assert_close(lesson_07["weighted"], lesson_07["whole"])


def test_the_drawing_as_a_photo_is_still_recognized(lesson_07):
    torch.testing.assert_close(lesson_07["prepared"][0, 0], lesson_07["shirt"])
    assert lesson_07["classes"][lesson_07["photo_logits"].argmax()] == "T-shirt/top"


def test_the_published_recipes_end_a_minute_where_the_text_says():
    rows = report.load(report.TIME_TO_ACCURACY)["rows"]
    after = {row["recipe"]: round(100 * row["accuracy"]) for row in rows if row["budget"] == 60}
    assert sorted(after.values()) == [20, 58, 86, 88]
