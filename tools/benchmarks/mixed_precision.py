"""Time a training step of our model in float32 and in bfloat16, and train the digits in both.

    python -m tools.benchmarks.mixed_precision                     about five minutes on two cores
    python -m tools.benchmarks.mixed_precision --quick --out F     a tiny model, a few seconds: does it run?

Steps alternate as in ``throughput.py``. In bfloat16 the model runs under ``torch.autocast``, as the training command
runs it: matrix products in bfloat16; weights, gradients and loss in float32. Everything is timed with the processor's
instructions for bfloat16, if it has any, and then again without them.
"""

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import torch

from tools.benchmarks import cases, cli, machine, peers, report
from tools.benchmarks.throughput import WARM_UP, round_robin
from tools.train_digits import FIT, MODEL
from vit_course import VisionTransformer, training
from vit_course.data import load_dataset

PRECISIONS = ("float32", "bfloat16")


def in_precision(model: torch.nn.Module, precision: str) -> torch.nn.Module:
    """Let the forward pass of a model run under autocast, if it is asked for; the logits are float32."""
    if precision == "bfloat16":
        forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
        model.forward = lambda images: forward(images).float()
    return model


def digits_accuracy(precision: str, seed: int, epochs: int) -> float:
    """Train the digits by the recipe of lesson 06, shortened; return the validation accuracy."""
    train_set, valid_set = load_dataset("digits")[0].normalized().split(0.15)
    torch.manual_seed(seed)
    model = in_precision(VisionTransformer(**MODEL), precision)
    history = training.fit(model, train_set, valid_set, seed=seed, **FIT | dict(epochs=epochs))
    return history["valid_accuracy"][-1]


def step_times(chosen: list[cases.Case], rounds: int, threads: int) -> list[dict]:
    """Return the seconds of a training step of every case, in both precisions."""
    torch.set_num_threads(threads)
    entries = []
    for case in chosen:
        models = {name: in_precision(peers.build(peers.OURS, **case.sizes), name) for name in PRECISIONS}
        steps = {name: cases.make_step(model, case, "training") for name, model in models.items()}
        round_robin(steps, WARM_UP)
        entries.append(dict(case=case.title, batch=case.batch, seconds=round_robin(steps, rounds)))
    return entries


def without_instructions(chosen: list[cases.Case], rounds: int, threads: int) -> list[dict]:
    """Return the same of a process in which oneDNN, PyTorch's library for matrix products, has only AVX2."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"  # of 2013; instructions for bfloat16 came in 2020
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(step_times, chosen, rounds, threads).result()
    finally:
        del os.environ["ONEDNN_MAX_CPU_ISA"]


def measure(options: argparse.Namespace) -> dict:
    """Measure every case and the digits; return the log."""
    chosen = [cases.TINY] if options.quick else list(cases.CASES.values())
    threads, epochs = torch.get_num_threads(), 3 if options.quick else 10
    return dict(
        machine=machine.describe(),
        rounds=options.rounds,
        epochs=epochs,
        cases=step_times(chosen, options.rounds, threads),
        without=without_instructions(chosen, min(options.rounds, 3), threads),
        digits={
            name: [digits_accuracy(name, seed, epochs) for seed in range(1 if options.quick else 3)]
            for name in PRECISIONS
        },
    )


def main(argv: list[str] | None = None) -> None:
    """Measure, write the log, print the section of the page."""
    parser = cli.parser("Time a training step in float32 and in bfloat16.", report.PRECISION)
    parser.add_argument("--rounds", type=int, default=16, help="steps in each precision in each case (default: 16)")
    cli.run(parser, argv, measure, report.PRECISION)


if __name__ == "__main__":
    main()
