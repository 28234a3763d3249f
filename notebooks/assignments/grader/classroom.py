"""Grading a class: every submission is read, repaired, run in the sandbox and entered into the gradebook.

Nothing that one student hands in can stop the others, and a run that is killed goes on where it stopped: a graded
notebook is stored when its marks are in the gradebook, with a hash of all that it depends on.
"""

import contextlib
import copy
import hashlib
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nbformat
import torch
from nbconvert.exporters import NotebookExporter
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

from grader import own_parts
from grader.confine import Limits
from grader.gradebook import MARK, ClassFolder
from grader.pool import grade_one, run_jobs
from grader.read_submission import MEGABYTES, Unreadable, find_notebook, read_notebook
from grader.release import graded_edition
from grader.repair import Repair
from grader.roster import WHICH, is_student_id
from grader.run_submission import Answer, Result
from grader.source import ASSIGNMENTS, Source, code_cells, is_test, is_theirs, load, nbgrader_of, tasks

MARKING = (ASSIGNMENTS / "grader", ASSIGNMENTS.parents[1] / "vit_course")  # the code that gives marks


@dataclass(frozen=True)
class Submission:
    """A folder that a student handed in: ``submitted/STUDENT/assignment_NN``."""

    student: str
    source: Source
    folder: Path

    @property
    def name(self) -> tuple[str, str]:
        """Return student and assignment."""
        return self.student, self.source.name

    @property
    def digest(self) -> str:
        """Return a hash of the files in the folder; of a link, and of what is too large to be graded, of the name.

        Hidden files and folders do not count: looking at a notebook in JupyterLab makes one.
        """
        digest = hashlib.sha256()
        for path in [] if self.folder.is_symlink() else sorted(self.folder.glob("[!.]*")):
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                continue
            digest.update(os.fsencode(f"/{path.name}/{status.st_size}/"))
            if stat.S_ISREG(status.st_mode) and status.st_size <= MEGABYTES * 1e6:
                with contextlib.suppress(OSError):
                    digest.update(path.read_bytes())
        return digest.hexdigest()


def find_submissions(submitted: Path, sources: dict[str, Source]) -> tuple[list[Submission], dict[str, list[str]]]:
    """Return what is to be graded under ``submitted``, and by the folder's name why everything else is not."""
    found, lines = [], defaultdict(list)
    for folder in sorted(submitted.glob("[!.]*")):
        if folder.is_symlink() or not folder.is_dir():
            lines[folder.name].append("is a file or a link, not a folder. It was left out; sort it by hand.")
        elif not is_student_id(folder.name):
            lines[folder.name].append(f"is no student id ({WHICH}). Rename the folder; until then its mark is 0.")
        else:
            for each in sorted(folder.glob("[!.]*")):
                if each.name in sources:
                    found.append(Submission(folder.name, sources[each.name], each))
                else:
                    lines[folder.name].append(f"{each.name!r} is no assignment of the course. Rename or remove it.")
    return found, lines


@dataclass(eq=False)  # a key of dictionaries
class Prepared:
    """A submission that is read and repaired; if it could not be, ``notes`` say why, and it is not run."""

    submission: Submission
    notebook: NotebookNode
    notes: list[str]
    is_readable: bool = True
    own: str = ""  # the text of the student's my_vit.py

    @property
    def key(self) -> str:
        """Return a hash of all that the graded notebook depends on."""
        parts = [grader_version(), self.submission.source.digest, self.submission.digest]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    @property
    def written(self) -> str:
        """Return a hash of all cells, by which copies are found; nothing if the student has written nothing."""
        own, empty = (
            [cell.source for cell in notebook.cells if is_theirs(cell)]
            for notebook in (self.notebook, graded_edition(self.submission.source))
        )
        return "" if own == empty else hashlib.sha256(nbformat.writes(self.notebook).encode()).hexdigest()

    def graded(self, result: Result) -> NotebookNode:
        """Return the notebook with outputs, verdicts and notes; a test without an answer has failed."""
        notebook, labels, notes = copy.deepcopy(self.notebook), self.submission.source.labels, [*self.notes]
        headings = tasks(notebook.cells, {*labels.values()})  # students write headings, too
        places = [labels.get(cell.id, heading) for cell, heading in zip(notebook.cells, headings, strict=True)]
        of_test = {nbgrader_of(cell)["grade_id"]: labels[cell.id] for cell in notebook.cells if is_test(cell)}
        for note in result.notes:
            note = re.sub(r"^cell (\d+)", lambda found: f"{found[0]} ({places[int(found[1]) - 1]})", note)
            notes.append(re.sub(r"^(hidden test) ([\w-]+)", lambda found: f"{found[1]} of {of_test[found[2]]}", note))
        for number, (cell, place) in enumerate(zip(notebook.cells, places, strict=True), 1):
            if is_test(cell):
                answer = result.answers.get(nbgrader_of(cell)["grade_id"], Answer(False, "not run"))
                right, lines = new_output("stream", text=answer.message), answer.message.split("\n")
                wrong = new_output("error", ename="Wrong", evalue=answer.message, traceback=lines)
                cell.outputs = [right if answer.passed else wrong]
            elif cell.cell_type == "code":
                cell.outputs = nbformat.from_dict(result.outputs.get(number, []))
                for error in cell.outputs if is_theirs(cell) else ():  # what it defines below that line is lost
                    if error["output_type"] == "error" and error["ename"] != "NotImplementedError":
                        notes.append(f"cell {number} ({place}): ended with {error['ename']}: {error['evalue'][:100]}")
        if notes:
            first = new_code_cell("# Notes from the grading", id="notes-from-the-grading")
            first.outputs = [new_output("stream", text="\n".join(notes))]
            notebook.cells.insert(0, first)
        files = self.submission.digest
        notebook.metadata[MARK] = dict(notes=notes, key=self.key, written=self.written, files=files)
        return notebook


@cache
def grader_version() -> str:
    """Return a hash of the code that gives marks: the reference, its checks, the grader and PyTorch."""
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(path for folder in MARKING for path in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def prepare(submission: Submission) -> Prepared:
    """Read and repair one submission. Whatever is wrong with it, this returns."""
    try:
        path, notes = find_notebook(submission.folder, submission.source.name)
        notebook, more = Repair(submission.source, read_notebook(path)).result()
        own, about_own = own_parts.read(path.parent)
        return Prepared(submission, notebook, notes + more + about_own, own=own)
    except Unreadable as error:
        problem = str(error)
    except Exception as error:  # a fault of ours must not stop the others
        problem = f"the grader could not read this notebook ({error!r}). Mark it by hand, and report the fault."
    return Prepared(submission, graded_edition(submission.source), [problem], is_readable=False)


def grade_class(
    folder: ClassFolder,
    submissions: list[Submission],
    workers: int = 1,
    again: bool = False,
    cell_seconds: float = Limits.cell_seconds,
    unconfined: bool = False,
    dask: str = "",
) -> Iterator[tuple[Submission, str]]:
    """Grade and record; yield each submission as it is done, with the reason if it could not be graded.

    Args:
        folder: the class.
        submissions: those that are meant.
        workers: how many submissions run side by side.
        again: whether to run also what was run before.
        cell_seconds: what one cell may use.
        unconfined: whether nothing is to confine the submissions.
        dask: the address of a Dask scheduler whose workers do the grading, in place of processes of this machine.
    """
    known, jobs, limits = folder.recorded(), {}, Limits(cell_seconds=cell_seconds)
    for each in map(prepare, submissions):
        source, name = each.submission.source, each.submission.name
        if not again and name in known and folder.entry(*name).get("key") == each.key:
            yield each.submission, ""
        elif not each.is_readable:
            yield each.submission, _record(folder, each, Result())
        else:
            jobs[each] = (code_cells(each.notebook), source.hidden_tests, source.modules, limits, unconfined, each.own)
    for each, result in run_jobs(jobs, workers, dask):
        yield each.submission, _record(folder, each, result)


def _record(folder: ClassFolder, prepared: Prepared, result: Result | str) -> str:
    """Enter a result; return the reason if that failed, or if there is a text in place of a result."""
    if isinstance(result, Result):
        try:
            folder.record(*prepared.submission.name, prepared.graded(result), prepared.submission.folder)
            return ""
        except Exception as error:  # a fault of ours must not stop the others
            result = f"the marks could not be entered ({error!r})"
    return f"not graded: {result}. Run the grading again; if it stays, report it."


class GradedNotebookExporter(NotebookExporter):
    """What the button "Autograde" of formgrader does in this course: ``make grade``, for one submission."""

    def from_filename(self, filename: str, resources: dict | None = None, **options) -> tuple[str, dict]:
        """Read a notebook of nbgrader's: handed in, it comes back graded; graded, as it is."""
        converter = self.parent
        if converter._sanitizing:  # the first of nbgrader's two passes; the second is over its own copy
            folder, names = ClassFolder(Path(converter.coursedir.root)), resources["nbgrader"]
            source = load(folder.sources / names["assignment"] / f"{names['assignment']}.ipynb")
            submission = Submission(names["student"], source, Path(filename).parent)
            ((_, failure),) = grade_class(folder, [submission])
            if failure:
                raise RuntimeError(failure)
            filename = folder.graded_path(*submission.name)
        return super().from_filename(filename, resources=resources, **options)


def check_source(source: Source) -> list[str]:
    """Run an assignment's own solution against its hidden tests; return a line for each that it fails.

    It is the course's own code, and runs unconfined, so that it can be released where nothing can confine submissions.
    """
    cells = code_cells(source.notebook)
    result = grade_one(cells, source.hidden_tests, source.modules, Limits(), unconfined=True)
    return [f"{name}: {answer.message}" for name, answer in result.answers.items() if not answer.passed]
