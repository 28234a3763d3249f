"""What a teacher takes home: the table after grading, and the CSV files for a learning-management system."""

import csv
import io
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from grader.files import write_text
from grader.gradebook import ClassFolder, Mark
from grader.roster import Student

FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass
class Row:
    """One student: marks by assignment (none where nothing was handed in), and lines that explain them."""

    student: Student
    marks: dict[str, Mark | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def total(self) -> float:
        """Return the sum of all marks."""
        return sum((mark.score for mark in self.marks.values() if mark), 0.0)


def rows_of(
    folder: ClassFolder, roster: dict[str, Student], assignments: Collection[str], left_out: list[tuple[str, str]]
) -> list[Row]:
    """Return a row for every student: on the roster, in the gradebook, or in a folder that could not be graded.

    Args:
        folder: the class.
        roster: by student id; may be empty.
        assignments: which columns.
        left_out: folder names and why they were left out.
    """
    recorded = folder.recorded()
    lines = defaultdict(list)
    for name, line in left_out:
        lines[name].append(line)
    rows = []
    for id in sorted({*roster, *lines, *(student for student, _ in recorded)}):
        row = Row(roster.get(id, Student(id)), {name: recorded.get((id, name)) for name in assignments}, lines[id])
        if roster and id not in roster:
            row.notes.append("not in students.csv")
        for name in assignments:
            row.notes += [f"{name}: {note}" for note in folder.entry(id, name).get("notes", [])]
        rows.append(row)
    return rows


def table(rows: list[Row], points: dict[str, float]) -> str:
    """Return marks and notes as lines of text; a mark with a star waits for a mark by hand."""
    head = ["student", *(f"{name} / {maximum:g}" for name, maximum in points.items()), "total"]
    marks = [
        [f"{mark.score:g}{'' if mark.final else '*'}" if mark else "-" for mark in row.marks.values()] for row in rows
    ]
    body = [[row.student.id, *cells, f"{row.total:g}"] for row, cells in zip(rows, marks, strict=True)]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in [head, *body]]
    notes = [f"{row.student.id}: {note}" for row in rows for note in row.notes]
    star = ["* waits for marks by hand: make formgrader"] * any("*" in cell for cells in marks for cell in cells)
    return "\n".join([*(line.rstrip() for line in lines), *star, *notes])


def write_grades(path: Path, rows: list[Row], points: dict[str, float]) -> None:
    """Write the marks as CSV: a row a student, the most that can be had in each heading, the causes in ``notes``."""
    assignments = [f"{name} (max {maximum:g})" for name, maximum in points.items()]
    total = f"total (max {sum(points.values()):g})"
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["student_id", "first_name", "last_name", "email", *assignments, total, "notes"])
    for row in rows:
        names = (row.student.id, row.student.first_name, row.student.last_name, row.student.email)
        marks = [f"{mark.score:g}" if mark else "0" for mark in row.marks.values()]
        missing = [f"{name}: not handed in" for name, mark in row.marks.items() if not mark]
        waiting = [
            f"{name}: not final, waits for marks by hand" for name, mark in row.marks.items() if mark and not mark.final
        ]
        notes = as_text("; ".join([*row.notes, *missing, *waiting]))
        writer.writerow([*map(as_text, names), *marks, f"{row.total:g}", notes])
    write_text(path, buffer.getvalue())


def as_text(value: str) -> str:
    """Return a value that a spreadsheet shows and does not compute."""
    flat = " ".join(value.split())
    return f"'{flat}" if flat.startswith(FORMULA) else flat
