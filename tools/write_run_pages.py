"""Write ``resources/runs/README.md`` and the shipped model's card from the recorded runs in ``resources/runs``.

python -m tools.write_run_pages
"""

import json
import re
from itertools import groupby
from pathlib import Path
from statistics import median

RUNS = Path(__file__).resolve().parents[1] / "resources" / "runs"
GROUPS = ("digits", "fashion_mnist", "cifar10", "best")
SHIPPED = "fashion_mnist-long-seed0"
NAMES = dict(digits="Digits", fashion_mnist="Fashion-MNIST", cifar10="CIFAR-10")
LIMITS = {  # notes on each command, by data set and preset
    ("digits", "quick"): (
        "There are only 1,221 training images and 360 test images, so one test image counts for 0.3 points."
    ),
    ("fashion_mnist", "quick"): (
        "An image is cut into only four patches of 14 × 14 pixels. The model learns quickly, but it loses detail."
    ),
    ("fashion_mnist", "long"): (
        "Two thirds of the errors confuse T-shirts, shirts, pullovers and coats with each other. For comparison, the "
        "page of the data set reports 83.5 % for people without training in fashion, and 93 to 95 % for small "
        "convolutional networks."
    ),
    ("cifar10", "long"): (
        "Training is short, and a transformer has to learn from the images what is built into a convolutional "
        "network; these are likely reasons for the low accuracy. UvA's tutorial 15 reports 75.6 % for a larger ViT "
        "after 180 epochs on a GPU."
    ),
    ("cifar10", "best"): (
        "The optimizer Muon trains the matrices of the encoder, and nine tenths of the steps see images of 16 × 16 "
        "pixels, which have a quarter of the tokens."
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


def by_preset(run: dict) -> tuple[int, int]:
    """Return a run's place in the table: first by data set, then by preset."""
    config = run["config"]
    return list(NAMES).index(config["dataset"]), ("quick", "long", "best").index(config["preset"])


def results() -> str:
    """Return the table of the results, and below it the command of each row."""
    lines = [
        "| data set | preset | parameters | cores | minutes | seeds | test accuracy |",
        "| --- | --- | --: | --: | --- | --: | --- |",
    ]
    commands = []
    runs = sorted((run for group in GROUPS for run in read(group)), key=by_preset)
    for command, same in groupby(runs, key=lambda run: re.sub(r" --seed \d+", "", run["command"])):
        same = list(same)
        config, session = same[0]["config"], same[0]["sessions"][0]
        name, cores = NAMES[config["dataset"]], config["threads"] * session["processes"]
        minutes = [run["result"]["seconds"] / 60 for run in same]
        accuracies = [100 * run["result"]["test_accuracy"] for run in same]
        lines.append(
            f"| {name} | {config['preset']} | {same[0]['result']['parameters']:,} | {cores} | "
            f"{spread(minutes, '{:.1f}')} | {len(same)} | {spread(accuracies, '{:.2f} %')} |"
        )
        note = LIMITS[config["dataset"], config["preset"]]
        commands.append(f"- **{name}, {config['preset']}:** `{command} --seed 0`<br>{note}")
    return "\n".join([*lines, "", COMMANDS, "", *commands])


def ablation() -> str:
    """Return the table of changes to the quick preset and their effects, over the same seeds."""
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
        against = "" if seeds is base else ", ".join(f"{round(gain, 1) + 0.0:+.1f}" for gain in gains)
        epochs = next(iter(seeds.values()))["config"]["recipe"]["epochs"]
        seconds = [run["result"]["seconds"] for run in seeds.values()]
        lines.append(
            f"| {change} | {epochs:g} | {spread(seconds, '{:.0f}')} | {spread(accuracies, '{:.1f} %')} | {against} |"
        )
    return "\n".join(lines)


def machines() -> str:
    """Return one line for each machine on which runs were recorded."""
    sessions = [session for group in (*GROUPS, "ablation") for run in read(group) for session in run["sessions"]]
    lines = {
        f"- {session['processor']}, {session['cores']} cores, {session['system']}; Python {session['python']}, "
        f"torch {session['torch']}; {session['date'][:10]}"
        for session in sessions
    }
    return "\n".join(sorted(lines))


def load() -> str:
    """Return two sentences on the load of the machines."""
    loads = [run["load_before"] for group in (*GROUPS, "ablation") for run in read(group)]
    return (
        f"Before each run, the load average was between {min(loads):.1f} and {max(loads):.1f}, which includes the "
        "previous run, so the minutes vary with the load. The runs of the second table ran two at a time."
    )


def lesson_median() -> float:
    """Return the median test accuracy, in percent, of lesson 06's own recipe on the digits."""
    lines = (RUNS / "digits.jsonl").read_text(encoding="utf-8").splitlines()
    return 100 * median(run["test_accuracy"] for run in map(json.loads, lines) if run["changes"] == {})


def table() -> str:
    """Return the whole page."""
    return PAGE.format(results=results(), ablation=ablation(), machines=machines(), load=load(), median=lesson_median())


def model_card() -> str:
    """Return the card of the model in ``resources``."""
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


COMMANDS = """Each row is one command per seed, which you can run yourself after `source .venv/bin/activate`. It creates
a folder in `runs/` with its settings, log, checkpoints and weights. If you repeat a command on the same machine, the
weights are identical; on another machine, the accuracy may differ by some tenths of a point."""

PAGE = """# Recorded runs

<!-- written by tools/write_run_pages.py from the logs in this folder: change those, not this page -->

These are the results of the training command on machines with two CPU cores and no GPU. Minutes and accuracies are
medians over the seeds, with the lowest and the highest value in parentheses. All choices were made on a validation
split of the training images, and each run used the test set once, at its end. The minutes include loading the data, the
validation after every epoch and the test.

{results}

## An ablation on small data

Each row changes one setting of the quick preset for Fashion-MNIST and trains it with three seeds. All runs have the
same budget of at most one minute on one core, so runs with smaller patches, which mean more tokens, have fewer
epochs. The last two rows therefore show the speed of training and not the best patch size. The accuracies are those
of the 5,000 validation images, so one standard error is about 0.5 points. Only removing the positions, shifting the
images, and smaller patches lowered the accuracy with all three seeds; the other differences may be chance.

{ablation}

## Machines and logs

{machines}

{load}

The runs above were recorded by `tools/train_recorded_runs.py`. Two more logs belong to lessons:

- `digits.jsonl` is lesson 6's own comparison on the digits (`tools/train_digits.py`). Its median of {median:.1f} %
  belongs to another recipe, with 30 epochs, no label smoothing and no gradient clipping. With 360 test images, the
  difference from the table above is within chance.
- `few_labels.json` is lesson 8's comparison of fine-tuning with training from scratch (`tools/train_few_labels.py`).
"""


CARD = """# fashion_mnist_patch4.safetensors

<!-- written by tools/write_run_pages.py from the run's log -->

This Vision Transformer classifies small images of clothing. It cuts an image into a 7 × 7 grid of patches with 4 × 4 pixels each, so it is small enough to look at every part.

```python
from vit_course.weights import load_trained

# about: dataset, class_names, mean and std of the training images
model, about = load_trained("fashion_mnist")
```

| | |
| --- | --- |
| model | `VisionTransformer`: {sizes}; {parameters:,} parameters, float32 |
| input | `(b, 1, 28, 28)`, light clothes on a black background, values from 0 to 1; subtract `about["mean"]` and divide by `about["std"]` |
| data | [Fashion-MNIST](https://github.com/zalandoresearch/fashion-mnist), Xiao, Rasul and Vollgraf 2017 (arXiv 1708.07747), MIT license: {train:,} images for training, {valid:,} for validation, {test:,} for testing |
| command | `{command}` |
| training | {minutes:.1f} minutes, {device}, torch {torch}, {epochs:g} epochs |
| test accuracy | {test_accuracy:.2f} %, measured once (validation {valid_accuracy:.2f} %) |
| license | MIT, like the course |
| SHA-256 | `{sha256}` |

**Limits.** The model was trained on ten kinds of clothes as Zalando photographed them in 2017: centered, upright, isolated and reduced to 28 × 28 gray pixels. It assigns one of these ten classes to any image, often with high confidence. Two thirds of its errors confuse T-shirts, shirts, pullovers and coats with each other. It was trained with one seed only, and it is meant only for studying how such a model works.
"""  # noqa: E501


if __name__ == "__main__":
    write_pages()
