"""Sorting what a learning-management system hands out into ``submitted/STUDENT/assignment_NN/``."""

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.roster import Student, is_student_id

PATTERN = r"(?P<student>[^_/]+)_.*?(?P<assignment>assignment_\d\d)[^/]*\.ipynb"
MEGABYTES = 100


class CannotCollect(Exception):
    """The download or the pattern cannot be used; the message says why."""


@dataclass(frozen=True)
class Placed:
    """A notebook that now stands in its place."""

    file: str
    student: str
    assignment: str


def collect(
    download: Path, submitted: Path, roster: dict[str, Student], pattern: str = PATTERN, *, replace: bool = False
) -> tuple[list[Placed], list[str]]:
    """Sort a download; return what was placed, and a line for everything that was not.

    Args:
        download: a zip file, or a folder.
        submitted: where the class's submissions are.
        roster: students by id. If there are any, a name in a file name may also be "First Last" of the roster.
        pattern: a regular expression with the groups ``student`` and ``assignment``, for the path inside the download.
        replace: whether a newer file may take the place of another that was collected before.

    Raises:
        CannotCollect: no such download, a broken zip file, or a pattern without the two groups.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise CannotCollect(f"the pattern is no regular expression: {error}.") from None
    if not {"student", "assignment"} <= set(expression.groupindex):
        raise CannotCollect("the pattern needs the groups (?P<student>…) and (?P<assignment>…).")
    placed, lines, files = [], [], defaultdict(list)
    for name, data in _files(download):
        match = expression.fullmatch(name) or expression.fullmatch(Path(name).name)
        student = _student(match["student"], roster) if match else None
        if data is None:
            lines.append(f"{name}: larger than {MEGABYTES} MB or not readable. Look at it by hand.")
        elif not match:
            lines.append(f"{name}: its name does not say whose it is and for what. Place it by hand.")
        elif student is None:
            lines.append(
                f"{name}: no student {match['student']!r}{' in students.csv' * bool(roster)}. Place it by hand."
            )
        else:
            files[student, match["assignment"]].append((name, data))
    for (student, assignment), versions in files.items():
        path = submitted / student / assignment / f"{assignment}.ipynb"
        name, data = versions[0]
        if any(other != data for _, other in versions):
            names = ", ".join(name for name, _ in versions)
            lines.append(f"{names}: different files of {student} for {assignment}. Place the one that counts by hand.")
        elif (path.exists() or path.is_symlink()) and not replace:
            if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
                lines.append(f"{name}: {student} has handed in another {assignment} before. It stays; see --replace.")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            placed.append(Placed(name, student, assignment))
    return placed, lines


def _student(name: str, roster: dict[str, Student]) -> str | None:
    """Return the student id that a name in a file name stands for."""
    if not roster:
        return name if is_student_id(name) else None
    wanted = " ".join(name.split()).casefold()
    of_that_name = [each.id for each in roster.values() if f"{each.first_name} {each.last_name}".casefold() == wanted]
    return name if name in roster else of_that_name[0] if len(of_that_name) == 1 else None


def _files(download: Path) -> Iterator[tuple[str, bytes | None]]:
    """Yield path and content of every file; no content where it cannot or should not be read."""
    limit = MEGABYTES * 1_000_000
    if download.is_dir():
        for path in sorted(download.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                small = not path.is_symlink() and path.stat().st_size <= limit
                yield path.relative_to(download).as_posix(), path.read_bytes() if small else None
        return
    try:
        with zipfile.ZipFile(download) as archive:
            for entry in archive.infolist():
                if not entry.is_dir() and not entry.filename.startswith("__MACOSX/"):
                    yield entry.filename, _unpacked(archive, entry, limit)
    except FileNotFoundError:
        raise CannotCollect(f"there is no {download}.") from None
    except (zipfile.BadZipFile, OSError) as error:
        raise CannotCollect(f"{download} is neither a folder nor a zip file that can be read: {error}.") from None


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes | None:
    try:
        with archive.open(entry) as file:
            data = file.read(limit + 1)
    except (RuntimeError, NotImplementedError, zipfile.BadZipFile, zipfile.zlib.error):  # a password, an odd method
        return None
    return data if len(data) <= limit else None
