"""The worked solutions of every lesson pass their checks; a wrong answer and an empty one say what to do."""

import ast
import re
import symtable
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell, new_notebook
from notebook_rules import exercises

from tools.site_links import lessons
from tools.solve_lessons import solved
from vit_course import checks

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
RUN_WHOLE = {f"{number:02}" for number in range(10)}  # with every solution, by tests/lessons
LESSONS = [path for path in lessons() if path.name[:2] not in RUN_WHOLE]
STUDENT_EDITIONS = sorted(NOTEBOOKS.glob("assignments/release/*/*.ipynb"))


def used(table: symtable.SymbolTable) -> set[str]:
    """Return the names of the notebook that a cell, or a function in it, reads."""
    cell = table.get_type() == "module"
    names = {each.get_name() for each in table.get_symbols() if each.is_referenced() and (cell or each.is_global())}
    return names.union(*map(used, table.get_children()))


def bound(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a cell defines for others."""
    return {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}


@pytest.mark.filterwarnings("ignore")  # nbval compares what cells print
@pytest.mark.usefixtures("as_readers_run_it")
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_worked_solutions_pass_their_checks(path, monkeypatch, tmp_path):
    """Only the solutions, the checks and what these two need are run; nbval runs everything else."""
    monkeypatch.chdir(tmp_path)
    lesson = nbformat.read(path, as_version=4)
    sources = {index: cell.source for index, cell in enumerate(solved(lesson).cells) if cell.cell_type == "code"}
    turns = list(exercises(lesson))
    assert turns
    checked = {turn.index + 2 for turn in turns}
    wanted, needed = set(), []
    for index in reversed(sources):
        table = symtable.symtable(sources[index], "cell", "exec")
        if index in checked or bound(table) & wanted:
            wanted |= used(table)
            needed.insert(0, index)
    namespace = {"__name__": "__main__"}
    for index in needed:
        if index not in checked:
            exec(compile(sources[index], f"{path.stem} cell {index}", "exec"), namespace)
            continue
        *before, last = ast.parse(sources[index]).body
        exec(compile(ast.Module(before, []), "check", "exec"), namespace)
        said = repr(eval(compile(ast.Expression(last.value), "check", "eval"), namespace))
        assert ": " in said
        assert "not written yet" not in said, sources[index]
        assert "not repaired yet" not in said, sources[index]


@pytest.fixture(scope="module")
def kernel():
    """One kernel for several short notebooks, which starts and imports torch once."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(NOTEBOOKS), extra_arguments=["--log-level=ERROR"])
    yield manager
    manager.shutdown_kernel(now=True)


def run(notebook, kernel, **options):
    """Run a notebook where the lessons lie, after forgetting the one before, and return it."""
    for each in (new_notebook(cells=[new_code_cell("%reset -f")]), notebook):
        client = NotebookClient(each, km=kernel, timeout=600, **options)
        try:
            client.execute()
        finally:
            client.kc.stop_channels()  # the kernel goes on
    return notebook


def test_a_wrong_answer_shows_a_short_message_and_no_page_of_traceback(kernel):
    wrong = "def my_patchify(images, patch_size):\n    return images.reshape(len(images), -1, 3 * patch_size**2)"
    sources = ["from vit_course import checks", wrong, "checks.patchify(my_patchify)"]
    notebook = run(new_notebook(cells=list(map(new_code_cell, sources))), kernel, allow_errors=True)
    (output,) = notebook.cells[2].outputs
    assert output.output_type == "error"
    assert output.ename == checks.CheckFailed.__name__
    shown = "\n".join(output.traceback)
    assert len(shown.splitlines()) <= 6
    assert "File" not in shown
    assert "patchify: The values are the right ones, but in other places." in shown


@pytest.mark.parametrize("path", STUDENT_EDITIONS, ids=lambda path: path.stem)
def test_a_student_edition_stops_at_its_first_stub_and_says_what_to_do(path, kernel):
    notebook = nbformat.read(path, as_version=4)
    with pytest.raises(CellExecutionError) as caught:
        run(notebook, kernel)
    assert caught.value.ename == checks.CheckFailed.__name__
    message = r"not written yet\. Put your code where it raises NotImplementedError, run that cell"
    assert re.search(message, caught.value.evalue)
    tests = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
    assert any(output.output_type == "error" for output in tests[0].outputs)
