"""A submission put back on its feet: the graded cells come from the source, the student's work from the student.

Whatever happened to nbgrader's labels, a cell is found by its ``grade_id``, else by its cell id, else by its text, else
by its place under the heading of its task.
"""

import ast
import copy
import re

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from grader.read_submission import HandedCell
from grader.release import graded_edition, student_edition
from grader.source import Source, heading_of, is_answer, is_test, is_theirs, nbgrader_of

NOT_FOUND = "The answer was not found in what was handed in. Look it up there by hand, then mark it here."


class Repair:
    """Bring a submission into the form that the source has.

    Tests and given cells are the source's own, whatever the submission made of them. Every code cell of the student's
    stays, in the student's order; so does every text. A written answer that is nowhere to be found leaves a line.
    """

    def __init__(self, source: Source, handed: list[HandedCell]):
        self.source, self.handed, self.notes = source, handed, []
        self.cells = {cell.id: cell for cell in graded_edition(source).cells}
        self.stubs = {cell.id: _plain(cell.source) for cell in student_edition(source).cells}
        self.changed = set()  # tests and given cells that are there, with other text in them
        self._find_by_label()
        self._find_by_text()
        section = next(iter(source.labels.values()))
        for cell in handed:
            section = cell.section = source.labels.get(cell.owner, section)
        self._find_by_place()
        tasks = [id for id in self._found() if is_theirs(self.cells[id]) and source.labels[id].startswith("Task")]
        self.is_other = not tasks and not any(is_test(self.cells[id]) for id in self._found())
        if self.is_other:
            self.notes.insert(0, f"no task of {source.name} is in the notebook; it may be another one")

    # Which cell is which

    def _find_by_label(self) -> None:
        of_grade_id = {nbgrader_of(cell)["grade_id"]: id for id, cell in self.cells.items() if nbgrader_of(cell)}
        are_labels_lost = False
        for cell in self.handed:
            cell.owner = of_grade_id.get(cell.grade_id) or (cell.id if cell.id in self.cells else None)
            if cell.owner in of_grade_id.values():
                are_labels_lost |= cell.grade_id is None
                if not is_theirs(self.cells[cell.owner]) and self._is_written(cell):
                    self.changed.add(cell.owner)
                    cell.owner = None  # the student's own cell from now on
        if are_labels_lost:
            self.notes.append("nbgrader's labels were missing; the cell ids told which cell is which")

    def _find_by_text(self) -> None:
        """Find cells without labels that are as they were handed out, and headings whose text goes on differently."""
        by_text = {text: id for id, text in self.stubs.items() if not is_theirs(self.cells[id])}
        by_heading = {heading_of(cell): id for id, cell in self.cells.items() if heading_of(cell)}
        nameless = [cell for cell in self.handed if cell.owner is None]
        for cell in nameless:
            heading = cell.text.strip().partition("\n")[0] if cell.kind == "markdown" else None
            cell.owner = by_text.get(_plain(cell.text)) or by_heading.get(heading)
        if any(cell.owner and nbgrader_of(self.cells[cell.owner]) for cell in nameless):
            self.notes.append("nbgrader's labels and the cell ids were missing; the text told which cell is which")

    def _find_by_place(self) -> None:
        """Find the student's code in cells that have lost every label: by what it defines, else by its heading."""
        for id, cell in self.cells.items():
            if is_theirs(cell) and not is_answer(cell) and id not in self._found():
                name = re.search(r"^(?:def|class)\s+\w+", self.stubs[id], re.MULTILINE)
                named = [each for each in self._own("code") if name and re.search(rf"^{name[0]}\b", each.text, re.M)]
                for each in named[-1:] or self._own("code", self.source.labels[id])[:1]:
                    each.owner = id

    def _found(self) -> set[str]:
        return self.changed.union(cell.owner for cell in self.handed if cell.owner)

    def _own(self, kind: str, label: str | None = None) -> list[HandedCell]:
        """Return the student's own cells of one kind, under one heading or all."""
        own = [cell for cell in self.handed if cell.owner is None and cell.kind == kind and cell.text.strip()]
        return [cell for cell in own if label in (None, cell.section)]

    def _is_written(self, cell: HandedCell) -> bool:
        """Whether a cell holds other text than the one that was handed out."""
        return _plain(cell.text) not in ("", self.stubs[cell.owner])

    # What comes of it

    def result(self) -> tuple[NotebookNode, list[str]]:
        """Return the repaired notebook, and what had to be done for it, in the order of the tasks."""
        places = {}  # in which handed cell's place a source cell stands
        for id, cell in self.cells.items():
            if nbgrader_of(cell):
                fill = self._fill_answer if is_answer(cell) else self._fill_code if is_theirs(cell) else self._restore
                places[id] = fill(id, [each for each in self.handed if each.owner == id])
        out = []
        for cell in self.handed:
            if places.get(cell.owner) is cell:
                out.append((cell.owner, self.cells[cell.owner]))
            elif not self._is_spent(cell):
                pictures = {"attachments": cell.attachments} if cell.attachments else {}
                new = new_code_cell if cell.kind == "code" else new_markdown_cell
                out.append((cell.owner, new(cell.text, id=f"handed-{len(out)}", **pictures)))
        # tests, given cells and answers that have no place come behind what stands before them in the source
        before = []
        for id, cell in self.cells.items():
            if nbgrader_of(cell) and not places[id] and (is_answer(cell) or not is_theirs(cell)):
                last = {owner: place for place, (owner, _) in enumerate(out)}
                out.insert(next((last[each] for each in reversed(before) if each in last), -1) + 1, (id, cell))
            before.append(id)
        metadata = copy.deepcopy(self.source.notebook.metadata)
        notes = self.notes[:1] if self.is_other else self.notes  # a list of all that is missing would hide the reason
        return new_notebook(cells=[cell for _, cell in out], metadata=metadata), notes

    def _is_spent(self, cell: HandedCell) -> bool:
        """Whether nothing is left to show of a handed cell: a copy of a given one, or text that is in an answer."""
        source = self.cells.get(cell.owner)
        return bool(source and nbgrader_of(source)) and (is_answer(source) or not self._is_written(cell))

    def _restore(self, id: str, copies: list[HandedCell]) -> HandedCell | None:
        """Put a test or a given cell back; what the student made of it stays as a cell of the student's."""
        label, cell = self.source.labels[id], self.cells[id]
        what = f"the check of {label}" if is_test(cell) else f"the given cell {id} ({label})"
        if id in self.changed:
            self.notes.append(f"{what} had been changed; the original counts")
        elif not copies:
            self.notes.append(f"{what} was missing; it was put back")
        if len(copies) > 1:
            self.notes.append(f"{what} was there {len(copies)} times; it counts once")
        points = [each.points for each in copies if each.points is not None]
        if is_test(cell) and any(str(each) != str(nbgrader_of(cell)["points"]) for each in points):
            self.notes.append(f"the points of {label} had been changed; the original ones count")
        return next(iter(copies), None)

    def _fill_code(self, id: str, copies: list[HandedCell]) -> HandedCell | None:
        """Put the student's code into its cell; of several, the last that was written in."""
        label = self.source.labels[id]
        if not copies:
            self.notes.append(f"the cell for the code of {label} ({id}) was not found")
            return None
        if len(copies) > 1:
            self.notes.append(f"{len(copies)} cells claim to be the code of {label}; all of them ran")
        last = max(copies, key=lambda each: (self._is_written(each), copies.index(each)))
        self.cells[id].source = last.text
        return last

    def _fill_answer(self, id: str, copies: list[HandedCell]) -> HandedCell | None:
        """Put the written answer into its cell, wherever the student wrote it."""
        label, cell = self.source.labels[id], self.cells[id]
        answers = list({_plain(each.text): each for each in copies if self._is_written(each)}.values())
        if len(answers) > 1:
            self.notes.append(f"{len(answers)} written answers to {label}; all are shown, one below the other")
        if not answers:
            answers = self._own("markdown", label) + self._rewritten(label)
            if answers:
                self.notes.append(f"the written answer of {label} was found by its place, not by its label")
            elif not copies or self._may_be_elsewhere(label, copies[0]):
                self.notes.append(f"the written answer of {label} could not be found; look it up by hand")
                cell.source = NOT_FOUND
        if answers:
            cell.source = "\n\n".join(each.text for each in answers)
            cell.attachments = {name: data for each in answers for name, data in each.attachments.items()}
        for each in answers:
            each.owner = each.owner or id
        return next((each for each in [*copies, *answers] if each.owner == id), None)

    def _rewritten(self, label: str) -> list[HandedCell]:
        """Return the prompts under a heading that the student wrote in."""
        prompts = [
            id
            for id, cell in self.cells.items()
            if self.source.labels[id] == label and not nbgrader_of(cell) and cell.cell_type == "markdown"
        ]
        return [cell for cell in self.handed if cell.owner in prompts and self._is_written(cell)]

    def _may_be_elsewhere(self, label: str, stub: HandedCell) -> bool:
        """Whether the student has written text below the place for an answer, or as a comment or string near it."""
        below = self.handed[self.handed.index(stub) :]
        texts = [cell for cell in self._own("code") if _is_text(cell.text)]
        return any(cell in below or cell.section == label for cell in texts) or any(
            cell in below for cell in self._own("markdown")
        )


def _is_text(code: str) -> bool:
    """Whether code is made of comments and strings alone."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) for each in body)


def _plain(text: str) -> str:
    """Return text as it is compared: editors change the ends of lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
