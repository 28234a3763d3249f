"""What the tests of the lessons share: the names that each lesson leaves behind when every exercise is solved."""

import contextlib
import functools
import shutil

import matplotlib
import pytest
from lessons.running import keep_all, run
from support import once

from tools.site_links import ROOT
from vit_course.mine.parts import PARTS


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Return a folder whose ``my_vit.py`` holds the worked solution of every part."""
    return once(tmp_path_factory, "kept", keep_all)


@pytest.fixture(scope="session")
def mixture(tmp_path_factory):
    """Return the same with every other part alone."""
    return once(tmp_path_factory, "mixture", functools.partial(keep_all, names=list(PARTS)[::2]))


MIXED = ("00", "02", "04", "08")


def fixture(number):
    """Return the fixture ``lesson_NN``, whose reader has kept every part, or before some lessons every other one."""

    @pytest.fixture(scope="module", name=f"lesson_{number}")
    def names(request, tmp_path_factory):
        matplotlib.use("agg")
        course = tmp_path_factory.mktemp("course")
        for name in ("resources", "benchmarks"):  # what lessons read
            (course / name).symlink_to(ROOT / name)
        own_parts = request.getfixturevalue("mixture" if number in MIXED else "kept")
        with contextlib.chdir(shutil.copytree(own_parts, course / "notebooks")):
            return run(number)

    return names


for number in ("00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "appendix"):
    globals()[f"lesson_{number}"] = fixture(number)
