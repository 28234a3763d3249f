"""The options that every benchmark has, and what becomes of a log: it is written, and its section is printed."""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch

from tools.benchmarks import report


def parser(description: str, log: Path) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--threads", type=int, help="threads of each step (default: PyTorch's choice)")
    found.add_argument("--quick", action="store_true", help="something tiny, in seconds: only to see it run")
    found.add_argument("--out", type=Path, help=f"the log (default: {log}; none with --quick)")
    return found


def run(found: argparse.ArgumentParser, argv: list[str] | None, measure: Callable[..., dict], log: Path) -> None:
    """Measure with the parsed options, write the log, print the section of the page."""
    options = found.parse_args(argv)
    if options.threads:
        torch.set_num_threads(options.threads)
    result = measure(options)
    out = options.out or (None if options.quick else log)
    if out:
        report.save(result, out)
    section = next(section for path, section in report.SECTIONS.values() if path == log)
    print(section(result))
