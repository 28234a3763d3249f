"""Rules for the notebooks, which close the holes that nbval leaves, and what prepares their outputs."""

import re
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from notebook_rules import RULES, exercises

from tools import execute_notebooks, solve_lessons
from tools.site_links import ROOT, lessons

ASSIGNMENTS = sorted((ROOT / "notebooks" / "assignments" / "source").glob("*/*.ipynb"))


@pytest.mark.parametrize("path", [*lessons(), *ASSIGNMENTS], ids=lambda path: path.stem)
def test_notebook_keeps_the_rules(path):
    notebook = nbformat.read(path, as_version=4)
    rules = RULES[:-1] if path in ASSIGNMENTS else RULES
    found = [line for rule in rules for line in rule(notebook, path)]
    assert not found, "\n".join(found)


def test_the_sources_of_the_assignments_find_the_grader(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    path = tmp_path / "source.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell("from grader import hidden\nhidden.__name__")]), path)
    notebook = execute_notebooks.execute(path)
    assert notebook.cells[0].outputs[0].data == {"text/plain": "'grader.hidden'"}


def test_the_solved_editions_differ_in_their_stubs_alone(tmp_path):
    solve_lessons.main(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"solved_{path.name}" for path in lessons()]
    for path in lessons():
        lesson, edition = (nbformat.read(one, as_version=4) for one in (path, tmp_path / f"solved_{path.name}"))
        turns = {turn.index + 1: turn.solution.rstrip() for turn in exercises(lesson)}
        sources = {index: cell.source for index, cell in enumerate(lesson.cells)}
        assert [cell.source for cell in edition.cells] == list((sources | turns).values())
        assert all(not edition.cells[index + step].outputs for index in turns for step in (0, 1))


def test_nbval_compares_stored_outputs(tmp_path):
    """The command of ``make test`` is green on a right output, red on a wrong one, and deaf to what it ignores."""
    cells = []
    for stored, tags in (("2\n", []), ("3\n", []), ("3\n", ["nbval-ignore-output"])):
        output = new_output("stream", name="stdout", text=stored)
        cells.append(new_code_cell("print(1 + 1)", metadata={"tags": tags}, execution_count=1, outputs=[output]))
    kernel = nbformat.from_dict(execute_notebooks.METADATA)
    nbformat.write(new_notebook(cells=cells, metadata=kernel), tmp_path / "one.ipynb")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = re.search(r"^NBVAL := (.*)$", makefile, flags=re.MULTILINE)[1].split()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "one.ipynb::Cell 1" in done.stdout


def test_an_output_that_varies_is_kept_until_its_code_changes():
    def run_again(source, text, stored=None):
        outputs = [new_output("stream", name="stdout", text=text)]
        cell = new_code_cell(source, id="a", metadata={"tags": [execute_notebooks.VARYING]}, outputs=outputs)
        notebook = new_notebook(cells=[cell])
        execute_notebooks.normalize(notebook, stored)
        return notebook

    stored = run_again("assert seconds < 9", "3 s")
    for threshold, text in (("9", "3 s"), ("8", "5 s")):
        notebook = run_again(f"assert seconds < {threshold}", "5 s", stored)
        assert notebook.cells[0].outputs[0].text == text


def test_a_progress_bar_leaves_its_last_line():
    pieces = [new_output("stream", name="stderr", text=text) for text in ("\r 10%", "\r 50%", "\r100%\n")]
    assert [piece.text for piece in execute_notebooks.merge_streams(pieces)] == ["100%\n"]
