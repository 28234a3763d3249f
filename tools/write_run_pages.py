"""Write ``resources/runs/README.md`` and the shipped model's card from the recorded runs in ``resources/runs``.

python -m tools.write_run_pages
"""

import json
import re
from itertools import groupby
from pathlib import Path
from statistics import median

RUNS = Path(__file__).resolve().parents[1] / "resources" / "runs"
GROUPS = ("digits", "fashion_mnist", "cifar10")
SHIPPED = "fashion_mnist-long-seed0"
LIMITS = {  # what keeps each from more
    "--dataset digits --threads 1": "1,221 images to learn from, and 360 to test: one of them is 0.3 points.",
    "--dataset fashion_mnist --threads 2": "Four patches of 14 × 14 pixels: quick to learn from, and coarse.",
    "--dataset fashion_mnist --preset long --threads 1": (
        "Two thirds of what is wrong are T-shirts, shirts, pullovers and coats taken for each other. The data set's "
        "own page gives 83.5 % for people without training in fashion, and 93 to 95 % for small convolutional networks."
    ),
    "--dataset cifar10 --preset long --threads 1": (
        "Time. A transformer has to learn from the images what a convolution has built in. UvA's tutorial 15 reports "
        "75.6 % for a larger ViT after 180 epochs on a GPU."
    ),
}


def read(group: str) -> list[dict]:
    """Return the recorded runs of a group."""
    path = RUNS / f"{group}_runs.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def spread(values: list[float], text: str) -> str:
    """Return the median of several values and their range, or the only one."""
    middle = text.format(median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({text.format(min(values))} – {text.format(max(values))})"


def device(run: dict) -> str:
    """Return what a run was trained on."""
    session, threads = run["sessions"][0], run["config"]["threads"]
    processes = f"{session['processes']} processes, each with " if session["processes"] > 1 else ""
    return f"{session['device']}, {processes}{threads} thread{'s' if threads > 1 else ''}"


def results() -> str:
    """Return the table of commands and what they gave."""
    lines = [
        "| command | seeds | parameters | device | minutes | test accuracy |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    notes = []
    runs = [run for group in GROUPS for run in read(group)]
    for command, same in groupby(runs, key=lambda run: re.sub(r" --seed \d+", "", run["command"])):
        same = list(same)
        minutes = [run["result"]["seconds"] / 60 for run in same]
        accuracies = [100 * run["result"]["test_accuracy"] for run in same]
        seeds = ", ".join(str(run["config"]["seed"]) for run in same)
        lines.append(
            f"| `{command}` | n = {len(same)}: {seeds} | {same[0]['result']['parameters']:,} | "
            f"{device(same[0])} | {spread(minutes, '{:.1f}')} | "
            f"{spread(accuracies, '{:.2f} %')} |"
        )
        options = command.partition("vit_course.train ")[2]
        notes.append(f"- `{options}`: {LIMITS[options]}")
    return "\n".join([*lines, "", "What limits each:", "", *notes])


def ablation() -> str:
    """Return the table of what a change to the quick preset does, over the same seeds."""
    runs = read("ablation")
    by_change: dict[str, dict[int, dict]] = {}
    for run in runs:
        by_change.setdefault(run["name"].rpartition(",")[0], {})[run["config"]["seed"]] = run
    base = by_change.get("the preset", {})
    lines = [
        "| change to the quick preset | epochs | seconds | validation accuracy | against the preset, seed by seed |",
        "| --- | --- | --- | --- | --- |",
    ]
    for change, seeds in by_change.items():
        accuracies = [100 * run["result"]["valid_accuracy"] for run in seeds.values()]
        gains = [
            100 * (run["result"]["valid_accuracy"] - base[seed]["result"]["valid_accuracy"])
            for seed, run in seeds.items()
        ]
        against = "" if seeds is base else ", ".join(f"{gain:+.1f}" for gain in gains)
        epochs = next(iter(seeds.values()))["config"]["recipe"]["epochs"]
        seconds = [run["result"]["seconds"] for run in seeds.values()]
        lines.append(
            f"| {change} | {epochs:g} | {spread(seconds, '{:.0f}')} | {spread(accuracies, '{:.1f} %')} | {against} |"
        )
    return "\n".join(lines)


def machines() -> str:
    """Return one line a machine that runs were recorded on."""
    sessions = [session for group in (*GROUPS, "ablation") for run in read(group) for session in run["sessions"]]
    lines = {
        f"- {session['processor']}, {session['cores']} cores, {session['system']}; Python {session['python']}, "
        f"torch {session['torch']}; {session['date'][:10]}"
        for session in sessions
    }
    return "\n".join(sorted(lines))


def load() -> str:
    """Return a sentence on what else kept the machines busy."""
    loads = [run["load_before"] for group in (*GROUPS, "ablation") for run in read(group)]
    return (
        f"Before the runs the load average was {min(loads):.1f} to {max(loads):.1f}, the run before included; those of "
        "the second table went two at a time."
    )


def lesson_median() -> float:
    """Return the median test accuracy, in percent, of lesson 06's own recipe on the digits."""
    lines = (RUNS / "digits.jsonl").read_text(encoding="utf-8").splitlines()
    return 100 * median(run["test_accuracy"] for run in map(json.loads, lines) if run["changes"] == {})


def table() -> str:
    """Return the whole page."""
    return PAGE.format(results=results(), ablation=ablation(), machines=machines(), load=load(), median=lesson_median())


def model_card() -> str:
    """Return the card of the model that comes with the course."""
    run = next(run for run in read("fashion_mnist") if run["name"] == SHIPPED)
    recipe, result, session = run["config"]["recipe"], run["result"], run["sessions"][0]
    return CARD.format(
        command=run["command"],
        sizes=f"{recipe['num_layers']} layers, {recipe['num_heads']} heads, hidden_dim {recipe['hidden_dim']}, "
        f"mlp_dim {recipe['mlp_dim']}, patch_size {recipe['patch_size']}",
        parameters=result["parameters"],
        test_accuracy=100 * result["test_accuracy"],
        valid_accuracy=100 * result["valid_accuracy"],
        minutes=result["seconds"] / 60,
        device=device(run),
        torch=session["torch"],
        epochs=recipe["epochs"],
        **result["images"],
        sha256=result["weights_sha256"],
    )


def write_pages() -> None:
    """Put the page and the card in place."""
    (RUNS / "README.md").write_text(table(), encoding="utf-8")
    if any(run["name"] == SHIPPED for run in read("fashion_mnist")):
        (RUNS.parent / "fashion_mnist_patch4.md").write_text(model_card(), encoding="utf-8")


PAGE = """# Recorded runs

<!-- written by tools/write_run_pages.py from the logs beside it: change those, not this page -->

Every row is a command that you can run, with `.venv/bin/python` for `python` and `.venv/bin/torchrun` for `torchrun`;
it writes a folder `runs/…` with its config, log, checkpoints and weights.
Choices were made on a validation split of the training images; the test set was looked at once, at the end of a run.
With several seeds the figure is the median, the lowest and highest in brackets. On one machine a command gives the same
weights to the last bit; on another one the last digits differ, and the accuracy by some tenths of a percent.

{results}

## Which parts matter on small data

The quick preset of Fashion-MNIST with one thing changed, three seeds each. All runs have the same budget, at most a
minute of one core; with patches of another size it buys fewer or more epochs.
Figures are of the validation images: 5,000, so that one standard error is about 0.5 points.

{ablation}

## Machines

{machines}

{load} Recorded by `tools/train_recorded_runs.py`; minutes include loading the data, validation after every epoch
and the test. `digits.jsonl` holds lesson 06's own comparison on the digits (`tools/train_digits.py`), with a median of
{median:.1f} %: there a run has 30 epochs, no label smoothing and no clipping. With 360 test images the difference is
within chance. `few_labels.json` holds lesson 08's comparison of fine-tuning with training from scratch
(`tools/train_few_labels.py`).
"""


CARD = """# fashion_mnist_patch4.safetensors

<!-- written by tools/write_run_pages.py from the run's log -->

A Vision Transformer that names pieces of clothing, small enough to look into: patches of 4 × 4 pixels, a grid of 7 × 7.

```python
from vit_course.weights import load_trained

model, about = load_trained("fashion_mnist")  # about: dataset, class_names, mean and std of the training images
```

| | |
| --- | --- |
| model | `VisionTransformer`: {sizes}; {parameters:,} parameters, float32 |
| input | `(b, 1, 28, 28)`, light clothes on black, in [0, 1], then minus `about["mean"]`, divided by `about["std"]` |
| data | [Fashion-MNIST](https://github.com/zalandoresearch/fashion-mnist), Xiao, Rasul and Vollgraf 2017 (arXiv 1708.07747), MIT licence: {train:,} images to train, {valid:,} to validate, {test:,} to test |
| command | `{command}` |
| took | {minutes:.1f} minutes, {device}, torch {torch}, {epochs:g} epochs |
| test accuracy | {test_accuracy:.2f} %, measured once (validation {valid_accuracy:.2f} %) |
| licence | MIT, as the course |
| SHA-256 | `{sha256}` |

**Limits.** It knows ten kinds of clothes as Zalando photographed them in 2017: centred, upright, cut out, shrunk to 28 × 28 grey pixels. It gives one of the ten names to whatever it is shown, and is often sure of it. Two thirds of its mistakes are T-shirts, shirts, pullovers and coats taken for each other. One seed was trained. It is made for learning how such a model works, for nothing else.
"""  # noqa: E501


if __name__ == "__main__":
    write_pages()
