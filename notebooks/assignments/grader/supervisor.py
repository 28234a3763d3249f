"""Starts a student's process with few rights, watches it, and leaves nothing of it behind.

``process.py`` runs this file as a script inside the sandbox that ``confine.py`` describes, with the standard library
alone. It forks: the child becomes the worker, in which the student's code runs; the parent waits. When the worker ends,
uses too much, or the grader closes the pipe to this process's standard input, every process that came from the worker
is killed, and one line of JSON on standard output says how it ended. A line on standard input, which the grader sends
after each cell, ends what that cell has left running beside the worker, so that no later cell has to pay for it.
"""

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LOOK_EVERY = 0.25  # seconds

PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Read the settings, start the worker, watch it, clear up, and say how it ended."""
    settings = json.loads(sys.stdin.readline())
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:  # orphans of the worker become its children
        raise OSError("this process cannot look after orphans")
    worker = os.fork()
    if not worker:
        become_worker(settings)
    os.close(settings["connection"])
    status, reason = watch(worker, settings)
    clear()
    print(json.dumps(dict(status=status, reason=reason)), flush=True)


def become_worker(settings: dict) -> None:
    """Give up all rights and serve; never returns."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        prepare(settings)
        from grader import worker

        worker.serve(settings["connection"], settings["memory_bytes"], settings["output_bytes"])
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def prepare(settings: dict) -> None:
    """Set what Python finds, and the kernel's limits for this process and all that come from it."""
    os.setsid()
    os.umask(0o077)
    sys.path[:] = [settings["package"], *sys.path, *settings["libraries"]]
    if settings["fonts"]:
        shutil.copy(settings["fonts"], os.environ["HOME"])
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: settings["cpu_seconds"],
        resource.RLIMIT_FSIZE: settings["file_bytes"],
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: settings["processes"],  # of this user, in this sandbox
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


# --- watching --------------------------------------------------------------------------------------------------------


def watch(worker: int, settings: dict) -> tuple[int | None, str]:
    """Wait until the worker ends, uses too much, or is no longer wanted; return its status and why it must end."""
    while True:
        asked = select.select([0], [], [], LOOK_EVERY)[0] and (os.read(0, 64) or b"end")
        ended, status = os.waitpid(worker, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), ""
        if asked == b"end":
            return None, ""
        if asked:
            end_all_but(worker)
            print("tidy", flush=True)
        reap(worker)
        if memory_of_descendants() > settings["memory_bytes"]:
            return None, "memory"


def reap(worker: int) -> None:
    """Let orphans that have ended go."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None or found.si_pid == worker:
            return
        os.waitpid(found.si_pid, 0)


def processes() -> Iterator[dict[str, str]]:
    """Go through all processes of the machine: what ``/proc/…/status`` says of each."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                lines = Path(f"/proc/{entry}/status").read_text(errors="replace").splitlines()
            except OSError:  # it has just ended
                continue
            yield dict(line.split(":", 1) for line in lines if ":" in line)


def descendants() -> list[dict[str, str]]:
    """Return all processes that came from this one."""
    everyone = list(processes())
    found, known = [], {os.getpid()}
    while new := [status for status in everyone if int(status["PPid"]) in known and int(status["Pid"]) not in known]:
        found += new
        known |= {int(status["Pid"]) for status in new}
    return found


def memory_of_descendants() -> int:
    """Return the bytes that they hold and that no file backs."""
    names = ("RssAnon", "RssShmem")
    return sum(int(status.get(name, "0 kB").split()[0]) * 1024 for status in descendants() for name in names)


# --- clearing up -----------------------------------------------------------------------------------------------------


def end_all_but(worker: int) -> None:
    """Kill what came from the worker, but not the worker."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        rest = [int(status["Pid"]) for status in descendants() if "Z" not in status["State"]]
        rest = [process for process in rest if process != worker]
        if not rest:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):  # who is stopped forks no more
            for process in rest:
                kill(process, number)
        reap(worker)


def clear() -> None:
    """Kill every process of the sandbox but this one, and wait until nothing is left."""
    while True:
        kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def kill(process: int, number: int) -> None:
    """Send a signal, if the process is still there."""
    try:
        os.kill(process, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    main()
