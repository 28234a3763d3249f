"""The versions that are installed: pins and ranges agree, and each set of versions has an environment of its own."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from tools.required_versions import required
from tools.site_links import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
RANGES = [*PROJECT["dependencies"], *EXTRAS["notebooks"], *EXTRAS["dev"]]
LINES = [line for line in (ROOT / "requirements.txt").read_text("utf-8").splitlines() if line[:1] not in ("", "#")]


def test_every_direct_dependency_is_pinned_inside_its_range_and_what_only_some_need_in_its_extra():
    *pins, last = LINES
    assert last == "-e ."
    pinned = {pin.name: next(iter(pin.specifier)) for pin in map(Requirement, pins)}
    assert all(pin.operator == "==" for pin in pinned.values())
    ranges = {each.name: each.specifier for each in map(Requirement, RANGES)}
    assert pinned.keys() == ranges.keys()
    assert [name for name in ranges if not ranges[name].contains(pinned[name].version)] == []
    for extra in ("class", "site", "peers"):
        assert {next(iter(Requirement(each).specifier)).operator for each in required(extra)} == {"=="}


def test_no_lower_end_is_too_low_for_another_library():
    """By what the installed versions need: pip could not install the oldest ones together."""
    *pins, last = required("oldest")
    assert last == "-e ."
    lower = {pin.name: next(iter(pin.specifier)).version for pin in map(Requirement, pins)}
    assert lower.keys() == {Requirement(each).name for each in RANGES}
    for name in lower:
        for need in map(Requirement, metadata.requires(name) or []):
            if need.name in lower and (need.marker is None or need.marker.evaluate({"extra": ""})):
                assert need.specifier.contains(lower[need.name]), f"{name} needs {need}"


# In the place of python: it notes what it is asked for, makes an empty environment with itself in it, and passes on
# what prints or asks for versions.
STAND_IN = """#!/bin/sh
echo "$0 $*" >> asked.txt
case "$*" in
  *"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && touch "$3/bin/pip" ;;
  *tools.required_versions*) exec {python} "$@" ;;
esac
"""


@pytest.fixture
def clone(tmp_path):
    """A folder with what make reads, where no command installs anything."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "pyproject.toml", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    stand_in = tmp_path / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(0o755)
    return tmp_path


def make(clone, *words):
    """Run make; return what the stand-in was asked for."""
    (clone / "asked.txt").write_text("")
    of_make = ("MAKE", "MFLAGS", "VERSIONS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(of_make)}
    command = ["make", f"PYTHON={clone / 'python'}", *words]
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return (clone / "asked.txt").read_text()


@pytest.mark.skipif(sys.platform == "win32" or not shutil.which("make"), reason="make is not on this machine")
class TestMake:
    def test_each_set_of_versions_is_installed_once_in_an_environment_of_its_own(self, clone):
        environments = {"pinned": ".venv", "oldest": ".venv-oldest", "newest": ".venv-newest"}
        for versions, folder in environments.items():
            asked = make(clone, "test", f"VERSIONS={versions}")
            assert f"-m venv {folder} --upgrade-deps\n" in asked
            assert f"{folder}/bin/python -m pip install" in asked
            assert f"{folder}/bin/python -m pytest" in asked
            assert set(re.findall(r"\.venv[-\w]*(?=/bin)", asked)) == {folder}
        for versions in environments:
            assert "pip install" not in make(clone, "test", f"VERSIONS={versions}")
        assert "torch==2.12\n" in (clone / ".venv-oldest" / "oldest.txt").read_text()

    def test_a_changed_pin_is_installed_for_the_same_python(self, clone):
        make(clone, "grades")
        later = (clone / "requirements.txt").stat().st_mtime + 9
        os.utime(clone / "requirements.txt", (later, later))
        asked = make(clone, "grades")
        assert "pip install --no-compile -r requirements.txt" in asked
        assert "-m venv" not in asked
        assert re.search(r"pip install -c \.venv/pins\.txt .*nbgrader==", asked)
        assert "torch==" in (clone / ".venv" / "pins.txt").read_text()

    def test_an_update_gets_the_course_and_then_the_copies(self, clone):
        asked = make(clone, "update")
        assert re.search(r"python -m tools\.my_course --pull\n(?:.*\n)*.*python -m tools\.my_course\n\Z", asked)
        assert asked.count("pip install") == 1
        asked = make(clone, "fresh", "LESSON=02", "EXERCISE=PatchEmbedding")
        assert asked.endswith("-m tools.my_course --fresh 02 --exercise PatchEmbedding\n")
