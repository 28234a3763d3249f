"""What a teacher takes home: the table after grading, and ``nbgrader export`` with the course's columns and notes."""

import csv
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.plugins import ExportPlugin
from traitlets import Unicode

from grader.classroom import find_submissions
from grader.collect import LATE, assignment_in
from grader.files import write_csv
from grader.gradebook import ClassFolder, Mark, marks_in
from grader.roster import Student, identify
from grader.source import load_all

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


@dataclass
class Report:
    """The marks of a class: the most that each assignment gives that somebody has handed in, and a row a student."""

    points: dict[str, float]
    rows: list[Row]


class Grades(ExportPlugin):
    """Export a row for each student and a column for each assignment, or fill in a file that Canvas has exported."""

    canvas = Unicode("", help="a CSV file that Canvas has exported").tag(config=True)

    def export(self, gradebook: Gradebook) -> None:
        """Write the CSV file."""
        report = report_on(gradebook, ClassFolder(Path(self.parent.coursedir.root)), self.assignment, self.student)
        lines = canvas_lines(Path(self.canvas), report) if self.canvas else grades_lines(report)
        write_csv(Path(self.to or "grades.csv"), lines)


def report_on(
    gradebook: Gradebook, folder: ClassFolder, assignments: Collection[str] = (), students: Collection[str] = ()
) -> Report:
    """Return the marks of every student: on the roster, in the gradebook, or in a folder that could not be graded.

    Args:
        gradebook, folder: of the class.
        assignments, students: only these; all if empty.
    """
    points = {
        each.name: each.max_score
        for each in sorted(gradebook.assignments, key=lambda each: each.name)
        if each.submissions and each.name in (assignments or [each.name])
    }
    recorded, lines = marks_in(gradebook), defaultdict(list)
    for name, line in find_submissions(folder.root / "submitted", load_all(folder.sources))[1]:
        lines[name].append(line)
    rows = []
    for id in sorted({*folder.roster, *lines, *(student for student, _ in recorded)}):
        row = Row(folder.roster.get(id, Student(id)), {name: recorded.get((id, name)) for name in points}, lines[id])
        if folder.roster and id not in folder.roster:
            row.notes.append("not in students.csv")
        for name in points:
            late = ["Canvas marked it as late"] * (folder.root / "submitted" / id / name / LATE).is_file()
            row.notes += [f"{name}: {note}" for note in folder.entry(id, name).get("notes", []) + late]
        rows.append(row)
    return Report(points, [row for row in rows if row.student.id in (students or [row.student.id])])


def table(report: Report) -> str:
    """Return marks and notes as lines of text; a mark with a star waits for a mark by hand."""
    rows, points = report.rows, report.points
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


def grades_lines(report: Report) -> list[list[str]]:
    """Return the lines of the CSV file, with the most that can be had in each heading, and the causes in ``notes``."""
    assignments = [f"{name} (max {maximum:g})" for name, maximum in report.points.items()]
    total = f"total (max {sum(report.points.values()):g})"
    lines = [["student_id", "first_name", "last_name", "email", *assignments, total, "notes"]]
    for row in report.rows:
        marks = [f"{mark.score:g}" if mark else "0" for mark in row.marks.values()]
        missing = [f"{name}: not handed in" for name, mark in row.marks.items() if not mark]
        waiting = [
            f"{name}: not final, waits for marks by hand" for name, mark in row.marks.items() if mark and not mark.final
        ]
        notes = as_text("; ".join([*row.notes, *missing, *waiting]))
        lines.append([*map(as_text, vars(row.student).values()), *marks, f"{row.total:g}", notes])
    return lines


def canvas_lines(path: Path, report: Report) -> list[list[str]]:
    """Return the lines of a CSV file of Canvas's, with the final marks in the columns that name an assignment."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.reader(file))
    students = {row.student.id: row.student for row in report.rows}
    marks = {row.student.id: row.marks for row in report.rows}
    who = [lines[0].index(title) for title in ("SIS Login ID", "SIS User ID", "Student") if title in lines[0]]
    for line in lines[1:]:
        id = next(filter(None, (identify(line[index], students) for index in who)), None)
        for index, title in enumerate(lines[0]):
            mark = marks.get(id, {}).get(assignment_in(title))
            if mark and mark.final:
                line[index] = f"{mark.score:g}"
    return lines


def as_text(value: str) -> str:
    """Return a value that a spreadsheet shows and does not compute."""
    flat = " ".join(value.split())
    return f"'{flat}" if flat.startswith(FORMULA) else flat
