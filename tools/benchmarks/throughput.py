"""Time a training step and inference of our model and of published ones, side by side in one run.

    python -m tools.benchmarks.throughput                     all of it, about eight minutes on two cores
    python -m tools.benchmarks.throughput --quick --out F     a tiny model, a few seconds: does it run?

Everyone has the same sizes, images, optimizer and threads. In each round each model does one step, in an order that
changes from round to round, so that whatever else slows the machine slows all of them; steps are then compared round
by round. The log holds every time that was taken, and ``report.py`` computes from it what the page says.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable

import torch

from tools.benchmarks import cases, cli, machine, memory, peers, report

WARM_UP = 2  # steps of each model before any is timed


def round_robin(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Run every step once per round, in an order that moves on and turns around; return its seconds, one per round."""
    seconds = {name: [] for name in steps}
    for turn in range(rounds):
        order = list(steps)
        order = order[turn % len(order) :] + order[: turn % len(order)]
        for name in reversed(order) if turn % 2 else order:
            start = time.perf_counter()
            steps[name]()
            seconds[name].append(round(time.perf_counter() - start, 6))
    return seconds


def compiled_step(case: cases.Case, mode: str) -> tuple[Callable[[], None], float]:
    """Return a step of our model under ``torch.compile``, and the seconds that its first step took."""
    torch._dynamo.reset()
    step = cases.make_step(torch.compile(peers.build(peers.OURS, **case.sizes)), case, mode)
    start = time.perf_counter()
    step()
    return step, time.perf_counter() - start


def measure_case(case: cases.Case, mode: str, names: list[str], *, rounds: int, compiled: bool) -> dict:
    """Time one case in one mode; return its entry of the log."""
    steps = {name: cases.make_step(peers.build(name, **case.sizes), case, mode) for name in names}
    entry = dict(case=case.title, mode=mode, batch=case.batch, flops=cases.flops(case, mode))
    if compiled:
        try:
            steps[peers.COMPILED], entry["first_compiled_step"] = compiled_step(case, mode)
        except Exception as error:  # no compiler, most likely; inductor has many ways to say so
            entry["not_compiled"] = peers.reason(error)
    round_robin(steps, WARM_UP)
    return entry | dict(seconds=round_robin(steps, rounds))


def measure(options: argparse.Namespace) -> dict:
    """Measure every case, one of them tiny, uncompiled and without memory with ``--quick``; return the log."""
    chosen = {"tiny": cases.TINY} if options.quick else cases.CASES

    versions, missing = peers.find()
    names = [peers.OURS, peers.SHORT, *versions]
    about = dict(machine=machine.describe(), rounds=options.rounds, versions=versions, missing=missing)
    result = dict(about, models=[], cases=[])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # compile anew: what an earlier run left would be a false gain
        for key, case in chosen.items():
            for name in names:
                parameters = sum(parameter.numel() for parameter in peers.build(name, **case.sizes).parameters())
                difference = peers.PEERS[name].difference if name in peers.PEERS else ""
                entry = dict(case=case.title, name=name, parameters=parameters, difference=difference)
                if memory.is_measurable() and not options.quick:
                    entry["memory"] = memory.in_fresh_process(key, name, torch.get_num_threads())
                result["models"].append(entry)
            for mode in cases.MODES:
                entry = measure_case(case, mode, names, rounds=options.rounds, compiled=not options.quick)
                result["cases"].append(entry)
                peak = machine.matmul_peak()
                result["machine"]["matmul_flops"] = max(peak, result["machine"]["matmul_flops"])
    return result


def main(argv: list[str] | None = None) -> None:
    """Measure, write the log, print the section of the page."""
    parser = cli.parser("Time our model against published ones.", report.THROUGHPUT)
    parser.add_argument("--rounds", type=int, default=16, help="steps of each model in each case (default: 16)")
    cli.run(parser, argv, measure, report.THROUGHPUT)


if __name__ == "__main__":
    main()
