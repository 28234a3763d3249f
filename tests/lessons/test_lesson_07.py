"""Lesson 7: the numbers that its sentences quote, and what its figures show."""

import json
import statistics

import numpy as np
import pytest
import torch
from lessons.running import ROOT

from tools.benchmarks.cases import CASES
from tools.write_run_pages import read

LOGS = ("cases", "without")  # with the processor's instructions for bfloat16, and without
SETTINGS = ("epochs", "patch_size", "num_layers", "pool", "optimizer", "crop", "flip")


def log_of(benchmark):
    return json.loads((ROOT / "benchmarks" / "results" / f"{benchmark}.json").read_text(encoding="utf-8"))


def seconds(entry, name):
    return statistics.median(entry["seconds"][name])


def test_the_recorded_runs_end_where_the_text_says(lesson):
    runs = {tuple(run["config"][key] for key in ("dataset", "preset", "seed")): run for run in lesson.image_runs}
    accuracies = {key: 100 * run["result"]["test_accuracy"] for key, run in runs.items()}
    long, quick = runs["fashion_mnist", "long", 0], runs["fashion_mnist", "quick", 0]
    of_long, of_quick = accuracies["fashion_mnist", "long", 0], accuracies["fashion_mnist", "quick", 0]
    assert round(of_long - of_quick, 2) == 0.89
    apart = [round(value, 1) for value in lesson.apart.tolist()]
    assert (len(apart), apart[0], min(apart[1:]), max(apart[1:])) == (5, 2.2, 1.4, 2.1)
    of_all_quick = [accuracy for (_, preset, _), accuracy in accuracies.items() if preset == "quick"]
    assert max(of_all_quick) - min(of_all_quick) < 1 / 3
    assert max(of_all_quick) < of_long
    assert round(accuracies["cifar10", "long", 0]) == 68
    for dataset, percent, minutes in (("cifar10", 81.4, 16), ("fashion_mnist", 92.7, 24)):
        best = [run["result"] for run in read("best") if run["config"]["dataset"] == dataset]
        assert round(100 * statistics.median(result["test_accuracy"] for result in best), 1) == percent
        assert round(statistics.median(result["seconds"] for result in best) / 60) == minutes
    assert long["result"]["parameters"] == 139_018
    assert long["result"]["seconds"] / quick["result"]["seconds"] > 10
    shown = [line["valid_loss"] for line in lesson.long_run["log"][4::6]]
    assert shown == sorted(shown, reverse=True)
    fine, coarse = ([line["valid_accuracy"] for line in run["log"]] for run in (long, quick))
    assert all(large > small for large, small in zip(coarse, fine, strict=False))
    assert 0.0095 < fine[-1] - coarse[-1] < 0.0125
    long_times, quick_times = ([line["seconds"] for line in run["times"]] for run in (long, quick))
    assert round(long_times[-1] / len(long_times)) == 36
    assert 4 < quick_times[-1] / len(quick_times) < 5
    assert [sum(each < 60 for each in times) for times in (quick_times, long_times)] == [13, 1]
    times = dict(zip(long_times, fine, strict=True))
    assert 14 < min(time for time, value in times.items() if value > coarse[-1]) / 60 < 15
    behind = max(time for time, value in times.items() if value < coarse[-1])
    assert min(time for time in times if time > behind) / 60 == pytest.approx(17, abs=0.2)
    older = dict(optimizer="adamw")  # what was not yet a setting when the long run was recorded
    recipes = [older | run["config"]["recipe"] for run in (long, quick)]
    assert [recipes[0][name] for name in SETTINGS] == [35, 4, 4, "token", "adamw", 1, True]
    assert [recipes[1][name] for name in SETTINGS] == [20, 14, 2, "mean", "muon", 1, False]
    assert long["sessions"][0]["processor"] != quick["sessions"][0]["processor"]
    assert 0.45 < long["log"][19]["learning_rate"] / recipes[0]["peak_lr"] < 0.5
    cores = {key: run["sessions"][0]["processes"] * run["config"]["threads"] for key, run in runs.items()}
    assert cores == {key: 1 if key[0] == "cifar10" else 2 for key in runs}


def test_the_ablation_shows_what_the_text_says(lesson):
    gains = lesson.gains
    means = {change: gain.mean().item() for change, gain in gains.items()}
    assert len(gains) == 10
    costly = {"AdamW", "patch 7", "patch 4"}
    assert {change for change, mean in means.items() if mean < -1} == costly
    clear = {change for change, gain in gains.items() if means[change] < -2 * lesson.error and (gain < 0).all()}
    assert clear == costly
    assert min(means, key=means.get) == "patch 4"
    assert round(means["AdamW"], 1) == -1.6
    assert max(abs(means[change]) for change in set(means) - costly) < 1 / 3
    assert round(lesson.error, 1) == 0.6
    assert any((gain < 0).all() for change, gain in gains.items() if change not in costly)
    budgets = {}
    for run in read("ablation"):
        recipe = run["config"]["recipe"]
        budgets.setdefault((recipe["patch_size"], recipe["epochs"]), []).append(run["result"]["seconds"])
        assert run["config"]["threads"] == run["sessions"][0]["processes"] == 1
        assert recipe["peak_lr"] == {"adamw": 3e-3, "muon": 8e-3}[recipe["optimizer"]]
    assert set(budgets) == {(14, 8), (7, 4), (4, 1.2)}
    preset_seconds = [run["result"]["seconds"] for run in read("ablation") if run["name"].startswith("the preset")]
    assert [round(statistics.median(each)) for each in (preset_seconds, budgets[4, 1.2])] == [37, 42]


def test_only_a_whole_checkpoint_continues_the_same_run(lesson):
    resumed, whole = lesson.resumed, lesson.uninterrupted
    assert torch.equal(resumed("model, optimizer, step"), whole)
    assert (resumed("model, step") - whole).abs().max() > 1e-3
    assert (resumed("model, optimizer") - whole).abs().max() > 1e-3


def test_the_weighted_average_is_the_gradient_of_the_whole_batch(lesson):
    torch.testing.assert_close(lesson.weighted, lesson.whole)


def test_the_logs_of_the_benchmarks_say_what_the_text_says():
    for entry in log_of("throughput")["cases"]:
        if entry["mode"] == "training":
            plain, compiled = (np.array(entry["seconds"][name]) for name in ("vit_course", "vit_course, compiled"))
            assert len(plain) == len(compiled) == 30
            saved, first = np.median(plain) - np.median(compiled), entry["first_compiled_step"]
            assert 0.01 < saved / np.median(plain) < 0.07
            if entry["case"].startswith("Ti/16"):
                assert saved < 0.01
                assert 30 <= first < 35
            else:
                assert (round(1000 * saved), round(first), round(first / saved, -2)) == (10, 15, 1500)
    small = {model["parameters"] for model in log_of("throughput")["models"] if model["name"] == "vit_course"}
    assert 205_962 in small
    assert (CASES["px28"].sizes["num_layers"], CASES["px28"].batch, CASES["ti16"].batch) == (6, 256, 8)
    precision = log_of("mixed_precision")
    assert precision["machine"]["bfloat16"]  # it has instructions, which can be switched off
    times = {log: [seconds(each, "bfloat16") / seconds(each, "float32") for each in precision[log]] for log in LOGS}
    assert round(times["cases"][0], 1) == 0.7
    assert times["cases"][1] > 1.5
    assert all(8.5 < each < 16.5 for each in times["without"])
    digits = precision["digits"]
    means = {name: 100 * statistics.mean(scores) for name, scores in digits.items()}
    assert round(abs(means["bfloat16"] - means["float32"]), 1) == 0.3
    assert all(max(scores) - min(scores) > 0.015 for scores in digits.values())
    rows = log_of("time_to_accuracy")["rows"]
    after = {row["recipe"]: round(100 * row["accuracy"]) for row in rows if row["budget"] == 60}
    assert sorted(after.values()) == [20, 64, 86, 90]


def test_the_drawings_get_the_predictions_in_the_answer_and_one_as_a_photo_is_still_recognized(lesson):
    names = [lesson.about["class_names"][k] for k in lesson.answers]
    assert names == ["T-shirt/top", "Bag", "Pullover", "Sandal"]
    certainty = lesson.certainty
    assert certainty.argmax() == 1
    assert abs(certainty[3] - 0.80) < 0.005
    torch.testing.assert_close(lesson.prepared[0, 0], lesson.shirt)
    assert lesson.classes[lesson.photo_logits.argmax()] == "T-shirt/top"
