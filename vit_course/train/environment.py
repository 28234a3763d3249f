"""What a run was trained on: versions, processor, threads. Measured times mean little without it."""

import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def processor() -> str:
    """Return the processor's trade name."""
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", path.read_text(encoding="utf-8")) if path.is_file() else None
    return found[1] if found else platform.processor() or platform.machine()


def describe(device: str = "cpu") -> dict:
    """Return the date, versions, processor, cores, threads and device, for a log."""
    try:
        course_version = version("vit-course")
    except PackageNotFoundError:  # on Colab, the package is imported from a clone
        course_version = "not installed"
    return dict(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        python=platform.python_version(),
        torch=torch.__version__,
        vit_course=course_version,
        system=f"{platform.system()} {platform.machine()}",
        processor=processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        threads=torch.get_num_threads(),
        device=torch.cuda.get_device_name() if torch.device(device).type == "cuda" else device,
    )
