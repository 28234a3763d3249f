"""Write the solved edition of every lesson: the worked solutions in place of the stubs, to be run or read.

    python -m tools.solve_lessons      solved_NN_….ipynb next to the lessons; run its cells to see the checks pass

The lesson itself is the student's edition and the only source: a solution is folded in the cell above its stub.
"""

import copy
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from tools.site_links import ROOT, lessons


def turns(notebook: NotebookNode) -> Iterator[tuple[int, re.Match, str]]:
    """Yield every exercise: the index of the cell before its stub and check, its heading, its solution.

    The cell before the stub is the exercise's text, except in the bug clinic, where the text comes after the check.
    """
    checked = None
    for index, cell in enumerate(notebook.cells):
        checked = index if "checks.clinic(" in cell.source else checked
        head = re.search(r"^\*\*Your turn(, stretch)?\*\* · \d+ minutes? · (●○○|●●○|●●●)", cell.source, re.M)
        if cell.cell_type == "markdown" and head:
            before = index if checked is None else checked - 2
            solution = cell.source.partition("<summary>A solution</summary>")[2]
            yield before, head, "\n\n".join(re.findall(r"```python\n(.*?)```", solution, re.DOTALL))


def solved(notebook: NotebookNode) -> NotebookNode:
    """Return a copy with the worked solutions for stubs, and nothing stored for them and their checks."""
    edition = copy.deepcopy(notebook)
    for index, _, solution in turns(notebook):
        edition.cells[index + 1].source = solution.rstrip()
        for cell in edition.cells[index + 1 : index + 3]:
            cell.outputs, cell.execution_count = [], None
    return edition


def main(folder: Path = ROOT / "notebooks") -> None:
    """Write all solved editions into a folder."""
    for path in lessons():
        target = folder / f"solved_{path.name}"
        nbformat.write(solved(nbformat.read(path, as_version=4)), target)
        print(target.name)


if __name__ == "__main__":
    main()
