"""Runs one submission in a process of its own, and the hidden tests here, on the trusted side.

The student's process (``worker.py``, kept apart by ``confine.py``) runs the cells, then answers requests. It never
contains an expected value, and nothing that it sends is believed before it is checked: ``messages.py`` for form and
size, ``outputs.py`` for what a cell shows, ``hidden.py`` for values.

A cell or a test that hangs, ends the process or takes too much memory costs its own points: the process is started
again without that cell, and the rest goes on.

Not protected: a student who copies a right solution; the load on the machine within the limits; faults of the kernel.
"""

import ast
import atexit
import builtins
import json
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from grader import hidden, student_package
from grader.confine import CONTAINERS, Confinement, Limits, cause_in, environment, library_folders
from grader.messages import Connection, Ended, Malformed
from grader.outputs import outputs_of, plain, stream
from grader.usage import Usage

START_SECONDS = 120
PATIENCE, SLOWNESS = 60, 10  # by the clock: what an answer may take longer than its limit, in seconds and in times
WORKER = ("__init__.py", "answers.py", "messages.py", "worker.py")  # what runs on the student's side


class Stopped(Exception):
    """The student's process is gone, or of no more use; the message says why."""


@dataclass
class Answer:
    """The verdict of one hidden test."""

    passed: bool
    message: str


@dataclass
class Result:
    """What came of a submission.

    Args:
        outputs: by the number of the cell, in notebook format: streams, errors, plain text and PNG pictures only.
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
    tests: dict[str, str],
    modules: frozenset[str],
    limits: Limits,
    confinement: Confinement,
) -> Result:
    """Run the cells of a submission, then the hidden tests.

    Args:
        cells: number and source of every code cell that is to be run, in order; test cells left out.
        tests: the code of the hidden tests by ``grade_id``; it is run here.
        modules: what the assignment imports from the package, by name; nothing else of it exists for the student.
        limits: what the submission may use.
        confinement: what confines it.

    Raises:
        hidden.Fault: no process can be started, or a hidden test is at fault: neither is the submission's doing.
    """
    submission = _Submission(sandbox_for(confinement), limits, student_package.files(modules), cells)
    try:
        submission.run_cells()
        for grade_id, code in tests.items():
            submission.result.answers[grade_id] = submission.verdict(grade_id, code)
    finally:
        submission.end()
    return submission.result


class _Submission:
    """One submission: its process, started again where necessary, and what has come of it."""

    def __init__(self, sandbox: "Sandbox", limits: Limits, package: dict, cells: list[tuple[int, str]]) -> None:
        self.sandbox, self.limits, self.package, self.cells = sandbox, limits, package, cells
        self.result, self.process = Result(), None
        self.cell_restarts = self.test_restarts = limits.restarts
        self.room = 4 * self.limits.output_bytes

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process:
            self.result.seconds += self.process.end()
        self.process = None

    def run_cells(self) -> bool:
        """Start a process and run all cells in it except those that stopped one; return whether it is there then."""
        while self.result.seconds < self.limits.total_seconds:
            seconds = self.limits.total_seconds - self.result.seconds
            self.process = Process(self.sandbox, self.limits, self.package, seconds)
            if all(self._run_cell(number, source) for number, source in self.cells):
                return True
        self._note(f"the submission was stopped after {self.limits.total_seconds:g} s in all")
        return False

    def _run_cell(self, number: int, source: str) -> bool:
        try:
            reply = self.process.request({"cell": source}, self.limits.cell_seconds)
        except Stopped as stopped:
            self.end()
            self._note(f"cell {number}: {stopped}")
            self.result.outputs[number] = [stream("stderr", f"This cell was not finished: {stopped}.\n")]
            later = [cell for cell in self.cells if cell[0] > number]
            self.cells = [cell for cell in self.cells if cell[0] < number]
            self.cell_restarts -= 1
            if self.cell_restarts >= 0:
                self.cells += later
            elif later:
                self._note(f"the cells after cell {number} were not run: too many were stopped")
            return False
        if number not in self.result.outputs:
            self.result.outputs[number], self.room = outputs_of(reply.get("shown"), self.room)
        return True

    def _note(self, line: str) -> None:
        if line not in self.result.notes:
            self.result.notes.append(line)

    def verdict(self, grade_id: str, code: str) -> Answer:
        """Run one hidden test, in which each name that it does not make itself stands for the student's."""
        if not self.process:
            self.test_restarts -= 1
            if self.test_restarts < 0 or not self.run_cells():
                return Answer(False, "not tested: the submission was stopped too often, or for good")
        names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)} - vars(builtins).keys()
        scope = {name: hidden.Remote(name, self._ask) for name in names}
        try:
            exec(compile(code, f"<hidden test {grade_id}>", "exec"), scope)
        except Stopped as stopped:
            self.end()
            self._note(f"hidden test {grade_id}: {stopped}")
            return Answer(False, str(stopped))
        except hidden.Fault as fault:
            raise hidden.Fault(f"hidden test {grade_id} is at fault: {fault}") from fault
        except AssertionError as wrong:
            return Answer(False, plain(str(wrong))[:1000])
        except Exception as error:
            return Answer(False, plain(f"the answer cannot be compared ({type(error).__name__}: {error})")[:500])
        return Answer(True, "right")

    def _ask(self, request: dict) -> dict:
        answer = self.process.request({"request": request}, self.limits.call_seconds).get("answer")
        if not isinstance(answer, dict):
            raise hidden.Wrong("no readable answer")
        return answer


class Process:
    """A student's process, which may use so many seconds in all, and the connection to it."""

    def __init__(self, sandbox: "Sandbox", limits: Limits, package: dict[str, str], seconds: float) -> None:
        self.sandbox, self.limits, self.seconds, self.count = sandbox, limits, seconds, 0
        deadline = time.monotonic() + START_SECONDS

        def starting() -> None:
            if time.monotonic() > deadline:
                raise TimeoutError

        try:
            descriptor = sandbox.connect()
            self.connection = Connection(descriptor, descriptor, starting)
            self.connection.send({"package": package, "limits": asdict(limits)})
            self.connection.receive()
        except (Ended, OSError, Malformed) as error:
            sandbox.stop()
            raise hidden.Fault(f"a student's process cannot be started: {sandbox.said or repr(error)}") from error
        self.usage = Usage(sandbox.confinement.pid(sandbox.running, sandbox.folder))
        self.connection.look = self._look

    def request(self, message: dict, seconds: float) -> dict:
        """Send a message and return the reply; ``Stopped``, with the cause, if none comes or none that can be read."""
        self.count += 1
        self.usage.resume()
        self.allowed, self.until, self.asked = seconds, None, self.usage.watched
        try:
            self.connection.send({"id": self.count, **message})
            reply = self.connection.receive()
        except Ended:
            raise Stopped("the process ended itself (exit, a crash, or out of memory?)") from None
        except Malformed as error:
            raise Stopped(f"the process sent what cannot be read ({error})") from None
        if not isinstance(reply, dict) or type(reply.get("id")) is not int or reply["id"] != self.count:
            raise Stopped("the process sent what was not asked for")
        return reply

    def _look(self) -> None:
        """Stop a process that uses too much."""
        self.usage.measure()
        if self.until is None:  # the first look after a request
            self.until = self.usage.seconds + self.allowed
        if self.usage.seconds > self.seconds:
            raise Stopped("the time for the whole submission was over")
        if self.usage.seconds > self.until:
            raise Stopped(f"stopped after {self.allowed:g} s (endless loop?)")
        for since, allowed in (self.asked, self.allowed), (0, self.seconds):
            watched = self.usage.watched - since
            if watched > PATIENCE + SLOWNESS * allowed:  # a wait, or work, that is not seen from here
                raise Stopped(f"stopped after {watched:.0f} s by the clock")
        if self.usage.memory > self.limits.memory_bytes:
            raise Stopped("out of memory")

    def end(self) -> float:
        """End the process and all that came from it; return the seconds that it has used."""
        self.usage.resume()
        self.usage.measure()
        self.sandbox.disconnect()  # before the connection, whose end a container would follow while it is removed
        self.connection.close()
        return self.usage.seconds


# --- the sandbox -----------------------------------------------------------------------------------------------------


_open: list["Sandbox"] = []


def abandon() -> None:
    """End the containers of a process that is about to end itself; bubblewrap ends with it."""
    for sandbox in _open:
        sandbox.confinement.remove(sandbox.folder)


class Sandbox:
    """What submissions share: the worker's code, the data and, where each can be forked, a process that holds torch."""

    def __init__(self, confinement: Confinement) -> None:
        self.confinement = confinement
        self.temporary = tempfile.TemporaryDirectory(prefix="grader-", ignore_cleanup_errors=True)
        self.folder = Path(self.temporary.name)
        for name in ("grader", "resources"):
            (self.folder / name).mkdir()
        for name in WORKER:
            shutil.copy(Path(__file__).with_name(name), self.folder / "grader")
        shutil.copy(student_package.COURSE / "resources" / "test_images.npy", self.folder / "resources")
        for path in [self.folder, *self.folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.running: subprocess.Popen | None = None
        _open.append(self)
        atexit.register(self.stop)

    def connect(self) -> int:
        """Start a student's process; return a descriptor of the connection to it."""
        if not self.confinement.forks:
            return self._launch().detach()
        if self.running is None or self.running.poll() is not None:
            self.stop()
            self.control = self._launch()
            self.control.settimeout(START_SECONDS)
            if self.control.recv(1) != b"+":
                raise Ended
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.control, [b"+"], [theirs.fileno()])
        return ours.detach()

    def disconnect(self) -> None:
        """End the student's process; where nothing of it has stayed, the next one is forked from the same Python."""
        if self.confinement.forks:
            with suppress(OSError):
                self.control.settimeout(30)
                self.control.send(b"-")
                if self.control.recv(1) == b"+":
                    return
        self.stop()

    def _launch(self) -> socket.socket:
        """Start the worker; return a connection to its standard input and output."""
        self.said, self.complaints = "", tempfile.TemporaryFile()  # noqa: SIM115
        is_bare = self.confinement.kind == "none"
        home = tempfile.mkdtemp(dir=self.folder) if is_bare else "/"
        libraries = [] if self.confinement.kind in CONTAINERS else library_folders()
        settings = dict(libraries=libraries, forks=self.confinement.forks)
        command = [*self.confinement.python, str(self.folder / "grader" / "worker.py"), json.dumps(settings)]
        ours, theirs = socket.socketpair()
        with theirs:
            options = dict(cwd=home, env=environment(home) if is_bare else None, stdin=theirs, stdout=theirs)
            self.running = self.confinement.start(command, self.folder, Limits(), stderr=self.complaints, **options)
        return ours

    def stop(self) -> None:
        """End everything in the sandbox."""
        if self.running is None:
            return
        self.confinement.remove(self.folder)
        Usage(self.running.pid).end_all()
        self.running.wait()
        if self.confinement.forks:
            self.control.close()
        self.complaints.seek(0)
        self.said = cause_in(self.complaints.read(10_000).decode(errors="replace"))[:300]
        self.complaints.close()
        self.running = None


sandbox_for = cache(Sandbox)  # one for all submissions that a process of the grader runs
