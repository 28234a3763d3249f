"""The machine and the versions on which something was computed, for the logs of runs."""

import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

import torch


def describe(device: str = "cpu") -> dict:
    """Return the date, versions, processor, cores, threads and device, for a log."""
    installed = [each.version for each in distributions(name="vit-course")]  # none on Colab, which imports a clone
    cpuinfo = Path("/proc/cpuinfo")
    trade_name = re.search(r"model name\s*: (.+)", cpuinfo.read_text(encoding="utf-8") if cpuinfo.is_file() else "")
    return dict(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        python=platform.python_version(),
        torch=torch.__version__,
        vit_course=installed[0] if installed else "not installed",
        system=f"{platform.system()} {platform.machine()}",
        processor=trade_name[1] if trade_name else platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        threads=torch.get_num_threads(),
        device=torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device,
    )
