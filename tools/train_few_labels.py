"""Train the models of lesson 08 on few labels, and write every run to ``resources/runs/few_labels.json``.

    python -m tools.train_few_labels

Four methods learn scikit-learn's digits, enlarged to 28 x 28 pixels, from 10, 30 and 100 labels per class, with few
steps and with 600, and with five seeds each. A seed draws the images, the first weights and the batches. The learning
rates were chosen for few steps by the validation images with a sixth seed; the test images are used here alone, once
per run. About 25 minutes with one thread. What is recorded already is kept: delete the file to train everything
again.
"""

import json
import time
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from vit_course import VisionTransformer, transfer
from vit_course.data import LabeledImages, load_dataset
from vit_course.machine import describe
from vit_course.training import evaluate
from vit_course.weights import load_trained

LOG = Path(__file__).resolve().parents[1] / "resources" / "runs" / "few_labels.json"
COMMAND = "python -m tools.train_few_labels"
PER_CLASS = (10, 30, 100)
SEEDS = range(5)
BATCH_SIZE = 32
METHODS = {  # steps, and highest learning rate
    "linear probe": (100, 3e-2),
    "fine-tuning": (100, 2e-3),
    "ViT from scratch, 200 steps": (200, 2e-3),
    "CNN from scratch": (100, 1e-2),
    "ViT from scratch, 600 steps": (600, 2e-3),
    # added after the results of the others were known, so that all methods can be compared with equal steps
    "fine-tuning, 600 steps": (600, 2e-3),
    "linear probe, 600 steps": (600, 3e-2),
    "CNN from scratch, 600 steps": (600, 1e-2),
}
SIZES = dict(image_size=28, patch_size=4, in_channels=1, num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=128)


def enlarged(dataset: LabeledImages, about: dict) -> LabeledImages:
    """Return the images with 28 x 28 pixels, normalized as those of the pretraining."""
    images = F.interpolate(dataset.images, size=(28, 28), mode="bilinear")
    images = (images - about["mean"][0]) / about["std"][0]
    rest = dict(mean=torch.zeros(1), std=torch.ones(1))
    return LabeledImages(images, dataset.labels, class_names=dataset.class_names, **rest)


def small_cnn(num_classes: int) -> nn.Sequential:
    """Return a convolutional network of three layers, whose head reads the mean over all places."""

    def convolution(channels: int, filters: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, filters, kernel_size=3, padding=1), nn.BatchNorm2d(filters), nn.ReLU()]

    layers = [*convolution(1, 16), nn.MaxPool2d(2), *convolution(16, 32), nn.MaxPool2d(2), *convolution(32, 64)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, num_classes))


def new_model(method: str, seed: int) -> nn.Module:
    """Return the model of a method before its first step."""
    torch.manual_seed(seed)
    if method.startswith("CNN"):
        return small_cnn(10)
    if method.startswith("ViT from scratch"):
        return VisionTransformer(**SIZES, num_classes=10)
    model = transfer.replace_head(load_trained("fashion_mnist")[0], 10)
    return model.requires_grad_() if method.startswith("fine-tuning") else model


def run(method: str, few: LabeledImages, seed: int) -> tuple[nn.Module, dict]:
    """Train once; return the model, and what the log says of the training."""
    steps, peak = METHODS[method]
    model, start = new_model(method, seed), time.process_time()
    options = dict(steps=steps, peak=peak, batch_size=BATCH_SIZE, seed=seed)
    losses = transfer.fine_tune(model, few.images, few.labels, **options)
    return model, dict(
        method=method,
        seed=seed,
        steps=steps,
        peak=peak,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trained=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        train_loss=sum(losses[-20:]) / 20,
        seconds=round(time.process_time() - start, 1),
    )


def main() -> None:
    """Train them all."""
    torch.set_num_threads(1)  # the tensors are too small for more to help
    about = load_trained("fashion_mnist")[1]
    train_set, test_set = (enlarged(part, about) for part in load_dataset("digits"))
    train_set, valid_set = train_set.split(0.15)
    log = json.loads(LOG.read_text(encoding="utf-8")) if LOG.exists() else dict(runs=[])
    known = {(each["method"], each["per_class"], each["seed"]) for each in log["runs"]}
    machine = describe()
    log |= dict(
        command=COMMAND,
        machine={key: machine[key] for key in ("system", "processor", "cores", "threads")},
        versions={key: machine[key] for key in ("python", "torch")},
        date=machine["date"][:10],
        images=dict(train=len(train_set), valid=len(valid_set), test=len(test_set)),
        recipe=dict(batch_size=BATCH_SIZE, model=SIZES),
    )
    for seed, per_class, method in product(SEEDS, PER_CLASS, METHODS):
        if (method, per_class, seed) in known:
            continue
        few = transfer.few_labels(train_set, per_class, seed=seed)
        model, line = run(method, few, seed)
        line |= dict(
            per_class=per_class,
            valid_accuracy=evaluate(model, valid_set)[1],
            test_accuracy=evaluate(model, test_set)[1],
        )
        log["runs"].append(line)
        log["seconds"] = round(sum(each["seconds"] for each in log["runs"]), 1)
        write(log)
        print(f"{per_class:3} per class, seed {seed}, {method}: {line['test_accuracy']:.4f}", flush=True)


def write(log: dict) -> None:
    """Put the log in place, one line per run."""
    head = {key: value for key, value in log.items() if key != "runs"}
    lines = ",\n".join("  " + json.dumps(each) for each in log["runs"])
    text = json.dumps(head, indent=1)[:-2] + f',\n "runs": [\n{lines}\n ]\n}}\n'
    temporary = LOG.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(LOG)


if __name__ == "__main__":
    main()
