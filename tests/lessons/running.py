"""Run the code cells of a lesson in this process, as its reader has it when all exercises are solved."""

import contextlib
import io
import re
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
from nbformat import NotebookNode
from support import as_run_by_readers, run_cell

from tools.execute_notebooks import VARYING
from tools.site_links import ROOT
from tools.solve_lessons import solved
from vit_course import mine
from vit_course.mine.parts import PARTS


def notebook(number: str) -> NotebookNode:
    """Return a lesson by its number, ``"03"``."""
    (path,) = (ROOT / "notebooks").glob(f"{number}_*.ipynb")
    return nbformat.read(path, as_version=4)


def cell(source: str, namespace: dict, name: str) -> str:
    """Run one cell as its reader does; return what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), as_run_by_readers():
        run_cell(source, namespace, name)
    return printed.getvalue()


# what a cell prints about whose part is used; in the lesson as it is stored, it is always the course's
OWN = r"^.*(the course's own version|your own version|my_vit\.py|You have written).*\n?(  .*\n)*"


def stored_text(each: NotebookNode) -> str:
    """Return what a code cell printed when it was stored."""
    return "".join(output.text for output in each.outputs if output.get("name") == "stdout")


def run(number: str, shorter: Mapping[str, str]) -> dict:
    """Run a lesson with all exercises solved in the current directory; return its names, and what its cells printed.

    Each cell must print what is stored, but for whose part each is, and for what varies. Texts in ``shorter`` are
    replaced where a lesson would compute for long.
    """
    namespace, printed, stored = {"__name__": "__main__"}, [], notebook(number)
    assert all(sum(each.source.count(old) for each in stored.cells) == 1 for old in shorter)
    for index, (solution, each) in enumerate(zip(solved(stored).cells, stored.cells, strict=True)):
        if each.cell_type == "code":
            name = f"<lesson {number}, cell {index}>"
            source = solution.source
            for old, new in shorter.items():
                source = source.replace(old, new)
            printed.append(cell(source, namespace, name))
            plt.close("all")
            if VARYING not in each.metadata.get("tags", []):
                found, wanted = (re.sub(OWN, "", text, flags=re.M) for text in (printed[-1], stored_text(each)))
                assert found == wanted, f"{name} printed {found!r} instead of {wanted!r}"
    return namespace | {"printed": printed}


def parts_of(number: str) -> dict[str, str]:
    """Return the parts that a lesson asks for, with the worked solution of each."""
    pairs = pairwise(solved(notebook(number)).cells)
    kept = [(re.match(r"mine\.keep\((\w+)\)", check.source), stub.source) for stub, check in pairs]
    return {match[1]: solution for match, solution in kept if match}


def keep_all(names: Collection[str], folder: Path) -> None:
    """Keep the worked solutions of these parts in ``folder / "my_vit.py"``."""
    with contextlib.chdir(folder), as_run_by_readers():
        for number in sorted({PARTS[name].lesson for name in names}):
            imports = next(each.source for each in notebook(number).cells if each.cell_type == "code")
            for name, answer in parts_of(number).items():
                if name in names:
                    namespace = {"__name__": "__main__"}
                    cell(imports, namespace, f"<imports of lesson {number}>")
                    namespace |= {other: mine.part(other) for other in PARTS if other in answer}
                    cell(answer, namespace, f"<solution of {name}>")
                    assert mine.keep(namespace[name]).passed
