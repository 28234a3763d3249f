"""Sessions of the tiny run in processes of their own, forked from one that has imported everything.

Importing torch takes seconds, and these tests start dozens of processes.
"""

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from tqdm import tqdm
from training_runs import TINY

from vit_course.train import loop
from vit_course.train.__main__ import main

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["vit_course.train.__main__", "sklearn.datasets", "sklearn.model_selection"])


def session(folder: Path, *options: str, prepare: Callable | None = None, **environment: str) -> BaseProcess:
    """Start the tiny run in a process of its own; what it prints is added to the file ``said`` next to the folder.

    Args:
        folder: the run's.
        options: after those of the tiny run.
        prepare: a function, called first in the new process.
        environment: variables for it.
    """
    words = [*TINY, "--out", str(folder), *options]
    process = FORKS.Process(target=_session, args=(words, folder.with_name("said"), prepare, environment))
    process.start()
    return process


def _session(words: list[str], said: Path, prepare: Callable | None, environment: dict[str, str]) -> None:
    with said.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.update(environment)
    tqdm.set_lock(threading.RLock())  # its usual lock outlives a process that is killed
    if prepare is not None:
        prepare()
    main(words)


def pair(folders: list[Path], *options: str, prepare=(None, None)) -> list[int]:
    """Run two processes as torchrun would, one for each folder, which is usually the same; return the exit codes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    meeting = dict(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    processes = [
        session(folder, *options, prepare=prepare[rank], RANK=str(rank), LOCAL_RANK=str(rank), **meeting)
        for rank, folder in enumerate(folders)
    ]
    deadline = time.monotonic() + 600  # against hanging: on a cold disk, importing torch alone can take minutes
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert None not in codes
    return codes


def finish(process: BaseProcess) -> None:
    """Wait for the end of a session that must succeed."""
    process.join(600)
    assert process.exitcode == 0


def signal_itself(number: int, function: str, call: int) -> None:
    """Let this process send itself a signal at a call, counted from 1, of ``train_step`` or ``evaluate``."""
    real, calls = getattr(loop, function), []

    def watched(*arguments, **options):
        calls.append(function)
        if len(calls) == call:
            os.kill(os.getpid(), number)
        return real(*arguments, **options)

    setattr(loop, function, watched)


def die_at(call: str, number: int) -> None:
    """Let this process kill itself at a call of a function of ``os``, counted from 1.

    What was not synced is half lost, as if the power had failed.
    """
    real, calls = getattr(os, call), []

    def may_die(*arguments, **options):
        calls.append(arguments)
        if len(calls) == number:
            if call == "fsync":
                (file,) = arguments
                os.ftruncate(file, max(os.fstat(file).st_size - 7, 0))
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    setattr(os, call, may_die)
