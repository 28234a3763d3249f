"""Runs one submission in a process of its own, and the hidden tests here, on the trusted side.

The student's process (``worker.py``, started and watched by ``supervisor.py``) runs the cells, then answers requests.
It never holds an expected value, and nothing that it sends is believed before it is checked: ``frames.py`` for types
and sizes, :func:`outputs_of` for what a cell shows, ``hidden.py`` for values.

A cell or a test that hangs, ends the process or takes too much memory costs its own points: the process is started
anew without that cell, and the rest goes on.

Not protected: a student who copies a right solution; the load on the machine within the limits; faults of the kernel.
Where the grader is not root, a submission runs as the same user, held by Landlock alone (see ``supervisor.py``);
without Landlock it can read and change that user's files. Then, or where students are not trusted at all, put a
container around the whole run.
"""

import ast
import base64
import builtins
import functools
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from vit_course.grading import frames, hidden, package

SUPERVISOR = Path(__file__).with_name("supervisor.py")
UIDS = range(60800, 60928)  # one for each submission that runs at a time; Debian and systemd leave these free
START_SECONDS = 120


@dataclass(frozen=True)
class HiddenTest:
    """A hidden test: the ``grade_id`` of its cell, and the code between the markers."""

    grade_id: str
    code: str


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    Args:
        cell_seconds, call_seconds, total_seconds: for one cell, for one request of a hidden test, for everything.
        memory_bytes: beside what the libraries take, for all its processes together.
        output_bytes: kept of one cell's outputs; of all cells together, four times as much.
        file_bytes, disk_bytes: the size of one file, and of all.
        processes: processes and threads at a time.
        restarts: how often the process is started anew for cells, and again for tests.
    """

    cell_seconds: int | float = 60
    call_seconds: int | float = 20
    total_seconds: int | float = 240
    memory_bytes: int = 2 * 2**30
    output_bytes: int = 2 * 2**20
    file_bytes: int = 64 * 2**20
    disk_bytes: int = 128 * 2**20
    processes: int = 64
    restarts: int = 3


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


class SandboxError(RuntimeError):
    """Nothing can be marked, and not because of the submission: a matter for the teacher, not for the mark."""


class Stopped(Exception):
    """The student's process is gone; the message says why."""


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
    with _folder(modules, data) as (folder, uid):
        run = _Run(folder, uid, cells, limits, started + limits.total_seconds)
        try:
            run.cells_to_end()
            for test in tests:
                run.result.answers[test.grade_id] = run.verdict(test)
        finally:
            run.close()
    run.result.seconds = time.monotonic() - started
    return run.result


def protections() -> list[str]:
    """Return what holds for student's code on this machine, in words: start a process and ask it.

    Raises:
        SandboxError: as :func:`grade`.
    """
    limits = Limits()
    with _folder([], None) as (folder, uid):
        process = _Process(folder, uid, limits)
        process.close()
        return process.protections


class _Run:
    """One submission: its process, started anew where necessary, and what has come of it."""

    def __init__(
        self, folder: Path, uid: int | None, cells: list[tuple[int, str]], limits: Limits, deadline: float
    ) -> None:
        self.folder, self.uid, self.cells, self.limits, self.deadline = folder, uid, cells, limits, deadline
        self.result = Result()
        self.skipped: set[int] = set()
        self.process: _Process | None = None
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
            self.process = _Process(self.folder, self.uid, self.limits)
            for index, source in self.cells:
                if index in self.skipped:
                    continue
                try:
                    shown = self.process.request({"cell": source}, self.limits.cell_seconds, self.deadline)
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


class _Process:
    """A worker under its supervisor, and the connection to it."""

    def __init__(self, folder: Path, uid: int | None, limits: Limits) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        if uid is not None:
            os.chown(self.home, uid, uid)
        if fonts := font_cache():
            shutil.copy(fonts, self.home)
        self.connection, theirs = socket.socketpair()
        self.count, self.closed = 0, False
        # a link is followed: the interpreter itself is started, without the virtual environment's site module
        self.supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env=environment(self.home),
            cwd="/",
        )
        settings = dict(
            connection=theirs.fileno(),
            uid=uid,
            home=str(self.home),
            path=[str(folder / "package"), *library_folders()],
            readable=[str(Path(sys.base_prefix) / name) for name in ("lib", "lib64")],
            cpu_seconds=int(limits.total_seconds) + 30,
            memory_bytes=limits.memory_bytes,
            output_bytes=limits.output_bytes,
            file_bytes=limits.file_bytes,
            disk_bytes=limits.disk_bytes,
            processes=limits.processes,
        )
        try:
            with theirs:
                self.supervisor.stdin.write(json.dumps(settings).encode() + b"\n")
                self.supervisor.stdin.flush()
            ready = frames.receive(self.connection, time.monotonic() + START_SECONDS)
        except (frames.Ended, frames.TooLate, OSError) as error:
            self.close()
            raise SandboxError(f"a student's process cannot be started: {self.said or type(error).__name__}") from error
        self.protections = ready["ready"]

    def request(self, message: dict, seconds: int | float, deadline: float) -> dict:
        """Send a message and return the reply; ``Stopped``, with the cause, if none comes or none that can be read."""
        self.count += 1
        until = min(time.monotonic() + seconds, deadline)
        try:
            frames.send(self.connection, {"id": self.count, **message}, until)
            reply = frames.receive(self.connection, until)
        except frames.TooLate:
            in_all = until == deadline
            raise Stopped(
                "the time for the whole submission was over"
                if in_all
                else f"stopped after {seconds:g} s (endless loop?)"
            ) from None
        except frames.Ended:
            self.close(wait=2.0)
            raise Stopped(self.cause_of_death()) from None
        except frames.Malformed as error:
            raise Stopped(f"the process sent what cannot be read ({error})") from None
        if not isinstance(reply, dict) or reply.get("id") != self.count:
            raise Stopped("the process sent what was not asked for")
        return reply

    def cause_of_death(self) -> str:
        """Say how the worker ended, as far as its supervisor knows."""
        try:
            end = json.loads(self.report)
        except ValueError:
            return "the process was ended"
        status, reason = end["status"], end["reason"]
        if reason == "disk":
            return "it filled the disk"
        if reason == "memory" or status == -9:
            return "out of memory"
        if status is None:
            return "the process closed its connection"
        if status < 0:
            return f"the process crashed with signal {-status} (out of memory, or recursion without end?)"
        return f"the process ended itself with status {status} (os._exit?)"

    def close(self, wait: float = 0.0) -> None:
        """End the worker and all that came from it, and remove its folder; ``wait`` for it to end by itself before."""
        if self.closed:
            return
        self.closed = True
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self.supervisor.wait(wait)
        try:
            report, said = self.supervisor.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.supervisor.kill()
            report, said = self.supervisor.communicate()
        self.report, self.said = report.decode(), said.decode(errors="replace")[:500]
        remove(self.home)


# --- around the process ----------------------------------------------------------------------------------------------


@contextmanager
def _folder(modules: Collection[str], data: Path | None) -> Iterator[tuple[Path, int | None]]:
    """Make a folder with the stripped package, and claim a user id where the grader is root."""
    with claimed_uid() as uid:
        folder = Path(tempfile.mkdtemp(prefix="submission-", dir=temporary_folder(uid)))
        try:
            folder.chmod(0o711)
            package.build(folder / "package", modules, data)
            for path in [folder / "package", *(folder / "package").rglob("*")]:
                path.chmod(0o755 if path.is_dir() else 0o644)
            yield folder, uid
        finally:
            remove(folder)


@contextmanager
def claimed_uid() -> Iterator[int | None]:
    """Claim a user id that no account and no other submission has; None where the grader is not root.

    The claim is a socket in the abstract name space, which the kernel drops when this process ends.
    """
    if os.geteuid() != 0:
        yield None
        return
    taken = {account.pw_uid for account in pwd.getpwall()}
    for uid in UIDS:
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0vit_course.grading.{uid}")
        except OSError:
            claim.close()
            continue
        if uid not in taken:
            with claim:
                yield uid
            return
        claim.close()
    raise SandboxError(f"all user ids from {UIDS[0]} to {UIDS[-1]} are in use")


def temporary_folder(uid: int | None) -> str:
    """Return a folder for temporary files that the student's user can reach."""
    own = tempfile.gettempdir()
    if uid is None or all(folder.stat().st_mode & 0o001 for folder in (Path(own), *Path(own).parents)):
        return own
    return "/tmp"


def library_folders() -> list[str]:
    """Return where the standard library and installed packages are; never where the course itself is."""
    own = [sysconfig.get_path("stdlib"), *sys.path]
    libraries = [path for path in own if Path(path).name in ("site-packages", "dist-packages", "lib-dynload")]
    return list(dict.fromkeys([path for path in (own[0], *libraries) if Path(path).is_dir()]))


@functools.cache
def font_cache() -> str | None:
    """Return matplotlib's list of fonts, so that not every student's process makes its own; None without matplotlib."""
    try:
        from matplotlib import font_manager, get_cachedir
    except ImportError:
        return None
    path = Path(get_cachedir()) / f"fontlist-v{font_manager.FontManager.__version__}.json"
    return str(path) if path.exists() else None


def environment(home: Path) -> dict[str, str]:
    """Return all that a student's process finds in its environment."""
    return dict(
        HOME=str(home),
        TMPDIR=str(home),
        MPLCONFIGDIR=str(home),
        IPYTHONDIR=str(home / ".ipython"),
        PATH="/usr/bin:/bin",
        LANG="C.UTF-8",
        MPLBACKEND="module://matplotlib_inline.backend_inline",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        JOBLIB_MULTIPROCESSING="0",  # needs shared memory, which is closed
        LOKY_MAX_CPU_COUNT="1",
        CUDA_VISIBLE_DEVICES="",
    )


def remove(folder: Path) -> None:
    """Remove a folder, whatever a student has made of it: no depth and no missing right stops this."""
    subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL)
    if folder.exists():
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL)


# --- what a cell showed ----------------------------------------------------------------------------------------------


def outputs_of(claimed: object, room: int) -> list[dict]:
    """Return outputs in notebook format from what a student's process claims: known kinds, plain texts, PNG only."""
    outputs = []
    for output in claimed if isinstance(claimed, list) else []:
        kept = _output(output) if isinstance(output, dict) else None
        if kept is None:
            continue
        room -= len(str(kept))
        if room < 0:
            outputs.append(dict(output_type="stream", name="stderr", text="[more output is left out]\n"))
            break
        outputs.append(kept)
    return outputs


def _output(output: dict) -> dict | None:
    kind = output.get("output_type")
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return dict(output_type="stream", name=name, text=plain(output.get("text")))
    if kind == "error":
        lines = output.get("traceback")
        return dict(
            output_type="error",
            ename=plain(output.get("ename"))[:200],
            evalue=plain(output.get("evalue")),
            traceback=[plain(line) for line in lines] if isinstance(lines, list) else [],
        )
    data = output.get("data")
    if kind not in ("display_data", "execute_result") or not isinstance(data, dict):
        return None
    kept = {"text/plain": plain(data.get("text/plain"))}
    if (picture := png(data.get("image/png"))) is not None:
        kept["image/png"] = picture
    shown = dict(output_type=kind, data=kept, metadata={})
    if kind == "execute_result":
        count = output.get("execution_count")
        shown["execution_count"] = count if type(count) is int else None
    return shown


def plain(text: object) -> str:
    """Return a text without control characters; empty if it is none."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text) if isinstance(text, str) else ""


def png(text: object) -> str | None:
    """Return a picture in base64 if it is one, by its first bytes."""
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except ValueError:
        return None
    return base64.b64encode(data).decode() if data.startswith(b"\x89PNG\r\n\x1a\n") else None


def one_text(text: str, limit: int) -> str:
    """Return a text without control characters, cut to a size."""
    text = plain(text)
    return text if len(text) <= limit else text[: limit - 3] + "..."
