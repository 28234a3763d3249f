"""A course of two small assignments, and submissions to it as students hand them in."""

import csv
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from grader.__main__ import main
from grader.gradebook import CLASS_SETTINGS
from grader.release import student_edition
from grader.source import Source
from tools.execute_notebooks import METADATA

TEST = """\
assert {name}(torch.ones(1)).shape == (1,)
### BEGIN HIDDEN TESTS
from grader import hidden

hidden.same_values({name}, lambda x: {value}, lambda: (hidden.normal(3),))
### END HIDDEN TESTS"""
ANSWER = "The square, as soon as $x>1$: its slope grows."
SOLUTION = {
    "double": 'def double(x):\n    """Return twice x."""\n    return x + x',
    "square": "def square(x):\n    return x**2",
    "experiment-answer": ANSWER,
}


def cell(id, text, **labels):
    """Return a code cell, or a text cell where the id says so."""
    new = new_markdown_cell if id.split("-")[-1] in ("title", "task", "answer", "closing") else new_code_cell
    made = new(text, id=id)
    if labels:
        ordinary = dict(grade=False, grade_id=id, locked=False, schema_version=3, solution=False, task=False)
        made.metadata["nbgrader"] = ordinary | labels
    return made


def assignment(number):
    """Return the source of one assignment: 3 and 5 points for code, 2 for a written answer."""
    body = "    ### BEGIN SOLUTION\n    return {}\n    ### END SOLUTION"
    answer = "### BEGIN SOLUTION\nThe square.\n\nRubric: 2 points.\n### END SOLUTION"
    cells = [
        cell("title", f"# Assignment {number} · Numbers"),
        cell("setup", "import torch\n\nfrom vit_course import checks", locked=True),
        cell("double-task", "## Task 1 · Double\n\nTwice.\n\n<details><summary>Hint 1</summary>\n\nAdd.\n\n</details>"),
        cell("double", 'def double(x):\n    """Return twice x."""\n' + body.format("2 * x"), solution=True),
        cell("double-test", TEST.format(name="double", value="2 * x"), grade=True, locked=True, points=3),
        cell("square-task", "## Task 2 · Square"),
        cell("square", "def square(x):\n" + body.format("x * x"), solution=True),
        cell("square-test", TEST.format(name="square", value="x * x"), grade=True, locked=True, points=5),
        cell("experiment-task", "## Experiment · Growth\n\nWhich grows faster? Give a reason."),
        cell("experiment-run", "print(double(torch.tensor(10.0)), square(torch.tensor(10.0)))", locked=True),
        cell("experiment-answer", answer, grade=True, solution=True, points=2),
        cell("closing", "## Hand in\n\nSave, and hand in."),
    ]
    return new_notebook(cells=cells, metadata=METADATA)


def write_class(folder: Path, course: Path) -> Path:
    """Make a class's folder with settings that name the small course."""
    folder.mkdir()
    settings = f"{CLASS_SETTINGS}c.CourseDirectory.source_directory = {str(course / 'source')!r}\n"
    (folder / "nbgrader_config.py").write_text(settings, encoding="utf-8")
    return folder


def handed_in(source: Source, *more: tuple, **changes):
    """Return the student edition with right answers.

    More cells are inserted one after the other, each with its place. Changes are texts by cell id, with ``_`` for
    ``-``; a cell whose text is None is gone.
    """
    notebook = student_edition(source)
    texts = SOLUTION | {id.replace("_", "-"): text for id, text in changes.items()}
    for each in notebook.cells:
        each.source = texts.get(each.id, each.source)
    notebook.cells = [each for each in notebook.cells if each.source is not None]
    for place, cell in more:
        notebook.cells.insert(place, cell)
    return notebook


def put(folder: Path, student: str, content, assignment: str = "assignment_01", name: str | None = None) -> Path:
    """Store what a student hands in: a notebook, text or bytes."""
    path = folder / "submitted" / student / assignment / (name or f"{assignment}.ipynb")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return path


def command(*words) -> CompletedProcess:
    """Run one of the teacher's commands in this process."""
    with redirect_stdout(io.StringIO()) as stdout, redirect_stderr(io.StringIO()) as stderr:
        returncode = main([str(word) for word in words])
    return CompletedProcess(words, returncode, stdout.getvalue(), stderr.getvalue())


def rows_of(folder: Path) -> dict[str, dict[str, str]]:
    """Return the rows of grades.csv by student."""
    assert command("grades", "--class", folder).returncode == 0
    with (folder / "grades.csv").open(encoding="utf-8", newline="") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}
