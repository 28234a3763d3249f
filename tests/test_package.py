"""The package as a whole: which file imports which, and what a reader's ``import vit_course`` does not load."""

import re

import jaxtyping
import pytest
import torch
from support import run_python

import vit_course
from tools.site_links import ROOT

# which files of the package each file of the reference may import
ARROWS = {
    "embedding": {"arguments"},
    "attention": {"arguments"},
    "encoder": {"arguments", "attention"},
    "model": {"arguments", "embedding", "encoder"},
    "data": {"arguments", "datasets", "resource_files"},
    "training": {"arguments"},
}
SOURCES = {name: (ROOT / "vit_course" / f"{name}.py").read_text(encoding="utf-8") for name in [*ARROWS, "arguments"]}


def test_import_arrows_run_one_way_and_the_reference_can_be_read_in_one_sitting():
    for name, source in SOURCES.items():
        imported = re.findall(r"^\s*from vit_course(?:\.(\w+)[\w.]* import| import (.*))", source, flags=re.MULTILINE)
        found = {module or each.strip() for module, names in imported for each in (names or "").split(",")}
        assert found == ARROWS.get(name, set()), name
        assert not re.search(r"^\s*(import vit_course|from \.)", source, flags=re.MULTILINE), name
    assert sum(len(SOURCES[name].splitlines()) for name in ARROWS) < 700


def test_types_and_axes_are_checked_while_the_tests_run():
    with pytest.raises(jaxtyping.TypeCheckError, match="images"):
        vit_course.patchify(torch.zeros(3, 8, 8), 4)


def test_import_loads_nothing_heavy_and_explorers_without_widgets_name_what_to_install():
    heavy = {"sklearn", "matplotlib", "ipywidgets", "anywidget", "IPython", "pooch", "filelock", "safetensors"}
    code = """
import sys
from vit_course import *
from vit_course import data, training
print(*sys.modules)
sys.modules["ipywidgets"] = None
import vit_course.explore
"""
    done = run_python("-c", code)
    assert "vit_course.model" in done.stdout
    assert heavy & set(done.stdout.split()) == set()
    assert "vit_course.explore needs ipywidgets and anywidget, and ipywidgets is missing" in done.stderr
