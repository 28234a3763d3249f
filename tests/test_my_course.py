"""The reader's copies: what a merge keeps, cell by cell, and what lies in the folder after an update."""

import copy
import re
import subprocess

import nbformat
import pytest
from nbformat import NotebookNode, v4

from tools import my_course
from tools.my_course import Copies, merge
from tools.site_links import ROOT

LESSON = "03_attention.ipynb"
STUB = "class Heads:\n    ..."
TASK = f"**Your turn** · 5 minutes · ●○○ Write it.\n\n```python\n{STUB}\n```"


def notebook(*cells):
    """Return a notebook of cells, each written as ``id:source``: ``-`` for no id, ``id!source`` for a newer version."""
    made = []
    for cell in cells:
        name, mark, source = re.fullmatch(r"(.*?)([:!])(.*)", cell, re.DOTALL).groups()
        kind = v4.new_markdown_cell if source.startswith("**") else v4.new_code_cell
        made.append(kind(source, id=name) if mark == ":" else my_course.newer(kind(source, id=name)))
        if name == "-":
            del made[-1]["id"]
    return NotebookNode(v4.new_notebook() | {"cells": made})


def told(one):
    """Return the cells of a notebook in the same form; ``?`` stands for an id that was drawn."""
    lines = []
    for cell in one.cells:
        shown = cell.source.removeprefix(my_course.NEWER).removeprefix("````python\n").removesuffix("\n````")
        name, is_newer = re.sub(r"^\w{2,}$", "?", cell.id), my_course.NEWER in cell.source
        lines.append(f"{name.removesuffix('-newer')}!{shown}" if is_newer else f"{name}:{cell.source}")
    return lines


# the lesson as it was copied, the reader's copy, the lesson now, and the merged copy
MERGES = {
    "the course changed a cell": ("a:1 b:2", "a:1 b:2", "a:1 b:9", "a:1 b:9"),
    "different cells": ("a:1 b:2", "a:mine b:2", "a:1 b:9", "a:mine b:9"),
    "the same cell": ("a:1 b:2", "a:mine b:2", "a:9 b:2", "a:mine a!9 b:2"),
    "the same cell, again": ("a:9", "a:mine a!9 x:own", "a:99", "a:mine a!99 x:own"),
    "the reader took what the course changed": ("a:9", "a:9 a!9 x:own", "a:9", "a:9 x:own"),
    "the reader went back": ("a:9", "a:9 a!9", "a:99", "a:99"),
    "cells of the reader's": ("a:1 b:2", "v:own a:1 x:own y:own b:2", "a:1 b:9", "v:own a:1 x:own y:own b:9"),
    "a deleted cell that the reader changed": ("a:1 b:2 c:3", "a:1 b:mine c:3", "a:1 c:9", "a:1 b:mine c:9"),
    "all cells deleted": ("a:1 b:2", "a:1 b:mine x:own", "n:1", "b:mine x:own n:1"),
    "the course moved a cell": ("a:1 b:2 c:3", "a:1 b:mine x:own c:3", "c:3 a:1 b:2", "c:3 a:1 b:mine x:own"),
    "the reader deleted what the course changed": ("a:1 b:2", "a:1", "a:1 b:9", "a:1 b:9"),
    "the base is lost": ("", "a:1 b:mine x:own", "a:1 b:2", "a:1 b:mine b!2 x:own"),
    "an editor dropped the ids": ("a:1 b:2", "-:1 -:mine -:2", "a:1 b:9", "a:1 ?:mine b:9"),
    "a cell was pasted with its id": ("a:1 b:2", "a:1 a:own b:2", "a:1 b:9", "a:1 ?:own b:9"),
}


@pytest.mark.parametrize("case", MERGES)
def test_a_merge_keeps_what_each_side_changed(case):
    *three, expected = [each.split() for each in MERGES[case]]
    base, mine, new = (notebook(*each) for each in three)
    merged = merge(base, mine, new)
    assert told(merged) == expected
    nbformat.validate(merged)
    assert told(merge(new, copy.deepcopy(merged), new)) == expected  # once more
    assert told(merge(base, copy.deepcopy(merged), new)) == expected  # the copy was written and its base was not


def test_outputs_and_metadata_are_no_changes_and_the_readers_outputs_stay():
    base = notebook("a:1", "b:2", "c:3")
    new, mine = copy.deepcopy(base), copy.deepcopy(base)
    mine.metadata = {"language_info": {"name": "python", "version": "3.13.1"}, "kernelspec": {"name": "mine"}}
    for cell in mine.cells:
        cell.metadata = {"collapsed": False}
    for one, outputs in ((mine, ["mine", "mine", ""]), (new, ["new", "new", "new"])):
        for cell, text in zip(one.cells, outputs, strict=True):
            cell.outputs = [v4.new_output("stream", text=text)] if text else []
    new.cells[1].source = "9"
    merged = merge(base, mine, new)
    assert [cell.outputs[0].text for cell in merged.cells] == ["mine", "new", "new"]
    assert told(merged) == ["a:1", "b:9", "c:3"]
    assert merged.metadata == mine.metadata


@pytest.fixture
def course(tmp_path):
    """A course with a lesson and an assignment."""
    release(tmp_path, "a:1", "b:2")
    write(tmp_path / "notebooks/assignments/release/assignment_01/assignment_01.ipynb", notebook("a:1"))
    assert Copies(tmp_path).update() == []
    return tmp_path


def write(path, one):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(v4.writes(one) + "\n", encoding="utf-8")
    return path.read_bytes()


def release(course, *cells):
    """Put a version of the lesson into the course."""
    write(course / "notebooks" / LESSON, notebook(*cells))


def work(course, *cells):
    """Put into the copy what the reader has made of it, and return its bytes."""
    return write(course / "my_course" / LESSON, notebook(*cells))


def copied(course):
    """Return the copy, which Jupyter can open, as ``id:source``."""
    one = nbformat.read(course / "my_course" / LESSON, as_version=4)
    nbformat.validate(one)
    return told(one)


def history(course):
    return [path.read_bytes() for path in sorted((course / "my_course" / "history").glob("*"))]


def test_a_copy_does_not_show_what_the_reader_is_to_predict(course):
    """Neither an untouched copy that becomes the newest lesson nor one that starts over."""
    lesson = notebook("a:1", "b:9")
    for cell in lesson.cells:
        cell.outputs, cell.execution_count = [v4.new_output("stream", text="the answer")], 1
    write(course / "notebooks" / LESSON, lesson)
    (line,) = Copies(course).update()
    assert line == f"{LESSON} is the newest version now. {my_course.RELOAD}"
    assert copied(course) == ["a:1", "b:9"]
    assert history(course) == []
    copy_ = (course / "my_course" / LESSON).read_text(encoding="utf-8")
    assert "the answer" not in copy_
    assert Copies(course).update() == []
    before = work(course, "a:mine")
    line = Copies(course).fresh("3")
    assert line.startswith(f"{LESSON} starts over. The copy as it was: my_course/history/03_attention_")
    assert (course / "my_course" / LESSON).read_text(encoding="utf-8") == copy_
    assert history(course) == [before]


def test_a_copy_that_was_worked_in_is_merged_and_put_into_the_history(course):
    before = work(course, "a:mine", "x:own", "b:2")
    release(course, "a:9", "b:9")
    (line,) = Copies(course).update()
    assert re.search(r"with all that you wrote\. The copy as it was: my_course/history/03_attention_\d+-.*Reload", line)
    assert copied(course) == ["a:mine", "a!9", "x:own", "b:9"]
    assert history(course) == [before]
    release(course, "a:9", "b:10")
    Copies(course).update()
    assert copied(course) == ["a:mine", "a!9", "x:own", "b:10"]
    assert len(history(course)) == 2


@pytest.mark.parametrize("broken", ["", "<<<<<<< HEAD\n{}", '{"cells": [{"source": 3}]}', "[" * 100_000])
def test_a_copy_that_is_no_notebook_is_kept_and_replaced(course, broken):
    (course / "my_course" / LESSON).write_text(broken, encoding="utf-8")
    (line,) = Copies(course).update()
    assert line.startswith(f"{LESSON} could not be read as a notebook, so you have a new copy. The copy as it was: my_")
    assert copied(course) == ["a:1", "b:2"]
    assert history(course) == [broken.encode()]


def test_the_copy_of_a_lesson_that_is_gone_is_in_the_history(course):
    work(course, "a:mine")
    (course / "notebooks" / LESSON).unlink()
    (line,) = Copies(course).update()
    assert line.startswith(f"{LESSON} is no longer part of the course. The copy as it was: my_course/history/03_att")
    assert not (course / "my_course" / LESSON).exists()
    assert b"mine" in history(course)[0]
    assert Copies(course).update() == []


def test_an_exercise_starts_over_and_everything_else_stays(course):
    cells = [f"a:{TASK}", f"b:{STUB}", "c:keep(Heads)"]
    release(course, *cells)
    Copies(course).update()
    work(course, "v:own", cells[0], "b:class Heads:\n    mine", "b!9", "x:own", "c:mine(Heads)")
    line = Copies(course).fresh("03", "Heads")
    assert line.startswith("Heads starts over. The copy as it was: my_course/history/03_attention_")
    assert copied(course) == ["v:own", cells[0], cells[1], "x:own", "c:mine(Heads)"]
    assert b"    mine" in history(course)[-1]
    work(course, cells[0], "x:own", "c:keep(Heads)")  # the stub was deleted
    Copies(course).fresh("03", "Heads")
    assert copied(course) == [cells[0], "x:own", cells[1], cells[2]]


NOWHERE = [
    (["", ""], r"LESSON must be one of 00_start_here, 03_attention, assignment_01; got ''"),
    (["04", ""], r"LESSON must be one of .*; got '04'"),
    (["03", "Tails"], r"EXERCISE must be one of none in 03_attention\.ipynb; got 'Tails'"),
]


@pytest.mark.parametrize(("words", "says"), NOWHERE)
def test_what_does_not_exist_cannot_start_over(course, words, says):
    write(course / "notebooks" / "00_start_here.ipynb", notebook("a:1"))  # which no LESSON at all does not mean
    with pytest.raises(SystemExit, match=says):
        Copies(course).fresh(*words)
    assert history(course) == []


def git(folder, *words):
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", "-C", str(folder), *names, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clone(tmp_path):
    """A reader's clone of a course that then gets a newer lesson."""
    origin = tmp_path / "origin"
    release(origin, "a:1", "b:2")
    (origin / ".gitignore").write_text((ROOT / ".gitignore").read_text(encoding="utf-8"))
    git(origin, "init")
    git(origin, "add", ".")
    git(origin, "commit", "-m", "first")
    git(tmp_path, "clone", str(origin), "clone")
    Copies(tmp_path / "clone").update()
    release(origin, "a:1", "b:9")
    git(origin, "commit", "-am", "second")
    return tmp_path / "clone"


def test_the_newest_course_comes_and_the_readers_work_stays(clone):
    work(clone, "a:mine", "b:2")
    for folder in ("notebooks", "my_course"):
        (clone / folder / "my_vit.py").write_text("mine")
        (clone / folder / ".my_vit").mkdir()
        (clone / folder / ".my_vit" / "1.py").write_text("mine")
    assert git(clone, "status", "--porcelain") == ""
    assert "Fast-forward" in my_course.pull(clone)
    Copies(clone).update()
    assert copied(clone) == ["a:mine", "b:9"]
    assert my_course.pull(clone) == "Already up to date."


def test_a_pull_that_is_not_possible_says_why_in_a_line(clone, tmp_path, monkeypatch):
    release(clone, "a:mine", "b:mine")
    with pytest.raises(SystemExit, match=rf"You have changed notebooks/{LESSON}, and so does the newest .* git stash"):
        my_course.pull(clone)
    assert "mine" in (clone / "notebooks" / LESSON).read_text()
    git(clone, "commit", "-aqm", "mine")
    with pytest.raises(SystemExit, match=r"You have commits of your own, .* git pull --rebase"):
        my_course.pull(clone)
    git(clone, "remote", "set-url", "origin", "https://no-such-host.invalid/course")
    with pytest.raises(SystemExit, match="cannot be reached: is there a network"):
        my_course.pull(clone)
    git(clone, "remote", "remove", "origin")
    with pytest.raises(SystemExit, match="git pull failed: "):
        my_course.pull(clone)
    (tmp_path / "unpacked").mkdir()
    with pytest.raises(SystemExit, match="is not a git clone"):
        my_course.pull(tmp_path / "unpacked")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="is not a git clone"):
        my_course.pull(clone)
