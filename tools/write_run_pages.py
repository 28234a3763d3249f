"""Write ``resources/runs/README.md`` and the shipped model's card from the recorded runs in ``resources/runs``.

python -m tools.write_run_pages
"""

import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import median

RUNS = Path(__file__).resolve().parents[1] / "resources" / "runs"
GROUPS = ("digits", "fashion_mnist", "cifar10", "best")  # of the first table
ALL_GROUPS = (*GROUPS, "published", "ablation", "best_ablation", "full_ablation")
SHIPPED = "fashion_mnist-long-seed0"
NAMES = dict(digits="Digits", fashion_mnist="Fashion-MNIST", cifar10="CIFAR-10")
PRESETS = (  # of the first table, in its order
    ("digits", "quick"),
    ("fashion_mnist", "quick"),
    ("fashion_mnist", "long"),
    ("fashion_mnist", "best"),
    ("cifar10", "long"),
    ("cifar10", "best"),
)


UVA = "https://uvadlc-notebooks.readthedocs.io/en/latest/tutorial_notebooks/tutorial15/Vision_Transformer.html"
PUBLISHED = {  # what other pages state of CIFAR-10, by the run that repeats it: name, address, training, test accuracy
    "uva15": ("Tutorial 15, University of Amsterdam", UVA, "180 epochs", "75.6%"),
    "kentaroy47": (
        "vision-transformers-cifar10, ViT with patch 4",
        "https://github.com/kentaroy47/vision-transformers-cifar10",
        "200, 500 and 1,000 epochs",
        "80%, 85% and 89%",
    ),
    "vit_cifar": (
        "ViT-CIFAR",
        "https://github.com/omihub777/ViT-CIFAR",
        "200 epochs, 2 hours 14 minutes on a V100 GPU",
        "90.9%",
    ),
    "vit_lite": (
        "Compact Transformers, ViT-Lite-7/4",
        "https://github.com/SHI-Labs/Compact-Transformers/blob/main/examples/README.md",
        "200 epochs",
        "91.4%",
    ),
    "spt_lsa": ("SPT_LSA_ViT, ViT", "https://github.com/aanna0701/SPT_LSA_ViT", "100 epochs", "93.6%"),
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


def runs_by_preset() -> dict[tuple[str, str], list[dict]]:
    """Return the runs of the first table by data set and preset."""
    found = {place: [] for place in PRESETS}
    for run in (run for group in GROUPS for run in read(group)):
        found[run["config"]["dataset"], run["config"]["preset"]].append(run)
    return found


def results() -> str:
    """Return the table of the results."""
    lines = [
        "| data set | preset | parameters | cores | minutes | seeds | test accuracy |",
        "| --- | --- | --: | --: | --- | --: | --- |",
    ]
    for (dataset, preset), runs in runs_by_preset().items():
        config, session = runs[0]["config"], runs[0]["sessions"][0]
        cores = config["threads"] * session["processes"]
        minutes = [run["result"]["seconds"] / 60 for run in runs]
        accuracies = [100 * run["result"]["test_accuracy"] for run in runs]
        lines.append(
            f"| {NAMES[dataset]} | {preset} | {runs[0]['result']['parameters']:,} | {cores} | "
            f"{spread(minutes, '{:.1f}')} | {len(runs)} | {spread(accuracies, '{:.2f}%')} |"
        )
    return "\n".join(lines)


def presets() -> str:
    """Return the table of what the presets have in common and what sets them apart."""
    lines = [
        "| data set | preset | epochs | patch size | blocks | width | optimizer | learning rate | classifies from |",
        "| --- | --- | --: | --- | --: | --: | --- | --- | --- |",
    ]
    for (dataset, preset), runs in runs_by_preset().items():
        recipe = runs[0]["config"]["recipe"]
        side, muon = recipe["patch_size"], recipe.get("optimizer") == "muon"
        lines.append(
            f"| {NAMES[dataset]} | {preset} | {recipe['epochs']:g} | {side} × {side} | {recipe['num_layers']} | "
            f"{recipe['hidden_dim']} | {'Muon and AdamW' if muon else 'AdamW'} | "
            f"{'constant, then linear' if 'cooldown' in recipe else 'cosine'} | "
            f"{dict(token='the class token', mean='the mean of the patch tokens')[recipe['pool']]} |"
        )
    return "\n".join(lines)


def commands() -> str:
    """Return the command of each row of the results."""
    parts = []
    for (dataset, preset), runs in runs_by_preset().items():
        command = re.sub(r" --seed \d+", " --seed 0", runs[0]["command"])
        parts.append(f"# {NAMES[dataset]}, {preset}\n{command}")
    return "\n\n".join(parts)


def summary() -> dict[str, str]:
    """Return accuracy and minutes of the presets that the first paragraph names."""
    found = {}
    for (dataset, preset), runs in runs_by_preset().items():
        accuracy, seconds = (median(run["result"][key] for run in runs) for key in ("test_accuracy", "seconds"))
        found[f"{dataset}_{preset}"] = f"{100 * accuracy:.1f}% in {seconds / 60:.2g} minutes"
    return found


def ablation_runs(group: str) -> dict[str, dict[int, dict]]:
    """Return the runs of an ablation by change and seed, the unchanged preset first."""
    by_change: dict[str, dict[int, dict]] = {}
    if group == "full_ablation":  # of the preset best as it is in the first table
        runs = [run for run in read("best") if run["config"]["dataset"] == "cifar10"]
        by_change["the preset"] = {run["config"]["seed"]: run for run in runs}
    for run in read(group):
        change = run["name"].rpartition(",")[0].removeprefix("best, ").removesuffix(", 20 epochs")
        by_change.setdefault(change, {})[run["config"]["seed"]] = run
    return by_change


def ablation(group: str, preset: str) -> str:
    """Return the table of changes to a preset and their effects, over the same seeds."""
    by_change = ablation_runs(group)
    base = next(iter(by_change.values()))  # the first row
    lines = [
        f"| change to *{preset}* | epochs | validation accuracy | points against the first row, seed by seed |",
        "| --- | --- | --- | --- |",
    ]
    for change, seeds in by_change.items():
        accuracies = [100 * run["result"]["valid_accuracy"] for run in seeds.values()]
        gains = [
            100 * (run["result"]["valid_accuracy"] - base[seed]["result"]["valid_accuracy"])
            for seed, run in seeds.items()
        ]
        against = "" if seeds is base else ", ".join(f"{round(gain, 1) + 0.0:+.1f}" for gain in gains)
        epochs = next(iter(seeds.values()))["config"]["recipe"]["epochs"]
        lines.append(f"| {change} | {epochs:g} | {spread(accuracies, '{:.1f}%')} | {against} |")
    return "\n".join(lines)


def machines() -> str:
    """Return one line for each machine on which runs were recorded."""
    sessions = [session for group in ALL_GROUPS for run in read(group) for session in run["sessions"]]
    dates = defaultdict(set)
    for session in sessions:
        machine = f"{session['processor']}, {session['cores']} cores, {session['system']}"
        dates[f"- {machine}; Python {session['python']}, torch {session['torch']}"].add(session["date"][:10])
    return "\n".join(f"{line}; {' to '.join(sorted({min(days), max(days)}))}" for line, days in sorted(dates.items()))


def lesson_median() -> float:
    """Return the median test accuracy, in percent, of lesson 06's own recipe on the digits."""
    lines = (RUNS / "digits.jsonl").read_text(encoding="utf-8").splitlines()
    return 100 * median(run["test_accuracy"] for run in map(json.loads, lines) if run["changes"] == {})


def published() -> str:
    """Return the table of what others report for CIFAR-10, and what their settings reach here, below our own median."""
    runs = [run for run in read("best") if run["config"]["dataset"] == "cifar10"]
    accuracy = f"{100 * median(run['result']['test_accuracy'] for run in runs):.1f}%"
    minutes = median(run["result"]["seconds"] for run in runs) / 60
    size, epochs = _size_and_epochs(runs[0])
    rows = [("this course, *best*", size, epochs, accuracy, f"{accuracy}, {epochs}, {minutes:.0f} minutes")]
    trained = {run["name"].split("-")[1]: run for run in read("published")}
    for key, (name, address, training, reported) in PUBLISHED.items():
        size, epochs = _size_and_epochs(trained[key])
        here = f"{100 * trained[key]['result']['test_accuracy']:.1f}%, {epochs}"
        rows.append((f"[{name}]({address})", size, training, reported, here))
    head = [
        "| model | parameters | training | test accuracy | test accuracy here, on two cores |",
        "| --- | --: | --- | --- | --- |",
    ]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)])


def published_summary() -> dict[str, float]:
    """Return how large the models of the published recipes are, how long they trained and what they reach here."""
    ours = next(run["result"] for run in read("best") if run["config"]["dataset"] == "cifar10")
    results = [run["result"] for run in read("published")]
    values = dict(
        sizes=[result["parameters"] / ours["parameters"] for result in results],
        minutes=[result["seconds"] / 60 for result in results],
        accuracies=[100 * result["valid_accuracy"] for result in results],
        tests=[100 * result["test_accuracy"] for result in results],
    )
    return {f"{end.__name__}_{name}": end(numbers) for name, numbers in values.items() for end in (min, max)}


def _size_and_epochs(run: dict) -> tuple[str, str]:
    return f"{run['result']['parameters'] / 1e6:.2f} million", f"{run['config']['recipe']['epochs']:g} epochs"


def table() -> str:
    """Return the whole page."""
    names = dict(ablation="quick", best_ablation="best", full_ablation="best")
    ablations = {group: ablation(group, preset) for group, preset in names.items()}
    parts = dict(results=results(), presets=presets(), commands=commands(), published=published(), **ablations)
    others = published_summary()
    parts |= dict(machines=machines())
    return PAGE.format(**parts, median=lesson_median(), picture=PICTURE.format(**others), **summary(), **others)


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


PICTURE = (
    "![Validation accuracy on CIFAR-10 against minutes. The five runs of the preset best reach 60% within four "
    "minutes and end at 81%. On one core, the preset long ends below 70%. The models of the "
    "published recipes end between {min_accuracies:.0f} and {max_accuracies:.0f}%."
    "](../../img/accuracy_against_time.svg)"
)

PAGE = """# Recorded runs

<!-- written by tools/write_run_pages.py from the logs in this folder: change those, not this page -->

How accurate is a small Vision Transformer that is trained from scratch on two CPU cores? With the preset *best*, it
reaches a test accuracy of {fashion_mnist_best} on Fashion-MNIST and {cifar10_best} on CIFAR-10. The preset *quick*
reaches {fashion_mnist_quick} on Fashion-MNIST. Two ablations below show which ingredients matter: in short runs of
*quick*, large patches and Muon; for *best* on CIFAR-10, Muon, position embeddings, random shifts, the
learning-rate schedule and, in short runs, smaller images in most steps.

A preset is a named set of hyperparameters for one data set, and the table shows six of them. Minutes and accuracies are
medians over the seeds, with the lowest and the highest value in parentheses. All choices were made with validation
images, which were held back from the training images, and each run used the test images once, at its end. The minutes
include loading the data, the validation after every epoch, and the test. Other programs were running on the
[machines](#machines-and-logs), so the minutes are approximate: at another time, the same command can take twice as
long.

{results}

For comparison, the [page of Fashion-MNIST](https://github.com/zalandoresearch/fashion-mnist#benchmark) lists results
that users submitted: networks with two or three convolutional layers reach 88 to 93%, and people without training in
fashion 83.5%. On the digits, simpler models do about as well as ours, as
[lesson 6](../../notebooks/06_training.ipynb#6.12-Baselines-and-an-honest-conclusion) shows. This set is small, with
1,221 training images and 360 test images; a single test image counts for 0.3 points.

## The presets and their commands

{presets}

*Width* is the number of features of a token. *Muon and AdamW* means that
[Muon](../../notebooks/07_training_in_practice.ipynb#7.2-The-training-command-and-its-recorded-runs) trains the matrices
of the encoder, and AdamW all other parameters. Most steps of *best* for CIFAR-10 use smaller images, with 16 patches
instead of 64; [its ablation](#an-ablation-of-best) describes this and the learning rate. The trained model in the
repository is that of *long* for Fashion-MNIST.

These commands repeat the runs of the first table with seed 0; the other seeds are 1, 2 and so on. They need the
course's environment: in the folder `vit-course`, first run `source .venv/bin/activate` or, on Windows,
`.venv\\Scripts\\activate`.

```sh
{commands}
```

Run twice on one machine, with the same versions of Python and PyTorch, a command gives identical weights. On a
machine other than ours, rounding differs, so your weights and accuracy will differ a little from ours. The range over
the seeds gives an idea of how much.

## Other Vision Transformers on CIFAR-10

The table compares *best* with five other plain ViTs that were trained from scratch on CIFAR-10. They have
{min_sizes:.0f} to {max_sizes:.0f} times as many parameters. Their entries under *training* and *test accuracy* come
from the linked pages. Fully trained, most of them surpass *best*. In a short run, models of the same sizes do not: on
two cores, we trained them for {min_minutes:.0f} to {max_minutes:.0f} minutes, about twice as long as *best*, and they
reached only {min_tests:.0f} to {max_tests:.0f}%. This is no surprise, because we used AdamW and settings designed for
much longer training.

{published}

The last column shows what we measured. For each page, we trained a model of the same size, with the page's peak
learning rate, batch size, fraction of warm-up steps, weight decay, dropout and label smoothing, but with AdamW, a
cosine decay to 0, the course's code and initialization, and seed 0. Half of the images, chosen at random, were
mirrored; in all runs except the one for tutorial 15, every image was also shifted at random by up to four pixels each
way. We chose the number of epochs so that each run would take half an hour on two idle cores; because other programs
were running, the runs took longer. We omitted what some of the pages add for longer training: AutoAugment, RandAugment,
random resized crops, random erasing, repeated augmentation, mixup, CutMix, stochastic depth and dropout of the
attention weights. The column therefore shows how far such models get in this time with such settings, and not how good
the complete recipes are.

{picture}

Each line is one run. Its first dot marks chance, 10%; the others mark validation accuracies. The commands of all runs
are in the files `resources/runs/*_runs.jsonl`.

## An ablation of *quick*

Which ingredients of *quick* matter on Fashion-MNIST? To find out, an *ablation* removes or replaces one at a time. In
runs of under a minute, only large patches and Muon mattered measurably. The first row of the table is the preset, and
each other row changes one part of it, with seeds 0, 1 and 2. These changes need an explanation:

- *AdamW* replaces Muon and lowers the peak learning rate from 0.008 to 0.003, a value that we did not tune.
- *No positions* keeps the position embeddings at zero.
- *Class token* classifies from this token instead of the mean.
- *No shifts* omits the random shifts by up to a pixel each way.
- *Mirror images* flips half of the images.

To keep each run under a minute on one core, we shortened the training and fixed the number of epochs in advance.
Variants with the preset's four patches per image train for 8 epochs instead of 20. Smaller patches mean more tokens and
slower steps, so the rows of patches 7 and 4 have even fewer epochs. Accuracies are again medians with the lowest and
the highest value in parentheses. They are measured on 5,000 validation images: the standard error of one accuracy is
about 0.4 points, and that of a difference, if the images were independent, 0.6. As all runs share their images, this
overstates the noise, but it leaves out the randomness of training.

{ablation}

When time is this short, patches of 4 × 4 pixels cost about 7 points, and patches of 7 × 7 pixels a little more than 1.
Both variants also had fewer epochs, so these rows do not show which patch size is best in longer runs. AdamW, with its
untuned learning rate, costs 1.6 points. The mean effect of each of the other seven changes is at most a third of a
point. With three seeds and one validation set, this is too small to distinguish from chance, even for the three changes
that lower the accuracy with every seed.

## An ablation of *best*

Which ingredients of *best* matter on CIFAR-10? Again, the first row is the preset, and each other row removes or
replaces one ingredient, with seeds 0, 1 and 2:

- *Cosine after the warm-up* uses the schedule of lesson 6 instead of a learning rate that stays at its peak until the
  last two fifths of the steps and then falls linearly to 0.
- *AdamW for all parameters* trains the encoder's matrices with AdamW instead of Muon, and with a peak learning rate of
  0.002, the training command's default, which was not tuned here.
- *Large images from the first step on* uses full-size images throughout, whereas the preset reduces them to 16 × 16
  pixels in the first nine tenths of the steps.
- *No shifts* omits the random shifts by up to three pixels each way.

To keep 33 runs affordable, each uses one core, and all but the three with large images train for a fifth of the
preset's 20 epochs. A step with full-size images takes three to four times as long as one with smaller images, so these
three have 1.4 epochs instead of 4, which is about the same amount of computation. Accuracies are measured on 5,000
validation images, so each has a standard error of about 0.7 points, with the same two caveats as above.

{best_ablation}

After these four epochs, replacing Muon with AdamW costs most: 13 points, some of which may be due to AdamW's untuned
learning rate. With the same amount of computation, omitting the smaller images costs 8 to 9 points. Omitting the
position embeddings costs 7 to 8, whereas *quick*, with only four patches, hardly needs them. The cosine schedule costs
about 4 points, and using the class token instead of the mean costs 0.6 to 2.4. The other five changes make a
difference of 1.2 points at most. Only one of them, omitting weight decay, lowers the accuracy with all three seeds, and
among five changes, one such result may well be chance.

Four epochs are too few to overfit, so this table cannot show what the measures against overfitting are worth. For the
next table, we trained every variant except the one with large images for the full 20 epochs, on one core, with the same
three seeds. The first row shows the five recorded runs of *best*, and the last column compares runs with the same seed.
The recorded runs used two cores and therefore round differently. This alone changes the accuracy slightly, so
differences of a few tenths of a point mean nothing.

{full_ablation}

Over all 20 epochs, shifts are worth 4 points, an effect that four epochs do not show. Other effects shrink: AdamW costs
5 points instead of 13, missing position embeddings 6 instead of 7 to 8, and the cosine schedule 1.5 to 2.7 instead of
4. The class token costs about 1. Without weight decay, the accuracy is again lower with all three seeds, by 0.2 to 0.8
points. As all six runs point the same way, weight decay may help a little, although differences of this size could
still come from chance. Without mirror images, the
warm-up or label smoothing, some seeds do as well or better, so these runs do not show that any of the three helps.

## Machines and logs

The runs were recorded on these machines:

{machines}

All were recorded by `tools/train_recorded_runs.py`. Two more logs belong to lessons:

- `digits.jsonl` is lesson 6's own comparison on the digits (`tools/train_digits.py`). Its recipe differs from *quick*:
  30 epochs, no label smoothing and no gradient clipping. Its median test accuracy is {median:.1f}%; with 360 test
  images, the difference from the first table may be chance.
- `few_labels.json` is lesson 8's comparison of fine-tuning with training from scratch (`tools/train_few_labels.py`).


"""


CARD = """# fashion_mnist_patch4.safetensors

<!-- written by tools/write_run_pages.py from the run's log -->

The repository contains the Vision Transformer that the run *long* produced on Fashion-MNIST. It classifies small images
of clothes, shoes and bags, which it cuts into a 7 × 7 grid of patches of 4 × 4 pixels each. With its {parameters:,}
parameters, it is small enough for you to inspect every part.

```python
from vit_course.weights import load_trained

# about: dataset, class_names, mean and std of the training images
model, about = load_trained("fashion_mnist")
```

| | |
| --- | --- |
| file | `resources/fashion_mnist_patch4.safetensors` |
| model | `VisionTransformer`: {sizes}; {parameters:,} parameters, float32 |
| input | `(b, 1, 28, 28)`, light objects on a black background, values from 0 to 1; subtract `about["mean"]` and divide by `about["std"]` |
| data | [Fashion-MNIST](https://github.com/zalandoresearch/fashion-mnist), Xiao, Rasul and Vollgraf 2017 (arXiv 1708.07747), MIT license: of its 60,000 training images, {train:,} for training and {valid:,} for validation; its {test:,} test images for testing |
| command | `{command}` |
| training | {minutes:.1f} minutes, {device}, torch {torch}, {epochs:g} epochs |
| test accuracy | {test_accuracy:.2f}%, measured once (validation {valid_accuracy:.2f}%) |
| license | MIT, like the course |
| SHA-256 | `{sha256}` |

**Limits.** The model was trained on product photographs from Zalando, published in 2017, that show ten kinds of
clothes, shoes and bags. They are centered and upright on a black background, and were reduced to 28 × 28 gray pixels.
The model assigns one of these ten classes to any image, often with high confidence. Two thirds of its errors are
confusions among T-shirts, shirts, pullovers and coats. We trained this preset with one seed only, so we do not know
how much its accuracy varies from seed to seed. The model is meant only for studying how such a model works.
"""  # noqa: E501


if __name__ == "__main__":
    write_pages()
