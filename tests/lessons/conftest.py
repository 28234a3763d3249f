"""What the tests of the lessons share: the names that each lesson leaves behind when every exercise is solved."""

import contextlib

import matplotlib
import pytest
from lessons.running import compare, keep_all, run

from tools.site_links import ROOT


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Return a folder whose ``my_vit.py`` holds the worked solution of every part; next to it, what lessons read."""
    folder = tmp_path_factory.mktemp("kept") / "notebooks"
    folder.mkdir()
    for name in ("resources", "benchmarks"):
        (folder.parent / name).symlink_to(ROOT / name)
    keep_all(folder)
    return folder


def fixture(number):
    """Return the fixture ``lesson_NN``."""

    @pytest.fixture(scope="module", name=f"lesson_{number}")
    def names(kept):
        matplotlib.use("agg")
        with contextlib.chdir(kept):
            names, printed = run(number)
        compare(number, printed)  # with every part kept, a lesson prints what it prints with none
        return names

    return names


for number in ("00", "01", "02", "03", "04", "05", "06", "07", "08", "09", "appendix"):
    globals()[f"lesson_{number}"] = fixture(number)
