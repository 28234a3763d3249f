"""Worked solutions for reading: the source with its outputs, without the marks of nbgrader and the hidden tests."""

import copy

import nbformat
from nbformat import NotebookNode

from grader.source import Source, outside


def worked_solution(source: Source) -> NotebookNode:
    """Return the solved notebook as a reader wants it."""
    notebook = copy.deepcopy(source.notebook)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        cell.source = outside(cell.source, "HIDDEN TESTS").rstrip()
        cell.source = "\n".join(line for line in cell.source.split("\n") if not _is_marker(line))
    return notebook


def _is_marker(line: str) -> bool:
    return line.strip() in ("### BEGIN SOLUTION", "### END SOLUTION")
