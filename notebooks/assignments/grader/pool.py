"""Running submissions side by side: in processes of this machine, or on the workers of a Dask cluster."""

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import torch

from grader import confine, own_parts, run_submission
from grader.confine import Limits
from grader.files import Stop
from grader.run_submission import Result

# One thread for each submission: a process that is forked from one with threads waits for them for ever.
torch.set_num_threads(1)


def grade_one(
    cells: list[tuple[int, str]],
    tests: dict[str, str],
    modules: frozenset[str],
    limits: Limits,
    unconfined: bool = False,
    own: str = "",
) -> Result:
    """Grade one submission, perhaps with a my_vit.py, on this machine, confined by what the machine has."""
    confinement = confine.choose(unconfined=unconfined)
    first, notes = own_parts.first_cells(own, modules, limits, confinement)
    result = run_submission.grade(first + cells, tests, modules, limits, confinement)
    result.notes[:0] = notes
    return result


def run_jobs(jobs: dict[object, tuple], workers: int, dask: str = "") -> Iterator[tuple[object, Result | str]]:
    """Run jobs side by side; yield each one's name with its result, or with a text that says what went wrong.

    If a process of the grader's own dies, the jobs that are left run one by one, so that the one to blame is known.
    """
    left = dict(jobs)
    if jobs:
        with _executor(min(workers, len(jobs)), dask) as executor:
            futures = {executor.submit(grade_one, *job): name for name, job in jobs.items()}
            for future in as_completed(futures):
                if not isinstance(future.exception(), BrokenProcessPool):
                    del left[futures[future]]
                    yield futures[future], _outcome(future)
    for name, job in left.items():
        with _executor(1) as executor:
            yield name, _outcome(executor.submit(grade_one, *job))


@contextmanager
def _executor(workers: int, dask: str = "") -> Iterator[Executor]:
    if dask:
        from distributed import Client

        try:
            client = Client(dask, timeout=10)
        except (OSError, ValueError) as error:
            raise Stop(f"no Dask scheduler answers at {dask}: {error}") from None
        with client:
            yield client.get_executor(pure=False)
    else:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # torch is imported once, for all of them
        with tempfile.TemporaryDirectory(prefix="grader-", ignore_cleanup_errors=True) as folder:
            executor = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(folder,))
            try:
                yield executor
                executor.shutdown()
            except BaseException:  # Ctrl-C does not wait for the queue
                executor.shutdown(wait=False, cancel_futures=True)
                raise


def _start(folder: str) -> None:
    """Let a pool's process put its files into a folder, and end when the run is killed: nobody else would end it."""
    tempfile.tempdir = folder
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        multiprocessing.parent_process().join()
        run_submission.abandon()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _outcome(future: Future) -> Result | str:
    error = future.exception()
    return future.result() if error is None else f"the grader itself failed ({error!r})"
