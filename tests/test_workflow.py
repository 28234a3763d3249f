"""GitHub Actions: the workflow calls make targets and nothing else, on the two ends of what is supported."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "course.yml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
JOBS = WORKFLOW["jobs"]


def commands(job):
    """Return what a job runs."""
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


@pytest.mark.parametrize("job", JOBS)
def test_every_command_is_one_make_target(job):
    assert commands(job)
    for command in commands(job):
        found = re.fullmatch(r"make ([a-z-]+)( [A-Z]+=\$\{\{ matrix\.\w+ \}\})?", command)
        assert found, command
        assert found[1] in TARGETS, command


def test_the_ends_of_what_is_supported_are_tested_every_week():
    cells = JOBS["test"]["strategy"]["matrix"]["include"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest, newest = cells
    assert SpecifierSet(project["requires-python"]) == SpecifierSet(f">={oldest['python']}")
    assert float(newest["python"].split(".")[1]) > float(oldest["python"].split(".")[1])
    assert [cell["requirements"] for cell in cells] == ["requirements-oldest.txt", "requirements-newest.txt"]
    assert all((ROOT / cell["requirements"]).is_file() for cell in cells)
    assert re.fullmatch(r"\d+ \d+ \* \* \d", WORKFLOW[True]["schedule"][0]["cron"])  # YAML reads "on" as true


def test_the_site_is_published_only_after_everything_was_tested():
    order = commands("everything")
    assert order == ["make lint", "make test-all", "make verified", "make site", "make publish"]
    last = JOBS["everything"]["steps"][-1]
    assert "refs/heads/main" in last["if"]
    assert "pull_request" in last["if"]


def test_ci_runs_the_same_targets():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.findall(r"^make .*$", script, flags=re.MULTILINE) == commands("everything")[:2]
