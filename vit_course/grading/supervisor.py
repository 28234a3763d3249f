"""Starts a student's process with few rights, watches it, and leaves nothing of it behind.

``sandbox.py`` runs this file as a script, with the standard library alone. It forks: the child gives up its rights and
becomes the worker, in which the student's code runs; the parent waits. When the worker ends, uses too much, or the
grader closes the pipe to this process's standard input (or dies), every process that came from the worker is killed,
and one line of JSON on standard output says how it ended. A line on standard input, which the grader sends after each
cell, ends what that cell has left running beside the worker, so that no later cell has to pay for it.

What a worker cannot do, and what that rests on:

- read or write files: Landlock (Linux 5.13 and later) leaves it libraries to read and its own folder to write; where
  the grader is root it also has a user id of its own, which no file on the machine belongs to. Without Landlock that
  user id reads what everybody may read, so the folder of a class must be closed to others (mode 0700);
- reach the network: a network namespace of its own where the grader is root and may make one; otherwise Landlock
  stops TCP from Linux 6.7 on;
- signal or trace the grader: another user id, or Landlock from Linux 6.12 on;
- use more than its memory, processes, files and processor time: limits of the kernel for every process, and a watch
  over all of them together four times a second.

``protections`` in :func:`confine` says which of these hold. What is left: reading what libraries and ``/proc`` say of
the machine; faults of the kernel; between two looks of the watch, more memory or disk than allowed.
"""

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LINUX = sys.platform.startswith("linux")
# Only names that exist on this system are opened.
READABLE = ["/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/nix/store"]
DEVICES = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
LOOK_EVERY = 0.25  # seconds

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
CLONE_NEWIPC, CLONE_NEWNET = 0x08000000, 0x40000000
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446  # the same on every architecture
LANDLOCK_EXECUTE, LANDLOCK_WRITE_FILE, LANDLOCK_READ_FILE, LANDLOCK_READ_DIR = 1, 2, 4, 8


def main() -> None:
    """Read the settings, start the worker, watch it, clear up, and say how it ended."""
    grader, settings = os.getppid(), json.loads(sys.stdin.readline())
    if LINUX:
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # orphans of the worker become children of this process
    worker = os.fork()
    if not worker:
        become_worker(settings)
    os.close(settings["connection"])
    status, reason = watch(worker, settings)
    clear(worker, settings["uid"])
    if os.getppid() != grader:  # it was killed, and can no longer clear up itself
        remove(settings["folder"])
    print(json.dumps(dict(status=status, reason=reason)), flush=True)


def become_worker(settings: dict) -> None:
    """Give up all rights and serve; never returns."""
    code = 1
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        protections = confine(settings)
        from vit_course.grading import worker

        worker.serve(settings["connection"], protections, settings["memory_bytes"], settings["output_bytes"])
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


# --- rights ----------------------------------------------------------------------------------------------------------


def confine(settings: dict) -> list[str]:
    """Give up rights for good; return what holds from now on, in words for the teacher."""
    uid, protections = settings["uid"], []
    os.setsid()
    os.umask(0o077)
    os.chdir(settings["home"])
    if LINUX:
        with suppress(OSError):  # if memory runs out, this is what the kernel ends
            Path("/proc/self/oom_score_adj").write_text("1000")
        if uid is not None and ctypes.CDLL(None).unshare(CLONE_NEWNET | CLONE_NEWIPC) == 0:
            protections.append("no network")
    sys.path[:] = [within_reach(path, uid) for path in settings["path"]]
    ruleset = landlock_rules([*settings["path"], *settings["readable"]], settings["home"]) if LINUX else None
    set_limits(settings)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        protections.append(f"user id {uid} of its own")
    if LINUX:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_DUMPABLE, 1)  # its own /proc/self stays readable after the change of user
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if ruleset is not None:
        version, descriptor = ruleset
        if syscall(LANDLOCK_RESTRICT_SELF, descriptor, 0) != 0:
            raise OSError("Landlock refuses its rules")
        os.close(descriptor)
        protections.append("no files but libraries and its own folder")
        if version >= 4 and "no network" not in protections:
            protections.append("no TCP")
        if version >= 6 and uid is None:
            protections.append("no signals to other processes")
    return protections


def within_reach(path: str, uid: int | None) -> str:
    """Return a name for a folder by which another user can read it.

    Root's Python often lies below ``/root``, which others may not enter. A folder that is open already can be entered
    through its descriptor; no right to anything else comes with it.
    """
    folders = [Path(path), *Path(path).parents]
    if uid is None or not LINUX or all(folder.stat().st_mode & 0o001 for folder in folders):
        return path
    descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
    os.set_inheritable(descriptor, True)
    reachable = f"/proc/self/fd/{descriptor}"
    for module in list(sys.modules.values()):  # packages of the standard library that are imported already
        if isinstance(places := getattr(module, "__path__", None), list):
            module.__path__ = [place.replace(path, reachable, 1) for place in places]
    return reachable


def set_limits(settings: dict) -> None:
    """Set the kernel's limits for this process and all that come from it."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: settings["cpu_seconds"],
        resource.RLIMIT_FSIZE: settings["file_bytes"],
        resource.RLIMIT_NOFILE: 256,
    }
    if LINUX:  # counts threads of the user, in all programs
        limits[resource.RLIMIT_NPROC] = threads_of(settings["uid"]) + settings["processes"]
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def threads_of(uid: int | None) -> int:
    """Count the threads of a user, by default the one that runs this."""
    uid = os.getuid() if uid is None else uid
    return sum(int(status["Threads"]) for status in processes() if int(status["Uid"].split()[0]) == uid)


def landlock_rules(readable: list[str], home: str) -> tuple[int, int] | None:
    """Return Landlock's version and rules that leave these folders to read, and one to write; None without Landlock."""
    version = syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return None
    rights = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}.get(version, 0xFFFF)
    handled = [rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0]  # files; TCP; signals and abstract sockets
    attributes = (ctypes.c_uint64 * 3)(*handled)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = syscall(LANDLOCK_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return None
    read_file = LANDLOCK_READ_FILE | LANDLOCK_EXECUTE
    for path in dict.fromkeys([*READABLE, *readable]):
        allow(ruleset, path, read_file | LANDLOCK_READ_DIR if os.path.isdir(path) else read_file)
    for path in DEVICES:
        allow(ruleset, path, LANDLOCK_READ_FILE | LANDLOCK_WRITE_FILE)
    allow(ruleset, home, rights & ~LANDLOCK_EXECUTE)
    return version, ruleset


def allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for a file or for everything below a folder, if it exists."""
    if not os.path.exists(path):
        return
    descriptor = os.open(path, os.O_PATH)
    packed = rights.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
    if syscall(LANDLOCK_ADD_RULE, ruleset, 1, ctypes.c_char_p(packed), 0) != 0:
        raise OSError(f"Landlock refuses a rule for {path}")
    os.close(descriptor)


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def syscall(number: int, *arguments: object) -> int:
    """Call the kernel; -1 for an error."""
    return ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)


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
        if not LINUX:
            continue
        if memory_of_descendants() > settings["memory_bytes"]:
            return None, "memory"
        if disk_is_full(settings["home"], settings["disk_bytes"]):
            return None, "disk"


def reap(worker: int) -> None:
    """Let orphans that have ended go."""
    while LINUX:
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


def disk_is_full(home: str, limit: int, most_files: int = 5000) -> bool:
    """Whether the files below ``home`` take more than ``limit`` bytes, or are very many."""
    size = count = 0
    folders = [home]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    count += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    if size > limit or count > most_files:
                        return True
        except OSError:  # it has just been deleted, or is closed to us
            continue
    return False


# --- clearing up -----------------------------------------------------------------------------------------------------


def end_all_but(worker: int) -> None:
    """Kill what came from the worker, but not the worker."""
    deadline = time.monotonic() + 10
    while LINUX and time.monotonic() < deadline:
        rest = [int(status["Pid"]) for status in descendants() if "Z" not in status["State"]]
        rest = [process for process in rest if process != worker]
        if not rest:
            return
        for number in (signal.SIGSTOP, signal.SIGKILL):  # who is stopped forks no more
            for process in rest:
                kill(process, number)
        reap(worker)


def clear(worker: int, uid: int | None) -> None:
    """Kill the worker and all that came from it, and wait until nothing is left."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if uid is not None:
            kill_all_of(uid)
        elif LINUX:
            for number in (signal.SIGSTOP, signal.SIGKILL):  # who is stopped forks no more
                for status in descendants():
                    kill(int(status["Pid"]), number)
        else:
            kill(-worker, signal.SIGKILL)
        while True:
            try:
                ended, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not ended:
                break
        time.sleep(0.01)


def kill_all_of(uid: int) -> None:
    """Kill every process of a user at once: the kernel lets none escape by forking."""
    killer = os.fork()
    if not killer:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(killer, 0)


def kill(process: int, number: int) -> None:
    """Send a signal, if the process is still there."""
    try:
        os.kill(process, number)
    except (ProcessLookupError, PermissionError):
        return


def remove(folder: str | Path) -> None:
    """Remove a folder, whatever a student has made of it: no depth and no missing right stops this."""
    subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL)
    if os.path.exists(folder):
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", "--", str(folder)], stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
