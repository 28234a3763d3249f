"""Copies of the lessons for Google Colab: a first cell fetches the course and installs what Colab lacks."""

import json
import shutil
from pathlib import Path

from tools.site_links import ROOT, Repository, lessons, rewrite

FIRST_CELL = """\
# Run this cell first. Colab gives you an empty machine with PyTorch: this fetches the course and adds what is missing.
import os, re, subprocess, sys, tomllib
from pathlib import Path

course = Path("vit-course").resolve()
if not course.exists():
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", "{address}", str(course)], check=True)
project = tomllib.loads((course / "pyproject.toml").read_text())["project"]
packages = project["dependencies"] + project["optional-dependencies"]["notebooks"]
keep = ("torch", "numpy", "ipykernel", "jupyterlab")  # Colab has its own
wanted = [package for package in packages if re.match(r"[\\w-]+", package)[0] not in keep]
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True)
sys.path.insert(0, str(course))
os.environ["PYTHONPATH"] = str(course)  # for commands that a cell starts
os.chdir(course / "notebooks")

from google.colab import output
output.enable_custom_widget_manager()  # pictures that answer when touched
"""


def write_copies(folder: Path, repository: Repository | None) -> None:
    """Write ``colab/``, every lesson without outputs, and ``img/``, whose figures they show, into the site's folder.

    Neither is written where the repository's address is not known.
    """
    for name in ("colab", "img"):
        shutil.rmtree(folder / name, ignore_errors=True)
    if repository is None:
        return
    shutil.copytree(ROOT / "img", folder / "img")
    (folder / "colab").mkdir()
    for path in lessons():
        notebook = copy(json.loads(path.read_text(encoding="utf-8")), path.relative_to(ROOT).as_posix(), repository)
        text = json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"
        (folder / "colab" / path.name).write_text(text, encoding="utf-8")


def copy(notebook: dict, name: str, repository: Repository) -> dict:
    """Return the notebook as Colab gets it."""

    def lead(path: str, anchor: str) -> str | None:
        anchor = f"#{anchor}" if anchor else ""
        if not path:
            return anchor
        if ROOT / path in lessons():
            return repository.colab(Path(path).name) + anchor
        if path.startswith("img/"):
            return f"{repository.site}/{path}"
        return repository.file(path) + anchor

    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        else:
            cell["source"] = rewrite("".join(cell["source"]), name, lead)
    first = {
        "cell_type": "code",
        "id": "colab",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": FIRST_CELL.format(address=repository.address),
    }
    return notebook | {"cells": [first, *notebook["cells"]]}
