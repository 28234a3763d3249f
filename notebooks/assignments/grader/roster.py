"""The students of a class: ``students.csv`` with the columns id, first_name, last_name, email."""

import csv
import re
from dataclasses import dataclass
from pathlib import Path

COLUMNS = ("id", "first_name", "last_name", "email")
STUDENT_ID = re.compile(r"\w([\w.@ -]{0,98}[\w.@-])?")
WHICH = "letters, digits and . _ @ - and spaces inside, at most 100"


class RosterError(Exception):
    """``students.csv`` cannot be used; the message names the line and says what to change."""


@dataclass(frozen=True)
class Student:
    """One line of the roster."""

    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""


def is_student_id(text: str) -> bool:
    """Whether a text can name a folder, a row of the gradebook and a page of formgrader."""
    return bool(STUDENT_ID.fullmatch(text))


def read_roster(path: Path) -> dict[str, Student]:
    """Read the roster by student id; without the file it is empty.

    Raises:
        RosterError: not UTF-8 text, no column ``id``, an id that cannot be used, or twice the same.
    """
    if not path.exists():
        return {}
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))
    except UnicodeDecodeError:
        raise RosterError(f"{path.name} is not UTF-8 text. Save it as CSV in UTF-8.") from None
    students = {}
    for line, row in enumerate(rows, start=2):
        fields = {column: (row.get(column) or "").strip() for column in COLUMNS}
        if "id" not in row:
            raise RosterError(f"{path.name} has no column id. Its first line is: {','.join(COLUMNS)}.")
        if not any(fields.values()):
            continue
        if not is_student_id(fields["id"]):
            raise RosterError(f"{path.name}, line {line}: {fields['id']!r} is no student id ({WHICH}).")
        if fields["id"] in students:
            raise RosterError(f"{path.name}, line {line}: the id {fields['id']} is there twice.")
        students[fields["id"]] = Student(**fields)
    return students
