"""What a student handed in, read as a stranger's file: nothing in it is believed."""

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

MEGABYTES = 20  # a notebook of the course with all its pictures has less than one
CELLS = 1000
PICTURES = ("image/png", "image/jpeg", "image/gif")


class Unreadable(Exception):
    """There is no notebook to grade; the message says why, and what to do."""


@dataclass
class HandedCell:
    """A cell as it was handed in: text, and the few labels by which its place is found."""

    kind: str
    text: str
    id: str | None = None
    grade_id: str | None = None
    points: object = None
    attachments: dict = field(default_factory=dict)


def find_notebook(folder: Path, name: str) -> tuple[Path, list[str]]:
    """Return the notebook in a folder, and a line if it has another name than ``name.ipynb``.

    Raises:
        Unreadable: none, several, or a folder that is a link.
    """
    if folder.is_symlink() or not folder.is_dir():
        raise Unreadable(f"{folder.name} is not a folder but a link or a file. Make a folder with the notebook in it.")
    path = folder / f"{name}.ipynb"
    if path.is_symlink() or path.exists():
        return path, []
    others = sorted(each for each in folder.iterdir() if each.suffix.lower() == ".ipynb")
    if len(others) > 1:
        names = ", ".join(each.name for each in others)
        raise Unreadable(f"several notebooks, none named {path.name}: {names}. Rename the one that counts.")
    if not others:
        raise Unreadable(f"the folder holds no {path.name}. Ask for the notebook.")
    return others[0], [f"the notebook was named {others[0].name}"]


def read_notebook(path: Path) -> list[HandedCell]:
    """Return the cells of a notebook file.

    Raises:
        Unreadable: not a regular file, too large, not text, not JSON, not a notebook of format 4, or without cells.
    """
    document = _parse(read_bytes(path))
    if isinstance(document, dict) and document.get("nbformat", 4) != 4:
        found = str(document["nbformat"])[:20]
        raise Unreadable(f"the notebook has format {found}, not 4. Open it in JupyterLab, save it, hand that in.")
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise Unreadable("the file is JSON but not a notebook. Ask for the .ipynb file that JupyterLab saves.")
    cells = document["cells"]
    if len(cells) > CELLS:
        raise Unreadable(f"the notebook has {len(cells)} cells; the limit is {CELLS}. Remove what is not needed.")
    handed = [cell for cell in map(_cell, cells) if cell]
    if not handed:
        raise Unreadable("the notebook has no cells. Ask for the notebook again.")
    return handed


def read_bytes(path: Path) -> bytes:
    """Return what is in a file that was handed in.

    Raises:
        Unreadable: a link, a folder, a pipe, or too large.
    """
    again = f"Ask for the {path.suffix} file itself."
    try:
        # a link is not followed, and a pipe does not make the grader wait
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if path.is_symlink():
            raise Unreadable(f"the file is a link to another one, which is not followed. {again}") from None
        raise Unreadable(f"the file cannot be opened: {error.strerror}. {again}") from None
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise Unreadable(f"a folder is where the file should be. {again}")
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"it is not an ordinary file. {again}")
        if status.st_size > MEGABYTES * 1_000_000:
            size = status.st_size / 1e6
            raise Unreadable(f"the file has {size:.0f} MB; the limit is {MEGABYTES}. Clear all outputs, hand in again.")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _parse(data: bytes) -> object:
    if not data.strip():
        raise Unreadable("the file is empty. Ask for the notebook again.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("the file is not UTF-8 text. Ask for the .ipynb file that JupyterLab saves.") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if "<<<<<<< " in text:
            cause = "the file holds the marks of a git merge conflict"
        elif text.lstrip().startswith("<"):
            cause = "the file is a web page"
        else:
            cause = f"the file is broken JSON ({str(error)[:80]})"
        raise Unreadable(f"{cause}. Ask for the .ipynb file that JupyterLab saves.") from None


def _cell(raw: object) -> HandedCell | None:
    """Take from a cell what has the right type; an output, a hidden label or a script is left behind."""
    if not isinstance(raw, dict) or raw.get("cell_type") not in ("code", "markdown", "raw"):
        return None
    source = raw.get("source", "")
    text = "".join(line for line in source if isinstance(line, str)) if isinstance(source, list) else source
    nbgrader = raw.get("metadata", {}).get("nbgrader", {}) if isinstance(raw.get("metadata", {}), dict) else {}
    nbgrader = nbgrader if isinstance(nbgrader, dict) else {}
    return HandedCell(
        kind="code" if raw["cell_type"] == "code" else "markdown",
        text=_whole(text),
        id=_label(raw.get("id")),
        grade_id=_label(nbgrader.get("grade_id")),
        points=nbgrader.get("points"),
        attachments=_pictures(raw.get("attachments")) if raw["cell_type"] == "markdown" else {},
    )


def _whole(text: object) -> str:
    """Return text that can be stored: half a character of a pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else ""


def _label(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 100 else None


def _pictures(attachments: object) -> dict:
    """Keep pasted pictures, which a written answer may need."""
    kept = {}
    for name, bundle in attachments.items() if isinstance(attachments, dict) else ():
        if isinstance(bundle, dict):
            data = {kind: bundle[kind] for kind in PICTURES if isinstance(bundle.get(kind), str)}
            kept |= {_whole(name): data} if data else {}
    return kept
