"""The editions of an assignment: nbgrader's own steps make them from the source, the same bytes on every machine."""

import copy
from functools import cache

import nbformat
from nbconvert.preprocessors import Preprocessor
from nbformat import NotebookNode
from nbgrader import preprocessors as steps
from traitlets.config import Config

from grader.source import Source

CODE_STUB = '# YOUR CODE HERE\nraise NotImplementedError("not written yet")'
TEXT_STUB = "YOUR ANSWER HERE"
STUBS = Config(ClearSolutions=dict(code_stub=dict(python=CODE_STUB), text_stub=TEXT_STUB))


class _KeepMetadata(Preprocessor):
    """Keep of a cell's metadata what nbgrader needs, and of a given cell's text no empty lines at its end."""

    enabled = True

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        kept = ("nbgrader", "deletable", "editable")
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in kept if key in cell.metadata})
        cell.source = cell.source.rstrip("\n")
        return cell, resources


# nbgrader's GenerateAssignment keeps the cells in the gradebook between the two; with hidden tests, to restore them
TO_GRADE = (steps.LockCells, steps.ClearSolutions, steps.ClearOutput, steps.CheckCellMetadata, steps.ComputeChecksums)
TO_STUDENT = (steps.ClearHiddenTests, _KeepMetadata, steps.ComputeChecksums, steps.CheckCellMetadata)


def graded_edition(source: Source) -> NotebookNode:
    """Return the edition that is graded: without solutions, with hidden tests."""
    return copy.deepcopy(_edition(source, TO_GRADE))


def student_edition(source: Source) -> NotebookNode:
    """Return the edition that is handed out: without solutions, without hidden tests."""
    return copy.deepcopy(_edition(source, TO_GRADE + TO_STUDENT))


@cache  # every submission is compared with both
def _edition(source: Source, chain: tuple[type[Preprocessor], ...]) -> NotebookNode:
    notebook = copy.deepcopy(source.notebook)
    for step in chain:
        notebook, _ = step(config=STUBS).preprocess(notebook, {})
    return notebook
