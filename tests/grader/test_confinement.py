"""What a submission cannot reach: each attack works outside and fails inside.

In bubblewrap's sandbox as root and as an ordinary user, and in the containers that work here.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import dedent

import pyseccomp
import pytest

from grader import confine

USER = 61182  # of no account
RUN = """
import subprocess, sys
sys.path.insert(0, {folder!r})
import confine
code, pipe = sys.stdin.read(), subprocess.PIPE  # before the probe, which inherits what is to be read
held, limits = confine.probed({kind!r}), confine.Limits(disk_bytes=2**22)
command = [*held.python, "-c", code]
run = held.start(command, {folder!r} + "/package", limits, stdout=pipe, stderr=subprocess.STDOUT, text=True)
print(run.communicate()[0], end="")
"""


def python_for_everybody():
    """Return an interpreter that every user can start."""
    for python in map(Path, (sys.executable, "/usr/bin/python3")):
        real = python.resolve()
        if real.exists() and all(folder.stat().st_mode & 0o001 for folder in real.parents):
            return str(real)
    return pytest.fail("no Python here can be started by an ordinary user: apt install python3")


@pytest.fixture(scope="module")
def open_folder():
    """Return a folder that everybody can read, with the confinement's code in it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "package").mkdir(mode=0o755)  # what a submission is given to read
        for source in (confine.__file__, pyseccomp.__file__):
            shutil.copy(source, folder)
        yield folder


def container_of(kind):
    """Return the confinement by containers of this program, if it works here."""
    try:
        return confine.probed(kind)
    except confine.CannotConfine as cause:
        return pytest.skip(str(cause))


@pytest.fixture(scope="module")
def service(open_folder):
    """Listen on a UNIX socket with a path, as ssh-agent does, on one without, on TCP and UDP; return the addresses."""
    path, abstract = str(open_folder / "socket"), f"\0vit-course-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.create_server(path, family=socket.AF_UNIX),
        socket.create_server(abstract, family=socket.AF_UNIX),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        os.chmod(path, 0o777)
        udp.bind(("127.0.0.1", 0))
        yield dict(path=path, abstract=abstract, tcp=tcp.getsockname(), udp=udp.getsockname())


ATTEMPTS = """
import ctypes, json, mmap, os, resource, socket, subprocess
libc, said = ctypes.CDLL(None, use_errno=True), {{}}

def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result

def write(folder, size):
    with open(folder + '/vit_course_was_here', 'wb') as file:
        file.write(bytes(size))
    os.unlink(file.name)

scope = dict(globals(), **{places!r})
for name, code in {attacks!r}.items():
    try:
        exec(code, dict(scope))
        said[name] = 'worked'
    except (OSError, AssertionError) as error:
        said[name] = f'refused: {{error!r}}'
print(json.dumps(said))
"""
ATTACKS = {  # each works if it ends without an error
    "a UNIX socket with a path": "socket.socket(socket.AF_UNIX).connect(path)",
    "an abstract UNIX socket": "socket.socket(socket.AF_UNIX).connect(abstract)",
    "TCP": "socket.create_connection(tcp, timeout=2)",
    "UDP": """
        door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        door.bind(('127.0.0.1', 0))
        door.connect(udp)
        door.send(b'x')
        door.send(b'x')  # the second one reports that nobody listens
    """,
    "prlimit on the grader": """
        resource.prlimit(grader, resource.RLIMIT_FSIZE, resource.prlimit(grader, resource.RLIMIT_FSIZE))
    """,
    "a signal to the grader": "os.kill(grader, 0)",
    "the grader's environment": "assert b'A_SECRET' in open(f'/proc/{grader}/environ', 'rb').read()",
    "an environment like the grader's": "assert 'A_SECRET' in os.environ",
    "memory in a file without a name": "os.write(os.memfd_create('hoard'), bytes(2**23))",
    "files that are deleted while open": """
        files = []
        for number in range(4):
            files.append(open(str(number), 'wb', buffering=0))
            os.unlink(str(number))
            assert files[-1].write(bytes(2**21)) == 2**21
    """,
    "shared memory of System V": "call('shmctl', call('shmget', 0, 2**23, 0o1600), 0, None)",
    "tracing its parent": """
        with subprocess.Popen(['/usr/bin/sleep', '5']) as child:
            try:
                call('ptrace', 16, child.pid, 0, 0)
            finally:
                child.kill()
    """,
    "the teacher's files": "assert open(gradebook).read() == 'ESCAPED'",
    "a list of the teacher's files": "assert os.listdir(home)",
    "a file with the teacher's": "write(home, 8192)",
    "a file in /tmp": "write('/tmp', 8192)",
    "a file in /var/tmp": "write('/var/tmp', 8192)",
    "a file in /dev/shm": "write('/dev/shm', 8192)",
    "a message to later submissions": "write('/dev/shm', 1)",
    "memory that processes share": "mmap.mmap(-1, 2**23)",
    "memory that processes share, from a device": "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 2**23)",
}
INSIDE = {  # an ordinary user becomes root of a new user namespace, and could have as much memory as the machine
    "a file system of its own": """
        call('unshare', 0x10000000 | 0x00020000)
        call('mount', b'none', b'/submission', b'tmpfs', 0, None)
    """,
    "a socket that reads packets": """
        call('unshare', 0x10000000 | 0x40000000)
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    """,
}
OF_NO_USE = {  # in a container, which counts such memory, too
    *INSIDE,
    "memory in a file without a name",
    "shared memory of System V",
    "tracing its parent",
    "a message to later submissions",
    "memory that processes share",
    "memory that processes share, from a device",
}
NEEDED = """
    open('own', 'w').write('a file')
    shell = subprocess.run('ls -d /usr', shell=True, capture_output=True).stdout
    found = open('own').read(), os.path.exists(os.environ['TMPDIR']), os.getcwd(), shell, os.getuid() != 0
    assert found == ('a file', True, '/submission', b'/usr\\n', True), found
"""


@pytest.fixture(scope="module", params=["root", "ordinary user", *confine.CONTAINERS])
def said(request, open_folder, service):
    """Run all attacks as this user or for this container.

    Returns what each one said outside and inside, and the names of those that may succeed inside.
    """
    is_container = request.param in confine.CONTAINERS
    kind = request.param if is_container else "bubblewrap"
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("these tests run as an ordinary user")
    if is_container:
        container_of(kind)
    home = open_folder / f"home-{request.param.split()[0]}"
    home.mkdir(mode=0o700)
    (home / "gradebook.db").write_text("ESCAPED")
    own = {} if is_container else dict(HOME=str(home), TMPDIR=str(home))  # podman's images are in the user's home
    options = dict(env=os.environ | own | dict(A_SECRET="of the teacher"))
    if os.geteuid() == 0 and request.param == "ordinary user":
        for path in (home, home / "gradebook.db"):
            os.chown(path, USER, USER)
        options |= dict(user=USER, group=USER, extra_groups=[])
    grader = subprocess.Popen(["sleep", "300"], **options)
    try:
        places = dict(service, grader=grader.pid, gradebook=str(home / "gradebook.db"), home=str(home))
        found = []
        for script, attacks in {
            "import sys; exec(sys.stdin.read())": ATTACKS,
            RUN.format(folder=str(open_folder), kind=kind): ATTACKS | INSIDE | {"needed": NEEDED},
        }.items():
            words = [python_for_everybody(), "-B", "-c", script]
            code = ATTEMPTS.format(places=places, attacks={name: dedent(code) for name, code in attacks.items()})
            done = subprocess.run(words, input=code, capture_output=True, text=True, cwd=home, timeout=120, **options)
            assert done.returncode == 0, done.stderr
            found.append(json.loads(done.stdout))
    finally:
        grader.kill()
        grader.wait()
    return *found, OF_NO_USE if is_container else set()


@pytest.mark.parametrize("name", [*ATTACKS, *INSIDE])
def test_an_attack_works_outside_and_fails_inside(name, said):
    outside, inside, of_no_use = said
    assert name in INSIDE or outside[name] == "worked"
    assert inside[name] != "worked" or name in of_no_use


def test_the_sandbox_gives_what_an_honest_submission_needs(said):
    assert said[1]["needed"] == "worked"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that gives this machine other programs: shell scripts by name, and nothing else."""

    def set_up(**programs):
        for name, script in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    monkeypatch.setattr(confine, "choose", confine.choose.__wrapped__)  # what was found out before does not count
    return set_up


@pytest.mark.parametrize(
    ("programs", "cause"),
    [
        ({}, "bubblewrap is not installed; podman is not installed"),
        ({"bwrap": "echo 'setting up uid map: Permission denied' >&2; exit 1"}, "uid map: Permission denied"),
        ({"bwrap": "exit 3"}, "bubblewrap fails .it ended with 3"),
        ({"bwrap": "echo"}, "bubblewrap fails .it ended with 0"),  # the command runs, but in a folder that is not empty
        ({"docker": "echo \"no such image\nSee 'docker run --help'.\" >&2; exit 125"}, "docker fails .no such image"),
        ({"podman": "echo 'no such image' >&2; exit 125"}, "podman build -t vit-course-grader"),
        ({"podman": "echo alone"}, "podman does not limit memory here"),
    ],
)
def test_where_nothing_works_grading_is_refused_with_what_to_install(machine, programs, cause):
    machine(**programs)
    with pytest.raises(confine.CannotConfine, match=cause):
        confine.choose()
    assert "NOTHING confines" in str(confine.choose(unconfined=True))


def test_a_container_takes_the_place_of_bubblewrap(machine):
    machine(podman="echo alone limited")
    assert confine.choose().kind == "podman"
    words = confine.container("podman", ["python3", "x"], "/folder", confine.Limits())
    wanted = "--network=none --read-only --cap-drop=ALL --security-opt=no-new-privileges --pids-limit=64"
    assert set(wanted.split()) <= set(words)
    assert "--volume=/folder:/folder:ro" in words
    chain = [confine.IMAGE, "env", "--chdir=/submission", "timeout", "--signal=KILL", "3600", "python3", "x"]
    assert words[-len(chain) :] == chain
