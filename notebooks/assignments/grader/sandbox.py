"""Runs one submission in a process of its own, and the hidden tests here, on the trusted side.

The student's process (``worker.py``, kept apart by ``confine.py``) runs the cells, then answers requests. It never
holds an expected value, and nothing that it sends is believed before it is checked: ``messages.py`` for form and size,
``outputs.py`` for what a cell shows, ``hidden.py`` for values.

A cell or a test that hangs, ends the process or takes too much memory costs its own points: the process is started
again without that cell, and the rest goes on.

Not protected: a student who copies a right solution; the load on the machine within the limits; faults of the kernel.
"""

import ast
import atexit
import builtins
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from grader import hidden, package
from grader.confine import Confinement, Limits, environment, write_filter
from grader.messages import LOOK_EVERY, Connection, Ended, Malformed
from grader.outputs import one_text, outputs_of
from grader.usage import Usage
from grader.worker import KILLED

START_SECONDS = 120


class SandboxError(RuntimeError):
    """Nothing can be marked, and not because of the submission: a matter for the teacher, not for the mark."""


class Stopped(Exception):
    """The student's process is gone, or of no more use; the message says why."""


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
        seconds: processor time of the submission's processes.
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
    confinement: Confinement | None = None,
    *,
    data: Path | None = None,
) -> Result:
    """Run the cells of a submission, then the hidden tests.

    Args:
        cells: index and source of every code cell that is to be run, in order; test cells left out.
        tests: the hidden tests, run here.
        modules: what the assignment imports from the package, by name; nothing else of it exists for the student.
        limits: what the submission may use.
        confinement: what confines it.
        data: the file that ``load_test_images`` reads, or None.

    Raises:
        SandboxError: no process can be started, or a hidden test is at fault: neither is the submission's doing.
    """
    run = _Run(sandbox_for(frozenset(modules), limits or Limits(), confinement or Confinement("none"), data), cells)
    try:
        run.cells_to_end()
        for test in tests:
            run.result.answers[test.grade_id] = run.verdict(test)
    finally:
        run.end()
    return run.result


# --- one submission --------------------------------------------------------------------------------------------------


class _Run:
    """One submission: its process, started again where necessary, and what has come of it."""

    def __init__(self, sandbox: "Sandbox", cells: list[tuple[int, str]]) -> None:
        self.sandbox, self.limits, self.cells = sandbox, sandbox.limits, cells
        self.result = Result()
        self.skipped: set[int] = set()
        self.process: Process | None = None
        self.test_restarts = self.limits.restarts
        self.room = 4 * self.limits.output_bytes

    def end(self) -> str:
        """End the process, and return how it had ended by itself, if it had."""
        process, self.process = self.process, None
        if not process:
            return ""
        cause = process.end()
        self.result.seconds += process.usage.seconds
        return cause

    def cells_to_end(self) -> bool:
        """Start a process and run all cells in it but those that stopped one before; whether it is there then."""
        while len(self.skipped) <= len(self.cells):
            if self.result.seconds >= self.limits.total_seconds:
                self._note(f"the submission was stopped after {self.limits.total_seconds:g} s in all")
                return False
            self.process = self.sandbox.process(self.limits.total_seconds - self.result.seconds)
            for index, source in self.cells:
                if index in self.skipped:
                    continue
                try:
                    shown = self.process.request({"cell": source}, self.limits.cell_seconds)
                    self.process.usage.end_others()
                    if index not in self.result.outputs:
                        self.result.outputs[index] = outputs_of(shown.get("outputs"), self.room)
                        self.room -= len(str(self.result.outputs[index]))
                except Stopped as stopped:
                    self._cell_stopped(index, self.end() or str(stopped))
                    break
            else:
                return True
        return False

    def _cell_stopped(self, index: int, cause: str) -> None:
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
        try:
            exec(compile(test.code, f"<hidden test {test.grade_id}>", "exec"), self._namespace(test.code))
        except Stopped as stopped:
            cause = self.end() or str(stopped)
            self._note(f"hidden test {test.grade_id}: {cause}")
            return Answer(False, cause)
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
        answer = self.process.request({"request": request}, self.limits.call_seconds).get("answer")
        if not isinstance(answer, dict):
            raise hidden.Wrong("no readable answer")
        return answer


# --- processes -------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def sandbox_for(modules: frozenset[str], limits: Limits, confinement: Confinement, data: Path | None) -> "Sandbox":
    """Return the sandbox of the last submission, if it suits this one too."""
    return Sandbox(modules, limits, confinement, data)


class Sandbox:
    """What the submissions to one assignment have in common: their package, their limits and, where one confinement can
    hold one submission after the other, a process that holds torch already.
    """  # noqa: D205

    def __init__(self, modules: Collection[str], limits: Limits, confinement: Confinement, data: Path | None) -> None:
        self.limits, self.confinement = limits, confinement
        self.folder = Path(tempfile.mkdtemp(prefix="assignment-"))
        package.build(self.folder, modules, data)
        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.settings = dict(
            package=str(self.folder),
            libraries=confinement.libraries,
            files=font_list(),
            memory_bytes=limits.memory_bytes,
            output_bytes=limits.output_bytes,
            file_bytes=limits.file_bytes,
            processes=limits.processes,
        )
        self.running: subprocess.Popen | None = None
        atexit.register(self.close)

    def close(self) -> None:
        """End everything in the sandbox, and remove the package."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def process(self, seconds: float) -> "Process":
        """Start a student's process, which may use so many seconds in all.

        Raises:
            SandboxError: it does not start.
        """
        try:
            return Process(self, *(self._fork() if self.confinement.forks else self._start()), seconds)
        except (Ended, OSError, Malformed, TimeoutError) as error:
            self.stop()
            raise SandboxError(f"a student's process cannot be started: {self.said or type(error).__name__}") from error

    def _fork(self) -> tuple[int, int]:
        """Have a process forked that talks to one end of a socket; return the other end."""
        if self.running is None or self.running.poll() is not None:
            self.stop()
            self.control, theirs = socket.socketpair()
            with theirs:
                self._launch(dict(self.settings, control=theirs.fileno()), subprocess.DEVNULL, [theirs.fileno()])
            self.control.settimeout(START_SECONDS)
            if self.control.recv(5) != b"ready":
                raise Ended
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"+"], [theirs.fileno()])
        descriptor = ours.detach()
        return descriptor, descriptor

    def _start(self) -> tuple[int, int]:
        """Start a process that talks through its standard streams."""
        self.stop()
        self._launch(self.settings, subprocess.PIPE, [])
        return os.dup(self.running.stdout.fileno()), os.dup(self.running.stdin.fileno())

    def _launch(self, settings: dict, pipe: int, descriptors: list[int]) -> None:
        inside = [*self.confinement.python, str(self.folder / "grader" / "worker.py"), json.dumps(settings)]
        self.said, self.complaints = "", tempfile.TemporaryFile()  # noqa: SIM115
        home = tempfile.mkdtemp(dir=self.folder) if self.confinement.kind == "none" else "/"
        with tempfile.TemporaryFile() as file:
            if self.confinement.kind == "bubblewrap":
                write_filter(file)
            self.running = subprocess.Popen(
                self.confinement.command(inside, self.folder, self.limits, file.fileno()),
                stdin=pipe,
                stdout=pipe,
                stderr=self.complaints,
                pass_fds=[file.fileno(), *descriptors],
                cwd=home,
                env=environment(home) if self.confinement.kind == "none" else None,
                start_new_session=True,
            )

    def ended(self) -> int | None:
        """End the student's process and return its exit code; None if nobody knows."""
        if not self.confinement.forks:
            with suppress(subprocess.TimeoutExpired):
                return self.running.wait(1)
            return None
        try:
            self.control.settimeout(30)
            self.control.send(b"-")
            return json.loads(self.control.recv(100))
        except (OSError, ValueError):  # the sandbox is gone, or is given up
            self.stop()
            return None

    def stop(self) -> None:
        """End everything in the sandbox."""
        if self.running is None:
            return
        Usage(self.running.pid).end_all()
        self.running.kill()
        self.running.wait()
        for stream in (self.running.stdin, self.running.stdout):
            if stream:
                stream.close()
        if self.confinement.forks:
            self.control.close()
        self.complaints.seek(0)
        self.said = self.complaints.read(10_000).decode(errors="replace").strip().rpartition("\n")[2][:300]
        self.complaints.close()
        self.running = None


class Process:
    """A student's process and the connection to it."""

    def __init__(self, sandbox: Sandbox, incoming: int, outgoing: int, seconds: float) -> None:
        self.sandbox, self.count, self.seconds = sandbox, 0, seconds
        self.cause = ""
        deadline = time.monotonic() + START_SECONDS

        def starting() -> None:
            if time.monotonic() > deadline:
                raise TimeoutError

        self.connection = Connection(incoming, outgoing, starting)
        self.connection.receive()
        self.usage = Usage(sandbox.running.pid, forks=sandbox.confinement.forks)
        self.connection.look = self._look

    def request(self, message: dict, seconds: int | float) -> dict:
        """Send a message and return the reply; ``Stopped``, with the cause, if none comes or none that can be read."""
        self.count += 1
        self.until, self.allowed = None, seconds
        self.usage.resume()
        try:
            self.connection.send({"id": self.count, **message})
            reply = self.connection.receive()
        except Ended:
            raise Stopped("the process closed its connection") from None
        except Malformed as error:
            self.cause = f"the process sent what cannot be read ({error})"
            raise Stopped(self.cause) from None
        if not isinstance(reply, dict) or reply.get("id") != self.count:
            self.cause = "the process sent what was not asked for"
            raise Stopped(self.cause)
        return reply

    def _look(self) -> None:
        """Stop a process that uses too much."""
        seconds = self.usage.measure()
        if self.until is None:  # the first look after a request
            self.until = seconds + self.allowed
        if seconds > self.seconds:
            self.cause = "the time for the whole submission was over"
        elif seconds > self.until:
            self.cause = f"stopped after {self.allowed:g} s (endless loop?)"
        elif self.usage.memory > self.sandbox.limits.memory_bytes and not self.usage.end_others():
            self.cause = "out of memory"
        if self.cause:
            raise Stopped(self.cause)

    def end(self) -> str:
        """End the process and all that came from it; return how it had ended by itself, if it had."""
        self.usage.resume()
        self.usage.measure()
        if not self.cause:
            time.sleep(LOOK_EVERY / 10)  # it may be about to end by itself
        self.connection.close()
        code = self.sandbox.ended()
        if not self.sandbox.confinement.forks:
            self.sandbox.stop()
        if self.cause or code in (None, KILLED):
            return self.cause
        number = code - 128 if code > 128 else max(-code, 0)  # of the signal, if there was one
        if number == signal.SIGKILL:
            return "out of memory"
        if number:
            return f"the process crashed with signal {number} (out of memory, or recursion without end?)"
        return f"the process ended itself with status {code} (os._exit?)"


@functools.cache
def font_list() -> dict[str, str]:
    """Return matplotlib's list of fonts by its name, so that not every student's process makes its own."""
    from matplotlib import font_manager, get_cachedir

    path = Path(get_cachedir()) / f"fontlist-v{font_manager.FontManager.__version__}.json"
    return {path.name: path.read_text()} if path.exists() else {}
