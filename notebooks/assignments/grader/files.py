"""Files that are whole or not there, whenever the writing is interrupted."""

from pathlib import Path

import nbformat
from nbformat import NotebookNode


class Stop(Exception):
    """A command cannot go on; the message says what to do."""


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step: what was there stays until the new text is complete, and if it is the same."""
    if path.is_file() and path.read_bytes() == text.encode():
        return  # in an installation that belongs to root, the class's owner may only read
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="")
    temporary.replace(path)


def write_notebook(notebook: NotebookNode, folder: Path, name: str) -> Path:
    """Write ``folder/name/name.ipynb``, the same bytes for the same notebook."""
    path = folder / name / f"{name}.ipynb"
    write_text(path, nbformat.writes(notebook) + "\n")
    return path
