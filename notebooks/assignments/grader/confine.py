"""What keeps a submission away from everything else: bubblewrap, a container, or, if the teacher says so, nothing.

With bubblewrap, a submission runs in namespaces of its own. It sees the operating system's and Python's libraries,
which it can only read, and an empty folder in memory, which it can fill up to a limit. It has no network, no process
but its own, no socket of the machine and no environment variable of the teacher's. A seccomp filter closes what would
take memory that nobody counts, or would reach into other processes. Where the grader is root, the submission runs
under another user id.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyseccomp

HOME = "/submission"  # inside: a folder in memory, the only one that can be written
SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/sbin")  # links into /usr, or folders
FILES = ("/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/openssl.cnf")
FIRST_UID = 60800  # 128 user ids from here on, for a grader that is root; Debian and systemd leave them free

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
class Limits:
    """What the kernel enforces for all processes of a submission together.

    Args:
        disk_bytes: files, in memory; also those that are deleted while they are open.
    """

    disk_bytes: int


def bubblewrap(inside: Sequence[str], folders: Sequence[str | Path], limits: Limits, filter_fd: int) -> list[str]:
    """Return the command that runs another command in a sandbox of its own.

    Args:
        inside: the command.
        folders: what it may read beside the system's libraries and Python, under the same names.
        limits: what it may use.
        filter_fd: a file, open for reading, that holds :func:`system_call_filter`; the command inherits it.
    """
    is_root = os.geteuid() == 0
    command = ["bwrap", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    for namespace in ("ipc", "pid", "net", "uts", "cgroup-try", *([] if is_root else ["user"])):
        command.append(f"--unshare-{namespace}")
    command += ["--ro-bind", "/usr", "/usr"]
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            command += ["--symlink", os.readlink(path), str(path)]
        elif path.exists():
            command += ["--ro-bind", str(path), str(path)]
    shown = [
        *FILES,
        *dict.fromkeys([sys.base_prefix, sysconfig.get_path("stdlib")]),
        *library_folders(),
        *map(str, folders),
    ]
    for folder in sorted({str(parent) for path in shown for parent in Path(path).parents} - {"/", "/usr"}):
        command += ["--perms", "0755", "--dir", folder]  # or only root could go through it
    for path in shown:
        command += ["--ro-bind-try", path, path]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", "4096", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    command += ["--perms", "1777", "--size", str(limits.disk_bytes), "--tmpfs", HOME]
    command += ["--remount-ro", "/", "--chdir", HOME, "--seccomp", str(filter_fd)]
    for name, value in environment().items():
        command += ["--setenv", name, value]
    if is_root:  # without a user namespace; the rights of root are given up by setpriv, for good
        uid = FIRST_UID + os.getpid() % 128
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--", "/usr/bin/setpriv"]
        command += [f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    return [*command, "--", *inside]


@functools.cache
def system_call_filter() -> bytes:
    """Return a seccomp program that answers "not permitted" to ``FORBIDDEN`` and to ``prlimit`` of other processes."""
    program = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refused = pyseccomp.ERRNO(1)
    for name in FORBIDDEN:
        program.add_rule(refused, name)
    program.add_rule(refused, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, 0))
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        file.seek(0)
        return file.read()


def environment() -> dict[str, str]:
    """Return all environment variables that a submission finds."""
    return dict(
        HOME=HOME,
        TMPDIR=HOME,
        USER="student",
        MPLCONFIGDIR=HOME,
        IPYTHONDIR=f"{HOME}/.ipython",
        PATH="/usr/bin:/bin",
        LANG="C.UTF-8",
        MPLBACKEND="module://matplotlib_inline.backend_inline",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
        MKL_NUM_THREADS="1",
        JOBLIB_MULTIPROCESSING="0",  # it needs shared memory, of which there is none
        LOKY_MAX_CPU_COUNT="1",
        CUDA_VISIBLE_DEVICES="",
    )


def interpreter() -> str:
    """Return the Python to run inside: the one behind the virtual environment, at its real place."""
    return str(Path(sys.executable).resolve())


def library_folders() -> list[str]:
    """Return where installed packages are; never where the course itself is."""
    return list(dict.fromkeys(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")))


@functools.cache
def probe() -> str:
    """Return what confines submissions on this machine, in words.

    Raises:
        CannotConfine: nothing works here.
    """
    if not sys.platform.startswith("linux"):
        cause = "it needs Linux"
    elif not shutil.which("bwrap"):
        cause = "it is not installed"
    else:
        look = f"import os, json; print(json.dumps([os.listdir({HOME!r}), os.access({str(Path.home())!r}, 4)]))"
        run = run_confined([interpreter(), "-I", "-S", "-c", look], [], Limits(2**20))
        if run.returncode == 0 and json.loads(run.stdout)[0] == []:
            return "bubblewrap: no network, no files but libraries, no other processes"
        cause = run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"it ended with {run.returncode}"
    raise CannotConfine(
        f"bubblewrap cannot confine submissions here: {cause}. Install it (Debian, Ubuntu: apt install bubblewrap), or "
        "grade inside a container."
    )


def run_confined(inside: Sequence[str], folders: Sequence, limits: Limits) -> subprocess.CompletedProcess:
    """Run a command in a sandbox of its own to its end, and return its output as text."""
    with tempfile.TemporaryFile() as file:
        write_filter(file)
        command = bubblewrap(inside, folders, limits, file.fileno())
        return subprocess.run(command, capture_output=True, text=True, timeout=120, pass_fds=[file.fileno()])


def write_filter(file: BinaryIO) -> None:
    """Write the system call filter to an open file, and go back to its beginning."""
    file.write(system_call_filter())
    file.seek(0)
