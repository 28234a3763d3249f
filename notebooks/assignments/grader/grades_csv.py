"""What a teacher takes home: the table after grading, and ``nbgrader export`` with the course's columns and notes."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from nbgrader.api import Gradebook
from nbgrader.plugins import ExportPlugin

from grader.classroom import find_submissions
from grader.collect import LATE, assignment_in
from grader.files import Stop, write_text
from grader.gradebook import ClassFolder, Mark
from grader.outputs import plain
from grader.roster import Student, identify
from grader.source import load_all

NEWER = "the files have changed since this mark was given; run make grade"
NOT_GRADED = "handed in, but not graded yet; run make grade"
GONE = "its files are no longer in submitted; put them back, or remove the mark with make grade OPTIONS=--forget"

NOT_FINAL = "* not final: see the notes; otherwise mark by hand, or confirm with Resolve, in make grade BY=hand"


@dataclass
class Row:
    """One student: marks by assignment (none where nothing was handed in), and lines that explain them."""

    student: Student
    marks: dict[str, Mark | None]
    notes: list[str]

    @property
    def total(self) -> str:
        """Return the sum of all marks."""
        return f"{sum(mark.score for mark in self.marks.values() if mark):g}"


class Grades(ExportPlugin):
    """Have ``nbgrader export`` write what ``make grades`` writes."""

    def export(self, gradebook: Gradebook) -> None:
        """Write the CSV file."""
        folder = ClassFolder(Path(self.parent.coursedir.root))
        write_csv(Path(self.to or "grades.csv"), grades_lines(*report(folder, self.assignment, self.student)))


def report(
    folder: ClassFolder, assignments: Collection[str], students: Collection[str]
) -> tuple[dict[str, float], list[Row]]:
    """Return the most that each assignment gives, and a row for each student; both only of those named, if any are.

    An assignment counts as soon as somebody has handed it in; a student who is on the roster, in the gradebook, or has
    handed something in.
    """
    submissions, lines = find_submissions(folder.root / "submitted", load_all(folder.sources))
    recorded, digests = folder.recorded(), {each.name: each.digest for each in submissions}
    with folder.gradebook() as gradebook:
        points = {each.name: each.max_score for each in gradebook.assignments}
    handed_in = sorted({name for _, name in {*recorded, *digests}} & points.keys())
    points = {name: points[name] for name in handed_in if name in (assignments or points)}
    entries, alike, rows = {name: folder.entry(*name) for name in recorded}, defaultdict(set), []
    for (id, name), entry in entries.items():
        alike[name, entry.get("written") or id].add(id)
    for id in sorted({*folder.roster, *lines, *(student for student, _ in {*recorded, *digests})}):
        notes = [*lines[id], *["not in students.csv"] * bool(folder.roster and id not in folder.roster)]
        marks = {name: recorded.get((id, name)) for name in points}
        for name, mark in marks.items():
            entry, digest = entries.get((id, name), {}), digests.get((id, name))
            if cause := _outdated(mark, entry, digest):
                marks[name] = Mark(mark.score if mark else 0.0, False, cause)
            copies = ", ".join(sorted(alike[name, entry.get("written") or id] - {id}))
            remarks = [*entry.get("notes", []), *filter(None, [cause])]
            if copies:
                remarks.append(f"the same cells, letter by letter, as {copies}")
            if (folder.root / "submitted" / id / name / LATE).is_file():
                remarks.append("Canvas marked it as late")
            notes += [f"{name}: {remark}" for remark in remarks]
        rows.append(Row(folder.roster.get(id, Student(id)), marks, [plain(note) for note in notes]))
    return points, [row for row in rows if row.student.id in (students or [row.student.id])]


def _outdated(mark: Mark | None, entry: dict, digest: str | None) -> str:
    """Return why a mark does not belong to the files that are there, whose hash is ``digest``; empty if it does."""
    if digest and not (mark and entry):  # or it was not all entered
        return NOT_GRADED
    if mark and not digest:
        return GONE
    return NEWER if mark and digest != entry.get("files", digest) else ""


def table(points: dict[str, float], rows: list[Row]) -> str:
    """Return marks and notes as lines of text; a mark with a star is not final."""
    lines = [["student", *(f"{name} / {maximum:g}" for name, maximum in points.items()), "total"]]
    for row in rows:
        marks = [f"{mark.score:g}{'' if mark.final else '*'}" if mark else "-" for mark in row.marks.values()]
        lines.append([row.student.id, *marks, row.total])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    if any("*" in cell for line in lines[1:] for cell in line):
        shown.append(NOT_FINAL)
    return "\n".join([*shown, *(f"{row.student.id}: {' '.join(note.split())}" for row in rows for note in row.notes)])


def grades_lines(points: dict[str, float], rows: list[Row]) -> list[list[str]]:
    """Return the lines of the CSV file, with the most that can be had in each heading, and the causes in ``notes``."""
    columns = [f"{name} (max {maximum:g})" for name, maximum in {**points, "total": sum(points.values())}.items()]
    lines = [["student_id", "first_name", "last_name", "email", *columns, "notes"]]
    for row in rows:
        marks = [f"{mark.score:g}" if mark else "0" for mark in row.marks.values()]
        notes = [*row.notes, *(f"{name}: not handed in" for name, mark in row.marks.items() if not mark)]
        waiting = [name for name, mark in row.marks.items() if mark and not mark.final and not mark.cause]
        notes += [f"{name}: not final, waits for marks by hand" for name in waiting]
        lines.append([*map(as_text, vars(row.student).values()), *marks, row.total, as_text("; ".join(notes))])
    return lines


def canvas_lines(path: Path, points: dict[str, float], rows: list[Row]) -> tuple[list[list[str]], list[str]]:
    """Return the lines of a CSV file of Canvas's with the final marks in it, and lines on what was and was not filled.

    A column is found by its whole title, such as "Assignment 1 (345)", and a student by an id or, where no row has the
    id, by a name that only one row has.
    """
    try:
        head, *lines = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")))
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"{path} cannot be read: {error}") from None
    except ValueError:
        head, lines = [], []
    if "Student" not in head:
        raise Stop(f"{path} is not a gradebook that Canvas has exported: its first line has no column Student.")
    titles = {name: [k for k, title in enumerate(head) if _canvas_assignment(title) == name] for name in points}
    said, students = [], {row.student.id: row.student for row in rows}
    lines_of: dict[str, list[list[str]]] = defaultdict(list)
    for kinds in ("SIS Login ID", "SIS User ID"), ("Student",):
        found = defaultdict(list)
        for line in lines:
            if line not in chain(*lines_of.values()):
                cells = [line[head.index(kind)] for kind in kinds if kind in head[: len(line)]]
                found[next(filter(None, (identify(cell, students) for cell in cells)), "")].append(line)
        lines_of |= {id: its for id, its in found.items() if id in students and id not in lines_of}
    for name, columns in titles.items():
        if len(columns) != 1:
            said.append(f"{name}: {len(columns) or 'no'} columns in {path.name}; nothing was filled in")
            continue
        (column,), filled = columns, 0
        for row in rows:
            mark, its = row.marks[name], [line for line in lines_of[row.student.id] if column < len(line)]
            if mark and mark.final and len(its) == 1:
                its[0][column], filled = f"{mark.score:g}", filled + 1
            elif mark and mark.final:
                said.append(f"{name}: {len(its) or 'no'} rows for {row.student.id}; not filled in")
        said.append(f"{name}: marks filled in: {filled}, in the column {head[column]!r}")
    return [head, *lines], said


def _canvas_assignment(title: str) -> str:
    """Return the assignment that a column of Canvas's is for: its whole title, but for Canvas's number, names one."""
    name = re.sub(r" \(\d+\)$", "", title.strip())
    return assignment_in(name) if re.fullmatch(r"assignment[ _-]?\d{1,2}", name, re.IGNORECASE) else ""


def write_csv(path: Path, lines: list[list[str]]) -> None:
    """Write a CSV file in one step."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(lines)
    write_text(path, buffer.getvalue())


def as_text(value: str) -> str:
    """Return a value that a spreadsheet shows and does not compute."""
    flat = " ".join(value.split())
    return f"'{flat}" if flat.startswith(("=", "+", "-", "@")) else flat
