"""Lesson 7: the numbers that its sentences quote, and what its figures show."""

import json
import statistics

import torch
from lessons.running import ROOT


def log_of(benchmark):
    return json.loads((ROOT / "benchmarks" / "results" / f"{benchmark}.json").read_text(encoding="utf-8"))


def seconds(entry, name):
    return statistics.median(entry["seconds"][name])


def test_the_recorded_runs_end_where_the_text_says(lesson_07):
    runs = {
        (run["config"]["dataset"], run["config"]["preset"], run["config"]["seed"]): run
        for run in lesson_07["image_runs"]
    }
    long, quick = runs["fashion_mnist", "long", 0]["result"], runs["fashion_mnist", "quick", 0]["result"]
    assert round(100 * (long["test_accuracy"] - quick["test_accuracy"]), 2) == 2.45
    assert [round(value, 1) for value in lesson_07["apart"].tolist()] == [5.8, 4.4, 5.5]
    assert round(100 * runs["cifar10", "long", 0]["result"]["test_accuracy"]) == 68
    lines = (ROOT / "resources" / "runs" / "best_runs.jsonl").read_text(encoding="utf-8").splitlines()
    best = {"cifar10": [], "fashion_mnist": []}
    for run in map(json.loads, lines):
        best[run["config"]["dataset"]].append(run["result"])
    accuracy = {name: 100 * statistics.median(run["test_accuracy"] for run in found) for name, found in best.items()}
    assert (round(accuracy["cifar10"]), round(accuracy["fashion_mnist"], 1)) == (79, 92.7)
    assert round(statistics.median(run["seconds"] for run in best["cifar10"]) / 60) == 23
    assert long["parameters"] == 139_018
    curves = {key: [line["valid_accuracy"] for line in run["log"]] for key, run in runs.items()}
    fine, coarse = curves["fashion_mnist", "long", 0], curves["fashion_mnist", "quick", 0]
    assert all(large > small for large, small in zip(coarse, fine, strict=False))
    assert 0.015 < fine[-1] - coarse[-1] < 0.03
    pace = {key: run["times"][-1]["seconds"] / len(run["times"]) for key, run in runs.items()}
    assert 4 < pace["fashion_mnist", "long", 0] / pace["fashion_mnist", "quick", 0] < 6
    assert 14 < long["seconds"] / quick["seconds"] < 15
    cores = {key: run["sessions"][0]["processes"] * run["config"]["threads"] for key, run in runs.items()}
    assert cores == {key: 1 if key[0] == "cifar10" else 2 for key in runs}


def test_the_ablation_shows_what_the_text_says(lesson_07):
    gains, preset = lesson_07["gains"], lesson_07["preset"]
    means = {change: gain.mean().item() for change, gain in gains.items()}
    assert len(gains) == 8
    assert {change for change, mean in means.items() if mean < -2} == {"patch 7", "patch 4"}
    assert means["patch 7"] > means["patch 4"]
    spread = (preset.max() - preset.min()).item()
    assert -1.2 < means["shifts by up to a pixel"] < -0.8
    others = set(means) - {"patch 7", "patch 4", "shifts by up to a pixel"}
    assert all(abs(means[change]) < spread for change in others)
    assert gains["no positions"].max() < 0
    budgets = {}
    lines = (ROOT / "resources" / "runs" / "ablation_runs.jsonl").read_text(encoding="utf-8").splitlines()
    for run in map(json.loads, lines):
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


def test_the_logs_of_the_benchmarks_say_what_the_text_says():
    regained = []
    for entry in log_of("throughput")["cases"]:
        if entry["mode"] == "training":
            gain = seconds(entry, "vit_course") / seconds(entry, "vit_course, compiled")
            assert 1.02 < gain < 1.07
            assert 16 < entry["first_compiled_step"] < 36
            saved = seconds(entry, "vit_course") - seconds(entry, "vit_course, compiled")
            regained.append(round(entry["first_compiled_step"] / saved, -1))
    assert regained == [3600, 1290]
    precision = log_of("mixed_precision")
    assert all(8 < seconds(each, "bfloat16") / seconds(each, "float32") < 12 for each in precision["cases"])
    means = {name: 100 * statistics.mean(scores) for name, scores in precision["digits"].items()}
    assert 0 <= means["bfloat16"] - means["float32"] < 0.5
    rows = log_of("time_to_accuracy")["rows"]
    after = {row["recipe"]: round(100 * row["accuracy"]) for row in rows if row["budget"] == 60}
    assert sorted(after.values()) == [20, 58, 86, 88]


def test_the_drawings_get_the_predictions_in_the_answer(lesson_07):
    names = [lesson_07["about"]["class_names"][k] for k in lesson_07["answers"]]
    assert names == ["T-shirt/top", "Bag", "Pullover", "Sandal"]
    certainty = lesson_07["certainty"]
    assert certainty.argmax() == 1
    assert abs(certainty[3] - 0.80) < 0.005
