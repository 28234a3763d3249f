"""The sandbox: honest work is marked, hostile work costs its own points only, and nothing of it is left behind."""

import ast
import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import pytest

from grader import confine, hidden, run_submission, student_package, usage
from grader.confine import Confinement, Limits
from grader.outputs import outputs_of

pytestmark = pytest.mark.usefixtures("as_readers_run_it")

CONFINEMENT = confine.choose()
LIMITS = Limits(cell_seconds=3, call_seconds=3, total_seconds=60, memory_bytes=2**30, restarts=9)
SETUP = """
    import os, signal, sys, time
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
MODULES = frozenset(["vit_course.data.load_test_images", "vit_course.plots", "vit_course.checks"])


def hidden_tests(*codes):
    """Return hidden tests with these codes, by their own text."""
    return {code: f"from grader import hidden\nhidden.{code}" for code in codes}


TESTS = hidden_tests("patchify(patchify)", "unpatchify(unpatchify)")


def graded(*cells, tests=TESTS, limits=LIMITS, modules=MODULES, confinement=CONFINEMENT):
    sources = [dedent(cell) for cell in (SETUP, *cells)]
    return run_submission.grade(list(enumerate(sources)), tests, modules, limits, confinement)


def marks(result):
    return [answer.passed for answer in result.answers.values()]


def unharmed(*cells, **options):
    """Return the result of a submission in which both functions are right, and marked as right, whatever cells do."""
    result = graded(PATCHIFY, *cells, UNPATCHIFY, **options)
    assert marks(result) == [True, True], (result.notes, result.answers)
    return result


def shown(result, index):
    return "".join(
        output.get("text") or output.get("evalue") or output["data"]["text/plain"] for output in result.outputs[index]
    )


ALONE = 4  # processes in a sandbox: bubblewrap, the one that forks, and the submission's two
PROCESSES = "sum(name.isdigit() for name in os.listdir('/proc'))"


def assert_nothing_is_left():
    """Look for what a submission has left, where the next one would find it."""
    left = graded(PROCESSES, "os.listdir('.')", tests={})
    assert shown(left, 1) == str(ALONE)
    assert not {"there", "closed", "d"} & set(ast.literal_eval(shown(left, 2)))


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
        exit()
    """
    helper = '%%writefile helper.py\ndef from_file():\n    return "from a file"'
    workers = """
        %autosave 60
        from helper import from_file
        from torch.utils.data import DataLoader
        loader = DataLoader(range(6), batch_size=2, num_workers=2, timeout=9, persistent_workers=True)
        from_file(), len(list(loader))
    """
    kept = "from vit_course import mine\nmine.keep(patchify)\nchecks.patchify(patchify)"
    result = graded(PATCHIFY, kept, plot, dedent(convenience) + dedent(UNPATCHIFY), helper, workers)
    assert marks(result) == [True, True]
    assert result.notes == []
    assert shown(result, 2) == "'not run while grading'"
    assert [output["output_type"] for output in result.outputs[3]] == ["stream", "display_data", "display_data"]
    assert result.outputs[3][1]["data"]["image/png"].startswith("iVBOR")
    assert shown(result, 3).endswith("torch.Size([6, 3, 96, 96])")
    assert "from the shell" in shown(result, 4)
    assert "loop" in shown(result, 4)
    assert shown(result, 6) == "('from a file', 3)"


@pytest.mark.skipif(not CONFINEMENT.forks, reason="each submission starts a Python of its own here")
def test_one_python_serves_one_honest_submission_after_the_other():
    """And what PyTorch imports late was imported in it, once for all."""
    late = """
        before = set(sys.modules)
        torch.testing.assert_close(torch.ones(1), torch.ones(1))
        torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))]).step()
        set(sys.modules) - before
    """
    one = run_submission.sandbox_for(CONFINEMENT)
    running = []
    for _ in range(2):
        assert shown(graded(late, "open('there', 'w').close()", tests={}), 1) == "set()"
        running.append(one.running)
    assert running[0] is running[1] is not None


def test_what_is_wrong_is_told():
    classes = "unpatchify = 3\nclass patchify: pass\nlinear = torch.nn.Linear\ntwice = lambda x: 2 * x"
    calls = ("patchify(patchify)", "unpatchify(unpatchify)", "patchify(linear)", "patchify(missing)")
    values = "same_values(twice, lambda x: {} * x, lambda: (hidden.normal(3),))"
    result = graded(classes, tests=hidden_tests(*calls, values.format(2), values.format(3)))
    assert marks(result) == [False, False, False, False, True, False]
    messages = [answer.message for answer in result.answers.values()]
    assert "`missing` is not defined: an earlier cell failed or it is missing" in messages[3]
    assert "differ" in messages[5]


def test_only_what_is_asked_for_is_given():
    names = ("vit_course.encoder.Encoder", "checks", "vit_course.plots.show_images", "patchify")
    texts = {Path(name).stem: text for name, text in student_package.files(names).items() if name.count("/") == 1}
    given = {name for name, text in texts.items() if "is not there while marks are given" not in text}
    assert given == {"encoder", "attention", "arguments", "embedding", "plots"}
    assert "patchify" in texts["__init__"]
    assert "import VisionTransformer" not in texts["__init__"]
    with pytest.raises(ValueError, match=r"imports vit_course.nothing, which vit_course does not have"):
        student_package.files(("vit_course.nothing",))


TAMPERING = {
    "torch": """
        torch.equal = torch.allclose = torch.isclose = lambda *a, **k: True
        torch.testing.assert_close = lambda *a, **k: None
        torch.Tensor.__eq__ = torch.Tensor.eq = lambda self, other: torch.ones(1, dtype=bool)
        torch.randn = torch.rand = torch.zeros
    """,
    "builtins": """
        import builtins
        builtins.isinstance = builtins.all = builtins.any = lambda *a, **k: True
        builtins.abs = builtins.max = builtins.len = lambda *a, **k: 0
        builtins.AssertionError = ZeroDivisionError
    """,
    "sys.modules": """
        import types
        for name in ("vit_course", "grader.hidden", "vit_course.checks", "json"):
            sys.modules[name] = types.ModuleType(name)
    """,
    "what the worker uses": """
        import json
        json.loads = json.dumps = lambda *a, **k: '{}'
        os.listdir = os.open = os.getuid = os._exit = os.kill = time.sleep = lambda *a, **k: 0
    """,
    "the course": """
        import vit_course
        vit_course.patchify = vit_course.embedding = patchify
        from grader import answers, worker
        answers.perform = answers.call = lambda *a, **k: {"result": True, "error": None}
    """,
    "stolen": f"""
        sys.path.insert(0, {str(student_package.COURSE)!r})
        for name in [name for name in sys.modules if name.startswith("vit_course")]:
            del sys.modules[name]
        from vit_course.embedding import patchify
    """,
    "equal to everything": """
        class Liar(torch.Tensor):
            __eq__ = __ne__ = __le__ = __ge__ = lambda self, other: True
            shape = property(lambda self: torch.Size([]))
        unpatchify = lambda patches, **sizes: torch.zeros(2).as_subclass(Liar)
    """,
}


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_changes_no_verdict(name):
    result = graded(WRONG_PATCHIFY, UNPATCHIFY, TAMPERING[name])
    assert result.notes == []
    # who replaces what answers for them gets no answer right
    assert marks(result) == [False, name not in ("the course", "equal to everything")], result.answers


PROTOCOL = """
    import stat
    from grader.messages import HEAD, pack
    for descriptor in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, {})
        except OSError:
            pass
"""
GARBAGE = ["b'garbage' * 1000", "pack({'id': torch.zeros(2), 'shown': []})", "pack({'id': 2, 'shown': []})"]


def test_garbage_on_the_connection_costs_its_own_cell():
    forged = indent(dedent(PROTOCOL.format("pack({'id': 7, 'answer': {'result': True}})")), "    ")
    forged = f"def patchify(images, patch_size):{forged}    return images"
    result = graded(forged, *map(PROTOCOL.format, GARBAGE), UNPATCHIFY)
    assert marks(result) == [False, True]
    cells = [f"cell {index}" for index in range(2, 2 + len(GARBAGE))]
    assert [note[:6] for note in result.notes[: len(cells)]] == cells
    assert all("sent what" in note for note in result.notes)


DRIP = """
    while True:
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, b" ")
            except OSError:
                pass
        time.sleep(0.1)
"""
STOPPERS = {
    "catching": (
        "while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass",
        "stopped after 1 s",
    ),
    "deadlock": ("import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()", "stopped after 1 s"),
    "crash": ("import ctypes\nctypes.string_at(0)", "ended itself"),
    "fork bomb": ("while True:\n    try:\n        os.fork()\n    except OSError:\n        pass", ""),
    "memory by many": (
        "for _ in range(12):\n    if not os.fork():\n        x = b'x' * 2**28\n        break\ntime.sleep(60)",
        "",
    ),
    "closed": ("os.closerange(3, 64)", ""),
    "byte by byte": (PROTOCOL.format("HEAD.pack(2**20, 0)") + DRIP, "stopped after 1 s"),
}


def test_a_cell_that_stops_the_process_costs_its_own_points():
    limits = Limits(cell_seconds=1, memory_bytes=2**30, restarts=len(STOPPERS))
    result = unharmed(*(cell for cell, _ in STOPPERS.values()), limits=limits)
    assert len(result.notes) == len(STOPPERS)
    for index, (note, (_, cause)) in enumerate(zip(result.notes, STOPPERS.values(), strict=True), start=2):
        assert note.startswith(f"cell {index}: ")
        assert cause in note
        assert "not finished" in shown(result, index)
    assert_nothing_is_left()


REFUSED = "PermissionError FileNotFoundError ProcessLookupError OSError"
HARMLESS = {  # what lies outside the sandbox is tried in test_confinement.py
    "divide by zero": ("1 / 0", "ZeroDivisionError"),
    "no Python": ("def broken(:", "SyntaxError"),
    "leave": ("raise SystemExit", "SystemExit"),
    "wait": ("await nothing", "NameError"),
    "kill everybody": ("os.kill(-1, signal.SIGKILL)", REFUSED),
    "write into other processes": (
        "for each in os.listdir('/proc'):\n"
        "    if each.isdigit() and each != os.readlink('/proc/self'):\n"
        "        try:\n            open(f'/proc/{each}/mem', 'r+b')\n            break\n"
        "        except OSError:\n            pass\nelse:\n    raise PermissionError",
        REFUSED,
    ),
    "kill its parent": ("os.kill(0, 0)\nopen('/proc/2/mem', 'rb')", REFUSED),
    "fill the disk": ("for k in range(9):\n    with open(f'{k}', 'wb') as f:\n        f.write(bytes(2**24))", REFUSED),
    "allocate": ("x = torch.empty(2**29)", "RuntimeError"),
    "allocate bytes": ("x = bytearray(2**31)", "MemoryError"),
    "recursion": ("def f(): return f()\nf()", "RecursionError"),
    "list the course": (f"open({str(student_package.SOURCE / 'embedding.py')!r})", REFUSED),
}


def test_an_error_costs_no_later_cell():
    """A mistake, or what is not allowed."""
    result = unharmed(*(cell for cell, _ in HARMLESS.values()))
    assert result.notes == []
    for index, (name, (_, errors)) in enumerate(HARMLESS.items(), start=2):
        assert result.outputs[index][-1].get("ename") in errors.split(), name
    assert shown(result, 2) == "division by zero"


BACKGROUND = """
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(600)
    import subprocess
    subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
"""
MESS = """
    import shutil
    for name in os.listdir("."):
        shutil.rmtree(name, ignore_errors=True)
    os.mkdir("closed")
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
    os.chmod(os.environ["HOME"] + "/closed", 0)
"""


def test_what_a_cell_leaves_behind_costs_no_later_cell():
    """Processes that go on, or that are copies of the student's; files in any mess."""
    result = unharmed(BACKGROUND, PROCESSES, "os.fork()", "os.fork()", MESS)
    assert result.notes == []
    assert shown(result, 3) == str(ALONE)
    assert_nothing_is_left()


@pytest.mark.skipif(CONFINEMENT.kind != "bubblewrap", reason="the kernel's own names and rights")
def test_a_cell_cannot_keep_its_processes_its_rights_or_a_message_in_its_folder():
    renamed = """
        signal.SIGKILL = 99
        if not os.fork():
            time.sleep(60)
    """
    rights = "print([line for line in open('/proc/self/status') if line.startswith('CapEff')])"
    home = """
        import subprocess
        home = os.environ["HOME"]
        subprocess.run(f"rm -rf {home}/.[a-z]* {home}/*", shell=True)
        for change in (lambda: os.setxattr(home, "user.note", b"patchify"), lambda: os.chmod(home, 0o1555)):
            try:
                change()
            except OSError:  # if the grader is root, the folder is root's
                pass
    """
    result = unharmed(renamed, PROCESSES, rights, home)
    assert shown(result, 3) == str(ALONE)
    assert "CapEff:\\t0000000000000000" in shown(result, 4)
    found = "print(oct(os.stat(os.environ['HOME']).st_mode), os.listxattr(os.environ['HOME']))"
    assert shown(graded(found, tests={}), 1) == "0o41777 []\n"


def test_memory_counts_without_torch_and_between_quick_answers():
    limits = replace(LIMITS, memory_bytes=2**28)
    children = """
        for _ in range(4):
            if not os.fork():
                os.execv(sys.executable, ["python", "-S", "-c", "x = b'x' * 150_000_000; import time; time.sleep(2)"])
        time.sleep(2)
    """
    assert graded(children, tests={}, limits=limits).notes == ["cell 1: out of memory"]
    growing = ["kept = []", *["kept.append(b'x' * 60_000_000)"] * 5, *["time.sleep(0.05)"] * 20]
    assert graded(*growing, tests={}, limits=replace(limits, restarts=0)).notes[0].endswith(": out of memory")


def test_names_that_other_cells_use_for_something_else_cost_nothing():
    """One that becomes a value in a later cell, and one that was a value already when the function was written."""
    helper = "def pattern(a):\n    return f'b c (gh {a}) (gw p2) -> b (gh gw) (c {a} p2)'"
    earlier = PATCHIFY.replace('"b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)"', "pattern")
    helped = UNPATCHIFY.replace("return ", "return table(").rstrip() + ")\n\n    def table(x):\n        return x"
    later = "patches = patchify(load_test_images()[:1], 16)\ntable = patchify = unpatchify = patches\nhelp(len)"
    result = graded(helper, "pattern = pattern('p1')\n\n" + dedent(earlier), helped, later)
    assert marks(result) == [True, True]
    assert "Return the number of items" in shown(result, 4)


def test_a_flood_is_cut_and_wild_outputs_are_tamed():
    wild = r"""
        from IPython.display import HTML, display
        print("\x1b[31mred\x00 \ud800")
        display({"text/html": "<script>", "image/png": "bm8gcGljdHVyZQ==", "text/plain": "\ud800"}, raw=True)
        display(HTML("<script>alert(1)</script>"))
        raise ValueError("\ud800\x07")
    """
    flood = "for _ in range(10**5):\n    print('x' * 100)"
    result = unharmed(flood, wild, "os.write(1, b'x' * 10**8)")
    assert len(str(result.outputs)) < 10**7
    assert "more output is left out" in shown(result, 2)
    assert "<script>" not in str(result.outputs[3])
    json.dumps(result.outputs, ensure_ascii=False).encode()
    assert "\\x" not in repr(shown(result, 3))
    assert all(set(output.get("data", {})) <= {"text/plain"} for output in result.outputs[3])


def test_a_function_that_does_not_end_costs_its_own_points():
    hangs = "def patchify(images, patch_size):\n    while True: pass"
    result = graded(hangs, UNPATCHIFY, limits=Limits(call_seconds=1))
    assert marks(result) == [False, True]
    assert result.notes[0].endswith(": stopped after 1 s (endless loop?)")


def test_a_wait_that_looks_like_work_ends_by_the_clock(monkeypatch):
    waits = """
        import os
        os.mkfifo("nobody")
        actions = [(os.POSIX_SPAWN_OPEN, 0, "nobody", os.O_RDONLY, 0)]
        os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions)
    """
    with monkeypatch.context() as patch:  # too little time for anything else that a submission does
        patch.setattr(run_submission, "PATIENCE", 0)
        patch.setattr(run_submission, "SLOWNESS", 2)
        result = run_submission.grade([(0, dedent(waits))], {}, MODULES, Limits(cell_seconds=1), CONFINEMENT)
    assert re.fullmatch(r"cell 0: stopped after \d+ s by the clock", result.notes[0])
    assert_nothing_is_left()


def test_a_pause_of_the_grader_itself_does_not_count(monkeypatch):
    monkeypatch.setattr(usage, "PAUSE", 0.2)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        seen = usage.Usage(sleeper.pid)
        seen.watched = 0.0
        time.sleep(0.5)
        seen.measure()
        sleeper.kill()
    assert seen.watched == 0
    assert seen.seconds < 0.4


def test_outputs_without_text_take_room_too():
    outputs, room = outputs_of([["stdout", ""]] * 10**5, 10**6)
    assert len(outputs) < 10**4
    assert room < 0


@pytest.mark.parametrize(("name", "value"), [("WORKER", ("__init__.py", "worker.py")), ("library_folders", list)])
def test_a_worker_that_cannot_start_says_why(monkeypatch, name, value):
    monkeypatch.setattr(run_submission, "sandbox_for", run_submission.Sandbox)  # none that runs already
    monkeypatch.setattr(run_submission, name, value)
    with pytest.raises(hidden.Fault, match=r"cannot be started: ModuleNotFoundError: No module named '[\w.]+'"):
        graded(PATCHIFY)


def test_stops_have_an_end():
    result = graded(PATCHIFY, *["os._exit(0)"] * 4, UNPATCHIFY, limits=Limits(restarts=2))
    assert marks(result) == [True, False], (result.notes, result.answers)
    assert "too many were stopped" in result.notes[-1]
    result = graded(PATCHIFY, *["while True: pass"] * 3, limits=Limits(total_seconds=1))
    assert marks(result) == [False, False]
    assert result.notes[-1] == "the submission was stopped after 1 s in all"


WORK = "start = time.process_time()\nwhile time.process_time() < start + 1: pass"


@contextmanager
def more_work_than_cores():
    """Let others compute, so that a cell that computes for 1 s takes much longer by the clock."""
    busy = [sys.executable, "-c", "while True: pass"]  # in sessions of their own, among which Linux shares its cores
    with ExitStack() as others:
        for _ in range(3 * os.cpu_count()):
            other = others.enter_context(subprocess.Popen(busy, start_new_session=True))
            others.callback(other.kill)
        yield


def test_time_in_which_others_compute_does_not_count():
    with more_work_than_cores():
        assert graded(WORK, tests={}, limits=Limits(cell_seconds=2)).notes == []


def test_the_environment_holds_nothing_of_the_graders(monkeypatch):
    """Such as the finder of an editable install, which would serve the whole course."""
    monkeypatch.setenv("A_SECRET", "of the teacher")
    environment = "print(dict(os.environ), sys.path, sys.meta_path)"
    result = graded(environment, "print(open('/proc/1/environ').read())", "(*os.getresuid(), os.getgroups())")
    assert "HOME" in shown(result, 1)
    assert "A_SECRET" not in str(result.outputs)
    assert "ditable" not in shown(result, 1)
    assert not shown(result, 3).startswith("(0,")


@pytest.mark.parametrize("code", ["same_values(f, rearrange, lambda: (3,))", "same_values(f, abs, lambda: 1 / 0)"])
def test_a_hidden_test_at_fault_is_the_teachers_matter(code):
    with pytest.raises(hidden.Fault, match="is at fault"):
        graded("f = rearrange = abs", tests=hidden_tests(code))


def test_without_forks_every_submission_starts_a_python():
    """As in a container, or where a kernel does not allow a sandbox in a sandbox."""
    assert len(unharmed("os._exit(3)", confinement=Confinement("bubblewrap")).notes) == 1
