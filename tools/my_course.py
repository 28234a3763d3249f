"""Create the reader's copies of the lessons and assignments in ``my_course/``, update them, or start one over.

    python -m tools.my_course                                          create or update the copies
    python -m tools.my_course --pull                                   get the newest course with git pull
    python -m tools.my_course --fresh 03                               start a lesson over
    python -m tools.my_course --fresh 02 --exercise PatchEmbedding     start over only one of its exercises

An update merges three versions of a lesson, cell by cell: the lesson when it was copied (``my_course/.base``), the
reader's copy, and the lesson now. A copy that contains the reader's work is saved in ``my_course/history`` first.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from datetime import datetime
from pathlib import Path

from nbformat import NotebookNode, v4

from tools.site_links import ROOT, assignments, lessons
from tools.solve_lessons import turns

RELOAD = "If it is open in JupyterLab, choose File → Reload Notebook from Disk."
NEWER = "**The course has a newer version of the cell above.** You have changed yours, so it stays. The newer one:\n\n"
NO_CLONE = "This folder is not a git clone: unpack the newest course over it, then call make lab. Your copies stay."
PULL_FAILS = {  # what git says, and what that means
    "would be overwritten": "You have changed {files}, and so does the newest version. Call git stash, which puts your "
    "changes aside, then make update again. In my_course/ this does not happen.",
    "Not possible to fast-forward": "You have commits of your own, which make update does not touch. Call git pull "
    "--rebase, which puts them after the newest version, then make update again.",
    "resolve host|unable to access|Could not read from remote|timed out": "The newest version cannot be reached: is "
    "there a network? Nothing has changed here.",
}


def read(text: str) -> NotebookNode | None:
    """Return the notebook that a text holds, or None if it holds none."""
    try:
        notebook = v4.reads(text)
        return notebook if all(isinstance(cell.source, str) and cell.cell_type for cell in notebook.cells) else None
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def unrun(text: str) -> str:
    """Return the text of a lesson without its outputs, which would answer what readers are to predict."""
    lesson = v4.reads(text)
    for cell in lesson.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return v4.writes(lesson) + "\n"


def content(cell: NotebookNode) -> tuple[str, str]:
    """Return what counts as a change of a cell; outputs, numbers and metadata do not."""
    return cell.cell_type, cell.source


def newer(cell: NotebookNode) -> NotebookNode:
    """Return the cell that shows a lesson's cell below the reader's; code is shown, so that it does not run."""
    shown = cell.source if cell.cell_type == "markdown" else f"````python\n{cell.source}\n````"
    return v4.new_markdown_cell(NEWER + shown, id=f"{cell.id}-newer")


def merge(base: NotebookNode, mine: NotebookNode, new: NotebookNode) -> NotebookNode:
    """Return the newest lesson with everything that the reader wrote, each cell of theirs after the one it followed.

    A cell that one side changed is taken from there. Where both did, the lesson's is shown below the reader's.
    """
    give_ids(mine, [*base.cells, *new.cells])
    was, now = ({cell.id: cell for cell in notebook.cells} for notebook in (base, new))
    copies, after, anchor = {}, defaultdict(list), ""
    for cell in mine.cells:
        if cell.id in now:
            anchor = cell.id
            copies[anchor] = cell
        elif cell.id not in was or content(cell) != content(was[cell.id]):
            after[anchor].append(cell)
    cells = after[""]
    for cell in new.cells:
        before, copy, behind = was.get(cell.id), copies.get(cell.id), after[cell.id]
        moved_on = before is None or content(before) != content(cell)
        if copy and (moved_on or content(copy) == content(cell)):  # what an earlier merge showed is out of date
            shown = [newer(each).source for each in (before, cell) if each]
            behind = [each for each in behind if each.source not in shown]
        if copy is None:  # new in the lesson, or deleted by the reader
            cells += [cell] if moved_on else []
        elif content(copy) == content(cell):
            cells.append(cell if before and copy.get("outputs") == before.get("outputs") else copy)
        elif before and content(copy) == content(before):
            cells.append(cell)
        elif moved_on:
            cells += [copy, newer(cell)]
        else:
            cells.append(copy)
        cells += behind
    merged = NotebookNode(mine | {"cells": cells, "nbformat_minor": max(5, mine.get("nbformat_minor", 0))})
    give_ids(merged, [])
    return merged


def give_ids(notebook: NotebookNode, lesson: list[NotebookNode]) -> None:
    """Give every cell an id of its own; where an editor has dropped it, that of the lesson's cell with this content."""
    taken = {cell.get("id") for cell in notebook.cells}
    known, seen = {content(cell): cell.id for cell in lesson if cell.id not in taken}, set()
    for cell in notebook.cells:
        if not cell.get("id") or cell.id in seen:
            cell.id = known.pop(content(cell), None) or v4.new_raw_cell().id
        seen.add(cell.id)


class Copies:
    """The copies of one reader, in the folder of the course."""

    def __init__(self, course: Path = ROOT):
        self.lessons, self.folder = course / "notebooks", course / "my_course"
        files = [*lessons(course), *assignments(course)]
        self.names = [path.relative_to(self.lessons).as_posix() for path in files]

    def texts(self, name: str) -> list[str | None]:
        """Return the texts of base and copy, None where a file is missing, and of the lesson, without outputs."""
        paths = self.folder / ".base" / name, self.folder / name
        copies = [path.read_text(encoding="utf-8-sig", errors="replace") if path.exists() else None for path in paths]
        return [*copies, unrun((self.lessons / name).read_text(encoding="utf-8"))]

    def write(self, name: str, text: str, base: str) -> None:
        """Write a copy, then its base, each in one piece: what is interrupted in between is merged again."""
        for path, one in ((self.folder / name, text), (self.folder / ".base" / name, base)):
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                beside.write_text(one, encoding="utf-8", newline="\n")
                os.replace(beside, path)
            finally:
                beside.unlink(missing_ok=True)

    def keep(self, name: str) -> str:
        """Put the copy, as it is, into the history, and say where."""
        target = self.folder / "history" / f"{Path(name).stem}_{datetime.now():%Y-%m-%d_%H%M%S_%f}.ipynb"
        target.parent.mkdir(exist_ok=True)
        shutil.copy2(self.folder / name, target)
        return f"The copy as it was: my_course/history/{target.name}."

    def update(self) -> list[str]:
        """Bring all copies up to date; return a line for each change."""
        told = [line for name in self.names if (line := self.update_one(name))]
        for path in sorted((self.folder / ".base").rglob("*.ipynb")):
            name = path.relative_to(self.folder / ".base").as_posix()
            if name not in self.names:
                if (self.folder / name).exists():
                    told.append(f"{name} is no longer part of the course. {self.keep(name)}")
                    (self.folder / name).unlink()
                path.unlink()
        return told

    def update_one(self, name: str) -> str:
        """Bring one copy up to date; return what there is to say."""
        base, text, lesson = self.texts(name)
        if text is None:
            self.write(name, lesson, lesson)
            return ""
        mine = read(text)
        if mine is None:
            kept = self.keep(name)
            self.write(name, lesson, lesson)
            return f"{name} could not be read as a notebook, so you have a new copy. {kept}"
        if base == lesson:
            return ""
        base = read(base or "") or v4.new_notebook()
        worked_in = [*map(content, mine.cells)] != [*map(content, base.cells)]
        text = v4.writes(merge(base, mine, read(lesson))) + "\n"
        kept = f" with all that you wrote. {self.keep(name)}" if worked_in else "."
        self.write(name, text, lesson)
        return f"{name} is the newest version now{kept} {RELOAD}"

    def fresh(self, which: str, exercise: str = "") -> str:
        """Start a lesson over, or one of its exercises; return what there is to say."""
        found = [name for name in self.names if which and Path(name).stem.startswith(which.zfill(2))]
        if len(found) != 1:
            sys.exit(f"LESSON must be one of {', '.join(Path(name).stem for name in self.names)}; got {which!r}")
        (name,) = found
        self.update_one(name)
        _, text, lesson = self.texts(name)
        new, mine = read(lesson), read(text)
        stubs = [new.cells[index + 1] for index, _, _ in turns(new)] if exercise else []
        parts = {part: stub for stub in stubs for part in re.findall(r"^(?:def|class) (\w+)", stub.source, re.M)}
        if exercise and exercise not in parts:
            sys.exit(f"EXERCISE must be one of {', '.join(parts) or 'none'} in {name}; got {exercise!r}")
        kept = self.keep(name)
        if exercise:
            stub = parts[exercise]
            cells = [cell for cell in mine.cells if cell.get("id") != f"{stub.id}-newer"]
            mine.cells = [stub if cell.get("id") == stub.id else cell for cell in cells]
            without = v4.new_notebook(cells=[cell for cell in new.cells if cell.id != stub.id])
            self.write(name, v4.writes(merge(without, mine, new)) + "\n", lesson)
        else:
            self.write(name, lesson, lesson)
        return f"{exercise or name} starts over. {kept} What is in my_vit.py stays. {RELOAD}"


def pull(course: Path = ROOT) -> str:
    """Get the newest version of the course; where that is not possible, end with a line that says why."""
    if not (course / ".git").exists() or not shutil.which("git"):
        sys.exit(NO_CLONE)
    environment = os.environ | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(course), "pull", "--ff-only", "--no-stat"]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout.strip()
    files = " and ".join(re.findall(r"^\t(.+)", done.stderr, re.M))
    why = [line.format(files=files) for says, line in PULL_FAILS.items() if re.search(says, done.stderr)]
    sys.exit((why or [f"git pull failed: {done.stderr.strip()}"])[0])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pull", action="store_true", help="get the newest version of the course")
    parser.add_argument("--fresh", metavar="LESSON", help="start a lesson over; LESSON is its number")
    parser.add_argument("--exercise", default="", metavar="NAME", help="start over only this exercise")
    options = parser.parse_args()
    try:
        if options.pull:
            told = [pull()]
        elif options.fresh is not None:
            told = [Copies().fresh(options.fresh, options.exercise)]
        else:
            told = [*Copies().update(), "Your copies of the lessons, all of the newest version, are in my_course."]
    except OSError as error:
        sys.exit(f"my_course could not be written; nothing in it is lost: {error}")
    print(*told, sep="\n")


if __name__ == "__main__":
    main()
