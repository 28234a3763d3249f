"""Commands for teachers, which the README.md of the assignments describes; ``make`` calls them."""

import argparse
import os
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from grader import confine
from grader.files import Stop, write_notebook
from grader.source import ASSIGNMENTS, load_all, worked_solution

WRITTEN = ("gradebook.db", "submitted", "autograded", "feedback", ".confirmed")  # in a class's folder


def release(options: argparse.Namespace) -> None:
    """Write the student editions, and create the folder and the gradebook of a class."""
    from grader.classroom import check_source
    from grader.release import student_edition

    options.folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # students' work and marks are nobody else's
    folder, sources = _class(options)
    failures = []
    for name, source in list(sources.items()):
        if lines := check_source(source):
            failures += [f"{name} was not released: {line}" for line in lines]
            del sources[name]
        else:
            print(write_notebook(student_edition(source), folder.sources.parent / "release", name))
    if failures := [*failures, *folder.register(sources).values()]:
        raise Stop("\n".join(failures))


def solutions(options: argparse.Namespace) -> None:
    """Write the worked solutions."""
    for source in load_all(ASSIGNMENTS / "source").values():
        print(write_notebook(worked_solution(source), ASSIGNMENTS / "solutions", source.name))


def collect(options: argparse.Namespace) -> None:
    """Sort downloaded submissions into the folder of the class."""
    from grader.collect import collect as sort

    folder, sources = _class(options)
    if not options.download:
        raise Stop("name a zip file or a folder: make collect FROM=downloads.zip")
    placed, lines = sort(_path(options.download), folder, sources, options.pattern, replace=options.replace)
    print(*lines, f"placed: {len(placed)}, not placed: {len(lines)}", sep="\n")


def grade(options: argparse.Namespace) -> None:
    """Grade the submissions, store the marks and print them."""
    from tqdm import tqdm

    from grader.classroom import find_submissions, grade_class
    from grader.grades_csv import grades_lines, report, table, write_csv

    folder, sources = _class(options)
    submissions, _ = find_submissions(folder.root / "submitted", sources)
    handed_in = {each.name for each in submissions}
    gone = [name for name in folder.recorded() if options.forget and name[1] in sources and name not in handed_in]
    if options.student:
        gone = [name for name in gone if name[0] in options.student]
        submissions = [each for each in submissions if each.student in options.student]
    if missing := {*options.student} - {each.student for each in submissions} - {student for student, _ in gone}:
        raise Stop(f"nothing was handed in by {', '.join(sorted(missing))}")
    print(confine.choose(unconfined=options.unconfined))
    with FileLock(folder.root / ".grading", timeout=0):  # it goes with the process, however that ends
        for student, name in gone:
            folder.forget(student, name)
            print(f"removed: the mark of {student} for {name}")
        folder.enrol()
        failures = folder.register(sorted({each.source.name for each in submissions}))
        submissions = [each for each in submissions if each.source.name not in failures]
        how = options.jobs, options.again, options.cell_seconds, options.unconfined, options.dask
        with tqdm(total=len(submissions), unit="notebook", desc="grading") as progress:
            for submission, failure in grade_class(folder, submissions, *how):
                progress.update()
                if failure:
                    failures[submission.name] = f"{submission.student}, {submission.source.name}: {failure}"
        write_csv(folder.root / "report.csv", grades_lines(*report(folder, sources, [])))
        print(table(*report(folder, sources, options.student)), *failures.values(), sep="\n")
    if failures:
        raise Stop("Not everything could be graded; the last lines list what is missing, and why.")


def formgrader(options: argparse.Namespace) -> None:
    """Open formgrader in JupyterLab, in the folder of the class."""
    folder, _ = _class(options)
    os.chdir(folder.root)
    lab = [sys.executable, "-m", "jupyterlab", "--ServerApp.root_dir=.", "--LabApp.default_url=/formgrader", "-y"]
    os.execv(sys.executable, lab + ["--allow-root"] * (os.geteuid() == 0))


def feedback(options: argparse.Namespace) -> None:
    """Write a feedback page for each student and assignment."""
    from nbgrader.converters import GenerateFeedback
    from tqdm import tqdm

    from grader.grades_csv import NEWER, report

    folder, sources = _class(options)
    wanted = [name for name in folder.recorded() if name[1] in sources and name[0] in (options.student or [name[0]])]
    if missing := {*options.student} - {student for student, _ in wanted}:
        raise Stop(f"nothing is graded of {', '.join(sorted(missing))}")
    failures = []
    for student, assignment in tqdm(wanted, unit="page", desc="feedback"):
        try:
            folder.run(GenerateFeedback, student_id=student, assignment_id=assignment)
        except Stop as error:
            failures.append(f"{student}: no page for {assignment}: {error}")
    notes = [(row.student.id, note) for row in report(folder, sources, options.student)[1] for note in row.notes]
    outdated = [f"{student}: {note}" for student, note in notes if note.partition(": ")[2] == NEWER]
    print(f"pages in {folder.root / 'feedback'}: {len(wanted) - len(failures)}", *outdated, sep="\n")
    if failures:
        raise Stop("\n".join(failures))


def grades(options: argparse.Namespace) -> None:
    """Write grades.csv, or fill in a CSV file exported from Canvas."""
    from grader.grades_csv import canvas_lines, grades_lines, report, write_csv

    folder, sources = _class(options)
    points, rows = report(folder, sources, [])
    lines, said = grades_lines(points, rows), []
    if options.canvas:
        lines, said = canvas_lines(Path(options.canvas), points, rows)
    path = folder.root / ("grades-canvas.csv" if options.canvas else "grades.csv")
    write_csv(path, lines)
    print(path, *said, sep="\n")
    waiting = sum(not mark.final for row in rows for mark in row.marks.values() if mark)
    print(f"marks that are not final: {waiting}" if waiting else "all marks are final")


def _class(options: argparse.Namespace) -> tuple:
    """Return the class's folder and the assignments that are meant."""
    from grader.gradebook import ClassFolder

    if not options.folder.is_dir():
        raise Stop(f"there is no folder {options.folder}. Name the folder of your class: CLASS=folder")
    folder, user = ClassFolder(options.folder.resolve()), os.geteuid()
    for path in (folder.root, *(folder.root / name for name in WRITTEN)):
        # root could write everywhere, and would leave files that the owner of the class cannot change
        if path.exists() and path.stat().st_uid != user and (user == 0 or not os.access(path, os.W_OK)):
            raise Stop(
                f"{path} belongs to the user {path.stat().st_uid}, and you are {user}. Grade a class always as the "
                f"same user, or make all of it yours: sudo chown -R {user} {folder.root}"
            )
    sources = load_all(folder.sources)
    if options.assignment and options.assignment not in sources:
        raise Stop(f"there is no {options.assignment!r}; there are: {', '.join(sources)}")
    return folder, {name: source for name, source in sources.items() if name == (options.assignment or name)}


def _path(text: str) -> Path:
    """Return a path with its home directory written out, which some shells leave as ~."""
    return Path(os.path.expanduser(text))


def _count(text: str) -> int:
    """Return a number of at least one."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {text}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m grader", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for function in (release, solutions, collect, grade, formgrader, feedback, grades):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        command.set_defaults(run=function)
        add = command.add_argument
        add("--class", dest="folder", type=_path, default="class", help="folder of the class (default: class)")
        add("--assignment", default="", help="only this assignment, for example assignment_02")
        if function is collect:
            add("--from", dest="download", help="zip file or folder with the submissions")
            add("--pattern", default="", help="regular expression for the names of the files")
            add("--replace", action="store_true", help="replace submissions that were collected before")
        if function is grades:
            add("--canvas", default="", help="CSV file exported from Canvas, to be filled in")
        if function in (grade, feedback):
            add("--student", action="append", default=[], help="only this student; may be repeated")
        if function is grade:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
            add("--jobs", type=_count, default=cores, help="submissions to grade in parallel (default: all cores)")
            again = "add --again for those already graded"
            add("--cell-seconds", type=float, default=60, help=f"time limit for each cell (default: 60); {again}")
            add("--dask", default="", help="address of a Dask scheduler whose workers do the grading")
            add("--unconfined", action="store_true", help="run submissions without a sandbox, with all of your rights")
            add("--again", action="store_true", help="also grade submissions that have not changed")
            add("--forget", action="store_true", help="remove marks whose files are no longer in submitted")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Read the command line."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
        return 0
    except (Stop, confine.CannotConfine) as error:
        message = str(error)
    except Timeout:
        message = "another grading run is active in this folder. Wait for it, or stop it."
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "nbgrader":
            raise
        message = "nbgrader is missing: .venv/bin/python -m pip install -e '.[class]'"
    except KeyboardInterrupt:
        goes_on = "continues from here" if options.run is grade and not options.again else "starts over"
        print(f"stopped; the same command {goes_on}", file=sys.stderr, flush=True)
        os._exit(130)  # at once: what is running has left nothing half-done
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
