"""The process of one submission, seen from the grader: how it is started, asked, ended and cleared away."""

import functools
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from grader import confine, frames, package

SUPERVISOR = Path(__file__).with_name("supervisor.py")
START_SECONDS = 120


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


class SandboxError(RuntimeError):
    """Nothing can be marked, and not because of the submission: a matter for the teacher, not for the mark."""


class Stopped(Exception):
    """The student's process is gone; the message says why."""


class Process:
    """A worker under its supervisor, and the connection to it."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        confine.probe()
        self.connection, theirs = socket.socketpair()
        self.count, self.closed, self.heard = 0, False, b""
        with tempfile.TemporaryFile() as filter_file:
            confine.write_filter(filter_file)
            # the interpreter itself is started, without the virtual environment's site module
            inside = [confine.interpreter(), "-I", "-S", str(SUPERVISOR)]
            self.supervisor = subprocess.Popen(
                confine.bubblewrap(
                    inside, [folder, SUPERVISOR], confine.Limits(limits.disk_bytes), filter_file.fileno()
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno(), filter_file.fileno()],
                bufsize=0,
            )
        settings = dict(
            connection=theirs.fileno(),
            package=str(folder / "package"),
            libraries=confine.library_folders(),
            fonts=font_cache(folder),
            cpu_seconds=int(limits.total_seconds) + 30,
            memory_bytes=limits.memory_bytes,
            output_bytes=limits.output_bytes,
            file_bytes=limits.file_bytes,
            processes=limits.processes,
        )
        try:
            with theirs:
                self.supervisor.stdin.write(json.dumps(settings).encode() + b"\n")
                self.supervisor.stdin.flush()
            frames.receive(self.connection, time.monotonic() + START_SECONDS)
        except (frames.Ended, frames.TooLate, OSError) as error:
            self.close()
            raise SandboxError(f"a student's process cannot be started: {self.said or type(error).__name__}") from error

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

    def tidy(self) -> None:
        """End what the last cell, or the last test, has left running beside the worker."""
        with suppress(BrokenPipeError):
            self.supervisor.stdin.write(b"\n")
        self.heard = self.supervisor.stdout.readline()  # "tidy", or the report of one that has just ended

    def cause_of_death(self) -> str:
        """Say how the worker ended, as far as its supervisor knows."""
        try:
            end = json.loads(self.report)
        except ValueError:
            return "the process was ended"
        status, reason = end["status"], end["reason"]
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
        self.report, self.said = (report or self.heard).decode(), said.decode(errors="replace")[:500]


# --- around it -------------------------------------------------------------------------------------------------------


@contextmanager
def submission_folder(modules: Collection[str], data: Path | None) -> Iterator[Path]:
    """Make a folder with the stripped package, which anybody may read."""
    with tempfile.TemporaryDirectory(prefix="submission-") as name:
        folder = Path(name)
        package.build(folder / "package", modules, data)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield folder


def font_cache(folder: Path) -> str | None:
    """Copy matplotlib's list of fonts, so that not every student's process makes its own; None without matplotlib."""
    path = _font_list()
    return shutil.copy(path, folder) if path and path.exists() else None


@functools.cache
def _font_list() -> Path | None:
    try:
        from matplotlib import font_manager, get_cachedir
    except ImportError:
        return None
    return Path(get_cachedir()) / f"fontlist-v{font_manager.FontManager.__version__}.json"
