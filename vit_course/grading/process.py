"""The process of one submission, seen from the grader: how it is started, asked, ended and cleared away."""

import functools
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vit_course.grading import frames, package
from vit_course.grading.supervisor import remove

SUPERVISOR = Path(__file__).with_name("supervisor.py")
UIDS = range(60800, 60928)  # one for each submission that runs at a time; Debian and systemd leave these free
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

    def __init__(self, folder: Path, uid: int | None, limits: Limits) -> None:
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        if uid is not None:
            os.chown(self.home, uid, uid)
        if fonts := font_cache():
            shutil.copy(fonts, self.home)
        self.connection, theirs = socket.socketpair()
        self.count, self.closed, self.heard = 0, False, b""
        # a link is followed: the interpreter itself is started, without the virtual environment's site module
        self.supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", str(SUPERVISOR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env=environment(self.home),
            cwd="/",
            bufsize=0,
        )
        settings = dict(
            connection=theirs.fileno(),
            uid=uid,
            home=str(self.home),
            folder=str(folder),
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
        self.report, self.said = (report or self.heard).decode(), said.decode(errors="replace")[:500]
        remove(self.home)


# --- around it -------------------------------------------------------------------------------------------------------


@contextmanager
def submission_folder(modules: Collection[str], data: Path | None) -> Iterator[tuple[Path, int | None]]:
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
