"""What the tests of the grading share. They need the extra ``class``, and run in ``make test-all``."""

import os
from pathlib import Path

import pytest

pytest.importorskip("nbgrader", reason="make test-all installs nbgrader", exc_type=ImportError)

from course import write_course

ROOT = Path(__file__).resolve().parents[2]


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
    write_course(folder)
    return folder


@pytest.fixture(scope="session")
def source(course):
    """Return the first assignment of the small course."""
    from grader.source import load_all

    return load_all(course / "source")["assignment_01"]
