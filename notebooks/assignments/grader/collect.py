"""Collecting what a learning-management system hands out: archives are read, and each notebook put in its place."""

import difflib
import io
import re
import shutil
import stat
import unicodedata
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from grader.files import Stop
from grader.gradebook import ClassFolder
from grader.outputs import plain
from grader.own_parts import FILE
from grader.roster import Student, identify, namesakes

TASK = r"(?:(?P<assignment>assignment[ _-]?\d{1,2})(?!\d)[^/]*\.ipynb|my_vit[^/]*\.py)"
NUMBERED = rf"(?P<student>[^_/]+)(_LATE)?_\d+_(\d+_|assignsubmission).*?{TASK}"  # Canvas and Moodle
BLACKBOARD = rf"(?P<student>[^/]+?)_attempt_(?P<timestamp>\d{{4}}(-\d\d){{5}})[_/].*{TASK}"
BY_HAND = rf"(?P<student>[^/]+?)_{TASK}"
ANY = rf"(?P<student>[^_/]+)_.*?{TASK}"  # for names on a roster only
SYSTEMS = (NUMBERED, BLACKBOARD)
IGNORED = re.compile(r"(^|/)(\.|__MACOSX/|my_course/history/)|_attempt_[\d-]+\.txt$")  # hidden, old, notes
ENCODINGS = ("utf-8", "euc_kr", "cp437", "cp949")  # of names in an archive that are not marked as Unicode
LATE = "late.txt"  # next to a notebook that Canvas marks as late
MEGABYTES = 100  # of one file in the download, with what it unpacks to
MEGABYTES_IN_ALL = 2000
MEMBERS, LETTERS = 10_000, 500  # files of one archive, and of a name with the folders around it


@dataclass(frozen=True)
class HandIn:
    """A notebook in the download, and what its name says; only some systems write a timestamp into it.

    The assignment of a my_vit.py is "my_vit.py": it belongs to the notebooks that were handed in with it.
    """

    name: str
    content: bytes
    student: str
    assignment: str
    timestamp: str

    @property
    def origin(self) -> tuple:
        """Return what it shares with the other files of the same attempt."""
        return self.student, self.timestamp, self.name.rpartition("/")[0]


def collect(
    download: Path, folder: ClassFolder, assignments: Collection[str], pattern: str = "", *, replace: bool = False
) -> tuple[list[HandIn], list[str]]:
    """Sort a zip file or a folder into a class's folder; return what was placed, and a line for what was not.

    Args:
        pattern: a regular expression with the groups ``student`` and ``assignment``, for the path inside the download.
        replace: whether a file takes the place of another that was collected before.
    """
    try:
        names = [pattern] if pattern else [NUMBERED, BLACKBOARD, BY_HAND, *[ANY] * bool(folder.roster)]
        patterns = [re.compile(each, re.IGNORECASE | re.DOTALL) for each in names]
    except re.error as error:
        raise Stop(f"the pattern is not a regular expression: {error}.") from None
    if not {"student", "assignment"} <= set(patterns[0].groupindex):
        raise Stop("the pattern needs the groups (?P<student>…) and (?P<assignment>…).")
    found, lines, versions, own, placed = [], [], defaultdict(list), {}, []
    for name, content in contents(download, lines):
        read = _read(name, content, patterns, folder.roster, assignments)
        (lines if isinstance(read, str) else found).append(read)
    for each in sorted(found, key=lambda each: (each.timestamp, each.name)):
        if each.assignment != FILE:
            versions[each.student, each.assignment].append(each)
        else:
            if (other := own.get(each.origin)) and other.content != each.content:
                lines.append(f"{other.name}: left out; {each.name} came with it, and is the one that counts.")
            own[each.origin] = each
    submitted = folder.root / "submitted"
    for group in versions.values():
        is_placed, more = _place(group, own.get(group[-1].origin), submitted, replace=replace)
        placed += [group[-1]] * is_placed
        lines += more
    for each in own.values():
        lines += _lines_about_own(each, [one for one in found if one.origin == each.origin], submitted)
    return placed, [" ".join(plain(line).split()) for line in lines]


def contents(download: Path, lines: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each notebook in a folder or a zip file, and in the archives there.

    Nothing is unpacked to disk. A line is added for each file that is left out.
    """
    taken = Counter()  # bytes, by the file of the download that they were in

    def read(name: str, outer: str, size: int, is_link: bool, open_it: Callable) -> Iterator[tuple[str, bytes]]:
        kind = Path(name).suffix.lower()
        if IGNORED.search(name) and not is_link:
            return
        try:
            if is_link:
                raise ValueError("it is a link")
            if kind not in (".ipynb", ".py", ".zip"):
                raise ValueError("it is not a notebook")
            if len(name) > LETTERS:
                raise ValueError(f"its name has more than {LETTERS} letters")
            if taken[outer] + size > MEGABYTES * 1e6:
                raise ValueError(f"{outer} holds more than {MEGABYTES} MB")
            if taken.total() + size > MEGABYTES_IN_ALL * 1e6:
                raise ValueError(f"the download holds more than {MEGABYTES_IN_ALL} MB")
            taken[outer] += size
            with open_it() as file:
                content = file.read(size)  # no more, whatever there is
            if kind == ".zip":
                yield from unpack(io.BytesIO(content), [name[: -len(kind)]], outer)
            else:
                yield name, content
        except Exception as error:  # a password, damaged data, an unknown method
            lines.append(f"{name}: left out; {error}.")

    def unpack(file: Path | BinaryIO, around: Collection[str] = (), outer: str = "") -> Iterator[tuple[str, bytes]]:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) > MEMBERS:
                raise ValueError(f"it holds more than {MEMBERS} files")
            if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
                raise ValueError("it is compressed in an unusual way")  # which zipfile unpacks without a limit
            for member in members:
                parts = [*around, *re.split(r"[/\\]", member.filename)]
                name = "/".join(part for part in parts if part not in ("", ".", ".."))
                is_link = stat.S_ISLNK(member.external_attr >> 16)
                yield from read(name, outer or name, member.file_size, is_link, partial(archive.open, member))

    try:
        if download.is_dir():
            for path in sorted(download.rglob("*")):
                name = path.relative_to(download).as_posix().replace("\\", "/")
                if (is_link := path.is_symlink()) or path.is_file():
                    yield from read(name, name, path.lstat().st_size, is_link, partial(path.open, "rb"))
        else:
            yield from unpack(download)
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError) as error:
        raise Stop(f"{download} is neither a folder nor a zip file that can be read: {error}") from None


def assignment_in(text: str) -> str:
    """Return ``assignment_01`` from "Assignment 1", "assignment-01" and the like; another text as it is."""
    match = re.search(r"assignment[ _-]?(\d{1,2})(?!\d)", text, re.IGNORECASE)
    return f"assignment_{int(match[1]):02}" if match else text


def _read(
    name: str, content: bytes, patterns: list[re.Pattern], roster: dict[str, Student], assignments: Collection[str]
) -> HandIn | str:
    """Read a file's name, in every encoding that it may have; return a line if that does not help."""
    problem = f"{name}: its name does not say whose it is and for which assignment. Place it by hand."
    for spelling in dict.fromkeys("/".join(_decoded(part, each) for part in name.split("/")) for each in ENCODINGS):
        parts = spelling.split("/")
        for text in ("/".join(parts[outer:]) for outer in range(len(parts))):  # without some of the folders around it
            matches = [match for match in (pattern.fullmatch(text) for pattern in patterns) if match]
            if not matches:
                continue
            students = {match: _student(match, roster) for match in matches}
            # a system's words come before what a student chose
            is_clear = (match for match in matches if students[match] or match.re.pattern in SYSTEMS)
            match = next(is_clear, matches[0])
            assignment = assignment_in(match["assignment"] or FILE)
            if assignment not in (*assignments, FILE):
                problem = f"{spelling}: the course has no {assignment}. Place it by hand."
            elif not students[match]:
                problem = f"{spelling}: {_unknown(match['student'] or '', roster)}. Place it by hand."
                if match.re.pattern in SYSTEMS:
                    break
            else:
                numbers = re.findall(r"\d+", match.groupdict().get("timestamp") or "")
                time = "-".join(numbers[:3]) + " " + ":".join(numbers[3:])
                return HandIn(spelling, content, students[match], assignment, time.strip())
    return problem


def _student(match: re.Match, roster: dict[str, Student]) -> str | None:
    """Return the student whom a match names; Blackboard puts the title of the assignment before the name."""
    name = match["student"] or ""
    if match.re.pattern != BLACKBOARD:
        return identify(name, roster)
    words = name.split("_")
    tails = ["_".join(words[first:]) for first in range(len(words))] if roster else words[-1:]
    return next(filter(None, (identify(tail, roster) for tail in tails)), None)


def _decoded(part: str, encoding: str) -> str:
    """Return a name in the encoding in which it was written; Python reads it as cp437."""
    try:
        return part.encode("cp437").decode(encoding)
    except UnicodeError:
        return part


def _unknown(name: str, roster: dict[str, Student]) -> str:
    """Say that nobody has a name, and which one is the nearest; letters that differ may look the same."""
    if several := namesakes(name, roster):
        return f"{name!r} is the name of {' and of '.join(several)}"
    name, known = unicodedata.normalize("NFC", name), [each for student in roster.values() for each in student.names]
    line = f"there is no student {name!r}" + " in students.csv" * bool(roster)
    for nearest in difflib.get_close_matches(name, known, n=1, cutoff=0.5):
        letters = [letter for letter in sorted({*name} ^ {*nearest}) if not letter.isascii()]
        called = ", ".join(f"{letter!r} is {unicodedata.name(letter, 'without a name')}" for letter in letters)
        line += f"; the nearest is {nearest!r}" + f" ({called})" * bool(called)
    return line


def _place(versions: list[HandIn], own: HandIn | None, submitted: Path, *, replace: bool) -> tuple[bool, list[str]]:
    """Copy the last version of a student's notebook, with the my_vit.py that came with it.

    Returns whether it was placed, and a line for everything that a person has to decide.
    """
    last, place = versions[-1], submitted / versions[-1].student / versions[-1].assignment
    notebook = place / f"{last.assignment}.ipynb"
    others = [each for each in versions[:-1] if each.content != last.content]
    if any(each.timestamp == last.timestamp for each in others):
        names = ", ".join(each.name for each in [*others, last])
        line = f"{names}: different files of {last.student} for {last.assignment}. Place the one that counts by hand."
        return False, [line]
    lines = [f"{each.name}: not the last attempt of {last.student}, which counts." for each in others]
    if _same(last, notebook) and not (replace and own and not _same(own, place / FILE)):
        return False, lines
    if place.is_dir() and any(place.iterdir()) and not replace:
        line = f"{last.name}: {last.student} has handed in another {last.assignment} before, which stays."
        again = "If this one is to count, for example late work, collect again with OPTIONS=--replace."
        return False, [*lines, f"{line} {again}"]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    notebook.write_bytes(last.content)
    if own:
        (place / FILE).write_bytes(own.content)
    if last.timestamp:
        (place / "timestamp.txt").write_text(last.timestamp)
    if "_LATE_" in last.name:
        (place / LATE).write_text("Canvas marked it as late.\n")
    return True, lines


def _lines_about_own(own: HandIn, attempt: list[HandIn], submitted: Path) -> list[str]:
    """Return what to do with a my_vit.py that was not placed, by what was handed in with it."""
    assignments = [each.assignment for each in attempt if each.assignment != FILE]
    if not assignments:
        copy = f"copy it to submitted/{own.student}/ASSIGNMENT/{FILE}"
        return [f"{own.name}: there is no notebook next to it. If it belongs to one that was collected, {copy}."]
    return [
        f"{own.name}: {assignment} was collected without this file. If it is to count, copy it to "
        f"submitted/{own.student}/{assignment}/{FILE}, or collect again with OPTIONS=--replace."
        for assignment in assignments
        if not _same(own, submitted / own.student / assignment / FILE)
    ]


def _same(handed: HandIn, path: Path) -> bool:
    return path.is_file() and path.read_bytes() == handed.content
