"""The source of an assignment, as its author wrote it: what the grading reads in it."""

import ast
import copy
import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from grader.files import Stop

ASSIGNMENTS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, eq=False)
class Source:
    """One assignment: its name, ``"assignment_01"``, and the notebook with solutions and hidden tests."""

    name: str
    notebook: NotebookNode

    @cached_property
    def labels(self) -> dict[str, str]:
        """Return the task of every cell, by cell id."""
        return dict(zip([cell.id for cell in self.notebook.cells], tasks(self.notebook.cells), strict=True))

    @cached_property
    def hidden_tests(self) -> dict[str, str]:
        """Return the code of the hidden tests by ``grade_id``."""
        tests = filter(is_test, self.notebook.cells)
        return {nbgrader_of(cell)["grade_id"]: inside(cell.source, "HIDDEN TESTS") for cell in tests}

    @cached_property
    def modules(self) -> frozenset[str]:
        """Return what the given cells take from the package, as dotted names: ``"vit_course.data.load_dataset"``."""
        given = [cell for cell in self.notebook.cells if cell.cell_type == "code" and not is_theirs(cell)]
        return frozenset(name for cell in given if not is_test(cell) for name in course_imports(cell.source))

    @cached_property
    def digest(self) -> str:
        """Return a hash of everything that decides marks."""
        cells = [(cell.id, cell.cell_type, cell.source, nbgrader_of(cell)) for cell in self.notebook.cells]
        return hashlib.sha256(repr(cells).encode()).hexdigest()


def load(path: Path) -> Source:
    """Read one source; ``Stop`` if a test cell has no hidden tests, or two cells have one name."""
    source = Source(path.stem, nbformat.read(path, as_version=4))
    names = [nbgrader_of(cell)["grade_id"] for cell in source.notebook.cells if nbgrader_of(cell)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Stop(f"{path.name}: several cells have the grade_id {', '.join(twice)}; give each its own.")
    if empty := [name for name, code in source.hidden_tests.items() if not code.strip()]:
        markers = "### BEGIN HIDDEN TESTS and ### END HIDDEN TESTS"
        raise Stop(f"{path.name}: no hidden tests in {', '.join(empty)}; write them between {markers}.")
    return source


def load_all(folder: Path) -> dict[str, Source]:
    """Read every source under ``folder``: ``assignment_NN/assignment_NN.ipynb``, in order."""
    paths = sorted(folder.glob("assignment_[0-9][0-9]/assignment_[0-9][0-9].ipynb"))
    return {path.stem: load(path) for path in paths if path.stem == path.parent.name}


def nbgrader_of(cell: NotebookNode) -> dict:
    """Return nbgrader's metadata of a cell, empty for an ordinary one."""
    return cell.metadata.get("nbgrader", {})


def is_test(cell: NotebookNode) -> bool:
    """Whether a cell holds tests that give points."""
    return bool(nbgrader_of(cell).get("grade")) and not is_theirs(cell)


def is_theirs(cell: NotebookNode) -> bool:
    """Whether the student writes in this cell: code or an answer."""
    return bool(nbgrader_of(cell).get("solution"))


def is_answer(cell: NotebookNode) -> bool:
    """Whether a cell holds a written answer, which is marked by hand."""
    return is_theirs(cell) and bool(nbgrader_of(cell)["grade"])


def code_cells(notebook: NotebookNode) -> list[tuple[int, str]]:
    """Return number, from 1, and source of the cells that are run: all code but the tests."""
    cells = enumerate(notebook.cells, 1)
    return [(number, cell.source) for number, cell in cells if cell.cell_type == "code" and not is_test(cell)]


def heading_of(cell: NotebookNode) -> str | None:
    """Return the heading that a text cell begins with."""
    first = cell.source.strip().partition("\n")[0]
    return first if cell.cell_type == "markdown" and re.match(r"##? ", first) else None


def tasks(cells: list[NotebookNode], known: Collection[str] = ()) -> Iterator[str]:
    """Yield for every cell under which heading it stands, "Task 2" or "Experiment"; if some are known, only these."""
    task = "the beginning"
    for cell in cells:
        heading = (heading_of(cell) or task).lstrip("# ").split(" · ")[0]
        task = heading if not known or heading in known else task
        yield task


def inside(text: str, region: str) -> str:
    """Return the lines between ``### BEGIN region`` and ``### END region``."""
    return "\n".join(re.findall(rf"^ *### BEGIN {region}\n(.*?)\n?^ *### END {region}", text, re.MULTILINE | re.DOTALL))


def course_imports(code: str) -> Iterator[str]:
    """Yield what a cell imports from the course's package, or takes with ``mine.part``."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vit_course":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "vit_course")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "mine.part":
            yield f"vit_course.{ast.literal_eval(node.args[0])}"


def worked_solution(source: Source) -> NotebookNode:
    """Return the edition for reading: with solutions and outputs, without hidden tests and nbgrader's marks."""
    notebook = copy.deepcopy(source.notebook)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        text = re.sub(r"(?ms)^ *### BEGIN HIDDEN TESTS\n.*?^ *### END HIDDEN TESTS\n?", "", cell.source).rstrip()
        cell.source = re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", text, flags=re.MULTILINE)
    return notebook
