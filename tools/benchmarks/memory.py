"""How much memory a model's steps need at most, measured in a process of its own. Linux only.

    python -m tools.benchmarks.memory px28 timm

prints one line of JSON: bytes for inference and for training. That is the highest resident memory during two steps,
less that of the same process before the model was built, so it counts weights, gradients, the optimizer's moments and
what forward keeps for backward. A tiny model runs first: it loads the libraries' code, which is not counted.
"""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tools.benchmarks import cases, peers

ROOT = Path(__file__).resolve().parents[2]
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def is_measurable() -> bool:
    """Whether this system has a process's highest resident memory, and can reset it."""
    return STATUS.is_file() and RESET.is_file()


def resident(field: str) -> int:
    """Return resident memory in bytes: ``"VmRSS"`` now, ``"VmHWM"`` the highest since it was reset."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def highest(function: Callable[[], None]) -> int:
    """Return the highest resident memory in bytes while ``function`` runs."""
    RESET.write_text("5")  # man 5 proc: forget the highest value so far
    function()
    return resident("VmHWM")


def measure(case: str, name: str) -> dict[str, int]:
    """Return the bytes that two steps of inference and two of training need, in this process."""

    def two_steps_of_each_mode(case: cases.Case) -> dict[str, int]:
        model, bytes_needed = peers.build(name, **case.sizes), {}
        for mode in ("inference", "training"):  # in this order, since training leaves gradients
            step = cases.make_step(model, case, mode)
            bytes_needed[mode] = highest(lambda step=step: (step(), step()))
        return bytes_needed

    peers.find()
    two_steps_of_each_mode(cases.TINY)
    gc.collect()
    before = resident("VmRSS")
    return {mode: needed - before for mode, needed in two_steps_of_each_mode(cases.CASES[case]).items()}


def in_fresh_process(case: str, name: str, threads: int) -> dict[str, int]:
    """Return what :func:`measure` returns in a process of its own with this number of threads.

    glibc is told to hand a tensor's memory back as soon as it is freed. What it would keep for later differs from run
    to run by a tenth of the whole.
    """
    command = [sys.executable, "-m", "tools.benchmarks.memory", case, name]
    environment = os.environ | dict(OMP_NUM_THREADS=str(threads), MALLOC_MMAP_THRESHOLD_=str(2**16))
    out = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(out.stdout.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(measure(*sys.argv[1:])))
