"""The sandbox: honest work is marked, hostile work costs its own points only, and nothing of it is left behind."""

import ast
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from grader import confine, package, sandbox
from grader.confine import Confinement, Limits
from grader.sandbox import HiddenTest

pytestmark = pytest.mark.usefixtures("as_readers_run_it", "nothing_is_left")

DATA = Path(__file__).parents[2] / "resources" / "test_images.npy"
CONFINEMENT = confine.choose()
LIMITS = Limits(cell_seconds=4, call_seconds=4, total_seconds=60, memory_bytes=2**30)
SETUP = """
    import torch
    from einops import rearrange
    from vit_course import checks, plots
    from vit_course.data import load_test_images
"""
PATCHIFY = """
    def patchify(images, patch_size):
        return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size)
"""
WRONG_PATCHIFY = """
    def patchify(images, patch_size):
        return images.reshape(len(images), -1, images.shape[1] * patch_size ** 2)
"""
UNPATCHIFY = """
    def unpatchify(patches, *, patch_size, image_size, channels=3):
        h, w = (image_size, image_size) if isinstance(image_size, int) else image_size
        pattern = "b (gh gw) (c p1 p2) -> b c (gh p1) (gw p2)"
        return rearrange(patches, pattern, gh=h // patch_size, p1=patch_size, p2=patch_size)
"""
TESTS = [
    HiddenTest("patchify", "from grader import hidden\nhidden.patchify(patchify)"),
    HiddenTest("unpatchify", "from grader import hidden\nhidden.unpatchify(unpatchify)"),
]


def graded(*cells, tests=TESTS, limits=LIMITS, **options):
    sources = [textwrap.dedent(cell) for cell in (SETUP, *cells)]
    modules = options.pop("modules", ["vit_course.data.load_test_images", "vit_course.plots", "vit_course.checks"])
    return sandbox.grade(list(enumerate(sources)), tests, modules, limits, CONFINEMENT, data=DATA)


def marks(result):
    return [result.answers[test.grade_id].passed for test in TESTS]


def shown(result, index):
    return "".join(
        output.get("text") or output.get("evalue") or output["data"]["text/plain"] for output in result.outputs[index]
    )


@pytest.fixture
def nothing_is_left():
    """Look for what a submission has left, where the next one would find it."""
    yield
    left = graded("import os\n[*os.listdir('.'), *os.listdir('/proc')]", tests=[])
    found = ast.literal_eval(shown(left, 1))
    assert sum(name.isdigit() for name in found) == 5  # bubblewrap, the one that forks, and this submission's three
    assert not {"there", "closed", "d"} & set(found)


# --- honest work -----------------------------------------------------------------------------------------------------


def test_an_honest_submission_is_right():
    plot = """
        import matplotlib.pyplot as plt
        images = load_test_images()
        plt.imshow(images[0].permute(1, 2, 0))
        plt.show()
        print("printed")
        images.shape
    """
    convenience = """
        name = input("Your name? ")
        %matplotlib widget
        %pip install torch
        !echo from the shell
        from vit_course import patchify as ready, VisionTransformer
        from vit_course.embedding import unpatchify as given
        %timeit -n 1 -r 1 1
    """
    result = graded(
        PATCHIFY, "checks.patchify(patchify)", plot, textwrap.dedent(convenience) + textwrap.dedent(UNPATCHIFY)
    )
    assert marks(result) == [True, True]
    assert result.notes == []
    assert shown(result, 2) == "'not run while grading'"
    assert [output["output_type"] for output in result.outputs[3]] == ["stream", "display_data", "display_data"]
    assert result.outputs[3][1]["data"]["image/png"].startswith("iVBOR")
    assert shown(result, 3).endswith("torch.Size([6, 3, 96, 96])")
    assert "from the shell" in shown(result, 4)
    assert "loop" in shown(result, 4)


def test_an_error_does_not_stop_later_cells():
    result = graded("1 / 0", PATCHIFY, "def broken(:", UNPATCHIFY, "raise SystemExit", "exit()", "await nothing")
    assert marks(result) == [True, True]
    assert "division by zero" in shown(result, 1)
    assert result.outputs[3][0]["ename"] == "SyntaxError"
    assert result.notes == []


def test_a_missing_name_and_a_wrong_function_are_told_why():
    result = graded(WRONG_PATCHIFY)
    assert marks(result) == [False, False]
    assert "differ" in result.answers["patchify"].message
    message = "`unpatchify` is not defined: an earlier cell failed or it is missing"
    assert message in result.answers["unpatchify"].message


def test_variables_and_modules_are_tested_too():
    code = "hidden.value(count, 36)\nhidden.same_values(twice, lambda x: 2 * x, lambda: (hidden.normal(3),))"
    test = HiddenTest("count", f"from grader import hidden\n{code}")
    assert graded("count = 36\ntwice = lambda x: 2 * x", tests=[test]).answers["count"].passed
    assert not graded("count = 35\ntwice = lambda x: 2 * x", tests=[test]).answers["count"].passed
    block = HiddenTest("mlp", "from grader import hidden\nhidden.encoder_block(EncoderBlock)")
    right = Path(package.SOURCE / "encoder.py").read_text()
    for source, passed in [(right, True), (right.replace("eps=1e-6", "eps=1e-5"), False)]:
        result = graded(source, tests=[block], modules=["vit_course.attention"])
        assert result.answers["mlp"].passed is passed, result.answers


@pytest.mark.parametrize("answer", ["patchify = 3", "class patchify: pass", "patchify = torch.nn.Linear"])
def test_what_is_no_function_is_wrong(answer):
    assert marks(graded(answer, UNPATCHIFY)) == [False, True]


# --- the package -----------------------------------------------------------------------------------------------------


def test_the_course_does_not_lend_what_is_to_be_written():
    borrow = """
        from vit_course import patchify
        from vit_course.embedding import unpatchify
    """
    steal = f"""
        import sys
        sys.path.insert(0, {str(package.COURSE)!r})
        for name in [name for name in sys.modules if name.startswith("vit_course")]:
            del sys.modules[name]
        from vit_course.embedding import patchify, unpatchify
    """
    for cell in (borrow, steal):
        result = graded(cell)
        assert marks(result) == [False, False]
        assert "vit_course is not there while marks are given" in result.answers["patchify"].message


def test_only_what_is_asked_for_is_copied(tmp_path):
    package.build(tmp_path, ["vit_course.encoder.Encoder", "checks", "vit_course.plots.show_images", "patchify"], DATA)
    files = {path.stem: path.read_text() for path in (tmp_path / "vit_course").glob("*.py")}
    given = {name for name, text in files.items() if "is not there while marks are given" not in text}
    assert given == {"encoder", "attention", "arguments", "embedding", "plots"}
    assert "patchify" in files["__init__"]
    assert "import VisionTransformer" not in files["__init__"]
    assert (tmp_path / "resources" / "test_images.npy").exists()
    with pytest.raises(ValueError, match=r"imports nothing, which vit_course does not have"):
        package.build(tmp_path / "again", ["vit_course.nothing"], None)


# --- tampering -------------------------------------------------------------------------------------------------------

TAMPERING = {
    "torch.equal": "torch.equal = lambda *a, **k: True",
    "torch.allclose": "torch.allclose = torch.isclose = lambda *a, **k: True",
    "assert_close": "torch.testing.assert_close = lambda *a, **k: None",
    "Tensor.__eq__": "torch.Tensor.__eq__ = torch.Tensor.eq = lambda self, other: torch.ones(1, dtype=bool)",
    "builtins": """
        import builtins
        builtins.isinstance = builtins.all = builtins.any = lambda *a, **k: True
        builtins.abs = builtins.max = builtins.len = lambda *a, **k: 0
        builtins.AssertionError = ZeroDivisionError
    """,
    "vit_course": """
        import vit_course
        vit_course.patchify = vit_course.embedding = patchify
        from grader import answers, frames, worker
        answers.perform = answers.call = lambda *a, **k: {"result": True, "error": None}
    """,
    "sys.modules": """
        import sys, types
        for name in ("vit_course", "grader.hidden", "vit_course.checks", "json"):
            sys.modules[name] = types.ModuleType(name)
    """,
    "json": "import json\njson.loads = json.dumps = lambda *a, **k: '{}'",
    "os": "import os, time\nos.listdir = os.open = os.getuid = os._exit = time.sleep = lambda *a, **k: 0",
    "random numbers": "torch.manual_seed(0)\ntorch.randn = torch.rand = torch.zeros",
}


@pytest.mark.parametrize("patch", TAMPERING.values(), ids=TAMPERING)
def test_tampering_changes_no_verdict(patch):
    result = graded(WRONG_PATCHIFY, UNPATCHIFY, patch)
    assert marks(result)[0] is False
    assert result.notes == []
    if "answers.perform" not in patch:  # who replaces what answers for them gets no answer right
        assert marks(result) == [False, True], result.answers


def test_an_equal_to_everything_is_equal_to_nothing():
    liar = """
        class Liar(torch.Tensor):
            __eq__ = __ne__ = __le__ = __ge__ = lambda self, other: True
            shape = property(lambda self: torch.Size([]))
        def patchify(images, patch_size):
            return torch.zeros(2).as_subclass(Liar)
        count = Liar()
    """
    test = HiddenTest("count", "from grader import hidden\nhidden.value(count, 36)")
    result = graded(liar, UNPATCHIFY, tests=[*TESTS, test])
    assert [answer.passed for answer in result.answers.values()] == [False, True, False]


PROTOCOL = """
    import os, socket, stat
    from grader.messages import HEAD, pack
    for descriptor in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, {})
        except OSError:
            pass
"""
GARBAGE = [
    "b'garbage' * 1000",
    "HEAD.pack(2**31, 2**31)",
    "HEAD.pack(9, 0) + b'[' * 9",
    "pack({'id': 2, 'outputs': []})",
]


def test_garbage_on_the_connection_costs_its_own_cell():
    cells = [PROTOCOL.format(garbage) for garbage in GARBAGE]
    result = graded(PATCHIFY, *cells, UNPATCHIFY, limits=Limits(cell_seconds=4, restarts=len(cells)))
    assert marks(result) == [True, True]
    assert len(result.notes) == len(cells)
    assert all("sent what" in note for note in result.notes)


def test_a_forged_answer_is_no_right_one():
    body = textwrap.indent(textwrap.dedent(PROTOCOL.format("pack({'id': 5, 'answer': {'result': True}})")), "    ")
    result = graded(UNPATCHIFY, f"def patchify(images, patch_size):{body}    return images")
    assert marks(result) == [False, True]


# --- what stops a process --------------------------------------------------------------------------------------------

STOPPERS = {
    "endless": ("while True: pass", "stopped after 4 s"),
    "endless, catching": (
        "while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass",
        "stopped after 4 s",
    ),
    "deadlock": ("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", "stopped after 4 s"),
    "os._exit": ("import os\nos._exit(0)", "ended itself with status 0"),
    "signal": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "crashed with signal 11"),
    "fork bomb": ("import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass", ""),
    "memory by many": (
        "import os, time\nfor _ in range(12):\n    if not os.fork():\n        x = b'x' * 2**28\n        break\n"
        "time.sleep(60)",
        "stopped after 4 s",
    ),
    "closed connection": ("import os\nos.closerange(3, 64)", ""),
}


@pytest.mark.parametrize(("cell", "note"), STOPPERS.values(), ids=STOPPERS)
def test_a_cell_that_stops_the_process_costs_its_own_points(cell, note):
    result = graded(PATCHIFY, cell, UNPATCHIFY)
    assert marks(result) == [True, True]
    assert len(result.notes) == 1
    assert result.notes[0].startswith("cell 2: ")
    assert note in result.notes[0]
    assert "not finished" in shown(result, 2)


HARMLESS = {
    "kill everybody": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "kill its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nopen('/proc/2/mem', 'rb')",
    "fill the disk": "for k in range(9):\n    with open(f'{k}', 'wb') as file:\n        file.write(bytes(2**24))",
    "allocate": "x = torch.empty(2**29)",
    "allocate bytes": "x = bytearray(2**31)",
    "recursion": "def f(): return f()\nf()",
    "write elsewhere": "open('/tmp/vit_course_was_here', 'w')",
    "read root's files": f"open({str(Path.home() / '.bashrc')!r})",
    "list the course": f"open({str(package.SOURCE / 'embedding.py')!r})",
    "network": "import socket\nsocket.create_connection(('192.0.2.1', 80), timeout=1)",
    "signal a stranger": f"import os\nos.kill({os.getpid()}, 0)",
}


def test_what_is_not_allowed_is_an_error_of_the_cell():
    result = graded(PATCHIFY, UNPATCHIFY, *HARMLESS.values())
    assert marks(result) == [True, True]
    assert result.notes == []
    errors = {name: result.outputs[3 + k][-1].get("ename") for k, name in enumerate(HARMLESS)}
    assert errors.pop("allocate") == "RuntimeError"
    assert errors.pop("allocate bytes") == "MemoryError"
    assert errors.pop("recursion") == "RecursionError"
    assert errors.pop("network") in ("OSError", "PermissionError", "TimeoutError")
    assert set(errors.values()) <= {"PermissionError", "FileNotFoundError", "ProcessLookupError", "OSError"}, errors


def test_what_stays_running_is_killed():
    background = """
        import os, time
        if not os.fork():
            os.setsid()
            if os.fork():
                os._exit(0)
            time.sleep(600)
        import subprocess
        subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    """
    assert marks(graded(PATCHIFY, background, UNPATCHIFY)) == [True, True]  # the fixture looks for what is left


def test_what_a_cell_leaves_running_costs_no_later_cell():
    late = """
        import os, time
        for _ in range(5):
            if not os.fork():
                time.sleep(1)
                x = b"x" * 2**28
                time.sleep(60)
    """
    result = graded(PATCHIFY, late, "import time\ntime.sleep(3)", UNPATCHIFY)
    assert marks(result) == [True, True]
    assert result.notes == []


def test_a_copy_of_the_process_does_not_answer():
    forks = "import os\nos.fork()"
    result = graded(PATCHIFY, forks, UNPATCHIFY, forks)
    assert marks(result) == [True, True]
    assert result.notes == []


def test_a_flood_is_cut_and_wild_outputs_are_tamed():
    wild = r"""
        import sys
        from IPython.display import HTML, display
        print("\x1b[31mred\x00 \ud800")
        display({"text/html": "<script>", "image/png": "bm8gcGljdHVyZQ==", "text/plain": "\ud800"}, raw=True)
        display(HTML("<script>alert(1)</script>"))
        raise ValueError("\ud800\x07")
    """
    result = graded(
        "for _ in range(10**5):\n    print('x' * 100)",
        wild,
        "import os\nos.write(1, b'x' * 10**8)",
        PATCHIFY,
        UNPATCHIFY,
    )
    assert marks(result) == [True, True]
    assert len(str(result.outputs)) < 10**7
    assert "more output is left out" in shown(result, 1)
    assert "<script>" not in str(result.outputs[2])
    json.dumps(result.outputs, ensure_ascii=False).encode()
    assert "\\x" not in repr(shown(result, 2))
    assert all(set(output.get("data", {})) <= {"text/plain"} for output in result.outputs[2])


def test_it_may_delete_its_own_files_and_bury_itself_in_folders():
    mess = """
        import os, shutil
        for name in os.listdir("."):
            shutil.rmtree(name, ignore_errors=True)
        os.mkdir("closed")
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        os.chmod(os.environ["HOME"] + "/closed", 0)
    """
    assert marks(graded(PATCHIFY, mess, UNPATCHIFY)) == [True, True]


def test_a_function_that_hangs_costs_one_test():
    hang = "def patchify(images, patch_size):\n    while True: pass"
    result = graded(UNPATCHIFY, hang)
    assert marks(result) == [False, True]
    assert "endless loop?" in result.answers["patchify"].message
    assert len(result.notes) == 1


def test_a_function_that_ends_the_process_costs_one_test():
    result = graded(UNPATCHIFY, "import os\ndef patchify(images, patch_size):\n    os._exit(3)")
    assert marks(result) == [False, True]
    assert "status 3" in result.answers["patchify"].message


def test_too_many_stops_leave_what_came_before():
    loops = ["import os\nos._exit(0)"] * 5
    result = graded(PATCHIFY, *loops, UNPATCHIFY)
    assert marks(result) == [True, False]
    assert "too many were stopped" in result.notes[-1]


@pytest.mark.parametrize("cell_seconds", [2, 60])
def test_the_whole_has_an_end(cell_seconds):
    limits = Limits(cell_seconds=cell_seconds, total_seconds=7, restarts=9)
    result = graded(PATCHIFY, *["while True: pass"] * 5, limits=limits)
    assert marks(result) == [False, False]
    assert result.notes[-1] == "the submission was stopped after 7 s in all"


def test_time_counts_when_the_submission_computes_or_waits_not_when_others_do():
    """On a machine with more work than cores, a cell that computes for 2 s may take much longer by the clock."""
    work = "import time\nwhile time.process_time() < {}: pass"
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * os.cpu_count())]
    try:
        limits = Limits(cell_seconds=4)
        result = graded(PATCHIFY, work.format(2), UNPATCHIFY, "time.sleep(9)", limits=limits)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert marks(result) == [True, True]
    assert result.notes == ["cell 4: stopped after 4 s (endless loop?)"]


def test_the_environment_holds_nothing_of_the_graders(monkeypatch):
    monkeypatch.setenv("A_SECRET", "of the teacher")
    environment = "import os, sys\nprint(dict(os.environ), os.getcwd())\nprint(sys.path, sys.meta_path)"
    result = graded(
        environment, "print(open(f'/proc/{os.getppid()}/environ').read())", "(*os.getresuid(), os.getgroups())"
    )
    assert "A_SECRET" not in str(result.outputs)
    assert "HOME" in shown(result, 1)
    assert "ditable" not in shown(result, 1)  # the finder of an editable install, which would serve the whole course
    assert not shown(result, 3).startswith("(0,")


def test_a_hidden_test_at_fault_is_the_teachers_matter():
    for code in ("hidden.same_values(f, rearrange, lambda: (3,))", "hidden.same_values(f, abs, lambda: 1 / 0)"):
        test = HiddenTest("faulty", f"from grader import hidden\n{code}")
        with pytest.raises(sandbox.SandboxError, match="hidden test faulty is at fault"):
            graded("f = rearrange = abs", tests=[test])


def test_no_process_is_an_error_of_the_machine(monkeypatch):
    monkeypatch.setattr(confine, "library_folders", list)
    with pytest.raises(sandbox.SandboxError, match=r"cannot be started: ModuleNotFoundError"):
        graded(modules=["vit_course.plots"])
    sandbox.sandbox_for.cache_clear()


@pytest.mark.parametrize("confinement", [Confinement("bubblewrap"), Confinement("none")], ids=str)
def test_without_forks_every_submission_starts_a_python(confinement, monkeypatch):
    """As in a container, or where a kernel does not allow a sandbox in a sandbox."""
    monkeypatch.setattr(sys.modules[__name__], "CONFINEMENT", confinement)
    result = graded(PATCHIFY, "import os\nos._exit(3)", "while True: pass", UNPATCHIFY)
    assert marks(result) == [True, True]
    assert [note.partition(": ")[2] for note in result.notes] == [
        "the process ended itself with status 3 (os._exit?)",
        "stopped after 4 s (endless loop?)",
    ]
