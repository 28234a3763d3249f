"""Where the time of a step goes, by groups of operators: ours and the published models.

    python -m tools.benchmarks.profile_step

``torch.profiler`` gives the time of every operator less that of the operators it calls. Those are added up by group;
what is left of a step's time is Python's and autograd's own. Watching costs time too, so the sums are somewhat larger
than the times in ``throughput.json``.
"""

import argparse
import os
import re

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from tools.benchmarks import cases, cli, machine, peers, report

STEP = "one step"
OPTIMIZER = "optimizer"
REST = "Python and autograd"
GROUPS = {  # the first pattern that an operator's name matches
    "matrix multiplications": r"aten::(mm|addmm|bmm|baddbmm|matmul)|linear|convolution",
    "fused attention": r"scaled_dot_product|multi_head_attention|qkv",
    "LayerNorm": r"layer_norm",
    "GELU": r"gelu",
    "softmax": r"softmax",
    "copies": r"aten::(copy_|cat|clone|_to_copy|contiguous|select_backward|slice_backward|fill_|zero_)",
    "sums": r"aten::(sum|mean)",
    "elementwise operations": r"aten::(add|mul|sub|div|neg|pow|sqrt)_?$",
}


def group_of(event: torch.autograd.profiler_util.FunctionEvent) -> str:
    """Return the group that an operator of the profile belongs to."""
    ancestor = event
    while ancestor is not None:
        if ancestor.name.startswith("Optimizer.step"):
            return OPTIMIZER
        ancestor = ancestor.cpu_parent
    return next((group for group, pattern in GROUPS.items() if re.search(pattern, event.name)), REST)


def seconds_by_group(model: torch.nn.Module, case: cases.Case, mode: str, *, steps: int) -> dict[str, float]:
    """Return the seconds a step that each group of operators takes; their sum is the step's."""
    step = cases.make_step(model, case, mode)
    for _ in range(2):
        step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            with record_function(STEP):
                step()
    seconds = dict.fromkeys([*GROUPS, OPTIMIZER, REST], 0.0)
    for event in profiler.events():
        seconds[group_of(event)] += event.self_cpu_time_total / 1e6 / steps
    return {group: round(value, 7) for group, value in seconds.items()}


def measure(options: argparse.Namespace) -> dict:
    """Profile every case and return the log."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own messages
    versions, _ = peers.find()
    result = dict(machine=machine.describe(), steps=options.steps, rows=[])
    for case in [cases.TINY] if options.quick else cases.CASES.values():
        for mode in cases.MODES:
            for name in [peers.OURS, *versions]:
                groups = seconds_by_group(peers.build(name, **case.sizes), case, mode, steps=options.steps)
                result["rows"].append(dict(case=case.title, mode=mode, name=name, groups=groups))
    return result


def main(argv: list[str] | None = None) -> None:
    """Profile, write the log, print the section of the page."""
    parser = cli.parser("Show where the time of a step goes.", report.PROFILE)
    parser.add_argument("--steps", type=int, default=5, help="steps of each model in each case (default: 5)")
    cli.run(parser, argv, measure, report.PROFILE)


if __name__ == "__main__":
    main()
