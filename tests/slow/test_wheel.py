"""The wheel works by itself: built and installed away from the clone, it runs lesson 05 and finds its resources."""

import os
import shutil
from pathlib import Path

import nbformat
import pytest
from support import run_python

from tools.site_links import ROOT

SOURCES = ("vit_course", "resources", "pyproject.toml", "README.md", "LICENSE")

RESOURCES_WORK = """
from pathlib import Path

import torch

import vit_course
from vit_course.data import load_sample, load_test_images
from vit_course.weights import load_trained

assert Path(vit_course.__file__).is_relative_to(Path.cwd().parent / "site"), vit_course.__file__
assert load_test_images().shape == (6, 3, 96, 96)
sample, (model, about) = load_sample(), load_trained("fashion_mnist")
with torch.no_grad():
    right = model(sample.normalized().images[:200]).argmax(dim=-1) == sample.labels[:200]
assert right.float().mean() > 0.85
"""


def run(*words: str | Path, **options) -> str:
    done = run_python(*map(str, words), **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the wheel from a copy of what it is made of, without a network, and install it into an empty folder."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        target = folder / "sources" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(ROOT / name, target) if (ROOT / name).is_dir() else shutil.copyfile(ROOT / name, target)
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--target", folder / "site")
    run("-m", "pip", "install", *options, folder / "sources")
    return folder / "site"


def test_every_module_of_the_package_is_installed_and_nothing_else(site):
    here = {path.relative_to(ROOT) for path in (ROOT / "vit_course").rglob("*") if path.is_file()}
    assert not [path for path in here if "__pycache__" not in path.parts and not (site / path).exists()]
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"vit_course"}


def test_lesson_05_and_the_resources_work_with_the_installed_package(site):
    notebook = nbformat.read(ROOT / "notebooks" / "05_vision_transformer.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    cells = [cell for cell in cells if "nbval-ignore-output" not in cell.metadata.get("tags", [])]
    stored = [output.text for cell in cells for output in cell.outputs if output.get("name") == "stdout"]
    (site.parent / "empty").mkdir()
    environment = os.environ | dict(PYTHONPATH=str(site), MPLBACKEND="agg", OMP_NUM_THREADS="1")
    # a file, not -c: a check reads the source of a stub to see that it is one
    script = site.parent / "empty" / "lesson_05.py"
    script.write_text("\n\n".join([RESOURCES_WORK, *(cell.source for cell in cells)]))
    printed = run(script, cwd=script.parent, env=environment)
    assert len(stored) > 10
    assert [text for text in stored if text not in printed] == []
