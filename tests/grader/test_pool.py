"""Submissions side by side, wherever, and whatever dies on the way.

``test_class.py`` grades a class with one process, and then with two.
"""

import os
import signal
import sys
from textwrap import dedent

import pytest
from support import run_python, wait_until
from test_run_submission import MODULES, PATCHIFY, SETUP, TESTS, UNPATCHIFY, WRONG_PATCHIFY, marks

from grader import pool
from grader.confine import Limits
from grader.files import Stop

SUBMISSIONS = {
    "right": [PATCHIFY, UNPATCHIFY],
    "wrong": [WRONG_PATCHIFY, UNPATCHIFY],
    "exits": [PATCHIFY, "os._exit(3)", UNPATCHIFY],
    "unfinished": [PATCHIFY],
}
MARKS = {"right": [True, True], "wrong": [False, True], "exits": [True, True], "unfinished": [True, False]}
JOBS = {
    name: (list(enumerate(map(dedent, [SETUP, *cells]))), TESTS, MODULES, Limits())
    for name, cells in SUBMISSIONS.items()
}
# The large tensor is what torch would share among its threads: a process that is forked would wait for these for ever.
RUNS = """
import os, signal, grader.pool as pool
pool.grade_one = eval  # in place of grading

if __name__ == "__main__":
    large = "__import__('torch').ones(1_000_000).add(1).sum().item()"
    assert dict(pool.run_jobs({"one": (large,), "two": ("2 * " + large,)}, 2)) == {"one": 2e6, "two": 4e6}
    print("threads")
    outcomes = dict(pool.run_jobs({"dies": ("__import__('signal').raise_signal(9)",), "lives": ("1 + 1",)}, 1))
    assert "the grader itself failed" in outcomes["dies"], outcomes
    assert outcomes["lives"] == 2, outcomes
    print("death")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background lacks
    queue = {name: ("__import__('time').sleep(600)",) for name in range(6)}
    interruption = f"__import__('os').kill({os.getpid()}, 2)"
    try:
        list(pool.run_jobs({"interrupts": (interruption,), **queue}, 2))
    except KeyboardInterrupt:
        print("interruption", flush=True)
        os._exit(130)
"""


def test_the_pool_survives_threads_before_a_fork_a_process_that_dies_and_an_interruption(monkeypatch, tmp_path):
    """One program, because every one imports torch anew, twice."""
    monkeypatch.delenv("OMP_NUM_THREADS")  # which these tests set, and a teacher does not
    (tmp_path / "runs.py").write_text(RUNS, encoding="utf-8")
    done = run_python(str(tmp_path / "runs.py"))
    assert (done.returncode, done.stdout.split()) == (130, ["threads", "death", "interruption"]), done.stderr


@pytest.mark.filterwarnings("ignore")  # of Dask, about the machine's ports and clocks
def test_a_cluster_gives_the_same_marks_and_replaces_a_worker_that_dies(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        worker = next(iter(cluster.workers.values()))
        before = worker.pid
        outcomes = {}
        for name, result in pool.run_jobs(JOBS, 2, cluster.scheduler_address):
            if not outcomes:
                os.kill(before, signal.SIGKILL)
            outcomes[name] = marks(result)
        wait_until(lambda: worker.pid != before)
    assert outcomes == MARKS


def test_a_cluster_that_is_not_there_is_named():
    with pytest.raises(Stop, match="no Dask scheduler answers at nowhere://cluster: "):
        list(pool.run_jobs(JOBS, 2, "nowhere://cluster"))
