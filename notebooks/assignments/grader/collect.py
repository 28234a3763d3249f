"""Collecting what a learning-management system hands out, by nbgrader's ``zip_collect`` with plugins of the course."""

import difflib
import filecmp
import os
import re
import shutil
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nbgrader.apps import ZipCollectApp
from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin
from traitlets import Dict
from traitlets.config import Config

from grader.files import Stop
from grader.gradebook import ClassFolder
from grader.own_parts import FILE
from grader.roster import Student, identify

TASK = r"(?:(?P<assignment>assignment[ _-]?\d{1,2})(?!\d)[^/]*\.ipynb|my_vit[^/]*\.py)"
BLACKBOARD = rf"(.*_)?(?P<student>[^_/]+)_attempt_(?P<timestamp>\d{{4}}(-\d\d){{5}})[_/].*{TASK}"
PATTERN = rf"(?P<student>[^_/]+)_.*?{TASK}"  # Canvas, Moodle, and by hand
IGNORED = re.compile(r"(^|/)(\.|__MACOSX/)|_attempt_[\d-]+\.txt$")  # hidden files, and Blackboard's notes on attempts
ENCODINGS = ("utf-8", "euc_kr", "cp437", "cp949")  # of names in an archive that are not marked as Unicode
LATE = "late.txt"  # next to a notebook that Canvas marks as late
MEGABYTES = 100


class Archives(ExtractorPlugin):
    """Unpack a download, and the archives in it. Whatever is wrong with a file, the others are unpacked."""

    left_out = Dict(help="why a file was left out, by its path")

    def extract(self, archive_path: str, extracted_path: str) -> None:
        """Unpack a zip file or copy a folder; then unpack the zip files that came out."""
        target = Path(extracted_path)
        if Path(archive_path).is_dir():
            shutil.copytree(archive_path, target, symlinks=True)
        else:
            self._unpack(Path(archive_path), target)
        for path in sorted(each for each in target.rglob("*") if each.suffix.lower() == ".zip"):
            if path.is_symlink() or not path.is_file():
                continue
            with self._noting(path), zipfile.ZipFile(path) as archive:
                _check_size(sum(member.file_size for member in archive.infolist()))
                self._unpack(path, path.with_suffix(""))
            path.unlink()

    def _unpack(self, path: Path, folder: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                place = folder / member.filename
                with self._noting(place):
                    _check_size(member.file_size)
                    if place.is_file() or ".." in place.parts or not place.is_relative_to(folder):
                        raise ValueError("its name appears twice, or leads out of the archive")
                    archive.extract(member, folder)

    @contextmanager
    def _noting(self, path: Path) -> Iterator[None]:
        """Note why a file cannot be unpacked: a password, damaged data, an unknown method, a name that is too long."""
        try:
            yield
        except Exception as error:
            self.left_out[str(path)] = str(error)


def _check_size(size: int) -> None:
    if size > MEGABYTES * 1_000_000:
        raise ValueError(f"it is larger than {MEGABYTES} MB; unpack it by hand if it is right")


class FileNames(FileNameCollectorPlugin):
    """Name the student of each file that counts; all others nbgrader leaves where they are."""

    chosen = Dict(help="what nbgrader wants to know of a file, by its path").tag(config=True)

    def collect(self, submitted_file: str) -> dict | None:
        """Look a file up."""
        return self.chosen.get(submitted_file)


@dataclass(frozen=True)
class HandIn:
    """A notebook or a my_vit.py in the download, and what its name says; only some systems write a timestamp into it.

    The assignment of a my_vit.py is "my_vit.py": it belongs to the notebooks that were handed in with it.
    """

    path: Path
    name: str
    student: str
    assignment: str
    timestamp: str


def collect(
    download: Path, folder: ClassFolder, assignments: Collection[str], pattern: str = "", *, replace: bool = False
) -> tuple[list[HandIn], list[str]]:
    """Sort a zip file or a folder into a class's folder; return what was placed, and a line for what was not.

    Args:
        pattern: a regular expression with the groups ``student`` and ``assignment``, for the path inside the download.
        replace: whether a file takes the place of another that was collected before.
    """
    try:
        patterns = [re.compile(each, re.IGNORECASE) for each in ([pattern] if pattern else [BLACKBOARD, PATTERN])]
    except re.error as error:
        raise Stop(f"the pattern is not a regular expression: {error}.") from None
    if not {"student", "assignment"} <= set(patterns[0].groupindex):
        raise Stop("the pattern needs the groups (?P<student>…) and (?P<assignment>…).")
    with TemporaryDirectory() as temporary:
        extracted, archives, found = Path(temporary, "extracted").resolve(), Archives(), []
        try:
            archives.extract(str(download), str(extracted))
        except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
            raise Stop(f"{download} is neither a folder nor a zip file that can be read: {error}") from None
        lines = [f"{os.path.relpath(path, extracted)}: left out; {why}." for path, why in archives.left_out.items()]
        for path in sorted(path for path in extracted.rglob("*") if path.is_file() or path.is_symlink()):
            name = path.relative_to(extracted).as_posix().replace("\\", "/")
            if path.is_symlink():
                lines.append(f"{name}: left out; it is a link.")
            elif str(path) not in archives.left_out and not IGNORED.search(name):
                read = _read(path, name, patterns, folder.roster, assignments)
                (lines if isinstance(read, str) else found).append(read)
        own = [each for each in found if each.assignment == FILE]
        notebooks = [each for each in found if each.assignment != FILE]
        placed, more = _choose(notebooks, folder.root / "submitted", replace)
        for assignment in sorted({each.assignment for each in placed}):
            _transfer([each for each in placed if each.assignment == assignment], assignment, temporary, folder)
        more += [line for each in own for line in _put_next_to(each, notebooks, placed, folder.root / "submitted")]
    return placed, lines + more


def assignment_in(text: str) -> str:
    """Return ``assignment_01`` from "Assignment 1", "assignment-01" and the like; another text as it is."""
    match = re.search(r"assignment[ _-]?(\d{1,2})(?!\d)", text, re.IGNORECASE)
    return f"assignment_{int(match[1]):02}" if match else text


def _read(
    path: Path, name: str, patterns: list[re.Pattern], roster: dict[str, Student], assignments: Collection[str]
) -> HandIn | str:
    """Read a file's name, in every encoding that it may have; return a line if that does not help."""
    problem = f"{name}: its name does not say whose it is and for which assignment. Place it by hand."
    for spelling in dict.fromkeys("/".join(_decoded(part, each) for part in name.split("/")) for each in ENCODINGS):
        for text in (spelling, spelling.rpartition("/")[2]):
            match = next(filter(None, (pattern.fullmatch(text) for pattern in patterns)), None)
            if not match:
                continue
            assignment, student = assignment_in(match["assignment"] or FILE), identify(match["student"], roster)
            if assignment not in (*assignments, FILE):
                problem = f"{spelling}: the course has no {assignment}. Place it by hand."
            elif not student:
                problem = f"{spelling}: {_unknown(match['student'], roster)}. Place it by hand."
            else:
                numbers = re.findall(r"\d+", match.groupdict().get("timestamp") or "")
                time = "-".join(numbers[:3]) + " " + ":".join(numbers[3:])
                return HandIn(path, spelling, student, assignment, time.strip())
    return problem


def _decoded(part: str, encoding: str) -> str:
    """Return a name in the encoding in which it was written; Python reads it as cp437."""
    try:
        return part.encode("cp437").decode(encoding)
    except UnicodeError:
        return part


def _unknown(name: str, roster: dict[str, Student]) -> str:
    """Say that nobody has a name, and show what differs from the nearest one, which may look the same."""
    name = unicodedata.normalize("NFC", name)
    line = f"there is no student {name!r}" + " in students.csv" * bool(roster)
    known = [each for student in roster.values() for each in student.names]
    for nearest in difflib.get_close_matches(name, known, n=1, cutoff=0.5):
        line += f"; the nearest is {nearest!r}"
        line += "" if (name + nearest).isascii() else f", in code points {name!a} and {nearest!a}"
    return line


def _choose(found: list[HandIn], submitted: Path, replace: bool) -> tuple[list[HandIn], list[str]]:
    """Return the one file that counts for each student and assignment, and a line for each that does not."""
    versions, placed, lines = defaultdict(list), [], []
    for each in sorted(found, key=lambda each: each.timestamp):
        versions[each.student, each.assignment].append(each)
    for (student, assignment), (*others, last) in versions.items():
        others = [each for each in others if not filecmp.cmp(each.path, last.path, shallow=False)]
        place = submitted / student / assignment
        there = place / f"{assignment}.ipynb"
        if any(each.timestamp == last.timestamp for each in others):
            names = ", ".join(each.name for each in [*others, last])
            lines.append(f"{names}: different files of {student} for {assignment}. Place the one that counts by hand.")
            continue
        lines += [f"{each.name}: not the last attempt of {student}, which counts." for each in others]
        if there.is_file() and filecmp.cmp(there, last.path, shallow=False):
            continue
        if place.is_dir() and any(place.iterdir()) and not replace:
            lines.append(
                f"{last.name}: {student} has handed in another {assignment} before, which stays. If this one is to "
                "count, for example late work, collect it again with --replace."
            )
        else:
            placed.append(last)
    return placed, lines


def _put_next_to(own: HandIn, notebooks: list[HandIn], placed: list[HandIn], submitted: Path) -> Iterator[str]:
    """Copy a my_vit.py next to the notebooks that came with it; yield a line for each where that is not right."""

    def place(each: HandIn) -> tuple:
        return each.student, each.timestamp, each.path.parent

    mates = [each for each in notebooks if place(each) == place(own)]
    for each in mates:
        target = submitted / own.student / each.assignment / FILE
        if each in placed and not target.exists():
            shutil.copyfile(own.path, target)
        elif not (target.is_file() and filecmp.cmp(own.path, target, shallow=False)):
            yield f"{own.name}: {each.assignment} was collected before, without this file. Place it by hand."
    if not mates:
        yield f"{own.name}: there is no notebook next to it. Place it by hand."


def _transfer(placed: list[HandIn], assignment: str, downloaded: str, folder: ClassFolder) -> None:
    """Let nbgrader copy the files of one assignment, and keep Canvas's mark for late work."""
    chosen = {
        str(each.path): dict(student_id=each.student, file_id=assignment, timestamp=each.timestamp or None)
        for each in placed
    }
    app = dict(collector_plugin=FileNames, force=True, collect_directory_structure=downloaded + "/{collect_step}")
    folder.run(ZipCollectApp, Config(ZipCollectApp=app, FileNames=dict(chosen=chosen)), assignment_id=assignment)
    for each in placed:
        if "_LATE_" in each.name:
            (folder.root / "submitted" / each.student / assignment / LATE).write_text("Canvas marked it as late.\n")
