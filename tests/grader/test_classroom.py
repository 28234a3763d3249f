"""A small class from what was handed in to the CSV: expected marks, again, interrupted, marked by hand."""

import copy
import csv
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time

import nbformat
import pytest
from course import ANSWER, SOLUTION, command, handed_in, put, write_class
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory

from grader import results
from grader.gradebook import ClassFolder
from grader.release import student_edition
from grader.sandbox import Answer, Result
from grader.source import load_all, nbgrader_of

BLANK, CODE = 0, 8  # of 10 points, 2 are given by hand


def bare(source):
    """Return a notebook without labels and cell ids, as some editors store it."""
    notebook = handed_in(source)
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        cell.metadata = {}
        del cell["id"]
    return notebook


def cheating(source):
    """Return a notebook that has the checks changed and gives itself points."""
    notebook = handed_in(source, double="def double(x): return x", double_test="assert True")
    for cell in notebook.cells:
        if "points" in nbgrader_of(cell):
            cell.metadata["nbgrader"]["points"] = 50
    return notebook


def unlabelled_answer(source):
    """Return a notebook whose answer stands in a cell of the student's own."""
    notebook = handed_in(source, experiment_answer="YOUR ANSWER HERE")
    notebook.cells.append(nbformat.v4.new_markdown_cell(ANSWER))
    return notebook


def without_answer(source):
    """Return a notebook with the cell of the answer deleted."""
    notebook = handed_in(source)
    notebook.cells = [cell for cell in notebook.cells if cell.id != "experiment-answer"]
    return notebook


# student: what is handed in, the mark, whether the mark is final, words of the notes
CLASS = {
    "honest": (handed_in, CODE, False, ""),
    "blank": (student_edition, BLANK, True, ""),
    "half": (lambda source: handed_in(source, square="def square(x): return 2 * x"), 3, False, ""),
    "silent": (lambda source: handed_in(source, experiment_answer="YOUR ANSWER HERE"), CODE, True, ""),
    "bare": (bare, CODE, False, "the text told which"),
    "cheating": (cheating, 5, False, "the check of Task 1 had been changed"),
    "elsewhere": (unlabelled_answer, CODE, False, "stood in another cell"),
    "lost": (without_answer, CODE, False, "could not be found; look it up by hand"),
    "syntax": (lambda source: handed_in(source, double="def double(x:"), 5, False, ""),
    "script": (
        lambda source: handed_in(source, experiment_answer="<script>alert(1)</script> It grows."),
        CODE,
        False,
        "",
    ),
    "truncated": (lambda source: nbformat.writes(handed_in(source))[:-100], BLANK, True, "broken JSON"),
    "page": ("<html>Log in</html>", BLANK, True, "web page"),
    "élise.n@x": (handed_in, CODE, False, ""),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory, course):
    """Return a class's folder with everything handed in and graded, and what the command said."""
    folder = write_class(tmp_path_factory.mktemp("class") / "class", course)
    sources = load_all(course / "source")
    for student, (content, *_) in CLASS.items():
        put(folder, student, content(sources["assignment_01"]) if callable(content) else content)
    put(folder, "honest", handed_in(sources["assignment_02"]), assignment="assignment_02")
    put(folder, "renamed", handed_in(sources["assignment_01"]), name="Final (2).ipynb")
    (folder / "submitted" / "empty" / "assignment_01").mkdir(parents=True)
    (folder / "submitted" / "pipe" / "assignment_01").mkdir(parents=True)
    os.mkfifo(folder / "submitted" / "pipe" / "assignment_01" / "assignment_01.ipynb")
    put(folder, "no+id", handed_in(sources["assignment_01"]))
    put(folder, "typo", handed_in(sources["assignment_01"]), assignment="asignment_01")
    (folder / "students.csv").write_text(
        "id,first_name,last_name,email\nhonest,Ann,=Honest,ann@example.org\nabsent,Bo,Absent,\n"
        + "".join(f"{student},,,\n" for student in CLASS if student != "honest"),
        encoding="utf-8",
    )
    words = [sys.executable, "-m", "grader", "grade", "--class", folder]
    return folder, subprocess.run(words, capture_output=True, text=True)


def marks(folder):
    """Return the rows of grades.csv by student."""
    assert command("grades", "--class", folder).returncode == 0
    with (folder / "grades.csv").open(encoding="utf-8", newline="") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}


def test_every_mark_is_as_expected(graded):
    folder, done = graded
    assert done.returncode == 0, done.stdout + done.stderr
    rows = marks(folder)
    for student, (_, mark, final, words) in CLASS.items():
        row = rows[student]
        assert (student, row["assignment_01 (max 10)"]) == (student, str(mark))
        assert ("not final" not in row["notes"]) == final, row
        assert words in row["notes"], row
        assert words in done.stdout
    others = {"renamed": "8", "empty": "0", "pipe": "0", "no+id": "0", "typo": "0", "absent": "0"}
    assert {student: rows[student]["assignment_01 (max 10)"] for student in others} == others
    assert rows.keys() == CLASS.keys() | others.keys()
    assert "was named Final (2).ipynb" in rows["renamed"]["notes"]
    assert "holds no assignment_01.ipynb" in rows["empty"]["notes"]
    assert "not an ordinary file" in rows["pipe"]["notes"]
    assert "no student id" in rows["no+id"]["notes"]
    assert "'asignment_01' is no assignment" in rows["typo"]["notes"]
    assert rows["absent"]["notes"] == "assignment_01: not handed in; assignment_02: not handed in"
    assert "not in students.csv" in rows["renamed"]["notes"]


def test_the_gradebook_is_nbgraders_own(graded):
    with Gradebook(f"sqlite:///{graded[0]}/gradebook.db", "vit_course") as gradebook:
        assert gradebook.find_student("honest").last_name == "=Honest"
        submission = gradebook.find_submission_notebook("assignment_01", "assignment_01", "half")
        assert {grade.name: grade.auto_score for grade in submission.grades} == {
            "double-test": 3,
            "square-test": 0,
            "experiment-answer": None,
        }


def test_the_feedback_says_why(graded):
    folder, _ = graded
    done = command("feedback", "--class", folder, "--assignment", "assignment_01")
    assert done.returncode == 0, done.stderr
    pages = {
        path.parts[-3]: path.read_text(encoding="utf-8") for path in folder.glob("feedback/*/assignment_01/*.html")
    }
    assert pages.keys() == CLASS.keys() | {"renamed", "empty", "pipe"}
    assert "(Score: 8.0 / 10.0)" in pages["honest"]
    assert "broken JSON" in pages["truncated"]
    assert "the check of Task 1 had been changed" in pages["cheating"]
    assert "SyntaxError" in pages["syntax"]
    assert "alert(1)" in pages["script"]
    assert "<script>alert(1)" not in pages["script"]


def contents(folder):
    """Return what a grading run leaves behind, with the times of the files."""
    with sqlite3.connect(folder / "gradebook.db") as database:
        tables = {
            table: database.execute(f"SELECT count(*) FROM {table}").fetchone()
            for table in ("student", "submitted_assignment", "grade", "comment")
        }
    files = [path for part in ("results", "autograded", "checked") for path in (folder / part).rglob("*.*")]
    return tables, {path: path.stat().st_mtime_ns for path in files}


def test_the_same_again_does_nothing(graded):
    folder, done = graded
    before = contents(folder)
    again = command("grade", "--class", folder)
    assert again.stdout == done.stdout
    assert contents(folder) == before


def test_the_button_of_formgrader_does_the_same(graded, source, monkeypatch):
    folder, _ = graded
    config = ClassFolder(folder).config
    api = NbGraderAPI(CourseDirectory(config=config), config=config)
    put(folder, "cheating", cheating(source))
    before = (folder / "autograded/cheating/assignment_01/assignment_01.ipynb").read_bytes()
    result = api.autograde("assignment_01", "cheating")
    assert result["success"], result
    assert (folder / "autograded/cheating/assignment_01/assignment_01.ipynb").read_bytes() == before
    assert marks(folder)["cheating"]["assignment_01 (max 10)"] == "5"


# Interrupted


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, course, source):
    folder = write_class(tmp_path / "class", course)
    slow = SOLUTION["double"] + "\n\nimport time\n\ntime.sleep(1)"
    students = [f"s{number}" for number in range(6)]
    for student in students:
        put(folder, student, handed_in(source, double=slow))
    words = [sys.executable, "-m", "grader", "grade", "--class", folder, "--jobs", "2"]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while len(list(folder.glob("results/*/*.json"))) < 2:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    deadline = time.monotonic() + 20
    while session_of(run.pid):  # whatever it started ends by itself
        assert time.monotonic() < deadline, session_of(run.pid)
        time.sleep(0.1)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("results/*/*.json")}
    assert 2 <= len(before) < len(students)
    done = command("grade", "--class", folder)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert {student: row["total (max 10)"] for student, row in marks(folder).items()} == dict.fromkeys(students, "8")
    tables, _ = contents(folder)
    assert tables["submitted_assignment"] == (len(students),)
    assert tables["grade"] == (3 * len(students),)


def session_of(pid):
    """Return the processes that a killed command has left."""
    listing = subprocess.run(["ps", "-eo", "sid,stat,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listing.splitlines()]
    return [row for row in rows if row[0] == str(pid) and not row[1].startswith("Z")]


def test_a_damaged_result_is_none(tmp_path):
    path, result = tmp_path / "result.json", Result({1: []}, {"a": Answer(True, "right")}, ["note"], 1.5)
    assert results.load(path, "key") is None
    results.store(path, "key", result)
    assert results.load(path, "key") == result
    assert results.load(path, "other") is None
    text = path.read_text(encoding="utf-8")
    for damage in ("", "{", "[]", "{}", '{"key": "key"}', text[:-3], text.replace("passed", "past")):
        path.write_text(damage, encoding="utf-8")
        assert results.load(path, "key") is None


def test_one_run_at_a_time(tmp_path, course):
    folder = write_class(tmp_path / "class", course)
    with (folder / ".grading").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another grading run is active" in command("grade", "--class", folder).stderr


# What stops a command, with a line that helps


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["grade", "--class", "missing"], "there is no folder missing"),
        (["collect", "--class", "."], "make collect FROM=downloads.zip"),
        (["grade", "--class", "class", "--assignment", "assignment_09"], "there are: assignment_01, assignment_02"),
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


def test_a_source_that_changes_its_tasks_too_late(tmp_path, course, source):
    """Points may change, and everybody is graded anew; tasks cannot be added once there are marks."""
    own = tmp_path / "course"
    path = own / "source" / "assignment_01" / "assignment_01.ipynb"
    path.parent.mkdir(parents=True)
    notebook = copy.deepcopy(source.notebook)
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    folder = write_class(tmp_path / "class", own)
    put(folder, "ada", handed_in(source))
    assert command("grade", "--class", folder).returncode == 0
    next(cell for cell in notebook.cells if cell.id == "double-test").metadata["nbgrader"]["points"] = 4
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    assert command("grade", "--class", folder).returncode == 0
    assert marks(folder)["ada"]["total (max 11)"] == "9"
    notebook.cells = [cell for cell in notebook.cells if cell.id not in ("square", "square-test")]
    path.write_text(nbformat.writes(notebook), encoding="utf-8")
    done = command("grade", "--class", folder)
    assert done.returncode == 1
    assert "assignment_01 was not graded: Cannot add or remove cells" in done.stdout.replace("RuntimeError: ", "")
    assert marks(folder)["ada"]["total (max 11)"] == "9"
