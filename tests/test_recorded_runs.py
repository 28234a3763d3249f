"""The recorded runs: pages are written from them, they meet what is promised, and the shipped model is theirs."""

import dataclasses
import hashlib
import shlex

import pytest

from tools import train_recorded_runs, write_run_pages
from tools.site_links import ROOT
from vit_course.train.__main__ import new_config, parser
from vit_course.train.recipes import Recipe

SHIPPED = ROOT / "resources" / "fashion_mnist_patch4.safetensors"
ALL_RUNS = {group: write_run_pages.read(group) for group in write_run_pages.ALL_GROUPS}
BEST = [run for run in ALL_RUNS["best"] if run["config"]["dataset"] == "cifar10"]
LONG = next(run for run in ALL_RUNS["fashion_mnist"] if run["config"]["preset"] == "long")


def test_the_page_is_written_from_the_logs():
    assert (write_run_pages.RUNS / "README.md").read_text(encoding="utf-8") == write_run_pages.table()


@pytest.mark.parametrize("group", ALL_RUNS)
def test_every_planned_run_is_recorded_once_in_order(group):
    planned = train_recorded_runs.recorded_runs()[group]
    assert [run["name"] for run in ALL_RUNS[group]] == list(planned)
    for run, options in zip(ALL_RUNS[group], planned.values(), strict=True):
        assert run["command"] == train_recorded_runs.command_line(run["name"], options)
        assert run["command"].endswith(f" -m vit_course.train {options}")
        (processes,) = {session["processes"] for session in run["sessions"]}
        assert run["command"].startswith(f"torchrun --nproc_per_node={processes} -m" if processes > 1 else "python -m")


@pytest.mark.parametrize("run", [run for runs in ALL_RUNS.values() for run in runs], ids=lambda run: run["name"])
def test_a_command_still_means_what_was_recorded(run):
    words = shlex.split(run["command"].partition("vit_course.train ")[2])
    config = dataclasses.asdict(new_config(parser().parse_args([*words, "--device", "cpu"])))
    defaults = {field.name: field.default for field in dataclasses.fields(Recipe)}  # of settings added since
    assert config == run["config"] | dict(recipe=defaults | run["config"]["recipe"])


def gains_in(group: str) -> dict[str, list[float]]:
    """Return, for every change of an ablation, how many points it gains over the first row, seed by seed."""
    runs = write_run_pages.ablation_runs(group)
    accuracy = {seed: run["result"]["valid_accuracy"] for seed, run in runs.pop("the preset").items()}
    return {
        change: [100 * (run["result"]["valid_accuracy"] - accuracy[seed]) for seed, run in seeds.items()]
        for change, seeds in runs.items()
    }


def test_the_page_concludes_from_the_ablation_what_the_runs_show():
    gains = gains_in("ablation")
    means = {change: sum(values) / 3 for change, values in gains.items()}
    assert max(run["result"]["seconds"] for run in ALL_RUNS["ablation"]) < 60
    assert [round(-means.pop(change), 1) for change in ("patch 4", "AdamW", "patch 7")] == [7.1, 1.6, 1.3]
    assert len(means) == 7
    assert max(map(abs, means.values())) < 1 / 3


def test_the_page_concludes_from_the_ablation_of_best_what_the_runs_show():
    gains = gains_in("best_ablation")
    points = {
        "AdamW for all parameters": [13, 13, 13],
        "large images from the first step on": [9, 9, 8],
        "no positions": [8, 8, 7],
        "cosine after the warm-up": [4, 4, 4],
    }
    assert {change: [round(-gain) for gain in gains.pop(change)] for change in points} == points
    assert sorted(round(-gain, 1) for gain in gains.pop("class token")) == [0.6, 2.0, 2.4]
    assert len(gains) == 5
    assert max(abs(round(gain, 1)) for values in gains.values() for gain in values) == 1.2
    assert [change for change, values in gains.items() if max(values) < 0] == ["no weight decay"]


def test_the_page_concludes_from_the_whole_trainings_what_the_runs_show():
    gains = gains_in("full_ablation")
    points = {
        "no shifts": [-4.2, -4.0, -4.4],
        "cosine after the warm-up": [-1.5, -2.6, -2.7],
        "no positions": [-6.0, -6.2, -5.8],
        "class token": [-1.2, -1.0, -0.8],
        "AdamW for all parameters": [-4.8, -5.0, -5.5],
        "no weight decay": [-0.5, -0.2, -0.8],
    }
    assert {change: [round(gain, 1) for gain in gains.pop(change)] for change in points} == points
    assert gains.keys() == {"no mirror images", "no warm-up", "no label smoothing"}
    assert all(max(values) > 0 for values in gains.values())


def test_best_reduces_the_photos_as_the_page_says_and_published_recipes_take_as_long_and_reach_less():
    recipes = [run["config"]["recipe"] for run in BEST]
    assert {(recipe["small_share"], recipe["small_side"], recipe["patch_size"]) for recipe in recipes} == {(0.9, 16, 4)}
    ours = [run["result"] for run in BEST]
    theirs = {run["name"].split("-")[1]: run["result"] for run in ALL_RUNS["published"]}
    assert theirs.keys() == write_run_pages.PUBLISHED.keys()
    assert min(each["seconds"] for each in theirs.values()) > max(each["seconds"] for each in ours)
    assert max(each["test_accuracy"] for each in theirs.values()) < min(each["test_accuracy"] for each in ours)
    assert f"{theirs['vit_cifar']['parameters'] / 1e6:.1f}" == "6.3"  # as its page states


def test_the_figure_of_accuracy_against_time_is_described_as_it_is():
    for run in BEST:
        lines = zip(run["times"], run["log"], strict=True)
        assert next(time["seconds"] for time, line in lines if line["valid_accuracy"] > 0.6) < 240
        assert round(100 * run["result"]["valid_accuracy"]) == 81
    assert ALL_RUNS["cifar10"][0]["result"]["valid_accuracy"] < 0.7
    for words in ("60% within four minutes and end at 81%", "On one core, the preset long ends below 70%"):
        assert words in write_run_pages.PICTURE


def test_the_shipped_model_is_the_recorded_runs_own_and_its_card_says_so():
    assert hashlib.sha256(SHIPPED.read_bytes()).hexdigest() == LONG["result"]["weights_sha256"]
    assert SHIPPED.stat().st_size <= 2 * 1024**2
    assert SHIPPED.with_suffix(".md").read_text(encoding="utf-8") == write_run_pages.model_card()
