"""Every lesson with its worked solutions in place of the stubs: each check passes, and nothing else changes.

``make test-all`` runs this on one thread, where all notebooks must store the same texts and the same pictures.
"""

import re
from pathlib import Path

import execute
import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from notebook_rules import exercises
from solved import solved

from vit_course import checks

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def run(notebook, **options):
    """Run a notebook where the lessons lie, and return it."""
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(NOTEBOOKS)}}, **options)
    client.execute()
    return notebook


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_worked_solutions_pass_their_checks(path):
    stored = nbformat.read(path, as_version=4)
    edition = solved(stored)
    turns = list(exercises(stored))
    assert turns
    run(edition)
    execute.normalize(edition, stored)
    for turn in turns:
        (output,) = edition.cells[turn.index + 2].outputs
        said = output.data["text/plain"]
        assert "not written yet" not in said, turn.check
        assert "not repaired yet" not in said, turn.check
        assert ": " in said
    touched = {turn.index + step for turn in turns for step in (1, 2)}
    changed = [
        index
        for index, (old, new) in enumerate(zip(stored.cells, edition.cells, strict=True))
        if index not in touched and not execute.same(old.get("outputs"), new.get("outputs"))
    ]
    varying = [index for index in changed if "nbval-ignore-output" in stored.cells[index].metadata.get("tags", [])]
    assert [index for index in changed if index not in varying] == []


def test_a_wrong_answer_shows_a_short_message_and_no_page_of_traceback():
    code = nbformat.v4.new_code_cell
    wrong = code("def my_patchify(images, patch_size):\n    return images.reshape(len(images), -1, 3 * patch_size**2)")
    notebook = nbformat.v4.new_notebook(
        cells=[code("from vit_course import checks"), wrong, code("checks.patchify(my_patchify)")]
    )
    run(notebook, allow_errors=True)
    (output,) = notebook.cells[2].outputs
    assert output.output_type == "error"
    assert output.ename == checks.CheckFailed.__name__
    shown = "\n".join(output.traceback)
    assert len(shown.splitlines()) <= 6
    assert "File" not in shown
    assert "in line 2" in shown or "reshaped" in shown


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("assignments/source/*/*.ipynb")), ids=lambda path: path.stem)
def test_the_source_of_an_assignment_stores_the_same_again(path):
    assert execute.differences(*execute.execute(path)) == []


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("assignments/release/*/*.ipynb")), ids=lambda path: path.stem)
def test_a_student_edition_stops_at_its_first_stub_and_says_what_to_do(path):
    notebook = nbformat.read(path, as_version=4)
    with pytest.raises(CellExecutionError) as caught:
        run(notebook)
    assert caught.value.ename == checks.CheckFailed.__name__
    assert re.search(
        r"not written yet\. Put your code where it raises NotImplementedError, run that cell", caught.value.evalue
    )
    tests = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert any(output.output_type == "error" for output in tests[0].outputs)
