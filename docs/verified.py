"""Write ``verified.json``, from which the site's footer says what was tested: CI calls it after all tests passed.

python docs/verified.py
"""

import datetime
import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
FILE = HERE / "verified.json"


def main() -> None:
    """Write the date, the versions and the commit."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, check=True, capture_output=True, text=True).stdout
    facts = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "commit": commit.strip(),
    }
    FILE.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
