"""What a run ran on: versions, processor, threads. Measured figures mean little without it."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def processor() -> str:
    """Return the processor's trade name."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def course_version() -> str:
    """Return the version of the installed package, or say that it runs from a clone without being installed."""
    try:
        return version("vit-course")
    except PackageNotFoundError:
        return "not installed"


def describe(device: str = "cpu") -> dict:
    """Return the date, versions, processor, cores, threads and device, for a log."""
    return dict(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        python=platform.python_version(),
        torch=torch.__version__,
        vit_course=course_version(),
        system=f"{platform.system()} {platform.machine()}",
        processor=processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        threads=torch.get_num_threads(),
        device=torch.cuda.get_device_name() if torch.device(device).type == "cuda" else device,
    )
