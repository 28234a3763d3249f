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

from nbformat import NotebookNode
from nbgrader import preprocessors as steps
from nbgrader.api import Gradebook
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.utils import determine_grade, parse_utc
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
CONFIRMED = ".confirmed"  # the folder that says to which files the marks by hand belong
# what SQLAlchemy says about the order in which nbgrader makes its objects is kept back
_quiet = partial(warnings.catch_warnings, action="ignore", category=SAWarning)


class _SaveMarks(steps.SaveAutoGrades):
    """Enter marks as nbgrader does, but a mark by hand waits for a second look only if the files have changed."""

    def _add_score(self, cell: NotebookNode, resources: dict) -> None:
        where = self.notebook_id, self.assignment_id, self.student_id
        grade = self.gradebook.find_grade(cell.metadata.nbgrader.grade_id, *where)
        grade.auto_score, _ = determine_grade(cell, self.log)
        is_waiting = grade.needs_manual_grade or not resources["nbgrader"]["is_same"]
        grade.needs_manual_grade = grade.auto_score is None if grade.manual_score is None else is_waiting
        self.gradebook.db.commit()


# what nbgrader's Autograde does after a notebook has run
ENTERING = (steps.OverwriteCells, steps.LimitOutput, _SaveMarks, steps.AssignLatePenalties)


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

    def record(self, student: str, assignment: str, notebook: NotebookNode, handed_in: Path) -> None:
        """Enter the marks of a graded notebook with nbgrader's own steps, and store it with what the exchange needs.

        What was stored before goes first, and the notebook is written last: it is there only with all of its marks,
        whenever a run is killed. Marks and comments that were given by hand stay. To which files these marks belong is
        noted in a file of its own, which is there after a kill, too, and after nbgrader's own autograding.
        """
        path, files = self.graded_path(student, assignment), notebook.metadata[MARK].get("files", "")
        note = self.root / CONFIRMED / student / assignment
        marked = note.read_text("utf-8", "replace") if note.is_file() else self.entry(student, assignment).get("files")
        path.unlink(missing_ok=True)
        shutil.rmtree(path.parent, ignore_errors=True)
        found = slips(handed_in)
        for name, text in found.items():
            write_text(path.with_name(name), text)
        about = dict(student=student, assignment=assignment, notebook=assignment, is_same=marked == files)
        about["db_url"] = CourseDirectory(config=self.config).db_url
        with self.gradebook() as gradebook:
            gradebook.update_or_create_student(student)
            gradebook.update_or_create_submission(assignment, student, timestamp=found.get("timestamp.txt"))
            for step in ENTERING:
                notebook, _ = step(config=self.config).preprocess(notebook, {"nbgrader": about})
        write_text(note, files)
        write_notebook(notebook, path.parents[1], assignment)

    def forget(self, student: str, assignment: str) -> None:
        """Remove a mark, and the files that belong to it."""
        with self.gradebook() as gradebook:
            gradebook.remove_submission(assignment, student)
        for step in ("autograded", "feedback"):
            shutil.rmtree(self.root / step / student / assignment, ignore_errors=True)
        (self.root / CONFIRMED / student / assignment).unlink(missing_ok=True)

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

    def graded_path(self, student: str, assignment: str) -> Path:
        """Return where a graded notebook is stored."""
        return self.root / "autograded" / student / assignment / f"{assignment}.ipynb"

    def entry(self, student: str, assignment: str) -> dict:
        """Return what is noted in a graded notebook, its key and the lines about it; nothing if it is damaged."""
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            graded = json.loads(self.graded_path(student, assignment).read_text(encoding="utf-8"))
            return dict(graded["metadata"][MARK])
        return {}

    @contextlib.contextmanager
    def gradebook(self) -> Iterator[Gradebook]:
        """Open the gradebook."""
        course = CourseDirectory(config=self.config)
        with _quiet(), Gradebook(course.db_url, course.course_id) as gradebook:
            yield gradebook

    def run(self, program: type, **directory: str) -> None:
        """Run one of nbgrader's converters, with settings for ``CourseDirectory``.

        Raises:
            Stop: nbgrader could not do it; the message is the cause, out of all that it has logged.
        """
        config = copy.deepcopy(self.config)
        config.CourseDirectory.update(directory)
        config.BaseConverter.force = True
        lines, log = [], logging.Logger("nbgrader", level=logging.ERROR)
        log.addFilter(lambda record: lines.append(record.getMessage()))  # none of them is shown
        try:
            with _quiet():
                program(coursedir=CourseDirectory(config=config), config=config, log=log).start()
        except Exception as error:
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
