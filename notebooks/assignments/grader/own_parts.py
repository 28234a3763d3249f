"""A my_vit.py next to the notebook: its parts are used where an assignment takes one and the part is right.

The file is read here and runs in the sandbox only, like every cell. Each part must pass its hidden test first; where it
does not, the course's version takes its place, so that an earlier mistake costs no points, and a note says so.
"""

import re
from collections.abc import Callable, Collection
from pathlib import Path

from grader import hidden
from grader.intake import Unreadable, read_bytes
from grader.sandbox import HiddenTest

FILE = "my_vit.py"
INSTEAD = "the course's version was used instead"


def read(folder: Path) -> tuple[str, list[str]]:
    """Return the text of the file in a student's folder, empty if there is none, and a note if it cannot be read."""
    path = folder / FILE
    if not path.exists() and not path.is_symlink():
        return "", []
    try:
        return read_bytes(path).decode("utf-8-sig"), []
    except UnicodeDecodeError:
        problem = "the file is not UTF-8 text."
    except Unreadable as unreadable:
        problem = str(unreadable)
    return "", [f"{FILE} was left out: {problem}"]


def first_cells(text: str, modules: Collection[str], grade: Callable) -> tuple[list[tuple[int, str]], list[str]]:
    """Return the cell that gives a submission its own parts, if it has any, and a note for each part that is wrong.

    Args:
        text: of the file.
        modules: what the assignment takes from the course, by name.
        grade: runs cells and hidden tests, as :func:`grader.sandbox.grade` does.
    """
    wanted = [name for name in hidden.PARTS if f"vit_course.{name}" in modules]
    there = [name for name in wanted if re.search(rf"^(?:class|def) {name}\b", text, re.MULTILINE)]
    if not there:
        return [], []
    index, source = _cell(text, there)
    source = "\n".join([source, *(f'{name} = mine.part("{name}")' for name in there)])
    tests = [HiddenTest(name, f"from grader import hidden\nhidden.PARTS[{name!r}]({name})") for name in there]
    result = grade([(index, source)], tests)
    errors = [output for output in result.outputs.get(index, []) if output["output_type"] == "error"]
    if errors or result.notes:
        causes = [f"{error['ename']}: {error['evalue'][:200]}" for error in errors]
        causes += [note.removeprefix(f"cell {index}: ") for note in result.notes]
        return [], [f"{FILE}: {causes[0]}; {INSTEAD}"]
    right = [name for name in there if result.answers[name].passed]
    notes = [f"{FILE}: {result.answers[name].message}; {INSTEAD}" for name in there if name not in right]
    return [_cell(text, right)] * bool(right), notes


def _cell(text: str, names: list[str]) -> tuple[int, str]:
    return 0, f"from vit_course import mine\nmine.take({text!r}, {names!r})"
