"""A class's gradebook, and what comes out of it: the CSV files and the pages. No submission is run."""

import copy
import csv
import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import nbformat
import pytest
from bs4 import BeautifulSoup
from course import command, handed_in, put, write_class
from nbconvert.exporters import HTMLExporter
from traitlets.config import Config

from grader import __main__ as commands
from grader import gradebook as module
from grader.classroom import Submission, find_submissions, grade_class, prepare
from grader.collect import LATE
from grader.gradebook import MARK, ClassFolder, Mark
from grader.grades_csv import GONE, NEWER, NOT_GRADED, as_text
from grader.pages import MATH, TAGS, HighlightCode, markdown2html
from grader.release import graded_edition
from grader.run_submission import Result
from grader.source import ASSIGNMENTS, is_test, load_all

ANSWER = "The square: $x^2 \\ge \\frac{1}{2}$, <script>alert(1)</script>"


def graded(source, wrong=(), answer=ANSWER, notes=()):
    """Return a notebook as it comes out of the sandbox."""
    notebook = graded_edition(source)
    for cell in notebook.cells:
        if is_test(cell) and cell.id in wrong:
            cell.outputs = [nbformat.v4.new_output("error", ename="Wrong", evalue="no", traceback=["no"])]
        elif cell.id == "experiment-answer" and answer:
            cell.source = answer
    notebook.metadata[MARK] = {"notes": list(notes)}
    return notebook


@pytest.fixture(scope="module")
def made(tmp_path_factory, course):
    """Make a class in which three of four students have handed in the first of two assignments; return two copies."""
    root = write_class(tmp_path_factory.mktemp("gradebook") / "class", course)
    roster = "id,first_name,last_name,email\nada,Ada,Lovelace,ada@x.org\nal,=1+1,Turing,\nbo,Bo,Absent,\n"
    (root / "students.csv").write_text(roster, encoding="utf-8")
    folder, sources = ClassFolder(root), load_all(course / "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grader.classroom.check_source", lambda source: [])
        assert command("release", "--class", root).returncode == 0
    put(root, "ada", "late", name=LATE)
    for student, notebook in {
        "ada": graded(sources["assignment_01"]),
        "al": graded(sources["assignment_01"], wrong=["square-test"], answer="", notes=["-x", "y\nz"]),
        "eve": graded(sources["assignment_01"], wrong=["double-test", "square-test"]),
    }.items():
        folder.enrol()
        place = put(root, student, handed_in(sources["assignment_01"])).parent
        folder.record(student, "assignment_01", notebook, place)
    put(root, "no+id", "")
    put(root, "bo", "", assignment="asignment_01")
    return root, shutil.copytree(root, root.with_name("as it was made"))


@pytest.fixture
def folder(made):
    """Return the class as it was made."""
    root, kept = made
    shutil.rmtree(root)
    return ClassFolder(shutil.copytree(kept, root))


def exported(folder, name="grades.csv"):
    with (folder.root / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def grades(folder):
    """Return what is said when grades.csv is written, and its lines."""
    done = command("grades", "--class", folder.root)
    assert done.returncode == 0, done.stderr
    return done.stdout, exported(folder)


TYPO = "'asignment_01' is no assignment of the course. Rename or remove it."
WAITING = "assignment_01: not final, waits for marks by hand"
GRADES = [
    ["student_id", "first_name", "last_name", "email", "assignment_01 (max 10)", "total (max 10)", "notes"],
    ["ada", "Ada", "Lovelace", "ada@x.org", "8", "8", f"assignment_01: Canvas marked it as late; {WAITING}"],
    ["al", "'=1+1", "Turing", "", "3", "3", "assignment_01: -x; assignment_01: y z"],
    ["bo", "Bo", "Absent", "", "0", "0", f"{TYPO}; assignment_01: not handed in"],
    ["eve", "", "", "", "0", "0", f"not in students.csv; {WAITING}"],
]  # fmt: skip


def test_marks_as_csv(folder):
    """There is no column for the assignment that nobody has handed in."""
    said, lines = grades(folder)
    assert said.splitlines()[1] == "marks that are not final: 2"
    assert lines[:-1] == GRADES
    assert lines[-1][0] == "no+id"
    assert "is no student id" in lines[-1][-1]


@pytest.mark.parametrize("name", ["other.txt", "my_vit.py", "assignment_01.ipynb"])
def test_files_that_changed_after_their_mark_are_noted(folder, source, name):
    place = folder.root / "submitted" / "ada" / "assignment_01"
    notebook = graded(source)
    notebook.metadata[MARK]["files"] = Submission("ada", source, place).digest
    folder.record("ada", "assignment_01", notebook, place)
    assert grades(folder)[1][:-1] == GRADES
    put(folder.root, "ada", "changed", name=name)
    note = grades(folder)[1][1][-1]
    assert f"assignment_01: {NEWER}" in note
    assert "waits for marks" not in note  # the cause is another one


def test_a_mark_without_its_files_is_not_final(folder, source):
    """Nor is work that was not graded yet: both are no final marks for Canvas, and neither was "not handed in"."""
    shutil.rmtree(folder.root / "submitted" / "al")
    put(folder.root, "bo", handed_in(source))
    put(folder.root, "zoe", handed_in(source))  # who is not on the roster
    said, lines = grades(folder)
    assert said.splitlines()[1] == "marks that are not final: 5"
    rows = {line[0]: (line[4], line[-1]) for line in lines}
    assert rows["al"] == ("3", f"assignment_01: -x; assignment_01: y z; assignment_01: {GONE}")
    assert rows["bo"] == ("0", f"{TYPO}; assignment_01: {NOT_GRADED}")
    assert rows["zoe"] == ("0", f"not in students.csv; assignment_01: {NOT_GRADED}")


def test_only_marks_without_files_are_forgotten(folder, source, monkeypatch):
    monkeypatch.setattr("grader.classroom.grade_class", lambda *_: [])
    with folder.gradebook() as gradebook:
        gradebook.add_student("zoe")
    for student in ("bo", "zoe"):
        folder.record(student, "assignment_01", graded(source), folder.root)
    kept = {"ada", "al", "bo", "eve", "zoe"}
    for more, forgotten in ((), set()), (("--forget", "--student", "bo"), {"bo"}), (("--forget",), {"zoe"}):
        assert command("grade", "--unconfined", "--class", folder.root, *more).returncode == 0
        kept -= forgotten
        assert {student for student, _ in folder.recorded()} == kept
    assert not (folder.root / "autograded" / "bo" / "assignment_01").exists()


def test_nbgraders_own_command_in_the_folder_of_the_class(folder):
    """The settings find the grader, wherever nbgrader was started and whatever is on the path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [Path(sys.executable).with_name("nbgrader"), "export", "--to", "own.csv", "--student", "['ada']"]
    done = subprocess.run(words, cwd=folder.root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert exported(folder, "own.csv") == GRADES[:2]


def test_a_file_that_canvas_has_exported_is_filled(folder):
    """Only final marks, in columns of assignments that were handed in, and nobody gets another's."""
    head = ["Student", "ID", "Notes", "SIS Login ID", "Notes", "Assignment 1 (77)", "assignment_02 (78)"]
    head.append("Assignment 1 resubmission (79)")
    lines = [
        head,
        ["    Points Possible", "", "", "", "", "10", "10", "5"],
        ["Lovelace, Ada", "501", "", "ada", "A", "", "", "1"],
        ["Turing, =1+1", "502", "", "", "A", "", "7", "2"],
        ["Student, Test", "503", "", "x9", "A", "", "", ""],
        ["Lovelace, Ada", "504", "", "another", "A", "", "", ""],
    ]

    def filled(lines):
        path = folder.root / "canvas.csv"
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows(lines)
        done = command("grades", "--class", folder.root, "--canvas", path)
        assert done.returncode == 0, done.stderr
        return exported(folder, "grades-canvas.csv"), done.stdout.splitlines()[1:-1]

    expected = copy.deepcopy(lines)
    expected[3][5] = "3"
    assert filled(lines) == (expected, ["assignment_01: marks filled in: 1, in the column 'Assignment 1 (77)'"])
    for remark, changed in {
        "no rows for al; not filled in": [*lines[:3], *lines[4:]],
        "2 rows for al; not filled in": [*lines, [*lines[3][:3], "more", *lines[3][4:]]],
        "no columns in canvas.csv; nothing was filled in": [line[:5] for line in lines],
        "2 columns in canvas.csv; nothing was filled in": [[*line, line[5]] for line in lines],
    }.items():
        written, remarks = filled(changed)
        assert (written, remarks[0]) == (changed, f"assignment_01: {remark}")


def test_marks_by_hand_stay(folder, source):
    where = "assignment_01", "assignment_01", "eve"
    handed = folder.root / "submitted" / "eve" / "assignment_01"

    def again(files, wrong=("square-test",)):
        notebook = graded(source, wrong)
        notebook.metadata[MARK]["files"] = files
        folder.record("eve", "assignment_01", notebook, handed)
        return folder.recorded()["eve", "assignment_01"]

    assert again("first") == Mark(3.0, False)
    with folder.gradebook() as gradebook:
        grade = gradebook.find_grade("experiment-answer", *where)
        grade.manual_score, grade.needs_manual_grade = 1.5, False
        gradebook.find_comment("experiment-answer", *where).manual_comment = "Nearly."
        gradebook.db.commit()
    assert again("first", ("square-test", "double-test")) == Mark(1.5, True)  # after an update of the tests
    (handed / "timestamp.txt").write_text("2030-02-03 11:30:00 UTC", encoding="utf-8")
    assert again("second") == Mark(4.5, False)  # the answer may be another one now
    assert again("second") == Mark(4.5, False)  # nobody has looked at it
    with folder.gradebook() as gradebook:
        assert gradebook.find_comment("experiment-answer", *where).comment == "Nearly."
        assert str(gradebook.find_submission("assignment_01", "eve").timestamp) == "2030-02-03 11:30:00"
    (handed / "timestamp.txt").write_text("yesterday, honestly", encoding="utf-8")
    with folder.gradebook() as gradebook:
        gradebook.remove_submission("assignment_01", "eve")
    assert again("second") == Mark(3.0, False)  # a timestamp that is none, or a new gradebook, is no reason against it


@pytest.mark.parametrize("step", ["steps.AssignLatePenalties.preprocess", "write_notebook"])
def test_a_run_that_is_killed_while_it_enters_marks_enters_them_again(folder, source, monkeypatch, step):
    where, notebook = folder.root / "submitted" / "eve" / "assignment_01", graded(source)
    notebook.metadata[MARK]["files"] = "the same"
    folder.record("eve", "assignment_01", copy.deepcopy(notebook), where)
    with folder.gradebook() as gradebook:
        grade = gradebook.find_grade("experiment-answer", "assignment_01", "assignment_01", "eve")
        grade.manual_score, grade.needs_manual_grade = 1.5, False
        gradebook.db.commit()
    with monkeypatch.context() as patch:  # nothing catches it, nothing is tidied up
        patch.setattr(f"grader.gradebook.{step}", Mock(side_effect=GeneratorExit))
        with pytest.raises(GeneratorExit):
            folder.record("eve", "assignment_01", copy.deepcopy(notebook), where)
    assert folder.entry("eve", "assignment_01") == {}
    assert "not graded yet" in grades(folder)[1][4][-1]
    folder.record("eve", "assignment_01", notebook, where)
    assert folder.recorded()["eve", "assignment_01"].final  # the mark by hand was confirmed, for these files


@pytest.mark.parametrize("damage", [lambda text: text[:-9], lambda text: "", lambda text: "[]", lambda text: "{}"])
def test_a_graded_notebook_that_is_damaged_is_graded_again(folder, submissions, damage):
    assert [failure for _, failure in grade_class(folder, submissions)] == [""] * 3
    path = folder.graded_path("ada", "assignment_01")
    whole = path.read_text(encoding="utf-8")
    path.write_text(damage(whole), encoding="utf-8")
    assert [failure for _, failure in grade_class(folder, submissions)] == [""] * 3
    assert path.read_text(encoding="utf-8") == whole


@pytest.mark.parametrize("formula", ["=1", "+1", "-1", "@a", "\t=1", "\r=1", " =1", "\n=1"])
def test_no_formula_reaches_a_spreadsheet(formula):
    assert as_text(formula).startswith("'")


# The pages


def elements(page):
    """Return what a browser would make of a page: elements with their attributes."""
    return [(element.name, element.attrs) for element in BeautifulSoup(page, "html.parser").find_all()]


def test_feedback_and_formgrader_show_formulas_and_load_nothing_from_elsewhere(folder):
    assert command("feedback", "--class", folder.root).returncode == 0
    pages = {path.parts[-3]: path.read_text(encoding="utf-8") for path in folder.root.glob("feedback/*/*/*.html")}
    assert pages.keys() == {"ada", "al", "eve"}
    assert "(Score: 8.0 / 10.0)" in pages["ada"]
    assert not any("HIDDEN TESTS" in page for page in pages.values())
    formgrader = Config(HTMLExporter=dict(template_name="formgrade"))
    formgrader.merge(folder.config)
    resources = dict.fromkeys(("base_url", "notebook_id", "submission_id", "student", "notebook_path"), "x")
    resources |= dict(index=0, total=1, first_name="", last_name="")
    notebook = folder.root / "autograded" / "ada" / "assignment_01" / "assignment_01.ipynb"
    marked, _ = HTMLExporter(config=formgrader).from_filename(notebook, resources=resources)
    for page in (pages["ada"], marked):
        assert "<mfrac>" in page
        assert "<script>alert(1)" not in page
        for _, attributes in elements(page):
            assert not re.match(r"https?:|//", attributes.get("src", ""))
        assert not re.search(r"@import|<link[^>]+https?:", page)
        assert "window.MathJax = " in page  # formgrader's script stops without it


def test_the_formulas_of_the_course_become_mathml():
    for source in load_all(ASSIGNMENTS / "source").values():
        for cell in source.notebook.cells:
            if cell.cell_type == "markdown" and "`" not in cell.source:
                assert "$" not in markdown2html({}, cell.source)


ATTACKS = [
    "<script>alert(1)</script><<script>script>alert(1)</script>",
    '<svg/onload=alert(1)><iframe src="javascript:alert(1)"></iframe><style>*{display:none}</style>',
    '<form action="/api"><input name="score"></form>',
    "<img src=x onerror=alert(1)> <img src=/hub/logout>",
    "[a](javascript:alert(1)) [a](JaVa&#115;cript:alert(1)) [a][b]\n\n[b]: javascript:alert(1)",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    '[a](https://x "y\\" onclick=\\"alert(1)")',
    "![a](https://example.org/who-marks-me.png) ![a](//example.org/who-marks-me.png) ![a](../../hub/logout)",
    "![a](data:image/svg+xml;base64,PHN2Zz4=)",
    "![a](attachment:missing)",
    '<div id="double-test" class="score">x</div>',
    "## double-test",
    "$<img src=x onerror=alert(1)>$ $\\text{<img src=x onerror=alert(1)>}$",
    '![$\\text{" onerror=alert(1) x="}$](a.png)',
    '<math href="javascript:alert(1)"><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></math>',
    "```html\n<script>alert(1)</script>\n```\n\n| a |\n| - |\n| <img src=x onerror=alert(1)> |",
    "$" + "{" * 50_000 + "$",
    "[" * 2000 + "](" * 2000,
    "> " * 200_000,
    '<a href="https://x/&#' + "9" * 5000 + ';">x</a>',
    "".join(f"<b title={number}>" for number in range(800)) + "<p>x" * 1600,  # each b once in each p
]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda text: text[:30])
def test_what_a_student_writes_does_nothing_in_a_page(attack):
    for tag, attributes in elements(markdown2html({}, attack)):
        assert tag in TAGS - {"script", "svg", "iframe", "style", "form", "input"}
        assert attributes.get("src", "data:image/").startswith("data:image/")
        assert attributes.keys() <= {"href", "src", "alt", "title"} or tag in MATH
        assert not any(name.startswith("on") or name in ("id", "class", "style") for name in attributes)
        for address in (attributes.get("href", ""), attributes.get("src", "")):
            assert ":" not in address or address.startswith("https://x")


def test_what_a_page_still_shows():
    shown = {
        "**so**": "<strong>so</strong>",
        "[here](../lesson.ipynb#x)": 'href="../lesson.ipynb#x"',
        "$a<b$": "<mo>&lt;</mo>",
        "`x<y`": "<code>x&lt;y</code>",
        "$\\foo$": "$\\foo$",
        "<details><summary>Hint</summary>\n\nAdd.\n\n</details>": "<summary>Hint",
    }
    for text, part in shown.items():
        assert part in markdown2html({}, text)
    pasted = {"cell": {"attachments": {"a.png": {"image/png": "aGk="}}}}
    assert 'src="data:image/png;base64,aGk="' in markdown2html(pasted, "![a](attachment:a.png)")


def test_what_takes_long_to_render_is_shown_as_it_is():
    for text in ("a" + " " * 600 + "b", "\\begin{a}" * 1200):
        assert markdown2html({}, text) == f"<pre>{text}</pre>"
    assert 'class="nb">print' in HighlightCode()("print(1)", metadata={})
    for code in ("x=1<2\n" + " \n" * 60_000 + "x=1", "x=1<2\n" * 4000):
        assert HighlightCode()(code, metadata={}).startswith("<pre>x=1&lt;2\n")


def test_one_page_that_cannot_be_written_stops_no_other(folder):
    path = folder.root / "autograded" / "al" / "assignment_01" / "assignment_01.ipynb"
    path.write_text("{", encoding="utf-8")
    done = command("feedback", "--class", folder.root)
    assert done.returncode == 1
    assert "feedback: 2\n" in done.stdout
    assert "al: no page for assignment_01: " in done.stderr
    done = command("feedback", "--class", folder.root, "--student", "nobody")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "nothing is graded of nobody\n")


@pytest.fixture
def submissions(folder, monkeypatch):
    """Return what was handed in; a run takes no time over it."""
    monkeypatch.setattr("grader.classroom.run_jobs", lambda jobs, *_: [(name, Result()) for name in jobs])
    return find_submissions(folder.root / "submitted", load_all(folder.sources))[0]


def test_what_is_graded_again_is_recorded_again(folder, submissions, monkeypatch):
    recorded = []
    keys = {each.name: prepare(each).key for each in submissions}
    monkeypatch.setattr(ClassFolder, "record", lambda self, *details: recorded.append(details[:2]))
    monkeypatch.setattr(ClassFolder, "entry", lambda self, *name: {"key": keys[name]})
    for again, expected in (False, []), (True, list(keys)):
        assert all(not failure for _, failure in grade_class(folder, submissions, again=again))
        assert recorded == expected


def test_one_notebook_that_cannot_be_entered_stops_no_other(folder, submissions, monkeypatch):
    monkeypatch.setattr(ClassFolder, "record", lambda *_: "\ud800".encode())
    failures = [failure for _, failure in grade_class(folder, submissions)]
    assert len(failures) == 3
    assert all("could not be entered (UnicodeEncodeError" in failure for failure in failures)


# The settings, and whose files they are


def test_the_settings_of_a_class(tmp_path):
    path = tmp_path / "nbgrader_config.py"
    assert ClassFolder(tmp_path).sources == ASSIGNMENTS / "source"
    written = path.read_text(encoding="utf-8")
    for own in ("from vit_course.grading import gradebook\n", written.replace(str(ASSIGNMENTS), "/moved")):
        path.write_text(own, encoding="utf-8")
        done = command("grades", "--class", tmp_path)
        assert done.returncode == 1
        assert f"{path} cannot be used: " in done.stderr
        assert module.CLASS_SETTINGS in done.stderr
        assert path.read_text(encoding="utf-8") == own


def test_a_class_that_belongs_to_somebody_else(folder, monkeypatch):
    here = folder.root.stat().st_uid
    monkeypatch.setattr(commands.os, "geteuid", lambda: here + 1)
    monkeypatch.setattr(commands.os, "access", lambda path, mode: path != folder.root / "gradebook.db")
    done = command("feedback", "--class", folder.root)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"gradebook.db belongs to the user {here}, and you are {here + 1}." in done.stderr
    monkeypatch.setattr(commands.os, "access", lambda path, mode: True)  # a folder that teachers share
    assert command("feedback", "--class", folder.root).returncode == 0


def test_a_new_class_is_the_teachers_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("grader.classroom.check_source", lambda source: ["not now"])
    command("release", "--class", tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_formgrader_starts_as_root_too(folder, monkeypatch):
    started = []
    monkeypatch.setattr(commands.os, "execv", lambda program, words: started.append(words))
    monkeypatch.chdir(folder.root)
    assert command("formgrader", "--class", folder.root).returncode == 0
    assert ("--allow-root" in started[0]) == (os.geteuid() == 0)
    assert "--LabApp.default_url=/formgrader" in started[0]


def test_only_one_student_is_graded_and_the_marks_are_told(folder, monkeypatch):
    graded = []
    grade = "grader.classroom.grade_class"
    monkeypatch.setattr(grade, lambda _, given, *how: graded.extend(given) or [(each, "") for each in given])
    done = command("grade", "--class", folder.root, "--student", "al", "--student", "ada", "--unconfined")
    assert (done.returncode, [each.student for each in graded]) == (0, ["ada", "al"])
    assert exported(folder, "report.csv")[:-1] == GRADES
    assert done.stdout.splitlines()[1:] == [
        "student  assignment_01 / 10  total",
        "ada      8*                  8",
        "al       3                   3",
        "* not final: see the notes; otherwise mark by hand, or confirm with Resolve, in make grade BY=hand",
        "ada: assignment_01: Canvas marked it as late",
        "al: assignment_01: -x",
        "al: assignment_01: y z",
    ]


def test_a_source_whose_own_solution_fails_is_not_released(folder, monkeypatch):
    wrong = {"assignment_01": [], "assignment_02": ["square-test: wrong"]}
    monkeypatch.setattr("grader.classroom.check_source", lambda source: wrong[source.name])
    release = folder.sources.parent / "release" / "assignment_02" / "assignment_02.ipynb"
    before = release.stat().st_mtime_ns
    done = command("release", "--class", folder.root)
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)
    assert done.stderr.strip() == "assignment_02 was not released: square-test: wrong"
    assert release.stat().st_mtime_ns == before


# What stops a command, with a line that helps


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("grade --class missing", "there is no folder missing"),
        ("grades --class ~/missing", "there is no folder {home}/missing. "),
        ("collect --class .", "make collect FROM=downloads.zip"),
        ("grade --class class --assignment assignment_09", "there are: assignment_01, assignment_02"),
        ("grade --class class --student zoe", "nothing was handed in by zoe"),
        ("grades --class class --canvas missing.csv", "missing.csv cannot be read"),
        ("grades --class class --canvas class/students.csv", "no column Student"),
    ],
)
def test_what_cannot_be_done_is_said(folder, monkeypatch, words, cause):
    home = folder.root.parent
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    done = command(*words.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert cause.format(home=home) in done.stderr


def test_one_run_at_a_time(folder):
    with (folder.root / ".grading").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another grading run is active" in command("grade", "--class", folder.root).stderr
