"""Compare the accuracy that our preset and published recipes reach in the same seconds on the same cores.

    python -m tools.benchmarks.time_to_accuracy                       all of it, 29 minutes on two cores
    python -m tools.benchmarks.time_to_accuracy --quick --out F       seconds, on the digits: does it run?

A published recipe runs once, with its own schedule, and is tested at each mark. Ours runs once for every budget, since
its schedule has to end there.
"""

import argparse
import dataclasses
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime

import torch
import torch.nn.functional as F

from tools.benchmarks import cli, machine, report, timed_runs
from tools.benchmarks.published_recipes import RECIPES
from vit_course import data
from vit_course.data import LabeledImages
from vit_course.train.recipes import preset

OURS = "vit_course"
MARKS = (60.0, 120.0, 300.0)  # seconds
SHORTER_BUDGETS = (20.0, 40.0, 100.0)  # of ours, a third of those: does it get where the others end?
MARGIN = 0.97  # of our speed so far, so that a run of ours ends within its budget
ATTEMPTS = 3  # at that; one that takes longer is made anew


def plan(marks: Sequence[float], recipes: Sequence[str], shorter: Sequence[float]) -> list[tuple[str, float]]:
    """Return the runs ``(recipe, seconds)`` in their order: ours spread between the published ones.

    A published recipe runs until the last mark; ours runs once for each mark and for each of its ``shorter`` budgets.
    """
    published = [(name, max(marks)) for name in recipes if name != OURS]
    ours = [(OURS, seconds) for seconds in sorted({*marks, *shorter})] if OURS in recipes else []
    runs = []
    for place in range(len(published) + 1):
        runs += ours[place :: len(published) + 1] + published[place : place + 1]
    return runs


def summary(runs: Sequence[dict], train_images: int) -> dict:
    """Return ``rows`` and ``notes``, as ``report.py`` describes them, from the runs so far on so many images."""
    tests = [test | run for run in sorted(runs, key=lambda run: run["recipe"] != OURS) for test in run["tests"]]
    rows = []
    for test in tests:
        source = RECIPES[test["recipe"]].source if test["recipe"] in RECIPES else ""
        about = dict(recipe=_title(test["recipe"]), source=source, parameters=test["parameters"])
        rows.append(about | dict(budget=test["mark"], seconds=test["seconds"], accuracy=test["accuracy"]))
    return dict(rows=rows, notes=_notes(runs, train_images))


def _title(recipe: str) -> str:
    return f"{OURS}, preset {timed_runs.PRESET}" if recipe == OURS else RECIPES[recipe].title


def _notes(runs: Sequence[dict], train_images: int) -> list[str]:
    """Return what was compared, in Markdown."""
    stopped = [
        f"{RECIPES[run['recipe']].title} after {run['tests'][-1]['images'] / train_images:.1f} epochs (of "
        f"{RECIPES[run['recipe']].epochs})"
        for run in runs
        if run["recipe"] != OURS
    ]
    return [
        "The comparison favors *quick*, which was made for short runs on Fashion-MNIST. Of the published recipes, "
        "only Dive into Deep Learning 11.8 was made for this data set, and only vit-pytorch's for runs that are not "
        f"much longer. We stopped all three at the last time in the table: {report.listed(stopped)}. A run that has "
        "only begun says nothing about what the complete recipe reaches, and differences of a few tenths of a point "
        "may be chance.",
        f"All recipes train on the same {train_images:,} images, which are kept in memory. The clock stops while a "
        "model is validated, tested or saved. If other programs slowed a run of *quick* so much that its schedule did "
        f"not end in time, we repeated it. {_disturbance(runs)}",
        "We reimplemented the published recipes and kept their model, initialization, dropout, optimizer, learning "
        "rate, batch size and augmentation, except for the changes below. In fairness, we made the "
        "reimplementations as fast as we could: they use a fused optimizer and images of one channel, augment and "
        "resize whole batches, and compute the attention step by step where that is faster than PyTorch's fused "
        "function.",
        "\n".join(
            f"- **{recipe.title}**, published for {recipe.published_for}, {recipe.epochs} epochs. *Model:* "
            f"{recipe.architecture}. *Training:* {recipe.training}. *Our changes:* {recipe.adapted}. "
            f"*Code:* <{recipe.checked}>."
            for recipe in RECIPES.values()
        ),
    ]


def _disturbance(runs: Sequence[dict]) -> str:
    """Return a sentence on what else kept the machine busy."""

    def evenness(run: dict) -> float:
        speeds = [part["images_per_second"] for part in run["slices"]]
        return min(speeds) / statistics.median(speeds)

    least = min(map(evenness, runs))
    sentences = [f"Over any {timed_runs.SLICE:g} s, no run fell below {least:.0%} of its median speed."]
    over = [test for run in runs if run["recipe"] == OURS for test in run["tests"] if test["seconds"] > test["mark"]]
    sentences += [f"Our run of {test['mark']:g} s took {test['seconds']:.1f} s." for test in over]
    return " ".join(sentences)


def our_run(dataset: str, seconds: float, speed: float, *, threads: int, slice_seconds: float) -> tuple[dict, float]:
    """Train ours so that it ends within its budget of ``seconds``, with fewer epochs where it does not.

    ``speed`` is in epochs per second, as far as it is known; the run's own is returned with it, for the next one.
    """
    for _ in range(ATTEMPTS):
        epochs = round(MARGIN * seconds * speed, 3)
        about = dict(budget=seconds, epochs=epochs, threads=threads, slice_seconds=slice_seconds)
        run = timed_runs.train_ours(dataset, **about)
        speed = epochs / run["tests"][0]["seconds"]
        if run["tests"][0]["seconds"] <= seconds:
            break
    return run, speed


def benchmark(dataset: str, runs: Sequence[tuple[str, float]], *, marks: Sequence[float], slice_seconds: float) -> dict:
    """Make the runs of :func:`plan` and return the log; the published recipes are tested at each of the ``marks``."""
    threads, ours = torch.get_num_threads(), preset(dataset, timed_runs.PRESET)
    settings = dict(dataset=dataset, marks=list(marks), valid_fraction=ours.valid_fraction)
    log = dict(machine=machine.describe(), settings=settings | dict(ours=dataclasses.asdict(ours)), runs=[])
    minutes = sum(seconds for _, seconds in runs) / 60
    print(f"{len(runs)} runs, {minutes:.1f} minutes of training; testing takes up to 3 minutes more", flush=True)
    sets = published_sets(dataset, ours.valid_fraction)
    log["settings"]["train_images"] = len(sets[0])
    speed = timed_runs.our_epochs_a_second(dataset, threads=threads, seconds=min(3.0, *marks))
    for recipe, seconds in runs:
        about = dict(recipe=recipe, budget=seconds, date=datetime.now(UTC).isoformat(timespec="seconds"))
        before = machine.load()
        if recipe == OURS:
            run, speed = our_run(dataset, seconds, speed, threads=threads, slice_seconds=slice_seconds)
        else:
            run = timed_runs.train_published(RECIPES[recipe], *sets, marks=marks, slice_seconds=slice_seconds)
        log["runs"].append(about | run | dict(load=[before, machine.load()]))
        for test in run["tests"]:
            accuracy, images = f"{test['accuracy']:.2%}", f"{test['images']:,} images"
            print(f"{recipe}: {accuracy} after {test['seconds']:.1f} s, {images}", flush=True)
    return log | summary(log["runs"], len(sets[0]))


def published_sets(dataset: str, valid_fraction: float) -> list[LabeledImages]:
    """Return the images to train on, the same as ours, and those to test with, at 28 pixels."""
    train_set, test_set = data.load_dataset(dataset)
    sets = [train_set.split(valid_fraction)[0], test_set]
    if train_set.images.shape[-1] == 28:
        return sets
    about = dict(class_names=train_set.class_names, mean=train_set.mean, std=train_set.std)
    return [LabeledImages(F.interpolate(each.images, size=28), each.labels, **about) for each in sets]


def measure(options: argparse.Namespace) -> dict:
    """Make the runs of ``--recipes``, on the digits and in seconds with ``--quick``, and return the log."""
    if options.quick:
        dataset, marks, shorter, slice_seconds = "digits", [0.5, 1.0], [0.25], 0.5
    else:
        dataset, marks, shorter, slice_seconds = "fashion_mnist", MARKS, SHORTER_BUDGETS, timed_runs.SLICE
    return benchmark(dataset, plan(marks, options.recipes, shorter), marks=marks, slice_seconds=slice_seconds)


def main(argv: list[str] | None = None) -> None:
    """Measure, write the log, print the section of the page."""
    parser = cli.parser("Compare accuracy after equal time: our preset, published recipes.", report.TIME_TO_ACCURACY)
    everyone = [*RECIPES, OURS]
    parser.add_argument("--recipes", nargs="+", choices=everyone, default=everyone, help="default: all")
    cli.run(parser, argv, measure, report.TIME_TO_ACCURACY)


if __name__ == "__main__":
    main()
