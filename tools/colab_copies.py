"""Copies of the lessons for Google Colab: a first cell fetches the course and installs what Colab lacks."""

import json
import re
import shutil
from pathlib import Path

from nbformat import v4

from tools.site_links import ROOT, Repository, lessons, rewrite

COURSE = "/content/vit-course"  # where the first cell puts the course
WORDS = """\
**You are in Colab.** First choose *File → Save a copy in Drive*: what you change in a notebook that comes from GitHub \
is otherwise lost when you close it. Then run the next cell, in this lesson and in every other one.
"""
FIRST_CELL = """\
# Colab gives you an empty machine with PyTorch. This fetches the course and adds
# what is missing; to run it again does no harm.
import os, re, shutil, subprocess, sys, tomllib
from pathlib import Path

course = Path("{course}")
if not course.exists():
    address = "{address}"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", address, str(course)], check=True)
project = tomllib.loads((course / "pyproject.toml").read_text())["project"]
packages = project["dependencies"] + project["optional-dependencies"]["notebooks"]
keep = ("torch", "numpy", "ipykernel", "jupyterlab"{others})  # Colab has its own, or this lesson does without
wanted = [package for package in packages if re.match(r"[\\w-]+", package)[0] not in keep]
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True)
if str(course) not in sys.path:
    sys.path.insert(0, str(course))
os.environ["PYTHONPATH"] = str(course)  # for commands that a cell starts

# The parts that you write are kept in my_vit.py: in your Drive, if it is mounted.
drive, here = course.parent / "drive" / "MyDrive", course.parent
if drive.exists():
    earlier, here = here, drive / "vit-course"
    here.mkdir(exist_ok=True)
    if not (here / "my_vit.py").exists():
        for name in ("my_vit.py", ".my_vit"):
            if (earlier / name).exists():
                shutil.move(earlier / name, here / name)
    print("What you write is kept in your Drive, in vit-course/my_vit.py.")
    if (earlier / "my_vit.py").exists():
        print(f"{{earlier}}/my_vit.py is another file: copy from it what you want to keep.")
else:
    print("my_vit.py is lost when Colab recycles this machine, and no other lesson finds it.")
    print("To keep it, mount your Drive (the folder icon on the left) and run this cell again.")
os.chdir(here)

from google.colab import output
output.enable_custom_widget_manager()  # figures that answer when touched
"""
# In Colab there is no make: a paragraph or list item that names one of these commands is replaced by these words.
COMMANDS = {
    "make (fresh|update)": "**You want to start a lesson over, or to have its newest version.** Open it from the "
    "website again and save another copy in Drive. What you saved before stays as it is.",
    "make lab": "If something is missing, run the first cell of this notebook again: it installs what Colab lacks.",
}


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
            source = "".join(cell["source"]).replace('"../', f'"{COURSE}/')  # the folder of the notebook is elsewhere
            cell |= {"outputs": [], "execution_count": None, "source": source}
        else:
            cell["source"] = rewrite(in_colab("".join(cell["source"])), name, lead)
    code = "\n".join(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    others = "" if "from transformers import" in code else ', "transformers"'
    first = FIRST_CELL.format(address=repository.address, course=COURSE, others=others)
    words = v4.new_markdown_cell(WORDS, id="colab-words")
    return notebook | {"cells": [words, v4.new_code_cell(first, id="colab"), *notebook["cells"]]}


def in_colab(prose: str) -> str:
    """Replace what a text says of commands that only the reader's own computer has."""
    for command, words in COMMANDS.items():
        prose = re.sub(rf"(?m)^(- |)(?=.*`{command}).*$", rf"\g<1>{words}", prose)
    return prose
