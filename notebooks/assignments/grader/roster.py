"""The students of a class: ``students.csv``, with the columns that nbgrader imports, and who is meant by a name."""

import csv
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from grader.files import Stop

COLUMNS = ("id", "first_name", "last_name", "email")
STUDENT_ID = re.compile(r"\w([\w.@ -]{0,98}[\w.@-])?")
WHICH = "letters, digits and . _ @ - and spaces inside, at most 100"


@dataclass(frozen=True)
class Student:
    """One line of the roster."""

    id: str
    first_name: str = ""
    last_name: str = ""
    email: str = ""

    @property
    def names(self) -> tuple[str, str, str]:
        """Return what learning-management systems call a student: Canvas's files begin with "lastfirst"."""
        return self.id, f"{self.first_name} {self.last_name}", f"{self.last_name} {self.first_name}"


def is_student_id(text: str) -> bool:
    """Whether a text can name a folder, a row of the gradebook and a page of formgrader."""
    return bool(STUDENT_ID.fullmatch(text))


def read_roster(path: Path) -> dict[str, Student]:
    """Read the roster by student id; without the file it is empty."""
    if not path.exists():
        return {}
    try:
        lines = unicodedata.normalize("NFC", path.read_text(encoding="utf-8-sig")).splitlines()
    except UnicodeDecodeError:
        raise Stop(f"{path.name} is not UTF-8 text. Save it as CSV in UTF-8.") from None
    reader, students = csv.DictReader(lines), {}
    if "id" not in (reader.fieldnames or ()):
        raise Stop(f"{path.name} has no column id. Its first line must be: {','.join(COLUMNS)}.")
    for row in reader:
        student = Student(*((row.get(column) or "").strip() for column in COLUMNS))
        if student == Student(""):
            continue
        if student.id in students or not is_student_id(student.id):
            cause = "appears twice" if student.id in students else f"is not a student id ({WHICH})"
            raise Stop(f"{path.name}, line {reader.line_num}: {student.id!r} {cause}.")
        students[student.id] = student
    return students


def identify(name: str, roster: dict[str, Student]) -> str | None:
    """Return the id of the student with a name, in any Unicode form, or None; without a roster the name is the id."""
    name = unicodedata.normalize("NFC", name.strip())
    if not roster or name in roster:
        return name if is_student_id(name) else None
    alike = namesakes(name, roster)
    return alike[0] if len(alike) == 1 else None


def namesakes(name: str, roster: dict[str, Student]) -> list[str]:
    """Return the ids of all students with a name, in whatever way it is written."""
    return [each.id for each in roster.values() if _letters(name) in {*map(_letters, each.names)} - {""}]


def _letters(name: str) -> str:
    return "".join(re.findall(r"\w", unicodedata.normalize("NFKC", name).casefold()))
