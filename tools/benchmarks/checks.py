"""Time every check on right code, on each mistake that it knows, on pairs, and on mistakes that it does not know.

    python -m tools.benchmarks.checks                     about five minutes
    python -m tools.benchmarks.checks --quick --out F     two checks only: does it run?

The time is the processor time of one thread. For a mistake that a check does not know, it tries all that it knows.
"""

import argparse
import random
import re
import time
from contextlib import suppress
from itertools import combinations, takewhile

import torch

from tools.benchmarks import cli, machine, report
from vit_course.checks.clinic import CLINIC
from vit_course.checks.declare import CHECKS, Check
from vit_course.checks.variants import SOURCES, Mistake, compatible
from vit_course.checks.verdict import CheckFailed, NotWritten


def parts_of(twin: str) -> list[str]:
    """Return the parts of which a twin consists, itself among them."""
    before = takewhile(twin.__ne__, SOURCES)  # a part calls only those that are written before it
    called = [part for part in before if re.search(rf"\b{part}\b", SOURCES.get(twin, ""))]
    return list(dict.fromkeys([twin, *(part for each in called for part in parts_of(each))]))


def unknown(part: str) -> Mistake:
    """Return a mistake that no table has: the twin of a part returns a tenth more."""
    last = SOURCES[part].rstrip().splitlines()[-1]
    edit = last, last.replace("return ", "return 1.1 * (") + ")"
    return Mistake(f"{part}.unknown", part, "", (edit,), {}, drawn=False)


def longest(check: Check, tried: list[tuple[Mistake, ...]]) -> float:
    """Return the longest processor time of a check, for code with these mistakes."""
    times = [0.0]
    for mistakes in tried:
        subject, start = check.made_with(*mistakes), time.process_time()
        with suppress(CheckFailed, NotWritten, TypeError):  # a part that returns two results has no tenth more
            check.verify(subject)
        times.append(time.process_time() - start)
    return round(max(times), 3)


def measure(options: argparse.Namespace) -> dict:
    """Time all checks; return the log."""
    torch.set_num_threads(1)
    result = dict(machine=machine.describe(), pairs=3 if options.quick else 20, seconds={})
    for check in [*CHECKS.values(), *CLINIC.values()][: 2 if options.quick else None]:
        longest(check, [()])  # imports what the first call needs, once a session
        pairs = [pair for pair in combinations(check.known(), 2) if compatible(*pair)]
        tried = {
            "right": [()],
            "one": [(mistake,) for mistake in check.known() + check.known(drawn=True)],
            "two": random.Random(0).sample(pairs, min(result["pairs"], len(pairs))),
            "unknown": [(unknown(part),) for part in parts_of(check.twin) if part in SOURCES],
        }
        result["seconds"][check.name] = {kind: longest(check, some) for kind, some in tried.items()}
    return result


if __name__ == "__main__":
    cli.run(cli.parser("Time the checks.", report.CHECKS), None, measure, report.CHECKS)
