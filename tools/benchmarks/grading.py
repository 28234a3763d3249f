"""How long grading takes: honest submissions, the worked solutions, by the teacher's own command.

    PYTHONPATH=notebooks/assignments python -m tools.benchmarks.grading --students 200

It writes ``benchmarks/results/grading.json``: for each assignment the processor seconds of one honest submission, and
for a class that handed in the first one, the minutes of the whole command.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from grader import confine
from grader.confine import Limits
from grader.pool import grade_one
from grader.release import student_edition
from grader.source import ASSIGNMENTS, Source, code_cells, is_theirs, load_all, worked_solution

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "grading.json"


def solved(source: Source) -> NotebookNode:
    """Return the student edition with the worked solutions."""
    solutions = {cell.id: cell.source for cell in worked_solution(source).cells}
    notebook = student_edition(source)
    for cell in filter(is_theirs, notebook.cells):
        cell.source = solutions[cell.id]
    return notebook


def seconds_of_one(source: Source, rounds: int) -> list[float]:
    """Return the processor seconds of several honest submissions to one assignment, without the first one's start."""
    measured = []
    for _ in range(rounds + 1):
        before = time.process_time()
        result = grade_one(code_cells(source.notebook), source.hidden_tests, source.modules, Limits())
        assert all(answer.passed for answer in result.answers.values()), result.answers
        measured.append(round(time.process_time() - before + result.seconds, 2))
    return sorted(measured[1:])


def minutes_of_a_class(source: Source, students: int, jobs: int) -> dict:
    """Hand in one assignment for a class, grade it, and return the minutes and the processor seconds per student."""
    with tempfile.TemporaryDirectory() as name:
        for number in range(students):
            notebook = solved(source)
            notebook.cells.append(nbformat.v4.new_markdown_cell(f"student {number}"))
            path = Path(name, "submitted", f"student{number:03d}", source.name, f"{source.name}.ipynb")
            path.parent.mkdir(parents=True)
            path.write_text(nbformat.writes(notebook), encoding="utf-8")
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "grader", "grade", "--class", name, "--jobs", str(jobs)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        minutes = (time.perf_counter() - start) / 60
    return dict(students=students, jobs=jobs, minutes=round(minutes, 2), seconds_per_student=round(used / students, 2))


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    sources = load_all(ASSIGNMENTS / "source")
    results = dict(
        confinement=str(confine.choose()),
        processor_seconds={name: seconds_of_one(source, options.rounds) for name, source in sources.items()},
        a_class=minutes_of_a_class(sources["assignment_01"], options.students, options.jobs),
    )
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
