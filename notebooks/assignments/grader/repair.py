"""A submission put back on its feet: the graded cells come from the source, the student's work from the student.

Whatever happened to nbgrader's labels, a cell is found by its ``grade_id``, else by its cell id, else by its text, else
by its place under the heading of its task.
"""

import copy
import re

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from grader.read_submission import HandedCell
from grader.release import graded_edition, student_edition
from grader.source import Source, heading_of, is_answer, is_test, is_theirs, nbgrader_of

NOT_FOUND = "The answer was not found in what was handed in. Look it up there by hand, then mark it here."


def repair(source: Source, handed: list[HandedCell]) -> tuple[NotebookNode, list[str]]:
    """Bring a submission into the form that the source has; return it, and what had to be done for it.

    Tests and given cells are the source's own, whatever the submission made of them. Every code cell of the student's
    stays, in the student's order; so does every text. A written answer that is nowhere to be found leaves a line.
    """
    return _Repair(source, handed).result()


class _Repair:
    """The work of :func:`repair`: ``owner[i]`` is the source cell, by its id, that the handed cell ``i`` stands for."""

    def __init__(self, source: Source, handed: list[HandedCell]):
        self.source, self.handed, self.notes = source, handed, []
        self.cells = {cell.id: cell for cell in graded_edition(source).cells}
        self.stubs = {cell.id: _plain(cell.source) for cell in student_edition(source).cells}
        self.changed = set()  # tests and given cells that are there, with other text in them
        self.owner = self._by_label()
        self._by_text()
        known = self.changed.union(filter(None, self.owner))
        has_checks = any(is_test(self.cells[id]) for id in known)
        if not has_checks:
            self.notes.insert(0, f"no check of {source.name} is in the notebook; it may be another one")
        self.sections = self._sections()
        self._by_place()
        found = self.changed.union(filter(None, self.owner))
        tasks = [id for id in found if is_theirs(self.cells[id]) and source.labels[id].startswith("Task")]
        self.is_other = not tasks and not has_checks

    # Which cell is which

    def _by_label(self) -> list[str | None]:
        of_grade_id = {nbgrader_of(cell)["grade_id"]: id for id, cell in self.cells.items() if nbgrader_of(cell)}
        owner = [of_grade_id.get(cell.grade_id) or (cell.id if cell.id in self.cells else None) for cell in self.handed]
        pairs = zip(self.handed, owner, strict=True)
        if any(cell.grade_id is None and id and nbgrader_of(self.cells[id]) for cell, id in pairs):
            self.notes.append("nbgrader's labels were missing; the cell ids told which cell is which")
        for index, id in enumerate(owner):
            if id and nbgrader_of(self.cells[id]) and not is_theirs(self.cells[id]) and not self._is_stub(index, id):
                self.changed.add(id)
                owner[index] = None  # the student's own cell from now on
        return owner

    def _by_text(self) -> None:
        """Find cells without labels that are as they were handed out, and headings whose text goes on differently."""
        by_text = {text: id for id, text in self.stubs.items() if not is_theirs(self.cells[id])}
        by_heading = {heading_of(cell): id for id, cell in self.cells.items() if heading_of(cell)}
        found = False
        for index, cell in enumerate(self.handed):
            if self.owner[index] is None:
                heading = cell.text.strip().partition("\n")[0] if cell.kind == "markdown" else None
                self.owner[index] = by_text.get(_plain(cell.text)) or by_heading.get(heading)
                found |= self.owner[index] is not None and bool(nbgrader_of(self.cells[self.owner[index]]))
        if found:
            self.notes.append("nbgrader's labels and the cell ids were missing; the text told which cell is which")

    def _sections(self) -> list[str]:
        """Return under which heading each handed cell stands, by what stands before it."""
        sections, label = [], next(iter(self.source.labels.values()))
        for id in self.owner:
            label = self.source.labels.get(id, label)
            sections.append(label)
        return sections

    def _by_place(self) -> None:
        """Find the student's code in cells that have lost every label: by what it defines, else by its heading."""
        for id, cell in self.cells.items():
            if is_theirs(cell) and not is_answer(cell) and id not in self.owner:
                name = re.search(r"^(?:def|class)\s+\w+", self.stubs[id], re.MULTILINE)
                free = [index for label in dict.fromkeys(self.sections) for index in self._own(label, "code")]
                named = [index for index in free if name and re.search(rf"^{name[0]}\b", self.handed[index].text, re.M)]
                for index in named[-1:] or self._own(self.source.labels[id], "code")[:1]:
                    self.owner[index] = id

    def _own(self, label: str, kind: str) -> list[int]:
        """Return the student's own cells of one kind under one heading."""
        return [
            index
            for index, cell in enumerate(self.handed)
            if self.owner[index] is None and cell.kind == kind and self.sections[index] == label and cell.text.strip()
        ]

    # What comes of it

    def result(self) -> tuple[NotebookNode, list[str]]:
        """Return the repaired notebook, with the notes in the order of the tasks."""
        placed = {}  # handed index -> the source cell that stands there
        for id, cell in self.cells.items():
            if nbgrader_of(cell):
                fill = self._fill_answer if is_answer(cell) else self._fill_code if is_theirs(cell) else self._restore
                place = fill(id, [index for index, owner in enumerate(self.owner) if owner == id])
                if place is not None:
                    placed[place] = id
        out = []
        for index, handed in enumerate(self.handed):
            if index in placed:
                out.append((placed[index], self.cells[placed[index]]))
            elif not self._is_spent(index):
                out.append((self.owner[index], _own_cell(handed)))
        self._insert_missing(out, set(placed.values()))
        for number, (_, cell) in enumerate(out):
            if not nbgrader_of(cell):
                cell.id = f"handed-{number}"
        metadata = copy.deepcopy(self.source.notebook.metadata)
        if self.is_other:  # a list of all that is missing would hide the reason
            self.notes = self.notes[:1]
        return new_notebook(cells=[cell for _, cell in out], metadata=metadata), self.notes

    def _restore(self, id: str, copies: list[int]) -> int | None:
        """Put a test or a given cell back; what the student made of it stays as a cell of the student's."""
        label, cell = self.source.labels[id], self.cells[id]
        what = f"the check of {label}" if is_test(cell) else f"the given cell {id} ({label})"
        if id in self.changed:
            self.notes.append(f"{what} had been changed; the original counts")
        elif not copies:
            self.notes.append(f"{what} was missing; it was put back")
        if len(copies) > 1:
            self.notes.append(f"{what} was there {len(copies)} times; it counts once")
        points = {str(self.handed[index].points) for index in copies if self.handed[index].points is not None}
        if is_test(cell) and points - {str(nbgrader_of(cell)["points"]), str(float(nbgrader_of(cell)["points"]))}:
            self.notes.append(f"the points of {label} had been changed; the original ones count")
        return copies[0] if copies else None

    def _fill_code(self, id: str, copies: list[int]) -> int | None:
        """Put the student's code into its cell; of several, the last that was written in."""
        if not copies:
            self.notes.append(f"the cell for the code of {self.source.labels[id]} ({id}) was not found")
            return None
        index = self._written(id, copies)[-1:] or copies[-1:]
        self.cells[id].source = self.handed[index[0]].text
        if len(copies) > 1:
            self.notes.append(f"{len(copies)} cells claim to be the code of {self.source.labels[id]}; all of them ran")
        return index[0]

    def _fill_answer(self, id: str, copies: list[int]) -> int | None:
        """Put the written answer into its cell, wherever the student wrote it."""
        label, cell = self.source.labels[id], self.cells[id]
        answers = list({_plain(self.handed[index].text): index for index in self._written(id, copies)}.values())
        if not answers:
            answers = self._own(label, "markdown") + self._rewritten(label)
            if answers:
                self.notes.append(f"the written answer of {label} stood in another cell; it was taken from there")
        elif len(answers) > 1:
            self.notes.append(f"{len(answers)} written answers to {label}; all are shown, one below the other")
        if answers:
            cell.source = "\n\n".join(self.handed[index].text for index in answers)
            cell.attachments = {
                name: data for index in answers for name, data in self.handed[index].attachments.items()
            }
            moved = [index for index in answers if self.owner[index] is None]
            for index in moved:
                self.owner[index] = id
            copies = copies + moved
        elif not copies or self._may_be_elsewhere(label, copies[0]):
            self.notes.append(f"the written answer of {label} could not be found; look it up by hand")
            cell.source = NOT_FOUND
        return copies[0] if copies else None

    def _may_be_elsewhere(self, label: str, stub: int) -> bool:
        """Whether the student has written text somewhere below the place for an answer, or comments next to it."""
        texts = [cell for index, cell in enumerate(self.handed) if index > stub and self.owner[index] is None]
        remarks = [self.handed[index].text for index in self._own(label, "code")]
        return any(cell.kind == "markdown" and cell.text.strip() for cell in texts) or any(
            all(line.lstrip().startswith("#") for line in text.splitlines() if line.strip()) for text in remarks
        )

    def _written(self, id: str, copies: list[int]) -> list[int]:
        return [index for index in copies if not self._is_stub(index, id)]

    def _rewritten(self, label: str) -> list[int]:
        """Return the prompts under a heading that the student wrote in."""
        return [
            index
            for index, id in enumerate(self.owner)
            if id is not None
            and self.source.labels[id] == label
            and not nbgrader_of(self.cells[id])
            and self.cells[id].cell_type == "markdown"
            and not self._is_stub(index, id)
        ]

    def _is_spent(self, index: int) -> bool:
        """Whether nothing is left to show of a handed cell: a copy of a given one, or text that is in an answer."""
        id = self.owner[index]
        if id is None or not nbgrader_of(self.cells[id]):
            return False
        return is_answer(self.cells[id]) or self._is_stub(index, id)

    def _is_stub(self, index: int, id: str) -> bool:
        return _plain(self.handed[index].text) in ("", self.stubs[id])

    def _insert_missing(self, out: list[tuple[str | None, NotebookNode]], placed: set[str]) -> None:
        """Put tests, given cells and answers that have no place behind what stands before them in the source."""
        before = []
        for id, cell in self.cells.items():
            if nbgrader_of(cell) and id not in placed and (is_answer(cell) or not is_theirs(cell)):
                last = {owner: place for place, (owner, _) in enumerate(out)}
                out.insert(next((last[each] for each in reversed(before) if each in last), -1) + 1, (id, cell))
            before.append(id)


def _own_cell(handed: HandedCell) -> NotebookNode:
    if handed.kind == "code":
        return new_code_cell(handed.text)
    return new_markdown_cell(handed.text, **({"attachments": handed.attachments} if handed.attachments else {}))


def _plain(text: str) -> str:
    """Return text as it is compared: editors change the ends of lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
