"""What several test files of the training command use: a tiny run on digits, what it leaves, its sessions."""

import multiprocessing
import os
import shlex
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

from tqdm import tqdm

from vit_course.train import main

# 719 images to train on: 5 steps an epoch, 79 images left out; a checkpoint after steps 2 and 4, and after every epoch
TINY = shlex.split(
    "--dataset digits --threads 1 --num-layers 1 --num-heads 2 --hidden-dim 16 --mlp-dim 16 --epochs 3 "
    "--batch-size 128 --valid-fraction 0.5 --checkpoint-steps 2 --dropout 0.1 --flip --crop 1"
)


def outcome(folder: Path) -> dict[str, bytes]:
    """Return what must be the same however often a run was interrupted."""
    return {name: (folder / name).read_bytes() for name in ("weights.safetensors", "log.jsonl")}


def checkpoints(folder: Path) -> list[Path]:
    """Return a run's checkpoints, the last one first."""
    return sorted((folder / "checkpoints").glob("step_*.safetensors"), reverse=True)


# Processes for the slow tests, forked from one that has imported everything: torch alone takes seconds to import

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["vit_course.train", "sklearn.datasets", "sklearn.model_selection", "torch._dynamo"])


def session(folder: Path, *options: str, prepare=None, **environment: str) -> BaseProcess:
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


def _session(words: list[str], said: Path, prepare, environment: dict[str, str]) -> None:
    with said.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.update(environment)
    tqdm.set_lock(threading.RLock())  # its usual lock outlives a process that is killed
    if prepare is not None:
        prepare()
    main(words)
