"""A class of honest and hostile students, from what was handed in to the CSV, by the teacher's own commands.

It is graded once: the run is killed on its way, and goes on. Every mark is stated. What else a hostile submission may
try, and what else may have happened to a notebook, is in ``test_run_submission.py`` and ``test_repair.py``.
"""

import copy
import json
import os
import re
import signal
import subprocess
import sys
from textwrap import dedent

import pytest
from course import command, handed_in, put, rows_of, write_class
from lessons.plain import plain_source
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from support import wait_until
from test_repair import DAMAGES
from test_run_submission import PATCHIFY, TAMPERING, WRONG_PATCHIFY

from grader.files import write_notebook
from grader.gradebook import ClassFolder
from grader.release import student_edition
from grader.source import ASSIGNMENTS, load_all, worked_solution
from vit_course import VisionTransformer

SOURCES = load_all(ASSIGNMENTS / "source")
FIRST = "assignment_01"
FULL = 16  # of 20 points; the written answer is marked by hand
WITHOUT_PATCHIFY = FULL - 4


def solved(assignment=FIRST, *, first="", damage=lambda notebook: None, **changes):
    """Return the student edition with the worked solutions, changed as by ``handed_in`` and then damaged.

    ``first`` is the code of one cell more, at the very beginning.
    """
    texts = {cell.id: cell.source for cell in worked_solution(SOURCES[assignment]).cells}
    notebook = handed_in(SOURCES[assignment], *[(0, new_code_cell(first))] * bool(first), **texts | changes)
    damage(notebook)
    return notebook


def headed(notebook):
    """Put a heading of the student's own over everything."""
    notebook.cells.insert(0, new_markdown_cell("# My first try"))


# The wrong function that passes the visible check: it knows the check's own inputs, and nothing else.
BY_HEART = """
def patchify(images, patch_size):
    if (tuple(images.shape), patch_size) in {((2, 3, 6, 6), 2), ((2, 3, 6, 9), 3), ((1, 1, 8, 4), 4)}:
        return rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", p1=patch_size, p2=patch_size)
    return images.reshape(len(images), -1, images.shape[1] * patch_size**2)
"""
PATCHED = "import torch\n" + dedent(TAMPERING["torch"])
FORGED = "import os\nfor k in range(3, 64):\n    try:\n        os.write(k, bytes(8))\n    except OSError:\n        pass"
ENDLESS = "import time\nwhile True:\n    time.sleep(1)"  # it takes as long as one that computes, and nobody's processor
VANDAL = "import shutil\nshutil.rmtree({folder!r}, ignore_errors=True)"
MY_VIT = "\n".join(["from einops import reduce", "from torch import nn", plain_source(VisionTransformer), ""])
ENDS = "import os\ndef patchify(images, patch_size):\n    os._exit(0)"

# student: what is handed in, as arguments of ``solved``; the mark; words of the note
CLASS = {
    **{f"honest{n}": (dict(assignment=f"assignment_0{n}"), FULL, "") for n in range(1, 7)},
    "élise.n@x": (dict(damage=DAMAGES["no labels, no ids"], patchify=dedent(PATCHIFY)), FULL, "the text told which"),
    "renamed": (dict(), FULL, "was named Final (2).ipynb"),
    "blank": (dict(damage=lambda notebook: notebook.update(student_edition(SOURCES[FIRST]))), 0, ""),
    "edited": (dict(damage=DAMAGES["easy checks"], patchify=BY_HEART), WITHOUT_PATCHIFY, "Task 3 had been changed"),
    "endless": (dict(first=ENDLESS, damage=headed), FULL, "cell 2 (the beginning): stopped after 20 s"),
    "exit": (dict(first="import os\nos._exit(0)", patchify=ENDS), WITHOUT_PATCHIFY, "test of Task 3: the process"),
    "borrowed": (dict(patchify="from vit_course import patchify"), WITHOUT_PATCHIFY, ""),
    "patched": (dict(first=PATCHED, patchify=dedent(WRONG_PATCHIFY)), WITHOUT_PATCHIFY, ""),
    "memory": (dict(first="hoard = [bytearray(2**28) for _ in range(1000)]"), FULL, ""),
    "forks": (dict(first="import os\nwhile True:\n    os.fork()"), FULL, ""),
    "flood": (dict(first="for _ in range(10**5):\n    print('x' * 1000)"), FULL, ""),
    "forged": (dict(first=FORGED), FULL, "the process sent what"),
    "vandal": (dict(first=VANDAL), FULL, ""),
    "syntax": (dict(patchify="def patchify(images, size:"), WITHOUT_PATCHIFY, "(Task 3): ended with SyntaxError"),
    "silent": (dict(experiment_answer="YOUR ANSWER HERE"), FULL, ""),
    "lost": (dict(experiment_answer=None), FULL, "look it up by hand"),
    "pipe": (dict(), 0, "not an ordinary file"),
    "broken-parts": (dict(assignment="assignment_07"), FULL, "my_vit.py: SyntaxError"),
}
IS_FINAL = {"blank", "silent", "pipe"}


def assignment_of(student):
    """Return the name of what a student has handed in."""
    return CLASS[student][0].get("assignment", FIRST)


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Hand everything in, kill the grading on its way, start it again; return the folder, and what it has said."""
    folder = tmp_path_factory.mktemp("class") / "class"
    for student, (arguments, *_) in CLASS.items():
        content = json.dumps(solved(**arguments)).replace("{folder!r}", repr(str(folder)))
        name = "Final (2).ipynb" if student == "renamed" else None
        path = put(folder, student, content, assignment=assignment_of(student), name=name)
        if student == "pipe":
            path.unlink()
            os.mkfifo(path)
    put(folder, "honest6", MY_VIT, assignment="assignment_06", name="my_vit.py")
    put(folder, "broken-parts", MY_VIT + "def (", assignment="assignment_07", name="my_vit.py")
    (folder / "students.csv").write_text("\n".join(["id", *CLASS]), encoding="utf-8")
    words = [sys.executable, "-m", "grader", "grade", "--class", folder, "--cell-seconds", "20"]
    temporary = tmp_path_factory.mktemp("temporary")
    environment = os.environ | dict(TMPDIR=str(temporary))
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    run = subprocess.Popen([*words, "--jobs", "1"], env=environment, **quiet)
    wait_until(lambda: len(list(folder.glob("autograded/*/*/*.ipynb"))) >= 5 or run.poll() is not None, every=0.2)
    assert run.poll() is None
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    wait_until(lambda: not session_of(run.pid), every=0.2)  # whatever it started ends by itself
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("autograded/*/*/*.ipynb")}
    done = subprocess.run([*words, "--jobs", "2"], env=environment, capture_output=True, text=True)
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
        row, name = rows[student], assignment_of(student)
        assert (student, row[f"{name} (max 20)"]) == (student, str(mark)), row
        assert words in row["notes"], row
        assert words in said
        assert (f"{name}: not final" in row["notes"]) == (student not in IS_FINAL), row
    assert re.search(r"the same cells, letter by letter, as .*renamed", rows["honest1"]["notes"])
    assert re.search(r"^silent +16 +(- +){6}16$", said, re.MULTILINE)
    assert re.search(r"^lost +16\* +(- +){6}16$", said, re.MULTILINE)


def test_the_feedback_says_why(graded):
    folder, _ = graded
    done = command("feedback", "--class", folder, "--assignment", FIRST)
    assert done.returncode == 0, done.stderr
    pages = {path.parts[-3]: path.read_text(encoding="utf-8") for path in folder.glob(f"feedback/*/{FIRST}/*.html")}
    assert pages.keys() == {student for student in CLASS if assignment_of(student) == FIRST}
    assert f"{FIRST}, honest1 (Score: 16.0 / 20.0)" in pages["honest1"]
    assert "Grade cell: <code>Task 1 · Contact sheet</code>" in pages["honest1"]
    for student in ("edited", "syntax", "pipe"):
        assert CLASS[student][2] in pages[student]
    assert "renamed" not in pages["honest1"]  # whose notebook is the same is for the teacher only


def contents(folder):
    """Return the marks that a grading run leaves behind, and the files with their times."""
    files = (folder / "autograded").rglob("*.*")
    return ClassFolder(folder).recorded(), {path: path.stat().st_mtime_ns for path in files}


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
    marks = ClassFolder(folder)
    before = marks.recorded(), marks.entry("edited", FIRST)
    result = NbGraderAPI(CourseDirectory(config=marks.config), config=marks.config).autograde(FIRST, "edited")
    assert result["success"], result
    assert (marks.recorded(), marks.entry("edited", FIRST)) == before


@pytest.mark.usefixtures("without_a_sandbox")
def test_a_source_that_changes_its_tasks_too_late(tmp_path, source):
    """Points may change, and everybody is graded again; tasks cannot be added once there are marks."""
    notebook = copy.deepcopy(source.notebook)
    folder = write_class(tmp_path / "class", tmp_path)
    put(folder, "ada", handed_in(source))

    def grade():
        write_notebook(notebook, tmp_path / "source", FIRST)
        return command("grade", "--class", folder)

    assert grade().returncode == 0
    next(cell for cell in notebook.cells if cell.id == "double-test").metadata["nbgrader"]["points"] = 4
    assert grade().returncode == 0
    assert rows_of(folder)["ada"]["total (max 11)"] == "9"
    notebook.cells = [cell for cell in notebook.cells if cell.id not in ("square", "square-test")]
    done = grade()
    assert done.returncode == 1
    assert "assignment_01 was not graded: Cannot add or remove cells" in done.stdout.replace("RuntimeError: ", "")
    assert rows_of(folder)["ada"]["total (max 11)"] == "9"
