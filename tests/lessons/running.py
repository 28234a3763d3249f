"""Run the code cells of a lesson in this process, as its reader has it when all exercises are solved."""

import contextlib
import io
import linecache
import re
from collections.abc import Collection
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
from nbformat import NotebookNode
from support import as_run_by_readers

from tools.execute_notebooks import VARYING
from tools.site_links import ROOT
from tools.solve_lessons import turns
from vit_course import mine
from vit_course.mine.parts import PARTS


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


def run(number: str) -> tuple[dict, list[str]]:
    """Run a lesson with all exercises solved in the current directory; return its names, and what its cells printed."""
    notebook = lesson(number)
    answers = solutions(notebook)
    namespace, printed = {"__name__": "__main__"}, []
    for index, each in enumerate(notebook.cells):
        if each.cell_type == "code":
            source = answers.get(index, each.source)
            printed.append(cell(source, namespace, f"<lesson {number}, cell {index}>"))
            plt.close("all")
    return namespace, printed


# what a cell prints about whose part is used; in the lesson as it is stored, it is always the course's
OWN = r"^.*(the course's own version|your own version|my_vit\.py|You have written).*\n?(  .*\n)*"


def compare(number, printed):
    """Check that a lesson printed what is stored, but for whose part each is, and for what varies."""
    cells = [cell for cell in lesson(number).cells if cell.cell_type == "code"]
    for cell, text in zip(cells, printed, strict=True):
        if VARYING not in cell.metadata.get("tags", []):
            expected = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
            assert re.sub(OWN, "", text, flags=re.M) == re.sub(OWN, "", expected, flags=re.M)


def parts_of(number: str) -> dict[str, str]:
    """Return the parts that a lesson asks for, with the worked solution of each."""
    notebook = lesson(number)
    kept = {index: re.match(r"mine\.keep\((\w+)\)", notebook.cells[index + 1].source) for index in solutions(notebook)}
    return {match[1]: solutions(notebook)[index] for index, match in kept.items() if match}


def keep_all(folder: Path, names: Collection[str] = tuple(PARTS)) -> None:
    """Keep the worked solutions of these parts in ``folder / "my_vit.py"``."""
    with contextlib.chdir(folder), as_run_by_readers():
        for number in sorted({PARTS[name].lesson for name in names}):
            imports = next(each.source for each in lesson(number).cells if each.cell_type == "code")
            for name, answer in parts_of(number).items():
                if name in names:
                    namespace = {"__name__": "__main__"}
                    cell(imports, namespace, f"<imports of lesson {number}>")
                    namespace |= {other: mine.part(other) for other in PARTS}
                    cell(answer, namespace, f"<solution of {name}>")
                    assert mine.keep(namespace[name]).passed
