"""Submissions side by side: the same marks however many run at a time, wherever, and whatever dies on the way."""

import ast
import os
import signal
import subprocess
import sys

import pytest
from support import wait_until
from test_sandbox import MODULES, PATCHIFY, SETUP, TESTS, UNPATCHIFY, WRONG_PATCHIFY, dedent

from grader import pool
from grader.confine import Limits
from grader.files import Stop

SUBMISSIONS = {
    "right": [PATCHIFY, UNPATCHIFY],
    "wrong": [WRONG_PATCHIFY, UNPATCHIFY],
    "exits": [PATCHIFY, "import os\nos._exit(3)", UNPATCHIFY],
    "endless": [PATCHIFY, "while True: pass", UNPATCHIFY],
    "empty": [],
}
MARKS = {"right": [1, 1], "wrong": [0, 1], "exits": [1, 1], "endless": [1, 1], "empty": [0, 0]}
JOBS = {
    name: (list(enumerate(map(dedent, [SETUP, *cells]))), TESTS, MODULES, Limits(cell_seconds=3))
    for name, cells in SUBMISSIONS.items()
}


def marks(outcomes):
    """Return each student's verdicts."""
    return {name: [int(answer.passed) for answer in result.answers.values()] for name, result in outcomes.items()}


def test_submissions_are_marked_side_by_side():
    assert marks(dict(pool.run_jobs(JOBS, 2))) == MARKS


def test_whose_grader_process_dies_is_named_and_the_others_are_marked():
    jobs = {"dies": ("__import__('signal').raise_signal(9)",), "lives": ("1 + 1",)}
    outcomes = dict(pool.run_jobs(jobs, 1, work=eval))
    assert "the grader itself failed" in outcomes["dies"]
    assert outcomes["lives"] == 2


def test_the_pool_does_not_wait_for_threads_that_a_fork_has_left_behind(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")  # which these tests set, and a teacher does not
    code = """if __name__ == "__main__":
        from grader.pool import run_jobs
        large = "__import__('torch').ones(1_000_000).add(1).sum().item()"  # torch would share it among its threads
        print(dict(run_jobs({"one": (large,), "two": (large,)}, 2, work=eval)))"""
    output = subprocess.check_output([sys.executable, "-c", code], timeout=120, text=True)
    assert ast.literal_eval(output) == {"one": 2000000.0, "two": 2000000.0}  # in the order in which they end


def test_an_interruption_does_not_wait_for_the_queue():
    code = """if __name__ == "__main__":
        import os, signal, threading
        from grader.pool import run_jobs
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background lacks
        threading.Timer(5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            list(run_jobs({name: ("__import__('time').sleep(600)",) for name in range(6)}, 2, work=eval))
        except KeyboardInterrupt:
            os._exit(130)"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 130


@pytest.mark.filterwarnings("ignore")  # of Dask, about the machine's ports and clocks
def test_a_cluster_gives_the_same_marks_and_replaces_a_worker_that_dies(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        first = next(iter(cluster.workers.values()))
        before = first.pid
        outcomes = {}
        for name, result in pool.run_jobs(JOBS, 2, cluster.scheduler_address):
            if not outcomes:
                os.kill(before, signal.SIGKILL)
            outcomes[name] = result
        wait_until(lambda: first.pid != before)
    assert marks(outcomes) == MARKS


def test_a_cluster_that_is_not_there_is_named():
    with pytest.raises(Stop, match="no Dask scheduler answers at nowhere://cluster: "):
        list(pool.run_jobs(JOBS, 2, "nowhere://cluster"))
