"""What keeps a submission away from everything else: bubblewrap, a container, or, if the teacher says so, nothing.

With bubblewrap, a submission runs in namespaces of its own. It sees the operating system's and Python's libraries,
which it can only read, and an empty folder in memory, which it can fill up to a limit. It has no network, no process
but its own, no socket of the machine and no environment variable of the teacher's. A seccomp filter closes what would
take memory that nobody counts, or would reach into other processes. Where the grader is root, the submission runs
under another user id. A container of podman or docker gives the same, by the means of these programs; memory that no
process shows is counted there.
"""

import functools
import mmap
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

HOME = "/submission"  # inside: a folder in memory, the only one that can be written
SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/sbin")  # links into /usr, or folders
FILES = ("/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/openssl.cnf")
FIRST_UID = 60800  # 128 user ids from here on, for a grader that is root; Debian and systemd leave them free

CONTAINERS = ("podman", "docker")
IMAGE = "vit-course-grader"
CONTAINER_SECONDS = 3600  # the end of a container whose grader was killed: nobody else would end it
LIBRARY_BYTES = 2**30  # of memory that the libraries take in a container
BUILD = f"podman build -t {IMAGE} -f notebooks/assignments/grader/Containerfile ."

FORBIDDEN = (
    # memory that belongs to no process, so that no limit and no watch would see it
    *("memfd_create", "memfd_secret", "shmget", "msgget", "semget", "mq_open", "mount", "fsopen", "io_uring_setup"),
    # other processes, other namespaces, keys, and parts of the kernel that no notebook needs
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "setns", "pivot_root", "chroot"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd", "open_tree", "move_mount"),
)


class CannotConfine(RuntimeError):
    """This machine offers no protection that works; the message says what to install."""


@dataclass(frozen=True)
class Confinement:
    """What confines submissions on this machine.

    Args:
        kind: ``"bubblewrap"``, ``"podman"``, ``"docker"`` or ``"none"``.
        forks: whether one sandbox can hold one submission after the other, each in namespaces of its own.
    """

    kind: str
    forks: bool = False

    def __str__(self) -> str:
        held = "no network, no files but libraries, no other processes"
        return {
            "bubblewrap": f"bubblewrap confines the submissions: {held}",
            "none": "NOTHING confines the submissions: they can read and change what you can",
        }.get(self.kind, f"containers of {self.kind} confine the submissions: {held}")

    @property
    def python(self) -> list[str]:
        """Return how Python is started inside: at its real place, without a virtual environment's additions."""
        return ["python3", "-I"] if self.kind in CONTAINERS else [str(Path(sys.executable).resolve()), "-I", "-S"]

    def start(self, inside: Sequence[str], folder: str | Path, limits: "Limits", **options: object) -> subprocess.Popen:
        """Start a command under this confinement.

        Args:
            inside: the command.
            folder: what it may read besides the libraries, under the same name.
            limits: what it may use.
            options: of ``Popen``.
        """
        with tempfile.TemporaryFile() as file:
            if self.kind == "bubblewrap":
                write_system_call_filter(file)
                inside = bubblewrap(inside, folder, limits.disk_bytes, file.fileno())
            elif self.kind in CONTAINERS:
                inside = container(self.kind, inside, folder, limits)
            return subprocess.Popen(inside, pass_fds=[file.fileno()], start_new_session=True, **options)

    def pid(self, started: subprocess.Popen, folder: str | Path) -> int:
        """Return the process from which all of a started command's come, or the nearest one that this machine shows."""
        if self.kind in CONTAINERS:
            pid = self._tell("inspect", "--format={{.State.Pid}}", Path(folder).name)
            with suppress(OSError, ValueError):  # on macOS, containers are in a virtual machine
                if str(folder) in Path("/proc", pid, "cmdline").read_text():
                    return int(pid)
        return started.pid

    def remove(self, folder: str | Path) -> None:
        """End a container with everything in it: it would outlive the program that started it."""
        if self.kind in CONTAINERS:
            self._tell("rm", "--force", Path(folder).name)

    def _tell(self, *words: str) -> str:
        return subprocess.run([self.kind, *words], capture_output=True, text=True, timeout=120).stdout.strip()


@dataclass(frozen=True)
class Limits:
    """What one submission may use.

    Args:
        cell_seconds, call_seconds, total_seconds: for one cell, for one request of a hidden test, for everything.
            Processor time counts, and time in which the submission only waits; not the time that others take.
        memory_bytes: beside what the libraries take, for all its processes together.
        output_bytes: kept of one cell's outputs; of all cells together, four times as much.
        file_bytes, disk_bytes: the size of one file, and of all; the latter is the same for every submission.
        processes: processes and threads at a time.
        restarts: how often the process is started again for cells, and for tests.
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


def bubblewrap(inside: Sequence[str], folder: str | Path, disk_bytes: int, filter_fd: int) -> list[str]:
    """Return the command that runs another one in a sandbox of its own."""
    is_root = os.geteuid() == 0
    command = ["bwrap", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    for namespace in ("ipc", "pid", "net", "uts", "cgroup-try", *([] if is_root else ["user"])):
        command.append(f"--unshare-{namespace}")
    command += ["--ro-bind", "/usr", "/usr"]
    for path in SYSTEM:
        command += ["--symlink", os.readlink(path)] if os.path.islink(path) else ["--ro-bind-try", path]
        command.append(path)
    python = [sys.base_prefix, sysconfig.get_path("stdlib"), *library_folders()]
    shown = list(dict.fromkeys([*FILES, *python, str(folder)]))
    for parent in sorted({str(parent) for path in shown for parent in Path(path).parents} - {"/", "/usr"}):
        command += ["--perms", "0755", "--dir", parent]  # or only root could go through it
    for path in shown:
        command += ["--ro-bind-try", path, path]
    # /dev/zero, shared, would be memory that nobody counts
    command += ["--proc", "/proc", "--dev", "/dev", "--dev-bind", "/dev/null", "/dev/zero"]
    command += ["--size", "4096", "--tmpfs", "/dev/shm", "--remount-ro", "/dev/shm", "--remount-ro", "/dev"]
    command += ["--perms", "1777", "--size", str(disk_bytes), "--tmpfs", HOME]
    command += ["--remount-ro", "/", "--chdir", HOME, "--seccomp", str(filter_fd)]
    for name, value in environment().items():
        command += ["--setenv", name, value]
    if is_root:  # without a user namespace; the rights of root are given up by setpriv, for good
        uid = FIRST_UID + os.getpid() % 128
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--", "/usr/bin/setpriv"]
        command += [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    return [*command, "--", *inside]


def write_system_call_filter(file: BinaryIO) -> None:
    """Write a seccomp program that answers "not permitted" to what is ``FORBIDDEN``.

    The same holds for ``prlimit`` of other processes, for anonymous memory that processes share, and for sockets that
    read packets, whose buffers nobody counts.
    """
    import pyseccomp  # needs Linux

    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refused = pyseccomp.ERRNO(1)
    for name in FORBIDDEN:
        program.add_rule(refused, name)
    program.add_rule(refused, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, 0))
    program.add_rule(refused, "socket", pyseccomp.Arg(0, pyseccomp.EQ, socket.AF_PACKET))
    shared = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    program.add_rule(refused, "mmap", pyseccomp.Arg(3, pyseccomp.MASKED_EQ, shared, shared))
    program.export_bpf(file)
    file.seek(0)


def environment(home: str = HOME) -> dict[str, str]:
    """Return all environment variables that a submission finds."""
    folders = dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), home) | dict(IPYTHONDIR=f"{home}/.ipython")
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT"), "1")
    shared = dict(JOBLIB_MULTIPROCESSING="0")  # it needs shared memory, of which there is none
    rest = dict(USER="student", PATH="/usr/bin:/bin", LANG="C.UTF-8", CUDA_VISIBLE_DEVICES="")
    return folders | one | shared | rest | dict(MPLBACKEND="module://matplotlib_inline.backend_inline")


def library_folders() -> list[str]:
    """Return where installed packages are; never where the course itself is."""
    return list(dict.fromkeys(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")))


def container(program: str, inside: Sequence[str], folder: str | Path, limits: Limits) -> list[str]:
    """Return the command that runs another one in a container of its own, which has the folder's name."""
    command = [program, "run", "--rm", f"--name={Path(folder).name}", "--stop-timeout=0", "--interactive"]
    command += ["--pull=never", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    command += ["--user=65534:65534", "--read-only", "--shm-size=4096"]
    if program == "podman":
        command += ["--read-only-tmpfs=false"]  # or /tmp and others could be written after all
    memory = limits.memory_bytes + LIBRARY_BYTES
    command += [f"--memory={memory}", f"--memory-swap={memory}", f"--pids-limit={limits.processes}"]
    command += [f"--tmpfs={HOME}:rw,size={limits.disk_bytes},mode=1777"]
    command += [f"--volume={folder}:{folder}:ro"]
    command += [f"--env={name}={value}" for name, value in environment().items() if name != "PATH"]  # the image's own
    # where the folder is the working directory from the start, docker makes it one that only root can write
    return [*command, IMAGE, "env", f"--chdir={HOME}", "timeout", "--signal=KILL", str(CONTAINER_SECONDS), *inside]


@functools.cache
def choose(*, unconfined: bool = False) -> Confinement:
    """Return what confines submissions on this machine, after trying it.

    Args:
        unconfined: the teacher trusts the class, or grades inside a container: nothing confines them.

    Raises:
        CannotConfine: nothing works here.
    """
    if unconfined:
        return Confinement("none")
    causes = []
    for kind in ("bubblewrap", *CONTAINERS):
        try:
            return probed(kind)
        except CannotConfine as cause:
            causes.append(str(cause))
    raise CannotConfine(
        f"nothing here can confine submissions: {'; '.join(causes)}. On Linux install bubblewrap (apt install "
        f"bubblewrap); elsewhere install podman or docker and build the image once: `{BUILD}`. If you trust the class, "
        "or if this is a container already: --unconfined."
    )


def probed(kind: str) -> Confinement:
    """Return a confinement of this kind, which was tried on this machine.

    Raises:
        CannotConfine: it does not work here.
    """
    if not shutil.which("bwrap" if kind == "bubblewrap" else kind):
        raise CannotConfine(f"{kind} is not installed")
    confinement, streams = Confinement(kind), dict(stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [*confinement.python, "-c", PROBE]
        probe = confinement.start(command, folder, Limits(), stdout=subprocess.PIPE, **streams)
        seen, complaints = probe.communicate(timeout=120)
    if probe.returncode or not seen.startswith("alone"):
        cause = cause_in(complaints) or f"it ended with {probe.returncode}"
        raise CannotConfine(f"{kind} fails ({cause})")
    if kind in CONTAINERS and "limited" not in seen:
        raise CannotConfine(f"{kind} does not limit memory here (without root, it needs version 2 of Linux's cgroups)")
    return Confinement(kind, forks=kind == "bubblewrap" and "forks" in seen)


def cause_in(complaints: str) -> str:
    """Return the last line of an error, without docker's advice to read its help."""
    lines = [line.strip() for line in complaints.splitlines() if "docker run --help" not in line]
    return next(filter(None, reversed(lines)), "")


# What a submission would see: its own folder, empty, which it can write; whether it may make namespaces of its own; and
# whether a container's memory is limited.
PROBE = f"""
import ctypes, os, pathlib
print("alone" if os.listdir({HOME!r}) == [] else "")
os.mkdir({HOME!r} + "/own")
print("forks" if ctypes.CDLL(None).unshare(0x30000000) == 0 else "")
for name in "memory.max", "memory/memory.limit_in_bytes":
    path = pathlib.Path("/sys/fs/cgroup", name)
    print("limited" if path.exists() and path.read_text().strip() == "{Limits().memory_bytes + LIBRARY_BYTES}" else "")
"""
