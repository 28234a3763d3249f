"""Train the digit models of lesson 06 and log every run: one JSON line each, in ``resources/runs/digits.jsonl``.

    python -m tools.train_digits

Each candidate is the recipe with one change. All are trained from the same five seeds and judged by the
validation images. Only then, and only for the recipe itself (``"changes": {}``, the last five lines), is the test set
looked at. About ten minutes on a quiet machine, with one thread.
"""

import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from vit_course import VisionTransformer, augmentation, training
from vit_course.data import LabeledImages, load_dataset
from vit_course.machine import describe

LOG = Path(__file__).resolve().parents[1] / "resources" / "runs" / "digits.jsonl"
SEEDS = range(5)
MODEL = dict(
    image_size=8, patch_size=4, in_channels=1, num_classes=10, hidden_dim=64, num_layers=3, num_heads=4, mlp_dim=128
)
FIT = dict(epochs=30, batch_size=64, peak_lr=2e-3, warmup_epochs=3, weight_decay=0.05)
CANDIDATES = [
    {},  # the recipe itself
    dict(augment="random_shift"),
    dict(label_smoothing=0.1, max_grad_norm=1.0),
    dict(weight_decay=0.0),
    dict(peak_lr=2e-4),
    dict(peak_lr=6e-4),
    dict(peak_lr=6e-3),
    dict(peak_lr=2e-2),
    dict(epochs=10),
]


def shifted(dataset: LabeledImages, down: int, right: int) -> LabeledImages:
    """Shift every image by up to one pixel, as ``augmentation.random_shift`` does."""
    top, left, (h, w) = 1 - down, 1 - right, dataset.images.shape[2:]
    images = F.pad(dataset.images, [1, 1, 1, 1], mode="replicate")[:, :, top : top + h, left : left + w]
    about = dict(class_names=dataset.class_names, mean=dataset.mean, std=dataset.std)
    return LabeledImages(images, dataset.labels, **about)


def run(changes: dict, seed: int) -> dict:
    """Train once; return what the log says of it."""
    train_set, test_set = (part.normalized() for part in load_dataset("digits"))
    train_set, valid_set = train_set.split(0.15)
    options = FIT | changes
    augment = getattr(augmentation, options.pop("augment")) if "augment" in options else None
    torch.manual_seed(seed)
    model = VisionTransformer(**MODEL)
    start = time.perf_counter()
    training.fit(model, train_set, valid_set, augment=augment, seed=seed, **options)
    seconds, machine = time.perf_counter() - start, describe()
    valid_loss, valid_accuracy = training.evaluate(model, valid_set)
    places = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1) if down or right]
    moved = [training.evaluate(model, shifted(valid_set, *place))[1] for place in places]
    test_loss, test_accuracy = training.evaluate(model, test_set) if not changes else (None, None)
    return dict(
        seed=seed,
        changes=changes,
        recipe=dict(model=MODEL, fit=FIT | changes),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        images=dict(train=len(train_set), valid=len(valid_set), test=len(test_set)),
        valid_accuracy=valid_accuracy,
        valid_loss=valid_loss,
        shifted_valid_accuracy=sum(moved) / len(moved),  # mean over the eight shifts by one pixel
        test_accuracy=test_accuracy,
        test_loss=test_loss,
        seconds=round(seconds, 1),
        **{key: machine[key] for key in ("python", "torch", "processor", "threads")},
    )


def main() -> None:
    """Train them all, then put the log in place."""
    torch.set_num_threads(1)  # the tensors are too small for more to help
    temporary = LOG.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as log:
        for changes in CANDIDATES:
            for seed in SEEDS:
                record = run(changes, seed)
                log.write(json.dumps(record) + "\n")
                print(f"{changes or 'the recipe'}, seed {seed}: validation {record['valid_accuracy']:.4f}", flush=True)
    temporary.replace(LOG)


if __name__ == "__main__":
    main()
