"""A my_vit.py next to the notebook: its parts are used where an assignment takes one and the part is right.

The file is read here and runs in the sandbox only, like every cell. Each part must pass its hidden test first; where it
does not, the course's version takes its place, so that an earlier mistake costs no points, and a note says so.
"""

import re
from pathlib import Path

from grader import hidden, run_submission
from grader.confine import Confinement, Limits
from grader.read_submission import Unreadable, read_text

FILE = "my_vit.py"
INSTEAD = "the course's version was used instead"


def read(folder: Path) -> tuple[str, list[str]]:
    """Return the text of the file in a student's folder, empty if there is none, and a note if it cannot be read."""
    path = folder / FILE
    try:
        return read_text(path) if path.exists() or path.is_symlink() else "", []
    except Unreadable as unreadable:
        return "", [f"{FILE} was left out: {unreadable}"]


def first_cells(
    text: str, modules: frozenset[str], limits: Limits, confinement: Confinement
) -> tuple[list[tuple[int, str]], list[str]]:
    """Return the cell that gives a submission its own parts, if it has any, and a note for each part that is wrong.

    Args:
        text: of the file.
        modules, limits, confinement: of the submission, as for :func:`grader.run_submission.grade`.
    """

    def cell(names: list[str]) -> str:
        return f"from vit_course import mine\nmine.take({text!r}, {names!r})"

    wanted = [name for name in hidden.CHECK_OF_CLASS if f"vit_course.{name}" in modules]
    there = [name for name in wanted if re.search(rf"^(?:class|def) {name}\b", text, re.MULTILINE)]
    if not there:
        return [], []
    taken = "\n".join([cell(there), *(f'{name} = mine.part("{name}")' for name in there)])
    tests = {name: f"from grader import hidden\nhidden.{hidden.CHECK_OF_CLASS[name]}({name})" for name in there}
    result = run_submission.grade([(0, taken)], tests, modules, limits, confinement)
    causes = [f"{each['ename']}: {each['evalue'][:200]}" for each in result.outputs.get(0, []) if "ename" in each]
    causes += [note.removeprefix("cell 0: ") for note in result.notes]
    if causes:
        return [], [f"{FILE}: {causes[0]}; {INSTEAD}"]
    right = [name for name in there if result.answers[name].passed]
    notes = [f"{FILE}: {result.answers[name].message}; {INSTEAD}" for name in there if name not in right]
    return [(0, cell(right))] * bool(right), notes
