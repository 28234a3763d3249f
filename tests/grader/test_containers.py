"""The containers that take bubblewrap's place: as ``test_sandbox.py`` and ``test_confinement.py``, where one works.

It needs podman or docker, and the image, which is built once: ``confine.BUILD``.
"""

import json
import os
import signal
import subprocess
import sys
from textwrap import dedent, indent

import pytest
from test_confinement import ATTACKS, ATTEMPTS, NEEDED
from test_confinement import open_folder as open_folder  # fixtures
from test_confinement import service as service
from test_sandbox import HARMLESS, PATCHIFY, STOPPERS, UNPATCHIFY, graded, marks

from grader import confine
from grader.confine import CONTAINERS, CannotConfine, Limits

POSSIBLE = {  # inside, and of no use: a container counts such memory, too
    "memory in a file without a name",
    "shared memory of System V",
    "tracing its parent",
}
HOARDS = {  # of 4 GiB, where 3 are allowed
    "files without a name": """
        import os
        files = [os.memfd_create("hoard") for _ in range(64)]
        for file in files:
            os.write(file, bytes(2**26))
    """,
    "a file system of its own": """
        import ctypes, os
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
    try:
        return confine.probed(request.param)
    except CannotConfine as cause:
        pytest.skip(str(cause))


def containers(confinement):
    """Return the names of all that run."""
    words = [confinement.kind, "ps", "--format={{.Names}}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture(scope="module")
def said(container, open_folder, service):
    """Run all attacks inside; return what each one said, by its name."""
    grader = subprocess.Popen(["sleep", "300"], env={"A_SECRET": "of the teacher"})
    home = open_folder / "home"
    home.mkdir(exist_ok=True)
    (home / "gradebook.db").write_text("ESCAPED")
    places = dict(service, grader=grader.pid, gradebook=str(home / "gradebook.db"), home=str(home))
    attacks = {name: indent(dedent(body), "    ") for name, body in (ATTACKS | {"needed": NEEDED}).items()}
    code = ATTEMPTS.format(places=places, attacks=attacks)
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = container.start([*container.python, "-c", code], open_folder / "package", Limits(disk_bytes=2**22), **pipes)
    printed = run.communicate(timeout=120)[0]
    grader.kill()
    grader.wait()
    return json.loads(printed)


@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - POSSIBLE))
def test_an_attack_fails(name, said):
    assert "ESCAPED" not in said[name]


def test_a_container_gives_what_an_honest_submission_needs(said):
    assert said["needed"] == "(('a file', True, '/submission'), b'/usr\\n', True)"


def test_accidents_and_attacks_cost_their_own_points_and_nothing_is_left(container):
    stoppers = [cell for cell, _ in STOPPERS.values()]
    limits = Limits(cell_seconds=1, memory_bytes=2**30, restarts=len(stoppers))
    result = graded(PATCHIFY, *stoppers, *HARMLESS.values(), UNPATCHIFY, limits=limits, confinement=container)
    assert marks(result) == [True, True]
    assert [note[:6] for note in result.notes] == [f"cell {index}" for index in range(2, 2 + len(stoppers))]
    outputs = list(result.outputs.values())[-1 - len(HARMLESS) : -1]
    assert all(output[-1]["output_type"] == "error" for output in outputs), outputs
    assert containers(container) == []


@pytest.mark.parametrize("cell", HOARDS.values(), ids=HOARDS)
def test_a_container_counts_memory_that_belongs_to_no_process(cell, container):
    result = graded(PATCHIFY, cell, UNPATCHIFY, confinement=container)
    assert marks(result) == [True, True]
    assert result.notes or result.outputs[2][-1]["output_type"] == "error"


def test_time_in_which_others_compute_does_not_count(container):
    """The container's processes are seen from here: four seconds of work on a machine with more work than cores."""
    work = "import time\nstart = time.process_time()\nwhile time.process_time() < start + 0.5: pass"
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * os.cpu_count())]
    try:
        result = graded(PATCHIFY, work, UNPATCHIFY, limits=Limits(cell_seconds=1.5), confinement=container)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert (marks(result), result.notes) == ([True, True], [])


def test_a_container_ends_after_a_grader_that_was_killed(container, tmp_path):
    code = f"""
        import sys
        sys.path[:0] = {[*sys.path]!r}
        from test_containers import graded
        from grader import confine
        graded("while True: pass", limits=confine.Limits(total_seconds=0.2), confinement=confine.{container!r})
    """
    grader = subprocess.Popen([sys.executable, "-c", dedent(code)])
    while not containers(container):
        assert grader.poll() is None
    os.kill(grader.pid, signal.SIGKILL)
    grader.wait()
    while containers(container):
        pass
