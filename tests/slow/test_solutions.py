"""Every lesson with its worked solutions in place of the stubs: each check passes, and nothing else changes.

This runs on one thread, where all notebooks must store the same texts and the same pictures.
"""

import re
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook
from notebook_rules import exercises

from tools import execute_notebooks
from tools.solve_lessons import solved
from vit_course import checks

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
LESSONS = sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))
STUDENT_EDITIONS = sorted(NOTEBOOKS.glob("assignments/release/*/*.ipynb"))


def run(notebook, **options):
    """Run a notebook where the lessons lie, and return it."""
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(NOTEBOOKS)}}, **options)
    try:
        client.execute()
    finally:
        if client.kc is not None:  # the kernel is a shared one, and goes on
            client.kc.stop_channels()
    return notebook


@pytest.fixture(scope="module")
def kernel():
    """One kernel for several short notebooks, which starts and imports torch once."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(NOTEBOOKS), extra_arguments=["--log-level=ERROR"])
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_worked_solutions_pass_their_checks(path):
    stored = nbformat.read(path, as_version=4)
    turns = list(exercises(stored))
    assert turns
    edition = run(solved(stored))
    execute_notebooks.normalize(edition, stored)
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
        if index not in touched and not execute_notebooks.same(old.get("outputs"), new.get("outputs"))
    ]
    tags = [stored.cells[index].metadata.get("tags", []) for index in changed]
    assert [index for index, kept in zip(changed, tags, strict=True) if "nbval-ignore-output" not in kept] == []


def test_a_wrong_answer_shows_a_short_message_and_no_page_of_traceback(kernel):
    wrong = "def my_patchify(images, patch_size):\n    return images.reshape(len(images), -1, 3 * patch_size**2)"
    sources = ["%reset -f", "from vit_course import checks", wrong, "checks.patchify(my_patchify)"]
    notebook = run(new_notebook(cells=list(map(new_code_cell, sources))), km=kernel, allow_errors=True)
    (output,) = notebook.cells[3].outputs
    assert output.output_type == "error"
    assert output.ename == checks.CheckFailed.__name__
    shown = "\n".join(output.traceback)
    assert len(shown.splitlines()) <= 6
    assert "File" not in shown
    assert "in line 2" in shown or "reshaped" in shown


@pytest.mark.parametrize("path", STUDENT_EDITIONS, ids=lambda path: path.stem)
def test_a_student_edition_stops_at_its_first_stub_and_says_what_to_do(path, kernel):
    notebook = nbformat.read(path, as_version=4)
    run(new_notebook(cells=[new_code_cell("%reset -f")]), km=kernel)
    with pytest.raises(CellExecutionError) as caught:
        run(notebook, km=kernel)
    assert caught.value.ename == checks.CheckFailed.__name__
    assert re.search(
        r"not written yet\. Put your code where it raises NotImplementedError, run that cell", caught.value.evalue
    )
    tests = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert any(output.output_type == "error" for output in tests[0].outputs)
