"""Grading a class: every submission is read, repaired, run in the sandbox and entered into the gradebook.

Nothing that one student hands in can stop the others, and a run that is killed goes on where it stopped: results are
kept under a hash of the submission, the source and the grader, and what the gradebook holds is not entered again.
"""

import copy
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from grader import results, sandbox
from grader.gradebook import MARK, ClassFolder, NotRecorded, slips
from grader.intake import Unreadable, find_notebook, read_notebook
from grader.repair import repair, untouched
from grader.roster import WHICH, is_student_id
from grader.sandbox import HiddenTest, Limits, Result
from grader.source import Source, is_test, nbgrader_of

TEST_IMAGES = Path(__file__).resolve().parents[3] / "resources" / "test_images.npy"


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


@dataclass
class Prepared:
    """A submission that is ready for the sandbox, or the problem that keeps it from there."""

    submission: Submission
    notebook: NotebookNode
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    def __post_init__(self):
        # the first cell has place for the notes, so that the student's cells are counted from 1
        self.notebook.cells.insert(
            0, nbformat.v4.new_code_cell("# Notes from the grading", id="notes-from-the-grading")
        )
        self.key = results.key_of(self.submission.source.digest, nbformat.writes(self.notebook))

    @property
    def job(self) -> tuple:
        """Return the arguments of :func:`sandbox.grade`."""
        cells = list(enumerate(self.notebook.cells))[1:]
        code = [(index, cell.source) for index, cell in cells if cell.cell_type == "code" and not is_test(cell)]
        source = self.submission.source
        return code, [HiddenTest(*test) for test in source.hidden_tests.items()], source.modules

    def graded(self, result: Result | None) -> NotebookNode:
        """Return the notebook with outputs and verdicts; without a result, every test has failed."""
        notebook = copy.deepcopy(self.notebook)
        outputs, answers = (result.outputs, result.answers) if result else ({}, {})
        for index, cell in enumerate(notebook.cells):
            if is_test(cell):
                answer = answers.get(nbgrader_of(cell)["grade_id"])
                cell.outputs = [_verdict(answer.passed, answer.message) if answer else _verdict(False, "not run")]
            elif cell.cell_type == "code":
                cell.outputs = nbformat.from_dict(outputs.get(index, []))
        notes = [*([self.problem] if self.problem else []), *self.notes, *(result.notes if result else [])]
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", name="stdout", text="\n".join(notes))]
        if not notes:
            del notebook.cells[0]
        notebook.metadata[MARK] = {"notes": notes, "problem": self.problem}
        return notebook


def _verdict(passed: bool, message: str) -> NotebookNode:
    if passed:
        return nbformat.v4.new_output("stream", name="stdout", text=message)
    return nbformat.v4.new_output("error", ename="Wrong", evalue=message, traceback=message.split("\n"))


def find_submissions(submitted: Path, sources: dict[str, Source]) -> tuple[list[Submission], list[tuple[str, str]]]:
    """Return what is to be graded under ``submitted``, and a line for everything else: the folder's name, and why."""
    found, lines = [], []
    for folder in sorted(submitted.iterdir()) if submitted.is_dir() else ():
        if folder.name.startswith("."):
            continue
        if folder.is_symlink() or not folder.is_dir():
            lines.append(
                (folder.name, "is a file or a link, not a student's folder. It was left out; sort it by hand.")
            )
        elif not is_student_id(folder.name):
            lines.append((folder.name, f"is no student id ({WHICH}). Rename the folder; until then its mark is 0."))
        else:
            for each in sorted(folder.iterdir()):
                if each.name in sources:
                    found.append(Submission(folder.name, sources[each.name], each))
                elif not each.name.startswith("."):
                    lines.append((folder.name, f"{each.name!r} is no assignment of the course. Rename or remove it."))
    return found, lines


def prepare(submission: Submission) -> Prepared:
    """Read and repair one submission. Whatever is wrong with it, this returns."""
    try:
        path, notes = find_notebook(submission.folder, submission.source.name)
        repaired = repair(submission.source, read_notebook(path))
    except Unreadable as error:
        return Prepared(submission, untouched(submission.source), problem=str(error))
    except Exception as error:  # a fault of ours must not stop the others
        problem = f"the grader could not read this notebook ({error!r}). Mark it by hand, and report the fault."
        return Prepared(submission, untouched(submission.source), problem=problem)
    return Prepared(submission, repaired.notebook, notes + repaired.notes)


@dataclass
class Run:
    """One grading run over a class.

    Args:
        folder: the class.
        workers: how many submissions run side by side.
        again: whether to run also what was run before.
        limits: what one submission may use.
    """

    folder: ClassFolder
    workers: int
    again: bool = False
    limits: Limits = field(default_factory=Limits)

    def result_path(self, submission: Submission) -> Path:
        """Return where the result of a submission is kept."""
        return self.folder.root / "results" / submission.student / f"{submission.source.name}.json"

    def grade(self, submissions: list[Submission]) -> Iterator[tuple[Submission, str]]:
        """Grade and record; yield each submission as it is done, with the reason if it could not be graded."""
        known = self.folder.recorded()
        waiting = {}
        for submission in submissions:
            prepared = prepare(submission)
            result = None if self.again else results.load(self.result_path(submission), prepared.key)
            if result or prepared.problem:
                yield submission, self._record(prepared, result, known)
            else:
                waiting[submission.name] = prepared
        for name, outcome in run_side_by_side(
            {name: (*each.job, self.limits) for name, each in waiting.items()}, self.workers
        ):
            prepared = waiting[name]
            if isinstance(outcome, Result):
                results.store(self.result_path(prepared.submission), prepared.key, outcome)
                yield prepared.submission, self._record(prepared, outcome, known)
            else:
                yield prepared.submission, f"not graded: {outcome}. Run the grading again; if it stays, report it."

    def graded(self, submission: Submission) -> NotebookNode:
        """Return one submission graded, from what is stored if there is something.

        Raises:
            RuntimeError: the grader itself failed.
        """
        prepared = prepare(submission)
        result = results.load(self.result_path(submission), prepared.key)
        if not result and not prepared.problem:
            ((_, result),) = run_side_by_side({submission.name: (*prepared.job, self.limits)}, workers=1)
            if not isinstance(result, Result):
                raise RuntimeError(result)
            results.store(self.result_path(submission), prepared.key, result)
        return self._keyed(prepared, result)

    def _keyed(self, prepared: Prepared, result: Result | None) -> NotebookNode:
        """Return the graded notebook with the key by which it is known in the gradebook."""
        notebook = prepared.graded(result)
        beside = slips(prepared.submission.folder)
        notebook.metadata[MARK]["key"] = results.key_of(nbformat.writes(notebook), str(beside))
        return notebook

    def _record(self, prepared: Prepared, result: Result | None, known: dict) -> str:
        """Enter a graded notebook, unless the gradebook holds it already; return why it could not be done."""
        submission, notebook = prepared.submission, self._keyed(prepared, result)
        entry = self.folder.entry(*submission.name)
        if submission.name in known and entry.get("key") == notebook.metadata[MARK]["key"]:
            return ""
        try:
            self.folder.record(*submission.name, notebook, submission.folder)
        except NotRecorded as error:
            return f"not recorded: {error}. Run the grading again; if it stays, report it."
        return ""


def _grade(cells: list[tuple[int, str]], tests: list[HiddenTest], modules: frozenset[str], limits: Limits) -> Result:
    return sandbox.grade(cells, tests, modules, limits, data=TEST_IMAGES)


def run_side_by_side(
    jobs: dict[object, tuple], workers: int, work: Callable = _grade
) -> Iterator[tuple[object, Result | str]]:
    """Run jobs in processes; yield each one's name with its result, or with a text that says what went wrong.

    If a process of the grader's own dies, the jobs that are left run one by one, so that the one to blame is known.
    """
    left = dict(jobs)
    if len(jobs) > 1:
        with _pool(min(workers, len(jobs))) as pool:
            futures = {pool.submit(work, *job): name for name, job in jobs.items()}
            for future in as_completed(futures):
                if not isinstance(future.exception(), BrokenProcessPool):
                    del left[futures[future]]
                    yield futures[future], _outcome(future)
    for name, job in left.items():
        with _pool(1) as pool:
            future = pool.submit(work, *job)
            yield name, _outcome(future)


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Let a process of the pool end when the run is killed, and only then: nobody else would end it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _outcome(future: Future) -> Result | str:
    error = future.exception()
    return future.result() if error is None else f"the grader itself failed ({error!r})"
