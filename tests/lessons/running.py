"""Run the code cells of a lesson in this process, as its reader has it: with some exercises solved, or all, or none."""

import contextlib
import io
import linecache
from collections.abc import Collection
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
from nbformat import NotebookNode
from support import as_run_by_readers

from tools.site_links import ROOT
from tools.solve_lessons import turns


def lesson(number: str) -> NotebookNode:
    """Return a lesson by its number, ``"03"``."""
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    return nbformat.read(path, as_version=4)


def solutions(notebook: NotebookNode) -> dict[int, str]:
    """Return the worked solutions, by the index of the stub's cell."""
    return {index + 1: solution.rstrip() for index, _, solution in turns(notebook)}


def cell(source: str, namespace: dict, name: str) -> str:
    """Run one cell, whose source stays readable as in a notebook; return what it printed."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), as_run_by_readers():
        exec(compile(source, name, "exec"), namespace)
    return printed.getvalue()


def run(number: str, solved: Collection[str] | None = None) -> tuple[dict, list[str]]:
    """Run a lesson in the current directory; return its names, and what its cells printed.

    Args:
        number: of the lesson.
        solved: names of the exercises that are solved; all of them by default.
    """
    notebook = lesson(number)
    answers = solutions(notebook)
    namespace, printed = {"__name__": "__main__"}, []
    for index, each in enumerate(notebook.cells):
        if each.cell_type == "code":
            source = each.source
            if index in answers and (solved is None or any(f" {name}(" in answers[index] for name in solved)):
                source = answers[index]
            printed.append(cell(source, namespace, f"<lesson {number}, cell {index}>"))
            plt.close("all")
    return namespace, printed


def keep_all(folder: Path, lessons: Collection[str] = ("01", "02", "03", "04", "05", "06")) -> None:
    """Keep the worked solution of every part in ``folder / "my_vit.py"``."""
    from vit_course import mine

    with contextlib.chdir(folder), as_run_by_readers():
        for number in lessons:
            notebook = lesson(number)
            namespace = {"__name__": "__main__"}
            exec(next(each.source for each in notebook.cells if each.cell_type == "code"), namespace)
            for index, answer in solutions(notebook).items():
                if notebook.cells[index + 1].source.startswith("mine.keep("):
                    cell(answer, namespace, f"<solution of lesson {number}, cell {index}>")
                    assert eval(notebook.cells[index + 1].source, namespace | {"mine": mine}).passed
