"""Whatever the reader and the course do to a lesson, every line that the reader wrote is in the copy or the history."""

import copy
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat import v4

from tools.my_course import Copies

LESSON = "03_lesson.ipynb"
KINDS = st.sampled_from(["change", "add", "delete", "move", "paste", "no ids"])
EDITS = st.lists(st.tuples(KINDS, st.integers(0, 9)), max_size=6)
ROUNDS = st.lists(st.tuples(EDITS, EDITS, st.booleans()), min_size=1, max_size=3)


def edit(notebook, edits, who):
    """Edit a notebook; each line that is added says who wrote it."""
    for number, (what, place) in enumerate(edits):
        cells = notebook.cells
        place %= len(cells) + 1
        line = f"{who} {number}"
        if what == "add":
            cells.insert(place, (v4.new_markdown_cell, v4.new_code_cell)[place % 2](line))
        elif what == "no ids" and who.startswith("reader"):  # some editors drop them
            notebook.nbformat_minor = 4
            for cell in cells:
                cell.pop("id", None)
        elif what == "change" and place < len(cells):
            cells[place].source += f"\n{line}"
        elif what == "delete" and place < len(cells):
            del cells[place]
        elif what == "move" and place < len(cells):
            cells.insert(len(cells) - place, cells.pop(place))
        elif what == "paste" and place < len(cells) and who.startswith("reader"):
            cells.append(copy.deepcopy(cells[place]))


def lines(notebook):
    return {line for cell in notebook.cells for line in cell.source.splitlines()}


@settings(max_examples=300, deadline=None)
@given(ROUNDS)
def test_no_line_of_the_readers_is_lost(rounds):
    with TemporaryDirectory() as folder:
        course = Path(folder)
        lesson_path, mine = course / "notebooks" / LESSON, course / "my_course" / LESSON
        lesson_path.parent.mkdir()
        lesson = v4.new_notebook(cells=[v4.new_code_cell(f"lesson {number}", id=f"id-{number}") for number in range(5)])
        lesson_path.write_text(v4.writes(lesson))
        copies = Copies(course)
        copies.update()
        for number, (readers, courses, base_is_lost) in enumerate(rounds):
            notebook = v4.reads(mine.read_text())
            edit(notebook, readers, f"reader {number}")
            written = {line for line in lines(notebook) if line.startswith("reader")}
            mine.write_text(v4.writes(notebook))
            before = lesson_path.read_text()
            edit(lesson, courses, f"course {number}")
            lesson_path.write_text(v4.writes(lesson))
            if base_is_lost:
                (course / "my_course" / ".base" / LESSON).unlink()
            copies.update()
            text = mine.read_text()
            merged = v4.reads(text)
            assert written <= lines(merged)
            # and what is new in the lesson is there, whatever the reader did to the cells around it
            assert {line for line in lines(lesson) if line.startswith(f"course {number} ")} <= lines(merged)
            if base_is_lost or lesson_path.read_text() != before:
                ids = [cell.id for cell in merged.cells]
                assert len(ids) == len(set(ids))
                nbformat.validate(merged)
            copies.update()
            assert mine.read_text() == text
