"""The commands of a teacher; ``make`` has the same ones.

python -m grader release                        make the student editions from the sources
python -m grader solutions                      make worked solutions for reading
python -m grader collect --from FILE            sort what a learning-management system hands out
python -m grader grade                          grade what was handed in
python -m grader formgrader                     open nbgrader's pages, to mark written answers
python -m grader feedback                       write a page for each student
python -m grader grades                         write grades.csv
"""

import argparse
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from grader.confine import CannotConfine
from grader.files import write_notebook
from grader.roster import RosterError, read_roster
from grader.source import ASSIGNMENTS, Source, SourceError, load_all

if TYPE_CHECKING:
    from grader.gradebook import ClassFolder


class Stop(Exception):
    """A command cannot go on; the message says what to do."""


def release(options: argparse.Namespace) -> None:
    """Make the student editions; for a class, also its folder and gradebook."""
    from grader.release import student_edition

    options.folder.mkdir(parents=True, exist_ok=True)
    folder, _, sources = _class(options)
    for source in sources.values():
        print(write_notebook(student_edition(source), folder.sources.parent / "release", source.name))
    if failures := _register(folder, sources):
        raise Stop("\n".join(failures.values()))


def solutions(options: argparse.Namespace) -> None:
    """Make the worked solutions."""
    from grader.solutions import worked_solution

    for source in load_all(ASSIGNMENTS / "source").values():
        print(write_notebook(worked_solution(source), ASSIGNMENTS / "solutions", source.name))


def collect(options: argparse.Namespace) -> None:
    """Sort a download into the class's folder."""
    from grader.collect import CannotCollect
    from grader.collect import collect as sort

    if not options.download:
        raise Stop("say which file or folder: make collect FROM=downloads.zip")
    roster = read_roster(options.folder / "students.csv")
    try:
        placed, lines = sort(
            Path(options.download), options.folder / "submitted", roster, options.pattern, replace=options.replace
        )
    except CannotCollect as error:
        raise Stop(str(error)) from None
    print(*lines, f"{len(placed)} notebooks placed, {len(lines)} not", sep="\n")


def grade(options: argparse.Namespace) -> None:
    """Grade, record, and print the marks."""
    from tqdm import tqdm

    from grader import confine
    from grader.classroom import Run, find_submissions
    from grader.confine import Limits
    from grader.grades import rows_of, table, write_grades

    print(confine.choose(unconfined=options.unconfined))
    folder, roster, sources = _class(options)
    submissions, left_out = find_submissions(folder.root / "submitted", sources)
    with _only_one(folder.root):
        folder.enrol(roster)
        failures = _register(folder, {each.source.name: each.source for each in submissions})
        submissions = [each for each in submissions if each.source.name not in failures]
        limits = Limits(cell_seconds=options.cell_seconds)
        run = Run(folder, options.jobs, options.again, limits, options.unconfined, options.dask)
        with tqdm(total=len(submissions), unit="notebook", desc="grading") as progress:
            for submission, failure in run.grade(submissions):
                progress.update()
                if failure:
                    failures[submission.name] = f"{submission.student}, {submission.source.name}: {failure}"
        points = _points(folder, sources)
        rows = rows_of(folder, roster, points, left_out)
        write_grades(folder.root / "report.csv", rows, points)
    print(table(rows, points), *failures.values(), sep="\n")
    if failures:
        raise Stop("Not everything could be graded; the last lines say what, and why.")


def _register(folder: "ClassFolder", sources: dict[str, Source]) -> dict[str, str]:
    """Write assignments into the gradebook; return a line for each that it refuses."""
    from grader.gradebook import NotRecorded

    failures = {}
    for name, source in sources.items():
        try:
            folder.register(source)
        except NotRecorded as error:
            failures[name] = f"{name} was not graded: {error}. A class keeps the tasks with which its marking began."
    return failures


def formgrader(options: argparse.Namespace) -> None:
    """Open JupyterLab with formgrader in the class's folder."""
    folder, _, _ = _class(options)
    os.chdir(folder.root)
    lab = [sys.executable, "-m", "jupyterlab", "--ServerApp.root_dir=.", "--ServerApp.default_url=/formgrader"]
    os.execv(sys.executable, lab)


def feedback(options: argparse.Namespace) -> None:
    """Write a page for each student and assignment."""
    from tqdm import tqdm

    folder, _, sources = _class(options)
    wanted = [name for name in folder.recorded() if name[1] in sources]
    for name in tqdm(wanted, unit="page", desc="feedback"):
        folder.write_feedback(*name)
    print(f"{len(wanted)} pages in {folder.root / 'feedback'}")


def grades(options: argparse.Namespace) -> None:
    """Write grades.csv."""
    from grader.classroom import find_submissions
    from grader.grades import rows_of, write_grades

    folder, roster, sources = _class(options)
    _, left_out = find_submissions(folder.root / "submitted", sources)
    points = _points(folder, sources)
    rows = rows_of(folder, roster, points, left_out)
    path = folder.root / "grades.csv"
    write_grades(path, rows, points)
    waiting = sum(not mark.final for row in rows for mark in row.marks.values() if mark)
    print(path, f"{len(rows)} students; {waiting} marks are not final", sep="\n")


def _class(options: argparse.Namespace) -> tuple:
    """Return the class's folder, its roster and the assignments that are meant."""
    from grader.gradebook import ClassFolder

    if not options.folder.is_dir():
        raise Stop(f"there is no folder {options.folder}. Name the folder of your class: CLASS=folder")
    folder = ClassFolder(options.folder.resolve())
    sources = load_all(folder.sources)
    if options.assignment:
        if options.assignment not in sources:
            raise Stop(f"there is no {options.assignment!r}; there are: {', '.join(sources)}")
        sources = {options.assignment: sources[options.assignment]}
    return folder, read_roster(folder.root / "students.csv"), sources


def _points(folder: "ClassFolder", sources: dict[str, Source]) -> dict[str, float]:
    """Return the most that each assignment gives, of those that are meant and that were graded."""
    return {name: points for name, points in folder.points().items() if name in sources}


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """Keep a second grading run out of a class's folder; the lock goes with the process, however it ends."""
    with (root / ".grading").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Stop("another grading run is at work in this folder. Wait for it, or end it.") from None
        yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m grader", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for function in (release, solutions, collect, grade, formgrader, feedback, grades):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        command.set_defaults(run=function)
        if function is solutions:
            continue
        command.add_argument("--class", dest="folder", type=Path, default=Path("class"), help="the class's folder")
        if function is collect:
            from grader.collect import PATTERN

            command.add_argument("--from", dest="download", default="", help="a zip file or a folder")
            command.add_argument("--pattern", default=PATTERN, help=f"how files are named; by default {PATTERN}")
            command.add_argument("--replace", action="store_true", help="replace what was collected before")
        else:
            command.add_argument("--assignment", default="", help="only this one: assignment_02")
        if function is grade:
            cores = len(os.sched_getaffinity(0))
            command.add_argument("--jobs", type=int, default=cores, help="submissions side by side; all cores")
            command.add_argument("--cell-seconds", type=float, default=60, help="how long one cell may run; 60")
            command.add_argument(
                "--dask", default="", help="the address of a Dask scheduler whose workers do the grading"
            )
            command.add_argument("--unconfined", action="store_true", help="run submissions with all of your rights")
            command.add_argument("--again", action="store_true", help="run also what was graded before")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Read the command line."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (Stop, RosterError, SourceError, CannotConfine) as error:
        print(error, file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "nbgrader":
            raise
        print("nbgrader is missing: .venv/bin/python -m pip install -e '.[class]'", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        sys.stderr.flush()
        os._exit(130)  # at once: what is running has left nothing half-done
    return 0


if __name__ == "__main__":
    sys.exit(main())
