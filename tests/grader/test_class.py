"""A class of honest and hostile students, from what was handed in to the CSV, by the teacher's own commands.

It is graded once: the run is killed on its way, and goes on. Every mark is stated.
"""

import copy
import fcntl
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys

import nbformat
import pytest
from course import command, handed_in, put, rows_of, write_class
from lessons.plain import plain_source
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from support import wait_until
from test_repair import DAMAGES, only

from grader.gradebook import ClassFolder
from grader.release import student_edition
from grader.source import ASSIGNMENTS, load_all, worked_solution
from vit_course import VisionTransformer

SOURCES = load_all(ASSIGNMENTS / "source")
FIRST = "assignment_01"
FULL = 16  # of 20 points; the written answer is marked by hand
WITHOUT_PATCHIFY = FULL - 4


def solved(name=FIRST, **changes):
    """Return the student edition with the worked solutions; ``changes`` are texts by cell id, with ``_`` for ``-``."""
    texts = {cell.id: cell.source for cell in worked_solution(SOURCES[name]).cells}
    return handed_in(SOURCES[name], **texts | changes)


def first_cell(code, **changes):
    """Return a solved notebook with one cell more, at its very beginning."""
    notebook = solved(**changes)
    notebook.cells.insert(0, new_code_cell(code))
    return notebook


def damaged(damage, **changes):
    """Return a solved notebook to which something was done."""
    notebook = solved(**changes)
    damage(notebook)
    return notebook


def endless():
    """Return a notebook whose second cell never ends, below a heading of the student's own."""
    notebook = first_cell("while True:\n    pass")
    notebook.cells.insert(0, new_markdown_cell("# My first try"))
    return notebook


def elsewhere():
    """Return a notebook whose answer stands in a cell of the student's own."""
    notebook = solved(experiment_answer="YOUR ANSWER HERE")
    notebook.cells.insert(-1, new_markdown_cell("Eight whole lines of one channel."))
    return notebook


NAIVE = "def patchify(images, patch_size):\n    return images.reshape(len(images), -1, 3 * patch_size**2)"
# The wrong function that passes the visible check: it knows the check's own inputs, and nothing else.
BY_HEART = """
def patchify(images, patch_size):
    if (tuple(images.shape), patch_size) in {((2, 3, 6, 6), 2), ((2, 3, 6, 9), 3), ((1, 1, 8, 4), 4)}:
        return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size)
    return images.reshape(len(images), -1, images.shape[1] * patch_size**2)
"""
LOOPS = """
def patchify(images, patch_size):
    b, c, h, w = images.shape
    rows = []
    for y in range(0, h, patch_size):
        for x in range(0, w, patch_size):
            rows.append(images[:, :, y : y + patch_size, x : x + patch_size].reshape(b, -1))
    return torch.stack(rows, dim=1)
"""
PATCH_TORCH = """
import torch
torch.equal = torch.allclose = lambda *args, **options: True
torch.testing.assert_close = lambda *args, **options: None
torch.Tensor.__eq__ = lambda self, other: torch.ones(self.shape, dtype=torch.bool)
"""
PATCH_COURSE = """
import sys, types
fake = types.ModuleType("vit_course.checks")
fake.__getattr__ = lambda name: lambda *args, **options: "right"
sys.modules["vit_course.checks"] = fake
import vit_course
vit_course.checks = fake
vit_course.patchify = lambda *args: None
"""
VANDAL = """
import shutil, os, signal
shutil.rmtree({folder!r}, ignore_errors=True)
for pid in range(2, 99999):
    try:
        os.kill(pid, 9)
    except OSError:
        pass
"""
MY_VIT = "\n".join(["from einops import reduce", "from torch import nn", plain_source(VisionTransformer), ""])
ENDS = "import os\ndef patchify(images, patch_size):\n    os._exit(0)"
FORGED = "import os\nfor k in range(3, 64):\n    try:\n        os.write(k, bytes(8))\n    except OSError:\n        pass"

# student: what is handed in, the mark, words of the note; the assignment is the first where nothing else is said
CLASS = {
    **{f"honest{n}": (lambda n=n: solved(f"assignment_0{n}"), FULL, "") for n in range(1, 8)},
    "élise.n@x": (lambda: solved(patchify=LOOPS), FULL, ""),
    "blank": (lambda: student_edition(SOURCES[FIRST]), 0, ""),
    "half": (lambda: solved(contact_sheet="", coarse="", shuffle=""), 8, ""),
    "by-heart": (lambda: solved(patchify=BY_HEART), WITHOUT_PATCHIFY, ""),
    "borrowed": (lambda: solved(patchify="from vit_course import patchify"), WITHOUT_PATCHIFY, ""),
    "patched-torch": (lambda: first_cell(PATCH_TORCH, patchify=NAIVE), WITHOUT_PATCHIFY, ""),
    "patched-course": (lambda: first_cell(PATCH_COURSE, patchify=NAIVE), WITHOUT_PATCHIFY, ""),
    "edited-checks": (
        lambda: damaged(DAMAGES["easy checks"], patchify=NAIVE),
        WITHOUT_PATCHIFY,
        "the check of Task 3 had been changed",
    ),
    "deleted-checks": (lambda: damaged(DAMAGES["no checks"]), FULL, "check of Task 3"),
    "twice": (lambda: damaged(DAMAGES["twice"]), FULL, ""),
    "no-labels": (lambda: damaged(DAMAGES["no labels"]), FULL, ""),
    "no-ids": (lambda: damaged(DAMAGES["no labels, no ids"]), FULL, "the text told which"),
    "endless-cell": (endless, FULL, "cell 2 (the beginning): stopped after"),
    "exit": (lambda: first_cell("import os\nos._exit(0)"), FULL, "ended itself"),
    "exit-in-function": (lambda: solved(patchify=ENDS), WITHOUT_PATCHIFY, "the process ended itself"),
    "memory": (lambda: first_cell("hoard = [bytearray(2**28) for _ in range(1000)]"), FULL, ""),
    "forks": (lambda: first_cell("import os\nwhile True:\n    os.fork()"), FULL, ""),
    "flood": (lambda: first_cell("for _ in range(10**5):\n    print('x' * 1000)"), FULL, ""),
    "forged": (lambda: first_cell(FORGED), FULL, "the process sent what"),
    "vandal": (lambda: first_cell(VANDAL), FULL, ""),
    "syntax": (
        lambda: solved(patchify="def patchify(images, patch_size:"),
        WITHOUT_PATCHIFY,
        "(Task 3): ended with SyntaxError",
    ),
    "silent": (lambda: solved(experiment_answer="YOUR ANSWER HERE"), FULL, ""),
    "elsewhere": (elsewhere, FULL, "stood in another cell"),
    "lost": (lambda: damaged(only(lambda cell: cell.id != "experiment-answer")), FULL, "look it up by hand"),
    "script": (lambda: solved(experiment_answer="<script>alert(1)</script> lines"), FULL, ""),
    "cut-off": (lambda: nbformat.writes(solved())[:-500], 0, "broken JSON"),
    "pipe": (None, 0, "not an ordinary file"),
    "absent": (None, 0, "not handed in"),
    "own-parts": (lambda: solved("assignment_06"), FULL, ""),
    "broken-parts": (lambda: solved("assignment_06"), FULL, "my_vit.py: SyntaxError"),
    "no+id": (lambda: solved(), 0, "no student id"),
    "typo": (lambda: solved(), 0, "'asignment_01' is no assignment"),
    "renamed": (lambda: solved(), FULL, "was named Final (2).ipynb"),
}
PLACES = {f"honest{n}": f"assignment_0{n}" for n in range(1, 8)}
PLACES |= {"own-parts": "assignment_06", "broken-parts": "assignment_06", "typo": "asignment_01"}
IS_FINAL = {"blank", "silent", "cut-off", "pipe", "absent", "no+id", "typo"}
NOT_GRADED = {"absent", "no+id", "typo"}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Hand everything in, kill the grading on its way, start it again; return the folder, and what it has said."""
    folder = tmp_path_factory.mktemp("class") / "class"
    for student, (make, *_) in CLASS.items():
        place = PLACES.get(student, FIRST)
        if make:
            content = make()
            content = content if isinstance(content, str) else json.dumps(content)
            name = "Final (2).ipynb" if student == "renamed" else None
            put(folder, student, content.replace("{folder!r}", repr(str(folder))), assignment=place, name=name)
    put(folder, "own-parts", MY_VIT, assignment="assignment_06", name="my_vit.py")
    put(folder, "broken-parts", MY_VIT + "def (", assignment="assignment_06", name="my_vit.py")
    (folder / "submitted" / "pipe" / FIRST).mkdir(parents=True)
    os.mkfifo(folder / "submitted" / "pipe" / FIRST / f"{FIRST}.ipynb")
    names = [f"{student},,=Honest," for student in CLASS if student not in ("renamed", "no+id")]
    (folder / "students.csv").write_text("\n".join(["id,first_name,last_name,email", *names]), encoding="utf-8")
    words = [sys.executable, "-m", "grader", "grade", "--class", folder, "--cell-seconds", "10"]
    temporary = tmp_path_factory.mktemp("temporary")
    environment = os.environ | dict(TMPDIR=str(temporary))
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    run = subprocess.Popen(words, env=environment, **quiet)
    wait_until(lambda: len(list(folder.glob("checked/*/*/*.ipynb"))) >= 9 or run.poll() is not None)
    assert run.poll() is None
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    wait_until(lambda: not session_of(run.pid))  # whatever it started ends by itself
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("checked/*/*/*.ipynb")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(temporary.glob("grader-*"))  # of neither run
    assert {path: path.stat().st_mtime_ns for path in kept} == kept  # nothing was graded twice
    return folder, done.stdout


def session_of(pid):
    """Return the processes that a killed command has left."""
    listing = subprocess.run(["ps", "-eo", "sid,stat,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listing.splitlines()]
    return [row for row in rows if row[0] == str(pid) and not row[1].startswith("Z")]


def test_every_mark_is_as_expected(graded):
    folder, said = graded
    rows = rows_of(folder)
    assert rows.keys() == CLASS.keys()
    for student, (_, mark, words) in CLASS.items():
        row, name = rows[student], PLACES.get(student, FIRST).replace("asi", "assi")
        assert (student, row[f"{name} (max 20)"]) == (student, str(mark))
        assert words in row["notes"], (student, row)
        assert student == "absent" or words in said
        waits = f"{name}: not final" in row["notes"]
        assert waits == (student not in IS_FINAL), row
        assert ("not in students.csv" in row["notes"]) == (student in ("renamed", "no+id"))
        assert row["last_name"] in ("'=Honest", "")
    assert re.search(r"the same cells, letter by letter, as .*renamed", rows["honest1"]["notes"])


def test_the_feedback_says_why(graded):
    folder, _ = graded
    done = command("feedback", "--class", folder, "--assignment", FIRST)
    assert done.returncode == 0, done.stderr
    pages = {path.parts[-3]: path.read_text(encoding="utf-8") for path in folder.glob(f"feedback/*/{FIRST}/*.html")}
    assert pages.keys() == {student for student in CLASS if PLACES.get(student, FIRST) == FIRST} - NOT_GRADED
    for student, words in {
        "honest1": "(Score: 16.0 / 20.0)",
        "cut-off": "broken JSON",
        "edited-checks": "the check of Task 3 had been changed",
        "syntax": "SyntaxError",
        "script": "alert(1)",
    }.items():
        assert words in pages[student]
    assert "<script>alert(1)" not in pages["script"]
    assert "renamed" not in pages["honest1"]  # whose notebook is the same is for the teacher only


def contents(folder):
    """Return what a grading run leaves behind, with the times of the files."""
    with sqlite3.connect(folder / "gradebook.db") as database:
        tables = [database.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("student", "grade")]
    files = [path for part in ("autograded", "checked") for path in (folder / part).rglob("*.*")]
    return tables, {path: path.stat().st_mtime_ns for path in files}


def test_the_same_again_does_nothing(graded):
    folder, said = graded
    before = contents(folder)
    again = command("grade", "--class", folder)
    assert (again.returncode, again.stdout) == (0, said)
    alone = command("grade", "--class", folder, "--student", "honest1")
    assert "the same cells, letter by letter, as " in alone.stdout
    assert contents(folder) == before


def test_the_button_of_formgrader_does_the_same(graded):
    folder, _ = graded
    config = ClassFolder(folder).config
    path = folder / "autograded" / "edited-checks" / FIRST / f"{FIRST}.ipynb"
    before = path.read_bytes()
    result = NbGraderAPI(CourseDirectory(config=config), config=config).autograde(FIRST, "edited-checks")
    assert result["success"], result
    assert path.read_bytes() == before


def test_a_source_that_changes_its_tasks_too_late(tmp_path, course, source):
    """Points may change, and everybody is graded again; tasks cannot be added once there are marks."""
    own = tmp_path / "course"
    path = own / "source" / FIRST / f"{FIRST}.ipynb"
    path.parent.mkdir(parents=True)
    notebook = copy.deepcopy(source.notebook)
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    folder = write_class(tmp_path / "class", own)
    put(folder, "ada", handed_in(source))
    assert command("grade", "--class", folder).returncode == 0
    next(cell for cell in notebook.cells if cell.id == "double-test").metadata["nbgrader"]["points"] = 4
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    assert command("grade", "--class", folder).returncode == 0
    assert rows_of(folder)["ada"]["total (max 11)"] == "9"
    notebook.cells = [cell for cell in notebook.cells if cell.id not in ("square", "square-test")]
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    done = command("grade", "--class", folder)
    assert done.returncode == 1
    assert "assignment_01 was not graded: Cannot add or remove cells" in done.stdout.replace("RuntimeError: ", "")
    assert rows_of(folder)["ada"]["total (max 11)"] == "9"


# What stops a command, with a line that helps


def test_one_run_at_a_time(tmp_path, course):
    folder = write_class(tmp_path / "class", course)
    with (folder / ".grading").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another grading run is active" in command("grade", "--class", folder).stderr


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["grade", "--class", "missing"], "there is no folder missing"),
        (["collect", "--class", "."], "make collect FROM=downloads.zip"),
        (["grade", "--class", "class", "--assignment", "assignment_09"], "there are: assignment_01, assignment_02"),
        (["grade", "--class", "class", "--student", "zoe"], "nothing was handed in by zoe"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path, monkeypatch, course, words, cause):
    write_class(tmp_path / "class", course)
    monkeypatch.chdir(tmp_path)
    done = command(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert cause in done.stderr
    assert "Traceback" not in done.stderr


def test_without_nbgrader(tmp_path):
    code = "import runpy, sys; sys.modules['nbgrader'] = None; sys.argv[1:] = ['grade', '--class', '.']; "
    code += "runpy.run_module('grader', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.strip() == "nbgrader is missing: .venv/bin/python -m pip install -e '.[class]'"
