"""The containers that take bubblewrap's place: as ``test_run_submission.py``, where one works.

It needs podman or docker, and the image, which is built once: ``confine.BUILD``.
"""

import os
import signal
import subprocess
import sys
from textwrap import dedent

import pytest
from support import wait_until
from test_confinement import container_of
from test_run_submission import HARMLESS, PATCHIFY, STOPPERS, UNPATCHIFY, WORK, graded, marks, more_work_than_cores

from grader import run_submission
from grader.confine import CONTAINERS, Limits

HOARDS = {  # of 4 GiB, where 3 are allowed
    "files without a name": """
        files = [os.memfd_create("hoard") for _ in range(64)]
        for file in files:
            os.write(file, bytes(2**26))
    """,
    "a file system of its own": """
        import ctypes
        libc = ctypes.CDLL(None)
        if not os.fork():  # only a process of one thread may
            try:
                refused = libc.unshare(0x10000000 | 0x00020000)
                refused |= libc.mount(b"none", b"/submission", b"tmpfs", 0, None)
                for number in range(64):
                    with open(f"/submission/{number}", "wb") as file:
                        file.write(bytes(2**26))
                os._exit(refused)
            finally:
                os._exit(1)
        assert os.wait()[1] == 0
    """,
}


@pytest.fixture(scope="module", params=CONTAINERS)
def container(request):
    """Return the confinement by containers of a program that works here."""
    return container_of(request.param)


def containers(confinement):
    """Return the names of all that run."""
    words = [confinement.kind, "ps", "--format={{.Names}}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_accidents_and_attacks_cost_their_own_points_and_nothing_is_left(container):
    stoppers = [cell for cell, _ in STOPPERS.values()]
    harmless = [cell for name, (cell, _) in HARMLESS.items() if name != "write into other processes"]  # there are none
    limits = Limits(cell_seconds=1, memory_bytes=2**30, restarts=len(stoppers))
    result = graded(PATCHIFY, *stoppers, *harmless, UNPATCHIFY, limits=limits, confinement=container)
    assert marks(result) == [True, True]
    cells = [f"cell {index}" for index in range(2, 2 + len(stoppers))]
    assert [note.partition(":")[0] for note in result.notes] == cells
    outputs = list(result.outputs.values())[-1 - len(harmless) : -1]
    assert all(output[-1]["output_type"] == "error" for output in outputs), outputs
    assert containers(container) == []


@pytest.mark.parametrize("cell", HOARDS.values(), ids=HOARDS)
def test_a_container_counts_memory_that_belongs_to_no_process(cell, container):
    result = graded(PATCHIFY, cell, UNPATCHIFY, confinement=container)
    assert marks(result) == [True, True]
    assert result.notes or result.outputs[2][-1]["output_type"] == "error"


def test_time_in_which_others_compute_does_not_count(container):
    """The container's processes are seen from here: a second of work on a machine with more work than cores."""
    with more_work_than_cores():
        assert graded(WORK, tests={}, limits=Limits(cell_seconds=2), confinement=container).notes == []


ENDLESS = """
    import sys
    sys.path[:0] = {path!r}
    from test_containers import graded
    from grader import confine, run_submission
    confine.CONTAINER_SECONDS = 20
    look = run_submission.Process._look
    def tell(process):  # what is called while a cell runs
        print(process.count, flush=True)
        look(process)
    run_submission.Process._look = tell
    graded("while True: pass", confinement=confine.{container!r})
"""


def test_a_container_ends_after_a_grader_that_was_killed_in_an_endless_cell(container):
    code = dedent(ENDLESS).format(path=[*sys.path], container=container)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as grader:
        while grader.stdout.readline().strip() != "2":  # the second cell, after the one that imports
            assert grader.poll() is None
        os.kill(grader.pid, signal.SIGKILL)
    assert containers(container)
    wait_until(lambda: not containers(container))


def test_what_is_abandoned_ends_at_once(container):
    run_submission.sandbox_for(container).connect()
    wait_until(lambda: containers(container))
    run_submission.abandon()
    assert containers(container) == []
