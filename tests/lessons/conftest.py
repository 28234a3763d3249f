"""What the tests of the lessons share: the names that each lesson leaves behind when every exercise is solved."""

import contextlib
from pathlib import Path

import matplotlib
import pytest
from lessons.running import compare, keep_all, run

from tools.site_links import ROOT
from vit_course.mine.parts import PARTS


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Return a folder whose ``my_vit.py`` holds the worked solution of every part; next to it, what lessons read."""
    folder = tmp_path_factory.mktemp("kept") / "notebooks"
    keep_all(with_resources(folder))
    return folder


@pytest.fixture(scope="session")
def mixture(tmp_path_factory):
    """Return the same with every other part alone."""
    folder = tmp_path_factory.mktemp("mixture") / "notebooks"
    keep_all(with_resources(folder), list(PARTS)[::2])
    return folder


def with_resources(folder):
    folder.mkdir()
    for name in ("resources", "benchmarks"):
        (folder.parent / name).symlink_to(ROOT / name)
    return folder


def fixture(number):
    """Return the fixture ``lesson_NN``, whose reader has kept every part, or before an even lesson every other one."""

    @pytest.fixture(scope="module", name=f"lesson_{number}")
    def names(request):
        matplotlib.use("agg")
        even = number.isdigit() and int(number) % 2 == 0
        with contextlib.chdir(request.getfixturevalue("mixture" if even else "kept")):
            file = Path("my_vit.py")
            before = file.read_bytes()
            names, printed = run(number)
            file.write_bytes(before)  # as it was before this lesson's own parts were kept
        compare(number, printed)  # a lesson prints what it prints with no part kept
        return names

    return names


for number in ("00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "appendix"):
    globals()[f"lesson_{number}"] = fixture(number)
