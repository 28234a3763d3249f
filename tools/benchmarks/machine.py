"""What the benchmarks ran on: what the training command notes of it, and the measured peak of its matrix product."""

import os
import time
from pathlib import Path

import torch

from vit_course import machine


def matmul_peak() -> float:
    """Return the highest rate of ``torch.mm`` on square float32 matrices, in floating-point operations per second."""
    best = 0.0
    for side in (1024, 2048):
        a, b = torch.randn(2, side, side)
        out = torch.mm(a, b)
        for _ in range(5):
            start = time.perf_counter()
            torch.mm(a, b, out=out)
            best = max(best, 2 * side**3 / (time.perf_counter() - start))
    return best


def load() -> float | None:
    """Return the load average of the last minute, or None where the system has none."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def describe() -> dict:
    """Return what a log records of the machine, with the load before anything is measured and the measured peak."""
    return machine.describe() | dict(load=load(), matmul_flops=matmul_peak(), bfloat16=bfloat16())


def bfloat16() -> list[str]:
    """Return the processor's instructions for bfloat16, by the names that Linux gives them."""
    cpuinfo = Path("/proc/cpuinfo")
    words = cpuinfo.read_text(encoding="utf-8").split() if cpuinfo.is_file() else ()
    return sorted({"avx512_bf16", "amx_bf16"}.intersection(words))
