"""nbgrader's gradebook of one class: what is recorded in it, and what is read from it."""

import contextlib
import copy
import json
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import ExportApp
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import parse_utc
from sqlalchemy.exc import SAWarning
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from grader.files import Stop, write_notebook, write_text
from grader.roster import Student, read_roster
from grader.source import ASSIGNMENTS

# to make a gradebook, nbgrader calls the command alembic, which is next to the interpreter
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

CLASS_SETTINGS = f'''\
"""nbgrader's settings for this class; add your own at the end."""

from pathlib import Path

c = get_config()
load_subconfig({str(ASSIGNMENTS / "nbgrader_config.py")!r})
c.CourseDirectory.root = str(Path(__file__).resolve().parent)
'''
MARK = "vit_course"  # the key of ours in a graded notebook's metadata
NOT_ENTERED = f"{MARK}_not_entered"  # its name until all marks of the notebook are in the gradebook
# what SQLAlchemy says about the order in which nbgrader makes its objects is kept back
_quiet = partial(warnings.catch_warnings, action="ignore", category=SAWarning)


@dataclass(frozen=True)
class Mark:
    """What a student has for one assignment.

    Args:
        final: whether nothing waits to be marked by hand.
        cause: why the mark does not belong to the files that were handed in, if it does not; it is not final then.
    """

    score: float
    final: bool
    cause: str = ""


class RecordedNotebookExporter(NotebookExporter):
    """Copies a graded notebook: nbgrader writes it before it enters the marks, and once more when they are entered."""

    def from_notebook_node(self, notebook: NotebookNode, resources: dict | None = None, **options) -> tuple[str, dict]:
        """Give :data:`MARK` its name in the second of these copies only: a run may be killed between them."""
        old, new = (MARK, NOT_ENTERED) if self.parent._sanitizing else (NOT_ENTERED, MARK)
        notebook.metadata[new] = notebook.metadata.pop(old)
        return super().from_notebook_node(notebook, resources=resources, **options)


@dataclass(frozen=True)
class ClassFolder:
    """The folder of a class, with ``submitted/STUDENT/assignment_NN/assignment_NN.ipynb`` and the gradebook in it."""

    root: Path

    @cached_property
    def config(self) -> Config:
        """Return nbgrader's settings for this class; a new folder gets the file that holds them."""
        path = self.root / "nbgrader_config.py"
        if not path.exists():
            write_text(path, CLASS_SETTINGS)
        try:
            config = PyFileConfigLoader(path.name, path=str(self.root)).load_config()
            if not isinstance(config.CourseDirectory.source_directory, str):
                raise LookupError("the course's own settings are not where it looks for them")
        except Exception as error:
            raise Stop(f"{path} cannot be used: {error}. It must begin like this:\n\n{CLASS_SETTINGS}") from error
        return config

    @property
    def sources(self) -> Path:
        """Return the folder of the assignments' sources."""
        return Path(self.config.CourseDirectory.source_directory)

    @cached_property
    def roster(self) -> dict[str, Student]:
        """Return the students in ``students.csv`` by id."""
        return read_roster(self.root / "students.csv")

    def enrol(self) -> None:
        """Write the roster into the gradebook."""
        with self.gradebook() as gradebook:
            for student in self.roster.values():
                names = {key: value for key, value in vars(student).items() if key != "id" and value}
                gradebook.update_or_create_student(student.id, **names)

    def register(self, assignments: Iterable[str]) -> dict[str, str]:
        """Write tasks, points and student editions into the class's folder; return a line for each that is refused."""
        failures = {}
        for name in assignments:
            try:
                self.run(GenerateAssignment, assignment_id=name)
            except Stop as error:
                rule = "A class keeps the tasks with which its marking began."
                failures[name] = f"{name} was not graded: {error}. {rule}"
        return failures

    def keep(self, student: str, assignment: str, notebook: NotebookNode, handed_in: Path) -> None:
        """Store a graded notebook, and when it came in, for the gradebook and for the next run."""
        folder = self.root / "checked" / student / assignment
        shutil.rmtree(folder, ignore_errors=True)
        for name, text in slips(handed_in).items():
            write_text(folder / name, text)
        write_notebook(notebook, folder.parent, assignment)

    def kept(self, student: str, assignment: str, key: str) -> NotebookNode | None:
        """Return the graded notebook that is stored with this key; None if there is none, or if it is damaged."""
        if self.entry(student, assignment, "checked").get("key") == key:
            return nbformat.read(self.root / "checked" / student / assignment / f"{assignment}.ipynb", as_version=4)
        return None

    def record(self, student: str, assignment: str) -> None:
        """Enter the graded notebook that is stored. Marks and comments that were given by hand stay.

        nbgrader asks the teacher to confirm these marks; where the files are the same, they are as good as before.
        """
        files = self.entry(student, assignment).get("files")
        is_same = files and files == self.entry(student, assignment, "checked").get("files")
        confirmed = self._confirmed(student, assignment) if is_same else []
        settings = Config(Autograde=dict(exporter_class=RecordedNotebookExporter))
        self.run(Autograde, settings, submitted_directory="checked", student_id=student, assignment_id=assignment)
        with self.gradebook() as gradebook:
            for cell in confirmed:
                gradebook.find_grade(cell, assignment, assignment, student).needs_manual_grade = False
            gradebook.db.commit()

    def _confirmed(self, student: str, assignment: str) -> list[str]:
        """Return the cells whose marks were given by hand and wait for nothing."""
        with self.gradebook() as gradebook, contextlib.suppress(MissingEntry):  # the gradebook may be a new one
            grades = gradebook.find_submission_notebook(assignment, assignment, student).grades
            return [each.name for each in grades if each.manual_score is not None and not each.needs_manual_grade]
        return []

    def forget(self, student: str, assignment: str) -> None:
        """Remove a mark, and the files that belong to it."""
        with self.gradebook() as gradebook:
            gradebook.remove_submission(assignment, student)
        for step in ("checked", "autograded", "feedback"):
            shutil.rmtree(self.root / step / student / assignment, ignore_errors=True)

    def export(self, assignments: Iterable[str], name: str, canvas: str = "") -> Path:
        """Write the marks into a CSV file of the class's folder, or into a copy of one that Canvas has exported."""
        path = self.root / name
        self.run(ExportApp, Config(Grades=dict(to=str(path), canvas=canvas, assignment=list(assignments))))
        return path

    def recorded(self) -> dict[tuple[str, str], Mark]:
        """Return every mark in the gradebook by student and assignment."""
        with self.gradebook() as gradebook:
            return {
                (each.student_id, assignment.name): Mark(
                    max(0.0, each.score - (each.late_submission_penalty or 0.0)), not each.needs_manual_grade
                )
                for assignment in gradebook.assignments
                for each in assignment.submissions
            }

    def entry(self, student: str, assignment: str, step: str = "autograded") -> dict:
        """Return what is noted in a graded notebook, its key and the lines about it; nothing if it is damaged."""
        path = self.root / step / student / assignment / f"{assignment}.ipynb"
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            return dict(json.loads(path.read_text(encoding="utf-8"))["metadata"][MARK])
        return {}

    @contextlib.contextmanager
    def gradebook(self) -> Iterator[Gradebook]:
        """Open the gradebook."""
        course = CourseDirectory(config=self.config)
        with _quiet(), Gradebook(course.db_url, course.course_id) as gradebook:
            yield gradebook

    def run(self, program: type, changes: Config | None = None, **directory: str) -> None:
        """Run one of nbgrader's converters or commands, with settings for it and for ``CourseDirectory``.

        Raises:
            Stop: nbgrader could not do it; the message is the cause, out of all that it has logged.
        """
        config = copy.deepcopy(self.config)
        config.merge(changes or Config())
        config.CourseDirectory.update(directory)
        config.BaseConverter.force = True
        lines, log = [], logging.Logger("nbgrader", level=logging.ERROR)
        log.addFilter(lambda record: lines.append(record.getMessage()))  # none of them is shown
        try:
            with _quiet():
                program(coursedir=CourseDirectory(config=config), config=config, log=log).start()
        except Stop:
            raise
        except (Exception, SystemExit) as error:
            traced = [line.strip().splitlines()[-1] for line in lines if "Traceback" in line]
            raise Stop(next(iter(traced or lines), repr(error))) from error


def slips(folder: Path) -> dict[str, str]:
    """Return what nbgrader's exchange puts next to a notebook: when it came in, and whose feedback is whose."""
    found = {}
    for name, is_valid in {"timestamp.txt": parse_utc, "submission_secret.txt": bytes.fromhex}.items():
        path = folder / name
        with contextlib.suppress(OSError, ValueError, OverflowError):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1000:
                text = path.read_text(encoding="utf-8").strip()
                is_valid(text)
                found[name] = text
    return found
