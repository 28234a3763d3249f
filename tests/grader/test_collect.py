"""Downloads of learning-management systems, the roster, the CSV files, and the pages: what goes in and out."""

import csv
import os
import zipfile
from html.parser import HTMLParser

import pytest

from grader import collect as module
from grader.collect import CannotCollect, Placed, collect
from grader.gradebook import Mark
from grader.grades import Row, as_text, table, write_grades
from grader.pages import TAGS, markdown2html
from grader.roster import RosterError, Student, is_student_id, read_roster

ROSTER = {"ada": Student("ada", "Ada", "Lovelace"), "al": Student("al", "Alan", "Turing")}


def download(tmp_path, files, kind):
    """Make a download from texts by name."""
    if kind == "zip":
        path = tmp_path / "download.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return path
    path = tmp_path / "download"
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_names_of_files_say_whose_they_are(tmp_path, kind):
    files = {
        "ada_assignment_01.ipynb": "1",  # as the default pattern has it
        "ada_12345_67_assignment_02-3.ipynb": "2",  # as from Canvas
        "al_LATE_assignment_01 (1).ipynb": "3",
        "Ada Lovelace_123_assignsubmission_file_/assignment_03.ipynb": "4",  # as from Moodle, in folders
        "Alan Turing_9_assignsubmission_file_assignment_03.ipynb": "5",  # as from Moodle, without
        "nobody_assignment_01.ipynb": "6",
        "ada_essay.pdf": "7",
        "assignment_01.ipynb": "8",
    }
    placed, lines = collect(download(tmp_path, files, kind), tmp_path / "submitted", ROSTER)
    assert sorted((each.student, each.assignment) for each in placed) == [
        ("ada", "assignment_01"),
        ("ada", "assignment_02"),
        ("ada", "assignment_03"),
        ("al", "assignment_01"),
        ("al", "assignment_03"),
    ]
    assert (tmp_path / "submitted/ada/assignment_03/assignment_03.ipynb").read_text() == "4"
    assert sorted(line.split(":")[0] for line in lines) == [
        "ada_essay.pdf",
        "assignment_01.ipynb",
        "nobody_assignment_01.ipynb",
    ]


def test_without_a_roster_the_name_is_the_id(tmp_path):
    files = {"s1234_assignment_01.ipynb": "1", "+_assignment_01.ipynb": "2", "../x_assignment_01.ipynb": "3"}
    placed, lines = collect(download(tmp_path, files, "zip"), tmp_path / "submitted", {})
    assert [each.student for each in placed] == ["s1234", "x"]
    assert len(lines) == 1
    assert "no student '+'" in lines[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["download.zip", "submitted"]


def test_a_pattern_of_ones_own(tmp_path):
    path = download(tmp_path, {"hw/assignment_02/by-ada.ipynb": "1"}, "zip")
    pattern = r"hw/(?P<assignment>\w+)/by-(?P<student>\w+)\.ipynb"
    placed, lines = collect(path, tmp_path / "submitted", ROSTER, pattern)
    assert (placed, lines) == ([Placed("hw/assignment_02/by-ada.ipynb", "ada", "assignment_02")], [])


def test_nothing_is_overwritten(tmp_path):
    path = download(tmp_path, {"ada_assignment_01.ipynb": "new"}, "folder")
    there = tmp_path / "submitted/ada/assignment_01/assignment_01.ipynb"
    there.parent.mkdir(parents=True)
    there.write_text("old", encoding="utf-8")
    placed, lines = collect(path, tmp_path / "submitted", ROSTER)
    assert (placed, there.read_text()) == ([], "old")
    assert "ada has handed in another assignment_01 before" in lines[0]
    placed, lines = collect(path, tmp_path / "submitted", ROSTER, replace=True)
    assert (len(placed), lines, there.read_text()) == (1, [], "new")
    assert collect(path, tmp_path / "submitted", ROSTER) == ([], [])  # the same once more is nothing new


def test_two_versions_are_not_chosen_from(tmp_path):
    files = {"ada_1_assignment_01.ipynb": "a", "ada_2_assignment_01.ipynb": "b"}
    placed, lines = collect(download(tmp_path, files, "zip"), tmp_path / "submitted", ROSTER)
    assert placed == []
    assert "different files of ada for assignment_01" in lines[0]


def test_what_cannot_be_read_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MEGABYTES", 0.001)
    path = download(tmp_path, {"ada_assignment_01.ipynb": "x" * 2000}, "folder")
    os.symlink("/etc/hostname", path / "al_assignment_01.ipynb")
    placed, lines = collect(path, tmp_path / "submitted", ROSTER)
    assert placed == []
    assert len(lines) == 2
    assert all("or not readable" in line for line in lines)


def test_a_download_that_is_none(tmp_path):
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(CannotCollect, match="neither a folder nor a zip file"):
        collect(tmp_path / "broken.zip", tmp_path, {})
    with pytest.raises(CannotCollect, match="there is no "):
        collect(tmp_path / "missing.zip", tmp_path, {})
    with pytest.raises(CannotCollect, match="needs the groups"):
        collect(tmp_path, tmp_path, {}, r"(\w+)")
    with pytest.raises(CannotCollect, match="no regular expression"):
        collect(tmp_path, tmp_path, {}, "(")


# The roster


def test_the_roster_is_read(tmp_path):
    path = tmp_path / "students.csv"
    assert read_roster(path) == {}
    text = "\ufeffid,last_name,first_name,email,group\nada,Lovelace,Ada,ada@example.org,1\n,,,,\né.1@x-y,,,,\n"
    path.write_text(text, encoding="utf-8")
    ada = Student("ada", "Ada", "Lovelace", "ada@example.org")
    assert read_roster(path) == {"ada": ada, "é.1@x-y": Student("é.1@x-y")}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("name,email\nada,x\n", "has no column id"),
        ("id\nada\nada\n", "line 3: the id ada is there twice"),
        ("id\n../x\n", "line 2: '../x' is no student id"),
        ("id,email\n,x@example.org\n", "line 2: '' is no student id"),
    ],
)
def test_a_roster_that_cannot_be_used(tmp_path, text, cause):
    path = tmp_path / "students.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RosterError, match=cause):
        read_roster(path)


@pytest.mark.parametrize(
    "id", ["", ".", "..", ".git", "-rf", "a/b", "a+b", "*", "[a]", "a\nb", " a", "a ", "a" * 101, "a\udce9"]
)
def test_what_is_no_student_id(id):
    assert not is_student_id(id)


# The CSV files


def test_marks_as_csv(tmp_path):
    rows = [
        Row(Student("ada", "=1+1", "@x", "a@b.c"), {"assignment_01": Mark(7.5, True), "assignment_02": None}),
        Row(Student("al"), {"assignment_01": Mark(3.0, False), "assignment_02": Mark(0.0, True)}, ["-x", "y\nz"]),
    ]
    path, names = tmp_path / "grades.csv", ["student_id", "first_name", "last_name", "email"]
    write_grades(path, rows, {"assignment_01": 10.0, "assignment_02": 20.0})
    assert list(csv.reader(path.read_text(encoding="utf-8").splitlines())) == [
        [*names, "assignment_01 (max 10)", "assignment_02 (max 20)", "total (max 30)", "notes"],
        ["ada", "'=1+1", "'@x", "a@b.c", "7.5", "0", "7.5", "assignment_02: not handed in"],
        ["al", "", "", "", "3", "0", "3", "'-x; y z; assignment_01: not final, waits for marks by hand"],
    ]
    assert table(rows, {"assignment_01": 10.0, "assignment_02": 20.0}).splitlines() == [
        "student  assignment_01 / 10  assignment_02 / 20  total",
        "ada      7.5                 -                   7.5",
        "al       3*                  0                   3",
        "* waits for marks by hand: make formgrader",
        "al: -x",
        "al: y",
        "z",
    ]


@pytest.mark.parametrize("formula", ["=1", "+1", "-1", "@a", "\t=1", "\r=1", " =1", "\n=1"])
def test_no_formula_reaches_a_spreadsheet(formula):
    assert as_text(formula).startswith("'")


# The pages

ATTACKS = [
    "<script>alert(1)</script>",
    "<<script>script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    '<iframe src="javascript:alert(1)"></iframe>',
    '<form action="/api"><input name="score"></form>',
    "<style>*{display:none}</style>",
    "[a](javascript:alert(1))",
    "[a](JaVa&#115;cript:alert(1))",
    "[a][b]\n\n[b]: javascript:alert(1)",
    "[a](data:text/html;base64,PHNjcmlwdD4=)",
    '[a](https://x "y\\" onclick=\\"alert(1)")',
    "![a](https://example.org/who-marks-me.png)",
    "![a](data:image/svg+xml;base64,PHN2Zz4=)",
    '<div id="double-test" class="score">x</div>',
    "## double-test",
    "$<img src=x onerror=alert(1)>$",
    "```html\n<script>alert(1)</script>\n```",
    "| a |\n| - |\n| <img src=x onerror=alert(1)> |",
    "![a](attachment:missing)",
    "[" * 2000 + "](" * 2000,
    "> " * 200_000,
]


class Elements(HTMLParser):
    """Collect what a browser would make of a page: elements with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda text: text[:30])
def test_what_a_student_writes_does_nothing_in_a_page(attack):
    for tag, attributes in Elements(markdown2html({}, attack)).found:
        assert tag in TAGS
        assert attributes.keys() <= {"href", "src", "alt", "title"}
        for address in (attributes.get("href", ""), attributes.get("src", "")):
            assert ":" not in address or address.startswith("https://x")


def test_what_a_page_still_shows():
    text = (
        "**so** [here](../lesson.ipynb#x) $a<b$ `x<y`\n\n- 1\n\n<details><summary>Hint</summary>\n\nAdd.\n\n</details>"
    )
    page = markdown2html({}, text)
    for part in ("<strong>so</strong>", 'href="../lesson.ipynb#x"', "$a&lt;b$", "<code>x&lt;y</code>", "<summary>Hint"):
        assert part in page
    pasted = {"cell": {"attachments": {"a.png": {"image/png": "aGk="}}}}
    assert 'src="data:image/png;base64,aGk="' in markdown2html(pasted, "![a](attachment:a.png)")
