"""nbgrader's gradebook of one class: what is recorded in it, and what is read from it."""

import contextlib
import copy
import logging
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nbformat
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from sqlalchemy.exc import SAWarning
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # nbgrader's own, about its dependencies
    from nbgrader.api import Gradebook
    from nbgrader.converters import Autograde, BaseConverter, GenerateAssignment, GenerateFeedback
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.utils import parse_utc

from grader.files import write_notebook, write_text
from grader.roster import Student
from grader.source import ASSIGNMENTS, Source

# to make a gradebook, nbgrader calls the command alembic, which stands beside the interpreter
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

SETTINGS = ASSIGNMENTS / "nbgrader_config.py"
CLASS_SETTINGS = '''\
"""nbgrader's settings for this class; add your own at the end."""

from pathlib import Path

from grader.gradebook import SETTINGS

c = get_config()
load_subconfig(str(SETTINGS))
c.CourseDirectory.root = str(Path(__file__).resolve().parent)
'''
MARK = "vit_course"  # the key of ours in a graded notebook's metadata


class NotRecorded(Exception):
    """nbgrader refused a notebook; the message is its own."""


@dataclass(frozen=True)
class Mark:
    """What a student has for one assignment; ``final`` once nothing waits to be marked by hand."""

    score: float
    final: bool


@dataclass(frozen=True)
class ClassFolder:
    """The folder of a class, and the gradebook in it.

    Args:
        root: with ``submitted/STUDENT/assignment_NN/assignment_NN.ipynb`` in it.
    """

    root: Path

    @cached_property
    def config(self) -> Config:
        """Return nbgrader's settings for this class; a new folder gets the file that holds them."""
        path = self.root / "nbgrader_config.py"
        if not path.exists():
            write_text(path, CLASS_SETTINGS)
        return PyFileConfigLoader(path.name, path=str(self.root)).load_config()

    @property
    def sources(self) -> Path:
        """Return the folder of the assignments' sources."""
        return Path(self.config.CourseDirectory.source_directory)

    def enrol(self, students: dict[str, Student]) -> None:
        """Write the roster's names into the gradebook."""
        with self._gradebook() as gradebook:
            for student in students.values():
                names = {key: value for key, value in vars(student).items() if key != "id" and value}
                gradebook.update_or_create_student(student.id, **names)

    def register(self, source: Source) -> None:
        """Write an assignment's tasks and points into the gradebook, and its student edition into ``release``.

        Raises:
            NotRecorded: tasks were added or removed after the first submission was graded.
        """
        self._run(GenerateAssignment, assignment_id=source.name)

    def record(self, student: str, assignment: str, notebook: NotebookNode, handed_in: Path) -> None:
        """Enter a graded notebook. Marks and comments that were given by hand stay.

        Args:
            student, assignment: whose, and for what.
            notebook: with outputs and verdicts.
            handed_in: the folder of the submission, for its time.

        Raises:
            NotRecorded: nbgrader could not do it.
        """
        folder = self.root / "checked" / student / assignment
        shutil.rmtree(folder, ignore_errors=True)
        write_notebook(notebook, folder.parent, assignment)
        for name, text in slips(handed_in).items():
            write_text(folder / name, text)
        self._run(
            Autograde,
            Config(Autograde=dict(exporter_class=NotebookExporter)),
            submitted_directory="checked",
            student_id=student,
            assignment_id=assignment,
        )

    def write_feedback(self, student: str, assignment: str) -> None:
        """Write ``feedback/STUDENT/assignment_NN/assignment_NN.html``.

        Raises:
            NotRecorded: nbgrader could not do it.
        """
        self._run(GenerateFeedback, student_id=student, assignment_id=assignment)

    def recorded(self) -> dict[tuple[str, str], Mark]:
        """Return every mark in the gradebook by student and assignment."""
        with self._gradebook() as gradebook:
            return {
                (submission.student_id, assignment.name): Mark(
                    max(0.0, submission.score - (submission.late_submission_penalty or 0.0)),
                    not submission.needs_manual_grade,
                )
                for assignment in gradebook.assignments
                for submission in assignment.submissions
            }

    def points(self) -> dict[str, float]:
        """Return the most that each assignment gives, by its name, in order."""
        with self._gradebook() as gradebook:
            return {each.name: each.max_score for each in sorted(gradebook.assignments, key=lambda each: each.name)}

    def entry(self, student: str, assignment: str) -> dict:
        """Return what is noted in the graded notebook that is in the gradebook: its key and the lines about it."""
        path = self.root / "autograded" / student / assignment / f"{assignment}.ipynb"
        try:
            return nbformat.read(path, as_version=4).metadata.get(MARK, {})
        except (OSError, ValueError, nbformat.reader.NotJSONError):
            return {}

    @contextlib.contextmanager
    def _gradebook(self) -> Iterator[Gradebook]:
        course = CourseDirectory(config=self.config)
        with _quiet(), Gradebook(course.db_url, course.course_id) as gradebook:
            yield gradebook

    def _run(self, converter: type[BaseConverter], changes: Config | None = None, **directory: str) -> None:
        config = copy.deepcopy(self.config)
        config.merge(changes or Config())
        config.CourseDirectory.update(directory)
        config.BaseConverter.force = True
        log = _Log()
        try:
            with _quiet():
                converter(coursedir=CourseDirectory(config=config), config=config, log=log.logger).start()
        except Exception as error:  # NbGraderException, mostly
            raise NotRecorded(log.cause or repr(error)) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what SQLAlchemy says about the order in which nbgrader makes its objects."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SAWarning)
        yield


class _Log:
    """Keep what nbgrader says, which is much, and show only why it failed."""

    def __init__(self):
        self.lines = []
        self.logger = logging.Logger("nbgrader", level=logging.ERROR)
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())
        self.logger.addHandler(handler)

    @property
    def cause(self) -> str:
        """Return the last line of the first traceback, else the first line."""
        traced = [line.strip().splitlines()[-1] for line in self.lines if "Traceback" in line]
        return next(iter(traced or self.lines), "")


def slips(folder: Path) -> dict[str, str]:
    """Return what nbgrader's exchange lays beside a notebook: when it came in, and whose feedback is whose."""
    found = {}
    for name, is_valid in {"timestamp.txt": parse_utc, "submission_secret.txt": bytes.fromhex}.items():
        path = folder / name
        with contextlib.suppress(OSError, ValueError, OverflowError):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1000:
                text = path.read_text(encoding="utf-8").strip()
                is_valid(text)
                found[name] = text
    return found
