"""A class of honest and hostile students, on the course's own assignments, by the teacher's own command.

Every mark is stated. The run is killed on its way, and goes on.
"""

import copy
import csv
import os
import re
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from course import command, put
from lessons.plain import plain_source

from grader.release import student_edition
from grader.source import ASSIGNMENTS, load_all, nbgrader_of
from vit_course import VisionTransformer

SOURCES = load_all(ASSIGNMENTS / "source")
FIRST = "assignment_01"
FULL = 16  # of 20 points; the written answer is marked by hand
WITHOUT_PATCHIFY = FULL - 4

NAIVE = "def patchify(images, patch_size):\n    return images.reshape(len(images), -1, 3 * patch_size**2)"


def solved(name=FIRST, **changes):
    """Return the student edition with the worked solutions; ``changes`` are texts by cell id, with ``_`` for ``-``."""
    solutions = {cell.id: cell.source for cell in SOURCES[name].notebook.cells if nbgrader_of(cell).get("solution")}
    texts = {id: re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", text, flags=re.M) for id, text in solutions.items()}
    texts |= {id.replace("_", "-"): text for id, text in changes.items()}
    notebook = copy.deepcopy(student_edition(SOURCES[name]))
    for cell in notebook.cells:
        cell.source = texts.get(cell.id, cell.source)
    return notebook


def first_cell(code, **changes):
    """Return a solved notebook with one cell more, at its very beginning."""
    notebook = solved(**changes)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(code))
    return notebook


def edited(edit, **changes):
    """Return a solved notebook on which ``edit`` was let loose, cell by cell; it returns what stays."""
    notebook = solved(**changes)
    notebook.cells = [kept for cell in notebook.cells for kept in edit(cell)]
    return notebook


def is_check(cell):
    """Whether a cell is one of the checks."""
    return nbgrader_of(cell).get("grade") and cell.cell_type == "code"


def checks_that_say_yes(cell):
    """Replace every check."""
    if is_check(cell):
        cell.source = "assert True"
    return [cell]


def without_checks(cell):
    """Delete every check."""
    return [] if is_check(cell) else [cell]


def more_points(cell):
    """Make every cell worth more."""
    if "points" in nbgrader_of(cell):
        cell.metadata["nbgrader"]["points"] = 100
    return [cell]


def twice(cell):
    """Copy every cell, labels and all."""
    return [cell, copy.deepcopy(cell)]


def without_labels(cell):
    """Strip nbgrader's metadata."""
    cell.metadata = {}
    return [cell]


def bare():
    """Return a notebook as an old editor stores it: no labels, no cell ids."""
    notebook = edited(without_labels)
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        del cell["id"]
    return notebook


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
ENDLESS = "while True:\n    pass"
INTERRUPT_PROOF = "while True:\n    try:\n        while True: pass\n    except BaseException:\n        pass"

MY_VIT = "\n".join(["from einops import reduce", "from torch import nn", plain_source(VisionTransformer), ""])

# student: assignment, what is handed in, the mark, words of the note
CLASS = {
    **{f"honest{n}": (f"assignment_0{n}", lambda n=n: solved(f"assignment_0{n}"), FULL, "") for n in range(1, 8)},
    "loops": (FIRST, lambda: solved(patchify=LOOPS), FULL, ""),
    "blank": (FIRST, lambda: student_edition(SOURCES[FIRST]), 0, ""),
    "half": (FIRST, lambda: solved(contact_sheet="", coarse="", shuffle=""), 8, ""),
    "naive": (FIRST, lambda: solved(patchify=NAIVE), WITHOUT_PATCHIFY, ""),
    "by-heart": (FIRST, lambda: solved(patchify=BY_HEART), WITHOUT_PATCHIFY, ""),
    "borrowed": (FIRST, lambda: solved(patchify="from vit_course import patchify"), WITHOUT_PATCHIFY, ""),
    "borrowed-file": (
        FIRST,
        lambda: solved(patchify="from vit_course.embedding import patchify"),
        WITHOUT_PATCHIFY,
        "",
    ),
    "patched-torch": (FIRST, lambda: first_cell(PATCH_TORCH, patchify=NAIVE), WITHOUT_PATCHIFY, ""),
    "patched-course": (FIRST, lambda: first_cell(PATCH_COURSE, patchify=NAIVE), WITHOUT_PATCHIFY, ""),
    "edited-checks": (
        FIRST,
        lambda: edited(checks_that_say_yes, patchify=NAIVE),
        WITHOUT_PATCHIFY,
        "the check of Task 3 had been changed",
    ),
    "deleted-checks": (FIRST, lambda: edited(without_checks), FULL, "check of Task 3"),
    "more-points": (FIRST, lambda: edited(more_points, patchify=NAIVE), WITHOUT_PATCHIFY, ""),
    "twice": (FIRST, lambda: edited(twice), FULL, ""),
    "no-labels": (FIRST, lambda: edited(without_labels), FULL, ""),
    "no-ids": (FIRST, bare, FULL, ""),
    "endless-cell": (FIRST, lambda: first_cell(ENDLESS), FULL, "stopped after"),
    "endless-function": (
        FIRST,
        lambda: solved(patchify="def patchify(images, patch_size):\n    while True:\n        pass"),
        WITHOUT_PATCHIFY,
        "",
    ),
    "interrupt-proof": (FIRST, lambda: first_cell(INTERRUPT_PROOF), FULL, "stopped after"),
    "exit": (FIRST, lambda: first_cell("import os\nos._exit(0)"), FULL, "ended itself"),
    "exit-in-function": (
        FIRST,
        lambda: solved(patchify="import os\ndef patchify(images, patch_size):\n    os._exit(0)"),
        WITHOUT_PATCHIFY,
        "",
    ),
    "memory": (FIRST, lambda: first_cell("hoard = [bytearray(2**28) for _ in range(1000)]"), FULL, ""),
    "forks": (FIRST, lambda: first_cell("import os\nwhile True:\n    os.fork()"), FULL, ""),
    "flood": (FIRST, lambda: first_cell("for _ in range(10**5):\n    print('x' * 1000)"), FULL, ""),
    "syntax": (FIRST, lambda: solved(patchify="def patchify(images, patch_size:"), WITHOUT_PATCHIFY, ""),
    "cut-off": (FIRST, lambda: nbformat.writes(solved())[:-500], 0, "broken JSON"),
    "web-page": (FIRST, lambda: "<html>Log in</html>", 0, "web page"),
    "empty": (FIRST, None, 0, "holds no assignment_01.ipynb"),
    "absent": (FIRST, None, 0, "not handed in"),
    "own-parts": ("assignment_06", lambda: solved("assignment_06"), FULL, ""),
    "broken-parts": ("assignment_06", lambda: solved("assignment_06"), FULL, "my_vit.py: SyntaxError"),
}


def vandal(folder):
    """Return a right notebook that looks for the class's folder first, to spoil it."""
    spoil = f"import shutil, os, signal\nshutil.rmtree({str(folder)!r}, ignore_errors=True)\n"
    return first_cell(
        spoil + "for pid in range(2, 99999):\n    try:\n        os.kill(pid, 9)\n    except OSError:\n        pass"
    )


def grade(folder):
    """Return the teacher's command."""
    return [sys.executable, "-m", "grader", "grade", "--class", folder, "--cell-seconds", "10"]


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Hand everything in, kill the grading on its way, start it again; return the folder, its rows, and both times."""
    folder = tmp_path_factory.mktemp("class") / "class"
    folder.mkdir()
    for student, (assignment, make, *_) in CLASS.items():
        if make:
            put(folder, student, make(), assignment=assignment)
    put(folder, "vandal", vandal(folder))
    put(folder, "own-parts", MY_VIT, assignment="assignment_06", name="my_vit.py")
    put(folder, "broken-parts", MY_VIT + "def (", assignment="assignment_06", name="my_vit.py")
    (folder / "submitted" / "empty" / FIRST).mkdir(parents=True)
    roster = "id,first_name,last_name,email\n" + "".join(f"{student},,,\n" for student in [*CLASS, "vandal"])
    (folder / "students.csv").write_text(roster, encoding="utf-8")
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    run = subprocess.Popen(grade(folder), **quiet)
    deadline = time.monotonic() + 300
    while len(list(folder.glob("results/*/*.json"))) < 5:
        assert run.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    kept = {path: path.read_bytes() for path in folder.glob("results/*/*.json")}
    done = subprocess.run(grade(folder), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done.stdout, kept


def test_the_class_is_large_enough():
    assert len(CLASS) + 1 >= 25


def test_every_mark_is_as_expected(graded):
    folder, said, _ = graded
    assert command("grades", "--class", folder).returncode == 0
    with (folder / "grades.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    expected = {student: (name, mark) for student, (name, _, mark, _) in CLASS.items()} | {"vandal": (FIRST, FULL)}
    marks = {student: (name, float(rows[student][f"{name} (max 20)"])) for student, (name, _) in expected.items()}
    assert marks == expected
    assert rows.keys() == expected.keys()
    for student, (*_, words) in CLASS.items():
        assert words in rows[student]["notes"], (student, rows[student]["notes"])
        assert student == "absent" or words in said


def test_what_was_graded_before_the_kill_was_not_graded_again(graded):
    _, _, kept = graded
    assert len(kept) >= 5
    assert {path: path.read_bytes() for path in kept} == kept
