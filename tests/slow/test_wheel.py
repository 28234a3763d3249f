"""The wheel works by itself: built and installed away from the clone, it runs lesson 05 and finds its resources."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("vit_course", "resources", "pyproject.toml", "README.md", "LICENSE")
RESOURCES = ("test_images.npy", "fashion_mnist_sample.npz", "fashion_mnist_patch4.safetensors")

RESOURCES_WORK = """
from pathlib import Path

import torch

import vit_course
from vit_course.data import load_sample, load_test_images
from vit_course.weights import load_trained

site = Path.cwd().parent / "site"
assert Path(vit_course.__file__).is_relative_to(site), vit_course.__file__
assert load_test_images().shape == (6, 3, 96, 96)
sample = load_sample()
model, about = load_trained("fashion_mnist")
with torch.no_grad():
    right = model(sample.normalized().images[:200]).argmax(dim=-1) == sample.labels[:200]
assert right.float().mean() > 0.85
assert list(sample.class_names) == about["class_names"]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of what it is made of, without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        target = folder / "sources" / name
        target.parent.mkdir(exist_ok=True)
        shutil.copytree(ROOT / name, target) if (ROOT / name).is_dir() else shutil.copyfile(ROOT / name, target)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, folder / "sources")
    (path,) = folder.glob("*.whl")
    return path


def pip(*words: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(wheel):
    """Install the wheel into an empty folder."""
    target = wheel.parent / "site"
    pip("install", "--no-deps", "--no-index", "--target", target, wheel)
    return target


def run(script: str, site: Path) -> str:
    """Run a script as a reader would, in an empty folder, with the installed package alone."""
    folder = site.parent / "empty"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    environment = os.environ | dict(PYTHONPATH=str(site), MPLBACKEND="agg", OMP_NUM_THREADS="1")
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_the_resources_and_no_tests_or_notebooks(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"vit_course/resources/{name}" for name in RESOURCES} <= set(names)
    assert "vit_course/train/__main__.py" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"vit_course"}


def test_every_module_of_the_package_is_in_the_wheel(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("vit_course/")}
    here = {path.relative_to(ROOT).as_posix() for path in (ROOT / "vit_course").rglob("*") if path.is_file()}
    assert {name for name in here if "__pycache__" not in name} <= packed


def test_lesson_05_and_the_resources_work_with_the_installed_package(site):
    notebook = nbformat.read(ROOT / "notebooks" / "05_vision_transformer.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    same = [cell for cell in cells if "nbval-ignore-output" not in cell.metadata.get("tags", [])]
    stored = [output.text for cell in same for output in cell.outputs if output.get("name") == "stdout"]
    printed = run("\n\n".join([RESOURCES_WORK, *(cell.source for cell in cells)]), site)
    assert len(stored) > 10
    assert [text for text in stored if text not in printed] == []
