"""What the tests of the lessons share: the names that each lesson leaves behind when every exercise is solved."""

import contextlib
import functools
import shutil
from types import SimpleNamespace

import matplotlib
import pytest
from lessons.running import keep_all, run
from support import once

from tools.site_links import ROOT
from vit_course.mine.parts import PARTS


@pytest.fixture(scope="module")
def lesson(request, tmp_path_factory):
    """Run the lesson that the test file is named after; return its names, and what it has ``printed``.

    Its reader has kept every part in ``my_vit.py``, or before some lessons every other one. A test file may say what is
    ``SHORTER`` in its lesson.
    """
    number = request.module.__name__.rpartition("_")[2]
    names = list(PARTS)[:: 2 if number in ("00", "02", "04", "08") else 1]
    own_parts = once(tmp_path_factory, f"{len(names)}_parts", functools.partial(keep_all, names))
    matplotlib.use("agg")
    course = tmp_path_factory.mktemp("course")
    for name in ("resources", "benchmarks"):  # what lessons read
        (course / name).symlink_to(ROOT / name)
    with contextlib.chdir(shutil.copytree(own_parts, course / "notebooks")):
        return SimpleNamespace(**run(number, getattr(request.module, "SHORTER", {})))
