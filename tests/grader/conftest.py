"""What the tests of the grading share. They need the extra ``class``, and run in ``make test-all``."""

import os

import pytest

pytest.importorskip("nbgrader", reason="make test-all installs nbgrader", exc_type=ImportError)

from course import assignment

from grader.files import write_notebook
from grader.run_submission import Answer, Result
from grader.source import load_all
from tools.site_links import ROOT


@pytest.fixture(autouse=True, scope="session")
def programs_find_the_grader():
    """Let ``python -m grader`` work in whatever a test starts, as make does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "notebooks" / "assignments")]))
        yield


@pytest.fixture(scope="session")
def course(tmp_path_factory):
    """Write the small course once, and return its folder."""
    folder = tmp_path_factory.mktemp("course")
    for number in (1, 2):
        write_notebook(assignment(number), folder / "source", f"assignment_0{number}")
    return folder


@pytest.fixture(scope="session")
def source(course):
    """Return the first assignment of the small course."""
    return load_all(course / "source")["assignment_01"]


@pytest.fixture
def without_a_sandbox(monkeypatch):
    """Run submissions that are right in this process: a pool and a sandbox take seconds to start."""

    def run(cells, tests, *_):
        names = {}
        for code in [*dict(cells).values(), *tests.values()]:
            exec(code, names)
        return Result(answers={name: Answer(True, "right") for name in tests})

    monkeypatch.setattr("grader.classroom.run_jobs", lambda jobs, *_: ((name, run(*job)) for name, job in jobs.items()))
