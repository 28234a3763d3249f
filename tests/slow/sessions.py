"""Sessions of the tiny run in processes of their own, forked from one that has imported everything.

To import torch takes seconds, and these tests start a hundred processes.
"""

import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from tqdm import tqdm
from training_runs import TINY

from vit_course.train import main

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["vit_course.train", "sklearn.datasets", "sklearn.model_selection", "torch._dynamo"])


def session(folder: Path, *options: str, prepare: Callable | None = None, **environment: str) -> BaseProcess:
    """Start the tiny run in a process of its own; what it says is added to the file ``said`` beside the folder.

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
