"""Kernels that run these notebooks find the grader, whose hidden tests the cells import; ``make lab`` does the same."""

import os
from pathlib import Path

paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
