"""Grading a class: every submission is read, repaired, run in the sandbox and entered into the gradebook.

Nothing that one student hands in can stop the others, and a run that is killed goes on where it stopped: results are
kept under a hash of the submission, the source and the grader, and what the gradebook holds is not entered again.
"""

import copy
import multiprocessing
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from grader import confine, own_parts, results, sandbox
from grader.confine import Limits
from grader.gradebook import MARK, ClassFolder, NotRecorded, slips
from grader.intake import Unreadable, find_notebook, read_notebook
from grader.repair import repair, untouched
from grader.roster import WHICH, is_student_id
from grader.sandbox import HiddenTest, Result
from grader.source import Source, is_test, is_theirs, nbgrader_of, outside

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
    is_blank: bool = False
    own: str = ""  # the text of the student's my_vit.py

    def __post_init__(self):
        # the first cell has place for the notes, so that the student's cells are counted from 1
        self.notebook.cells.insert(
            0, nbformat.v4.new_code_cell("# Notes from the grading", id="notes-from-the-grading")
        )
        self.key = results.key_of(self.submission.source.digest, nbformat.writes(self.notebook), self.own)

    @property
    def job(self) -> tuple:
        """Return the first arguments of :func:`grade_one`."""
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
        notes += [line for index, cell in enumerate(notebook.cells) for line in self._stopped(index, cell, outputs)]
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", name="stdout", text="\n".join(notes))]
        if not notes:
            del notebook.cells[0]
        notebook.metadata[MARK] = {"notes": notes, "problem": self.problem}
        return notebook

    def _stopped(self, index: int, cell: NotebookNode, outputs: dict[int, list]) -> Iterator[str]:
        """Say which cell for the student's code ended in an error: whatever it defines below that line is lost."""
        if cell.cell_type == "code" and is_theirs(cell):
            for output in outputs.get(index, []):
                if output["output_type"] == "error" and output["ename"] != "NotImplementedError":
                    label = self.submission.source.labels.get(cell.id, cell.id)
                    yield f"the code of {label} (cell {index}) ended with {output['ename']}: {output['evalue'][:100]}"


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
    written, blank = (
        [cell.source for cell in notebook.cells if is_theirs(cell)]
        for notebook in (repaired.notebook, untouched(submission.source))
    )
    own, more = own_parts.read(path.parent)
    return Prepared(submission, repaired.notebook, notes + repaired.notes + more, is_blank=written == blank, own=own)


@dataclass
class Run:
    """One grading run over a class.

    Args:
        folder: the class.
        workers: how many submissions run side by side.
        again: whether to run also what was run before.
        limits: what one submission may use.
        unconfined: whether nothing is to confine the submissions.
        dask: the address of a Dask scheduler whose workers do the grading, in place of processes of this machine.
    """

    folder: ClassFolder
    workers: int
    again: bool = False
    limits: Limits = field(default_factory=Limits)
    unconfined: bool = False
    dask: str = ""

    def result_path(self, submission: Submission) -> Path:
        """Return where the result of a submission is kept."""
        return self.folder.root / "results" / submission.student / f"{submission.source.name}.json"

    def grade(self, submissions: list[Submission]) -> Iterator[tuple[Submission, str]]:
        """Grade and record; yield each submission as it is done, with the reason if it could not be graded."""
        known = self.folder.recorded()
        prepared = {submission.name: prepare(submission) for submission in submissions}
        note_identical(prepared.values())
        waiting = {}
        for name, each in prepared.items():
            result = None if self.again else results.load(self.result_path(each.submission), each.key)
            if result or each.problem:
                yield each.submission, self._record(each, result, known)
            else:
                waiting[name] = each
        jobs = {name: (*each.job, self.limits, self.unconfined, each.own) for name, each in waiting.items()}
        for name, outcome in run_jobs(jobs, self.workers, self.dask):
            each = waiting[name]
            if isinstance(outcome, Result):
                results.store(self.result_path(each.submission), each.key, outcome)
                yield each.submission, self._record(each, outcome, known)
            else:
                yield each.submission, f"not graded: {outcome}. Run the grading again; if it stays, report it."

    def graded(self, submission: Submission) -> NotebookNode:
        """Return one submission graded, from what is stored if there is something.

        Raises:
            RuntimeError: the grader itself failed.
        """
        prepared = prepare(submission)
        result = results.load(self.result_path(submission), prepared.key)
        if not result and not prepared.problem:
            job = (*prepared.job, self.limits, self.unconfined, prepared.own)
            ((_, result),) = run_jobs({submission.name: job}, workers=1)
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


def note_identical(prepared: Iterable[Prepared]) -> None:
    """Note where several students handed in the very same cells; a person decides what that means."""
    same = defaultdict(list)
    for each in prepared:
        if not each.problem and not each.is_blank:
            same[each.submission.source.name, nbformat.writes(each.notebook)].append(each)
    for group in same.values():
        for each in group:
            others = sorted(other.submission.student for other in group if other is not each)
            if others:
                each.notes.append(f"the same cells, letter by letter, as {', '.join(others)}")


def check_source(source: Source, *, unconfined: bool = False) -> list[str]:
    """Run an assignment's own solution against its hidden tests; return a line for each that it fails."""
    cells = [
        (index, outside(cell.source, "HIDDEN TESTS"))
        for index, cell in enumerate(source.notebook.cells)
        if cell.cell_type == "code" and not is_test(cell)
    ]
    tests = [HiddenTest(*test) for test in source.hidden_tests.items()]
    result = grade_one(cells, tests, source.modules, Limits(), unconfined)
    return [f"{name}: {answer.message}" for name, answer in result.answers.items() if not answer.passed]


# --- running ---------------------------------------------------------------------------------------------------------


def grade_one(
    cells: list[tuple[int, str]],
    tests: list[HiddenTest],
    modules: frozenset[str],
    limits: Limits,
    unconfined: bool,
    own: str = "",
) -> Result:
    """Grade one submission, perhaps with a my_vit.py, on this machine, confined by what the machine has."""

    def grade(cells: list[tuple[int, str]], tests: list[HiddenTest]) -> Result:
        return sandbox.grade(cells, tests, modules, limits, confinement, data=TEST_IMAGES)

    confinement = confine.choose(unconfined=unconfined)
    first, notes = own_parts.first_cells(own, modules, grade)
    result = grade(first + cells, tests)
    result.notes[:0] = notes
    return result


def run_jobs(
    jobs: dict[object, tuple], workers: int, dask: str = "", work: Callable = grade_one
) -> Iterator[tuple[object, Result | str]]:
    """Run jobs side by side; yield each one's name with its result, or with a text that says what went wrong.

    If a process of the grader's own dies, the jobs that are left run one by one, so that the one to blame is known.
    """
    left = dict(jobs)
    if jobs:
        with _executor(min(workers, len(jobs)), dask) as executor:
            futures = {executor.submit(work, *job): name for name, job in jobs.items()}
            for future in as_completed(futures):
                if not isinstance(future.exception(), BrokenProcessPool):
                    del left[futures[future]]
                    yield futures[future], _outcome(future)
    for name, job in left.items():
        with _executor(1) as executor:
            yield name, _outcome(executor.submit(work, *job))


@contextmanager
def _executor(workers: int, dask: str = "") -> Iterator[Executor]:
    """Open processes of this machine, or those of a Dask cluster, which replaces a worker that dies."""
    if dask:
        from distributed import Client

        with Client(dask) as client:
            yield client.get_executor(pure=False)
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, spawn, initializer=_end_with_parent) as executor:
            yield executor


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
