"""Downloads of learning-management systems and the roster: what is placed, and a line for everything that is not."""

import io
import os
import shutil
import unicodedata
import zipfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from course import write_class
from hypothesis import given, settings
from hypothesis import strategies as st

from grader import collect as module
from grader.collect import collect
from grader.files import Stop
from grader.gradebook import ClassFolder
from grader.roster import Student, is_student_id, read_roster

ASSIGNMENTS = [f"assignment_0{number}" for number in range(1, 8)]
ROSTER = "id,first_name,last_name\nada,Ada,Lovelace\nal,Alan,Turing\nhong,길동,홍\nkim,민수,김\n"


def zipped(files, method=zipfile.ZIP_DEFLATED):
    """Return a zip file with texts or bytes by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path, course):
    root = write_class(tmp_path / "class", course)
    (root / "students.csv").write_text(ROSTER, encoding="utf-8")
    return ClassFolder(root)


def collected(folder, content, **options):
    """Collect a folder, or a zip file given as bytes or by its files.

    Returns what was placed as "student number", and the lines.
    """
    download = content if isinstance(content, Path) else folder.root.parent / "download.zip"
    if download != content:
        download.write_bytes(zipped(content) if isinstance(content, dict) else content)
    placed, lines = collect(download, folder, ASSIGNMENTS, **options)
    return sorted(f"{each.student} {each.assignment[-1]}" for each in placed), lines


def submitted(folder):
    """Return every file that was collected, with its text."""
    top = folder.root / "submitted"
    return {path.relative_to(top).as_posix(): path.read_text() for path in top.rglob("*") if path.is_file()}


# The names of files

FORGED = "ada_attempt_2030-01-01-00-00-00_assignment_01.ipynb"  # a file's own name is its author's choice


@pytest.mark.parametrize(
    ("name", "whose"),
    [
        ("ada_assignment_01.ipynb", "ada 1"),
        ("ADA_Assignment_01.ipynb", "ada 1"),
        ("ada_assignment-2 (1).ipynb", "ada 2"),
        ("my_downloads/ada_assignment_01.ipynb", "ada 1"),
        ("week 2/download/Ada Lovelace_123_assignsubmission_file_/assignment_03.ipynb", "ada 3"),
        ("lovelaceada_12345_67_assignment_02-3.ipynb", "ada 2"),  # Canvas
        ("turingalan_LATE_12345_67_assignment_01.ipynb", "al 1"),
        ("Ada Lovelace_123_assignsubmission_file_/Assignment_03.ipynb", "ada 3"),  # Moodle, in folders
        ("Alan Turing_9_assignsubmission_file_assignment_03.ipynb", "al 3"),  # Moodle, without
        ("Assignment 4_al_attempt_2026-03-01-10-20-30_assignment_04.ipynb", "al 4"),  # Blackboard
        ("assignment_01_ada_attempt_2026-03-01-10-20-30_my assignment 1.ipynb", "ada 1"),
        ("홍길동_1_2_assignment_05.ipynb", "hong 5"),
        (unicodedata.normalize("NFD", "홍길동_1_2_assignment_05.ipynb"), "hong 5"),  # macOS
        ("ada_1\\assignment_06.ipynb", "ada 6"),
        (f"turingalan_3_4_{FORGED}", "al 1"),
        (f"Alan Turing_2_assignsubmission_file_/x_{FORGED}", "al 1"),
        (f"Assignment 1_al_attempt_2026-03-01-10-20-30_{FORGED}", "al 1"),
    ],
)
def test_names_of_files_say_whose_they_are(folder, name, whose):
    assert collected(folder, {name: "1"}) == ([whose], [])


@pytest.mark.parametrize("encoding", ["cp949", "utf-8"])
@pytest.mark.parametrize("name", ["홍길동", "김민수", "길동 홍"])
def test_names_that_are_not_marked_as_unicode(folder, encoding, name):
    raw = name.encode(encoding)
    content = zipped({f"{'A' * len(raw)}_assignment_01.ipynb": "1"}).replace(b"A" * len(raw), raw)
    assert collected(folder, content) == (["kim 1" if name == "김민수" else "hong 1"], [])


def test_without_a_roster_the_name_is_the_id(folder):
    """That which a system wrote into the file's name, and else the first word of it."""
    (folder.root / "students.csv").unlink()
    names = {
        "ada_1_2_assignment_01.ipynb": "ada 1",
        f"al_3_4_{FORGED}": "al 1",
        f"Assignment 1_bo_attempt_2026-03-01-10-20-30_{FORGED}": "bo 1",
        "s1234_assignment_01.ipynb": "s1234 1",
        "u_1_assignment_01.ipynb": "u_1 1",
        unicodedata.normalize("NFD", "é_assignment_02.ipynb"): "é 2",
    }
    placed, (line,) = collected(folder, dict.fromkeys([*names, "+_assignment_01.ipynb"], "1"))
    assert placed == [*names.values()]
    assert "there is no student '+'. " in line


def test_a_login_name_may_have_an_underscore(folder):
    files = {"max_mueller_assignment_01.ipynb": "1", "max_m_assignment_01.ipynb": "2", "max_mueller_my_vit.py": "3"}
    files |= {"week_1/ada_assignment_01.ipynb": "4"}
    everybody = ["ada 1", "max_m 1", "max_mueller 1"]
    attempt = "Ex 1_max_m_attempt_2026-03-01-10-20-30_assignment_02.ipynb"
    (folder.root / "students.csv").write_text("id\nmax_mueller\nmax_m\nmax\nada\n")
    assert collected(folder, files | {attempt: "5"}) == (["ada 1", "max_m 1", "max_m 2", "max_mueller 1"], [])
    (folder.root / "students.csv").unlink()
    assert submitted(folder)["max_mueller/assignment_01/my_vit.py"] == "3"
    shutil.rmtree(folder.root / "submitted")
    assert collected(ClassFolder(folder.root), files) == (everybody, [])


def test_two_students_of_one_name_are_not_chosen_from(folder):
    (folder.root / "students.csv").write_text("id,first_name,last_name\na1,Ada,Lovelace\na2,Ada,Lovelace\n")
    moodle = "Ada Lovelace_1_assignsubmission_file_/assignment_01.ipynb"
    placed, (line,) = collected(folder, {moodle: "1", "a2_assignment_01.ipynb": "2"})
    assert placed == ["a2 1"]
    assert line.endswith("'Ada Lovelace' is the name of a1 and of a2. Place it by hand.")


def test_a_pattern_of_ones_own(folder):
    pattern = r"hw/(?P<assignment>\w+)/by-(?P<student>\w+)\.ipynb"
    assert collected(folder, {"hw/assignment_02/by-ada.ipynb": "1"}, pattern=pattern) == (["ada 2"], [])


# What is in the download


def test_archives_in_archives_and_folders(folder, tmp_path):
    inner = zipped({"assignment_01.ipynb": "1", "__MACOSX/._assignment_01.ipynb": "x", ".DS_Store": "x"})
    assert collected(folder, {"Ada Lovelace_1_file_/work.ZIP": zipped({"1.zip": inner})}) == (["ada 1"], [])
    assert submitted(folder) == {"ada/assignment_01/assignment_01.ipynb": "1"}
    download = tmp_path / "downloads"
    download.mkdir()
    (download / "week 2.zip").write_bytes(zipped({"al_assignment_02.ipynb": "2"}))
    os.symlink("/etc/hostname", download / "al_assignment_01.ipynb")
    assert collected(folder, download) == (["al 2"], ["al_assignment_01.ipynb: left out; it is a link."])


HIS = "al_assignment_02.ipynb"


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ("nobody_assignment_01.ipynb", "there is no student 'nobody' in students.csv. Place it by hand."),
        ("adda_assignment_01.ipynb", "the nearest is 'ada'. Place"),
        ("аda_assignment_01.ipynb", "the nearest is 'ada' ('а' is CYRILLIC SMALL LETTER A). Place"),
        ("홍길둥_assignment_01.ipynb", "the nearest is '홍 길동' ('동' is HANGUL SYLLABLE DONG, '둥' is HANGUL SYLL"),
        ("ada_assignment_09.ipynb", "the course has no assignment_09"),
        ("ada_assignment_01.docx", "left out; it is not a notebook."),
        ("assignment_01.ipynb", "does not say whose it is"),
        # who is not on the roster cannot hand in for somebody who is
        ("Mal Lory_1_assignsubmission_file_/al_assignment_01.ipynb", "there is no student 'Mal Lory' in"),
        (f"mallory_1_2_{FORGED}", "there is no student 'mallory' in"),
        ("Ex 1_mal_attempt_2026-01-01-00-00-00/al_assignment_01.ipynb", "there is no student 'Ex 1_mal' in"),
        # what cannot be read, is too large, or misleads
        ({"al_1.zip": b"PK\x03\x04 not a zip file"}, "al_1.zip: left out; File is not a zip file."),
        ({HIS: "x" * 10_100}, f"{HIS}: left out; {HIS} holds more than 0.01 MB."),
        ({"al_1.zip": zipped({"a.zip": zipped({HIS: "x" * 9900})})}, f"{HIS}: left out; al_1.zip holds more than 0.01"),
        ({"al_1.zip": zipped({HIS: "1"}, zipfile.ZIP_BZIP2)}, "al_1.zip: left out; it is compressed in an unusual"),
        # many archives, each of which is small enough, cannot fill the memory
        ({f"al_{n}.zip": zipped({".a": os.urandom(9000)}) for n in range(3)}, "al_2.zip: left out; the download holds"),
        ({"al_1.zip": zipped({str(n): "" for n in range(61)})}, "al_1.zip: left out; it holds more than 60 files."),
        ({"a/" * 250 + HIS: "1"}, f"{HIS}: left out; its name has more than 500 letters."),
        ({HIS: "1", "al_2_assignment_02.ipynb": "2"}, "different files of al for assignment_02."),
        ({"kim/kim_my_vit.py": "1"}, "collected, copy it to submitted/kim/ASSIGNMENT/my_vit.py."),
    ],
)
def test_what_is_left_out_stops_nothing_else(folder, monkeypatch, files, line):
    for limit, value in dict(MEGABYTES=0.01, MEGABYTES_IN_ALL=0.02, MEMBERS=60).items():
        monkeypatch.setattr(module, limit, value)
    files = {files: "1"} if isinstance(files, str) else files
    placed, (said,) = collected(folder, {"ada_assignment_01.ipynb": "1"} | files)
    assert placed == ["ada 1"]
    assert line in said
    assert any(name in said for name in files)


@pytest.mark.parametrize("around", ["", "/", "../", "..\\", "./a/", "a\nb/"])
def test_a_name_in_an_archive_hides_nothing_that_a_system_wrote(folder, around):
    assert collected(folder, {"turingalan_3_4_x.zip": zipped({around + FORGED: "1"})}) == (["al 1"], [])
    assert submitted(folder) == {"al/assignment_01/assignment_01.ipynb": "1"}


def test_two_files_of_one_name_are_not_chosen_from(folder):
    archive = zipped({"ada_assignment_01.ipynb": "1", "ada_assignment_02.ipynb": "other"})
    placed, (line,) = collected(folder, archive.replace(b"ada_assignment_02", b"ada_assignment_01"))
    assert placed == []
    assert "different files of ada for assignment_01." in line


@settings(max_examples=40, deadline=None)
@given(content=st.binary(max_size=400), cut=st.integers(0, 700), flips=st.lists(st.integers(0, 700), max_size=6))
def test_a_damaged_download_stops_nothing_and_harms_nobody(content, cut, flips):
    """Other students' notebooks, and what lies around the class, stay as they are."""
    with TemporaryDirectory() as temporary:
        root = Path(temporary, "class")
        there = root / "submitted" / "al" / "assignment_01" / "assignment_01.ipynb"
        there.parent.mkdir(parents=True)
        there.write_text("old")
        inner = bytearray(zipped({"assignment_02.ipynb": content, "../../x": "x"})[:cut])
        for flip in flips:
            inner[flip % max(1, len(inner)) : flip % max(1, len(inner)) + 1] = b"\xff"
        files = {"ada_1.zip": bytes(inner), "ada_assignment_01.ipynb": "1", "al_assignment_01.ipynb": content}
        placed, lines = collected(ClassFolder(root), files)
        assert {"ada 1"} <= set(placed) <= {"ada 1", "ada 2"}
        assert any("al has handed in another assignment_01" in line for line in lines)
        assert there.read_text() == "old"
        assert {path.name for path in Path(temporary).iterdir()} == {"class", "download.zip"}
        outer = bytearray(zipped(files))
        for flip in flips:
            outer[flip % len(outer)] ^= 0xFF
        with suppress(Stop):
            collected(ClassFolder(root), bytes(outer))
        assert there.read_text() == "old"


def test_a_download_that_is_none(folder, tmp_path, monkeypatch):
    with pytest.raises(Stop, match="neither a folder nor a zip file"):
        collect(tmp_path / "missing.zip", folder, ASSIGNMENTS)
    monkeypatch.setattr(module, "MEMBERS", 5)
    with pytest.raises(Stop, match="holds more than 5 files"):
        collected(folder, {f"{number}_assignment_01.ipynb": "" for number in range(6)})
    for pattern, cause in {r"(\w+)": "needs the groups", "(": "not a regular expression"}.items():
        with pytest.raises(Stop, match=cause):
            collect(tmp_path, folder, ASSIGNMENTS, pattern)


def test_a_my_vit_goes_with_the_notebook_next_to_it(folder):
    files = {"Ada Lovelace_1_file_/assignment_05.ipynb": "1", "Ada Lovelace_1_file_/my_vit.py": "Ada's"}
    files |= {"turingalan_2_3_assignment_05.ipynb": "2", "turingalan_2_4_my_vit-1.py": "Alan's"}
    assert collected(folder, files) == (["ada 5", "al 5"], [])
    assert submitted(folder)["ada/assignment_05/my_vit.py"] == "Ada's"
    assert submitted(folder)["al/assignment_05/my_vit.py"] == "Alan's"
    assert collected(folder, files) == ([], [])  # the same once more is nothing new
    _, (line,) = collected(folder, files | {"turingalan_2_5_my_vit-2.py": "Alan's last"}, replace=True)
    assert line.startswith("turingalan_2_4_my_vit-1.py: left out; turingalan_2_5_my_vit-2.py came with it")
    assert submitted(folder)["al/assignment_05/my_vit.py"] == "Alan's last"


def test_a_my_vit_that_comes_after_its_notebook(folder):
    """It changes nothing that was collected, and a line says what to do."""
    notebook = {"Ada Lovelace_1_file_/assignment_05.ipynb": "1"}
    own = "Ada Lovelace_1_file_/my_vit.py"
    line = (
        f"{own}: assignment_05 was collected without this file. If it is to count, copy it to "
        "submitted/ada/assignment_05/my_vit.py, or collect again with OPTIONS=--replace."
    )
    assert collected(folder, notebook) == (["ada 5"], [])
    assert collected(folder, notebook | {own: "first"}) == ([], [line])
    assert collected(folder, notebook | {own: "first"}, replace=True) == (["ada 5"], [])
    assert collected(folder, notebook | {own: "second"}) == ([], [line])
    assert submitted(folder)["ada/assignment_05/my_vit.py"] == "first"


def test_a_my_vit_of_an_earlier_attempt(folder):
    name = "Assignment 5_ada_attempt_2026-03-0{}-10-20-30_{}"
    own = name.format(1, "my_vit.py")
    files = {name.format(day, "assignment_05.ipynb"): "the same" for day in (1, 2)}
    placed, (line,) = collected(folder, files | {own: "1"})
    assert placed == ["ada 5"]
    assert line.startswith(f"{own}: assignment_05 was collected without this file.")


# What was collected before


def test_nothing_is_overwritten(folder):
    assert collected(folder, {"ada_assignment_01.ipynb": "old"}) == (["ada 1"], [])
    assert collected(folder, {"ada_assignment_01.ipynb": "old"}) == ([], [])  # the same once more is nothing new
    placed, lines = collected(folder, {"ada_LATE_1_assignment_01.ipynb": "new"})
    assert (placed, submitted(folder)) == ([], {"ada/assignment_01/assignment_01.ipynb": "old"})
    assert "ada has handed in another assignment_01 before, which stays" in lines[0]
    assert "late work, collect again with OPTIONS=--replace" in lines[0]
    assert collected(folder, {"ada_LATE_1_assignment_01.ipynb": "new"}, replace=True) == (["ada 1"], [])
    late = {"ada/assignment_01/late.txt": "Canvas marked it as late.\n"}
    assert submitted(folder) == {"ada/assignment_01/assignment_01.ipynb": "new"} | late


def test_the_last_attempt_counts(folder):
    name = "Assignment 1_ada_attempt_2026-03-0{}-10-20-30{}"
    files = {name.format(day, "_assignment_01.ipynb"): str(day) for day in (2, 3, 1)}
    placed, lines = collected(folder, files | {name.format(3, ".txt"): "Name: Ada"})
    assert placed == ["ada 1"]
    assert [line.split(":")[0] for line in lines] == [name.format(day, "_assignment_01.ipynb") for day in (1, 2)]
    timestamp = {"ada/assignment_01/timestamp.txt": "2026-03-03 10:20:30"}
    assert submitted(folder) == {"ada/assignment_01/assignment_01.ipynb": "3"} | timestamp


# The roster


def test_the_roster_is_read(tmp_path):
    path = tmp_path / "students.csv"
    assert read_roster(path) == {}
    text = "\ufeffid,last_name,first_name,email,group\nada,Lovelace,Ada,ada@example.org,1\n,,,,\ne\u0301.1@x-y\n"
    path.write_text(text, encoding="utf-8")
    ada = Student("ada", "Ada", "Lovelace", "ada@example.org")
    assert read_roster(path) == {"ada": ada, "é.1@x-y": Student("é.1@x-y")}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "has no column id"),
        ("name,email\nada,x\n", "has no column id"),
        ("id\nada\nada\n", "line 3: 'ada' appears twice"),
        ("id\n../x\n", "line 2: '../x' is not a student id"),
        ("id,email\n,x@example.org\n", "line 2: '' is not a student id"),
        ("id\n\udce9\n", "not UTF-8 text"),
    ],
)
def test_a_roster_that_cannot_be_used(tmp_path, text, cause):
    path = tmp_path / "students.csv"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(Stop, match=cause):
        read_roster(path)


@pytest.mark.parametrize(
    "id", ["", ".", "..", ".git", "-rf", "a/b", "a+b", "*", "[a]", "a\nb", " a", "a ", "a" * 101, "a\udce9"]
)
def test_what_is_no_student_id(id):
    assert not is_student_id(id)
