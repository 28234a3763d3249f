"""Print what pip is to install for a set of versions, one requirement a line.

    python -m tools.required_versions oldest     the lower ends of the ranges in pyproject.toml
    python -m tools.required_versions class      an extra of pyproject.toml, with its pins

The oldest versions are those of what the package and the lessons stand on; what tests them is as in requirements.txt.
Python's own library is all that this script needs, because it runs before anything is installed.
"""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def name(requirement: str) -> str:
    """Return the package that a requirement such as ``torch>=2.12`` names."""
    return re.match(r"[\w.-]+", requirement)[0]


def oldest(project: dict, pins: list[str]) -> list[str]:
    """Return the lower end of every range of the package and the lessons, and the pins of everything else.

    Args:
        project: the table ``project`` of pyproject.toml.
        pins: the lines of requirements.txt, of which the last installs the package itself.
    """
    ranges = project["dependencies"] + project["optional-dependencies"]["notebooks"]
    unbounded = [each for each in ranges if not re.fullmatch(r"[\w.-]+>=[\d.]+", each)]
    if unbounded:
        raise ValueError(f"a range of pyproject.toml must be written NAME>=VERSION; got {', '.join(unbounded)}")
    lower = [each.replace(">=", "==") for each in ranges]
    return lower + [pin for pin in pins if name(pin) not in set(map(name, lower))]


def required(which: str) -> list[str]:
    """Return the requirements of ``oldest`` or of an extra.

    Raises:
        ValueError: no such set.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    if which == "oldest":
        lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
        return oldest(project, [line for line in lines if line and not line.startswith("#")])
    if which not in extras:
        raise ValueError(f"a set of versions is oldest, {', '.join(extras)}; got {which!r}")
    return extras[which]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(required(sys.argv[1])))
