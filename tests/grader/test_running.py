"""Submissions side by side: the same marks however many run at a time, wherever, and whatever dies on the way."""

import os
import signal
import sys
import time

import pytest
from test_sandbox import PATCHIFY, SETUP, TESTS, UNPATCHIFY, WRONG_PATCHIFY, textwrap

from grader import classroom
from grader.confine import Limits

SUBMISSIONS = {
    "right": [PATCHIFY, UNPATCHIFY],
    "wrong": [WRONG_PATCHIFY, UNPATCHIFY],
    "exits": [PATCHIFY, "import os\nos._exit(3)", UNPATCHIFY],
    "endless": [PATCHIFY, "while True: pass", UNPATCHIFY],
    "empty": [],
}
MARKS = {"right": (1, 1), "wrong": (0, 1), "exits": (1, 1), "endless": (1, 1), "empty": (0, 0)}
MODULES = frozenset(["vit_course.data.load_test_images", "vit_course.plots", "vit_course.checks"])


def jobs():
    """Return what is to be run, by the name of a student."""
    limits = Limits(cell_seconds=3)
    return {
        name: (list(enumerate(map(textwrap.dedent, [SETUP, *cells]))), TESTS, MODULES, limits, False)
        for name, cells in SUBMISSIONS.items()
    }


def marks(outcomes):
    """Return each student's verdicts."""
    return {
        name: tuple(int(result.answers[test.grade_id].passed) for test in TESTS) for name, result in outcomes.items()
    }


@pytest.mark.parametrize("workers", [1, 4])
def test_the_marks_are_the_same_however_many_run_at_a_time(workers):
    assert marks(dict(classroom.run_jobs(jobs(), workers))) == MARKS


def dies_once(path, *job):
    """Grade, but let the first process that comes here die in the middle of it."""
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return classroom.grade_one(*job)


def test_a_grader_process_that_dies_loses_nothing(tmp_path):
    work = {name: (str(tmp_path / "died"), *job) for name, job in jobs().items()}
    assert marks(dict(classroom.run_jobs(work, 2, work=dies_once))) == MARKS
    assert (tmp_path / "died").exists()


def always_dies():
    """Die."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_grader_process_that_always_dies_is_named():
    outcomes = dict(classroom.run_jobs({"one": (), "two": ()}, 2, work=always_dies))
    assert all("the grader itself failed" in outcome for outcome in outcomes.values())


@pytest.mark.filterwarnings("ignore")  # of Dask, about the machine's ports and clocks
def test_a_cluster_gives_the_same_marks_and_replaces_a_worker_that_dies(monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        first = next(iter(cluster.workers.values()))
        before = first.pid
        outcomes = {}
        for name, result in classroom.run_jobs(jobs(), 2, cluster.scheduler_address):
            if not outcomes:
                os.kill(before, signal.SIGKILL)
            outcomes[name] = result
        deadline = time.monotonic() + 60
        while first.pid == before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert first.pid != before
    assert marks(outcomes) == MARKS
