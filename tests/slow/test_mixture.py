"""The lessons with every other part kept: they print what they print with none."""

import contextlib

import matplotlib as mpl
import pytest
from lessons.running import compare, keep_all, run

from tools.site_links import ROOT
from vit_course.mine.parts import PARTS

SOME = list(PARTS)[::2]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """Return a folder in which every other part is kept."""
    folder = tmp_path_factory.mktemp("mixture") / "notebooks"
    folder.mkdir()
    for name in ("resources", "benchmarks"):
        (folder.parent / name).symlink_to(ROOT / name)
    keep_all(folder, SOME)
    return folder


@pytest.mark.parametrize("number", ["02", "03", "04", "05", "06", "07", "08", "09"])
def test_a_lesson_prints_the_same_with_every_other_part_kept(number, mixture):
    mpl.use("agg")
    with contextlib.chdir(mixture):
        compare(number, run(number, SOME)[1])
