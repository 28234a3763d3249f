"""Runs one submission in a process of its own, and the hidden tests here, on the trusted side.

The student's process (``worker.py``, started and watched by ``supervisor.py``) runs the cells, then answers requests.
It never holds an expected value, and nothing that it sends is believed before it is checked: ``frames.py`` for types
and sizes, ``outputs.py`` for what a cell shows, ``hidden.py`` for values.

A cell or a test that hangs, ends the process or takes too much memory costs its own points: the process is started
anew without that cell, and the rest goes on.

Not protected: a student who copies a right solution; the load on the machine within the limits; faults of the kernel.
"""

import ast
import builtins
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from grader import hidden
from grader.outputs import one_text, outputs_of
from grader.process import Limits, Process, SandboxError, Stopped, submission_folder


@dataclass(frozen=True)
class HiddenTest:
    """A hidden test: the ``grade_id`` of its cell, and the code between the markers."""

    grade_id: str
    code: str


@dataclass
class Answer:
    """The verdict of one hidden test."""

    passed: bool
    message: str


@dataclass
class Result:
    """What came of a submission.

    Args:
        outputs: by the index of the cell, in notebook format: streams, errors, plain text and PNG pictures only.
        answers: verdicts by ``grade_id``. Messages hold text of the student's; escape it where it is shown as HTML.
        notes: lines about cells that were stopped.
        seconds: how long it took.
    """

    outputs: dict[int, list] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


def grade(
    cells: list[tuple[int, str]],
    tests: list[HiddenTest],
    modules: Collection[str],
    limits: Limits | None = None,
    *,
    data: Path | None = None,
) -> Result:
    """Run the cells of a submission, then the hidden tests.

    Args:
        cells: index and source of every code cell that is to be run, in order; test cells left out.
        tests: the hidden tests, run here.
        modules: what the assignment imports from the package, by name; nothing else of it exists for the student.
        limits: what the submission may use.
        data: the file that ``load_test_images`` reads, or None.

    Raises:
        SandboxError: no process can be started, or a hidden test is at fault: neither is the submission's doing.
    """
    limits, started = limits or Limits(), time.monotonic()
    with submission_folder(modules, data) as folder:
        run = _Run(folder, cells, limits, started + limits.total_seconds)
        try:
            run.cells_to_end()
            for test in tests:
                run.result.answers[test.grade_id] = run.verdict(test)
        finally:
            run.close()
    run.result.seconds = time.monotonic() - started
    return run.result


class _Run:
    """One submission: its process, started anew where necessary, and what has come of it."""

    def __init__(self, folder: Path, cells: list[tuple[int, str]], limits: Limits, deadline: float) -> None:
        self.folder, self.cells, self.limits, self.deadline = folder, cells, limits, deadline
        self.result = Result()
        self.skipped: set[int] = set()
        self.process: Process | None = None
        self.test_restarts = limits.restarts
        self.room = 4 * limits.output_bytes

    def close(self) -> None:
        """End the process."""
        if self.process:
            self.process.close()
            self.process = None

    def cells_to_end(self) -> bool:
        """Start a process and run all cells in it but those that stopped one before; whether it is there then."""
        while len(self.skipped) <= len(self.cells):
            if time.monotonic() >= self.deadline:
                self._note(f"the submission was stopped after {self.limits.total_seconds:g} s in all")
                return False
            self.process = Process(self.folder, self.limits)
            for index, source in self.cells:
                if index in self.skipped:
                    continue
                try:
                    shown = self.process.request({"cell": source}, self.limits.cell_seconds, self.deadline)
                    self.process.tidy()
                    if index not in self.result.outputs:
                        self.result.outputs[index] = outputs_of(shown.get("outputs"), self.room)
                        self.room -= len(str(self.result.outputs[index]))
                except Stopped as stopped:
                    self._cell_stopped(index, str(stopped))
                    break
            else:
                return True
        return False

    def _cell_stopped(self, index: int, cause: str) -> None:
        self.close()
        self._note(f"cell {index}: {cause}")
        self.result.outputs[index] = [
            dict(output_type="stream", name="stderr", text=f"This cell was not finished: {cause}.\n")
        ]
        self.skipped.add(index)
        if len(self.skipped) > self.limits.restarts:
            rest = {later for later, _ in self.cells if later > index} - self.skipped
            self.skipped |= rest
            if rest:
                self._note(f"the cells after cell {index} were not run: too many were stopped")

    def _note(self, line: str) -> None:
        if line not in self.result.notes:
            self.result.notes.append(line)

    def verdict(self, test: HiddenTest) -> Answer:
        """Run one hidden test."""
        if self.process is None and (self.test_restarts <= 0 or not self._restarted()):
            return Answer(False, "not tested: the submission was stopped too often, or for good")
        self.process.tidy()
        try:
            exec(compile(test.code, f"<hidden test {test.grade_id}>", "exec"), self._namespace(test.code))
        except Stopped as stopped:
            self.close()
            self._note(f"hidden test {test.grade_id}: {stopped}")
            return Answer(False, str(stopped))
        except hidden.Fault as fault:
            raise SandboxError(f"hidden test {test.grade_id} is at fault: {fault}") from fault
        except AssertionError as wrong:
            return Answer(False, one_text(str(wrong), 1000))
        except Exception as error:
            return Answer(False, one_text(f"the answer cannot be compared ({type(error).__name__}: {error})", 500))
        return Answer(True, "right")

    def _restarted(self) -> bool:
        self.test_restarts -= 1
        return self.cells_to_end()

    def _namespace(self, code: str) -> dict[str, object]:
        """Let every name in a hidden test that it does not make itself stand for the student's."""
        names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        return {name: hidden.Remote(name, self._ask) for name in names - vars(builtins).keys()}

    def _ask(self, request: dict) -> dict:
        answer = self.process.request({"request": request}, self.limits.call_seconds, self.deadline).get("answer")
        if not isinstance(answer, dict):
            raise hidden.Wrong("no readable answer")
        return answer
