"""Time a training step of our model in float32 and in bfloat16, and train the digits in both.

    python -m tools.benchmarks.mixed_precision                     about four minutes on two cores
    python -m tools.benchmarks.mixed_precision --quick --out F     a tiny model, a few seconds: does it run?

Steps alternate as in ``throughput.py``. In bfloat16 the model runs under ``torch.autocast``, as the training command
runs it: matrix products in bfloat16; weights, gradients and loss in float32.
"""

import argparse

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
    history = training.fit(model, train_set, valid_set, seed=seed, progress=False, **FIT | dict(epochs=epochs))
    return history["valid_accuracy"][-1]


def measure(options: argparse.Namespace) -> dict:
    """Measure every case and the digits; return the log."""
    chosen = {"tiny": cases.TINY} if options.quick else cases.CASES
    result = dict(machine=machine.describe(), rounds=options.rounds, epochs=3 if options.quick else 10, cases=[])
    for case in chosen.values():
        models = {name: in_precision(peers.build(peers.OURS, **case.sizes), name) for name in PRECISIONS}
        steps = {name: cases.make_step(model, case, "training") for name, model in models.items()}
        round_robin(steps, WARM_UP)
        entry = dict(case=case.title, batch=case.batch, seconds=round_robin(steps, options.rounds))
        result["cases"].append(entry)
    result["digits"] = {
        name: [digits_accuracy(name, seed, result["epochs"]) for seed in range(1 if options.quick else 3)]
        for name in PRECISIONS
    }
    return result


def main(argv: list[str] | None = None) -> None:
    """Measure, write the log, print the section of the page."""
    parser = cli.parser("Time a training step in float32 and in bfloat16.", report.PRECISION)
    parser.add_argument("--rounds", type=int, default=16, help="steps in each precision in each case (default: 16)")
    cli.run(parser, argv, measure, report.PRECISION)


if __name__ == "__main__":
    main()
