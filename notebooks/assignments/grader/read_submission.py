"""What a student handed in, read as a stranger's file: nothing in it is believed."""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from grader.outputs import plain

MEGABYTES = 20  # a notebook of the course with all its pictures has less than one
CELLS = 1000
PICTURES = ("image/png", "image/jpeg", "image/gif")


class Unreadable(Exception):
    """There is no notebook to grade; the message says why, and what to do."""


@dataclass(eq=False)  # a copy is another cell
class HandedCell:
    """A cell as it was handed in: text, and the few labels by which its place is found.

    The repair finds out its ``owner``, the id of the source cell that it stands for, and the heading of its section.
    """

    kind: str
    text: str
    id: str | None
    grade_id: str | None
    points: object
    attachments: dict
    owner: str | None = None
    section: str = ""


def find_notebook(folder: Path, name: str) -> tuple[Path, list[str]]:
    """Return the notebook in a folder, and a line if it has another name; ``Unreadable`` for none or several."""
    if folder.is_symlink() or not folder.is_dir():
        raise Unreadable(f"{folder.name} is not a folder but a link or a file. Make a folder with the notebook in it.")
    path = folder / f"{name}.ipynb"
    if path.is_symlink() or path.exists():
        return path, []
    others = sorted(each for each in folder.iterdir() if each.suffix.lower() == ".ipynb")
    if not others:
        instead = ", ".join(plain(each.name) for each in folder.iterdir() if not each.name.startswith("."))
        raise Unreadable(f"no {path.name} was handed in, but: {instead or 'nothing'}. Hand in the notebook.")
    if len(others) > 1:
        names = ", ".join(plain(each.name) for each in others)
        raise Unreadable(f"several notebooks, none named {path.name}: {names}. Rename the one that counts.")
    return others[0], [f"the notebook was named {plain(others[0].name)}"]


def read_text(path: Path) -> str:
    """Return the text of a file that was handed in.

    Raises:
        Unreadable: a link, a folder, a pipe, too large, or not UTF-8.
    """
    again = f"Hand in the {path.suffix} file itself."
    try:
        # a link is not followed, and a pipe does not make the grader wait
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        cause = "the file is a link to another one" if path.is_symlink() else f"it cannot be opened: {error.strerror}"
        raise Unreadable(f"{cause}. {again}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise Unreadable(f"it is not an ordinary file. {again}")
    with open(descriptor, "rb") as file:
        if (size := status.st_size / 1e6) > MEGABYTES:
            smaller = "Clear all outputs" if path.suffix == ".ipynb" else "Keep only the code of the course in it"
            raise Unreadable(f"the file has {size:.0f} MB; the limit is {MEGABYTES}. {smaller}, hand in again.")
        try:
            return file.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise Unreadable(f"the file is not UTF-8 text. {again}") from None


def read_notebook(path: Path) -> list[HandedCell]:
    """Return the cells of a notebook file.

    Raises:
        Unreadable: not a readable file, not JSON, not a notebook of format 4, without cells or with too many.
    """
    text = read_text(path)
    try:
        # once more for what JSON can spell and no file can store: half a character of a pair becomes a question mark
        document = json.loads(json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        causes = {
            "the file is empty": not text.strip(),
            "the file holds the marks of a git merge conflict": "<<<<<<< " in text,
            "the file is a web page": text.lstrip().startswith("<"),
            f"the file is broken JSON ({str(error)[:80]})": True,
        }
        cause = next(cause for cause, is_so in causes.items() if is_so)
        raise Unreadable(f"{cause}. Hand in the .ipynb file that JupyterLab saves.") from None
    version = document.get("nbformat", 4) if isinstance(document, dict) else 4
    if version != 4 and isinstance(document.get("cells", document.get("worksheets")), list):
        again = "Open it in JupyterLab, save it, hand that in."
        raise Unreadable(f"the notebook has format {plain(str(version))[:20]}, not 4. {again}")
    if not isinstance(cells := _of(document, dict).get("cells"), list):
        raise Unreadable("the file is JSON but not a notebook. Hand in the .ipynb file that JupyterLab saves.")
    if len(cells) > CELLS:
        raise Unreadable(f"the notebook has {len(cells)} cells; the limit is {CELLS}. Remove what is not needed.")
    handed = [_cell(cell) for cell in cells if _of(cell, dict).get("cell_type") in ("code", "markdown", "raw")]
    if not handed:
        raise Unreadable("the notebook has no cells. Hand in the one with your work.")
    return handed


def _cell(raw: dict) -> HandedCell:
    """Take from a cell what has the right type; outputs, hidden labels and scripts are left out."""
    source = raw.get("source", "")
    lines = [line for line in source if isinstance(line, str)] if isinstance(source, list) else [_of(source, str)]
    nbgrader = _of(_of(raw.get("metadata"), dict).get("nbgrader"), dict)
    is_code, pictures = raw["cell_type"] == "code", {}
    for name, bundle in _of(raw.get("attachments"), dict).items():
        kinds = {kind: data for kind, data in _of(bundle, dict).items() if kind in PICTURES and isinstance(data, str)}
        pictures |= {name: kinds} if kinds else {}
    return HandedCell(
        kind="code" if is_code else "markdown",
        text="".join(lines),
        id=_of(raw.get("id"), str)[:100] or None,
        grade_id=_of(nbgrader.get("grade_id"), str)[:100] or None,
        points=nbgrader.get("points"),
        attachments={} if is_code else pictures,
    )


def _of(value: object, kind: type) -> object:
    """Return a value of a kind; an empty one if it is of another."""
    return value if isinstance(value, kind) else kind()
