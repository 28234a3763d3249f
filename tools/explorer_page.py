"""Write the explorer, a page in which the trained model runs: the page, its scripts, the model and its images.

The scripts of the lessons' figures come along, because both draw with the same ones.

python -m tools.explorer_page FOLDER      the page alone, FOLDER/explorer.html; tools.build_site calls this as well
"""

import argparse
import base64
import json
import shutil
from pathlib import Path

import numpy as np

from tools.site_links import ROOT
from vit_course.data import load_sample
from vit_course.explore.figure import FIGURES
from vit_course.resource_files import resource
from vit_course.weights import SHIPPED, load_trained

IMAGES = 24  # the first ones of the course's sample: all ten classes, and three that the model gets wrong
ABLATION_IMAGES = 200  # of lesson 9
FONT = "source-sans-3-latin-wght-normal.woff2"


def write_explorer(folder: Path) -> None:
    """Write the page into a folder, and all that it loads into ``explorer`` and ``figures`` in it."""
    parts = folder / "explorer"
    parts.mkdir(parents=True, exist_ok=True)
    page = ROOT / "docs" / "explorer"
    for path in [*page.glob("*.css"), *page.glob("*.js"), *(ROOT / "vit_course/explore/engine").glob("*.js")]:
        shutil.copyfile(path, parts / path.name)
    figures = folder / "figures"
    shutil.copytree(FIGURES, figures, ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)
    shutil.copyfile(ROOT / "docs" / "_static" / "fonts" / FONT, parts / FONT)
    shutil.copyfile(page / "explorer.html", folder / "explorer.html")
    sample = load_sample()
    model, _ = load_trained("fashion_mnist")
    pixels = (sample.images * 255).round().byte().numpy()
    shipped = {
        "model": text(planes(Path(resource(SHIPPED["fashion_mnist"])).read_bytes())),
        "images": text(pixels[:IMAGES].tobytes()),
        "labels": sample.labels[:IMAGES].tolist(),
        "answers": model(sample.normalized().images[:IMAGES]).argmax(dim=1).tolist(),
    }
    (parts / "shipped.js").write_text(f"vit.shipped = {json.dumps(shipped)};\n", encoding="utf-8")
    for_ablation = json.dumps(text(pixels[:ABLATION_IMAGES].tobytes()))
    (figures / "ablation_images.js").write_text(f"vit.ablationImages = {for_ablation};\n", encoding="utf-8")


def planes(numbers: bytes) -> bytes:
    """Return the first bytes of all four-byte numbers, then their second bytes, and so on: that compresses better."""
    return np.frombuffer(numbers, np.uint8).reshape(-1, 4).T.tobytes()


def text(content: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(content).decode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    write_explorer(parser.parse_args().folder)
