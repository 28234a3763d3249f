"""The folder of a training run, in which no file is ever half written and none is unpickled.

config.json          what was asked for
environment.json     one entry per session: versions, processor, threads, processes
log.jsonl            one line per epoch: the same, byte for byte, however often the run was interrupted
times.jsonl          the same epochs: seconds, images per second
checkpoints/         the last two, named after their step
weights.safetensors  the trained model, which load_trained reads
result.json          validation and test results, and the time that the run took
"""

import json
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from torch import nn, optim

from vit_course import weights


@dataclass
class Progress:
    """How far a run is: steps, the sum of the current epoch's losses, and the time of all sessions."""

    step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0


class RunFolder:
    """The files of one run, in the folder ``path``."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder, and keep all other processes from training in it; :class:`ValueError` if that fails."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path / ".lock").acquire(blocking=False)
        except Timeout:
            raise ValueError(f"{self.path} is in use: another process is training there") from None
        except OSError as error:
            raise ValueError(f"--out must be a folder that can be written to; {self.path} is not: {error}") from error
        with lock:
            yield

    def has(self, name: str) -> bool:
        """Whether a file is there: ``config.json`` in a run that was started, ``result.json`` in a finished one."""
        return (self.path / name).exists()

    def read_json(self, name: str) -> dict | list:
        """Return what a JSON file of the folder holds."""
        return json.loads((self.path / name).read_text(encoding="utf-8"))

    def write_json(self, name: str, value: object) -> None:
        """Write a JSON file."""
        self.write(name, json.dumps(value, indent=2) + "\n")

    def read_lines(self, name: str) -> list[str]:
        """Return the lines of ``log.jsonl`` or ``times.jsonl``, each a JSON object."""
        return (self.path / name).read_text(encoding="utf-8").splitlines(keepends=True) if self.has(name) else []

    def add_line(self, name: str, line: dict) -> None:
        """Add a line to ``log.jsonl`` or ``times.jsonl``."""
        self.write(name, "".join([*self.read_lines(name), json.dumps(line) + "\n"]))

    def rewind(self, step: int) -> None:
        """Drop the lines of epochs that ended after this step: they will be written again."""
        log = [line for line in self.read_lines("log.jsonl") if json.loads(line)["step"] <= step]
        self.write("log.jsonl", "".join(log))
        self.write("times.jsonl", "".join(self.read_lines("times.jsonl")[: len(log)]))

    def save_checkpoint(self, progress: Progress, model: nn.Module, optimizer: optim.Optimizer) -> None:
        """Write a checkpoint, and drop all but the last two."""
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
        about = dict(config=self.read_json("config.json"), progress=vars(progress))
        self.write(f"checkpoints/step_{progress.step:09d}.safetensors", weights.packed(tensors, about))
        for old in self._checkpoints()[:-2]:
            old.unlink()

    def load_checkpoint(self, model: nn.Module, optimizer: optim.Optimizer) -> Progress:
        """Load the last checkpoint; a run without one is at its beginning."""
        if not self._checkpoints():
            return Progress()
        path = self._checkpoints()[-1]
        try:
            tensors, about = weights.unpacked(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read: {error}. Delete it to continue from the one before it") from error
        if about["config"] != self.read_json("config.json"):
            raise ValueError(f"{path} is of a run with another config.json: put that one back, or name another --out")
        states: dict[int, dict] = {}
        for name in [name for name in tensors if name.startswith("optimizer.")]:
            _, index, entry = name.split(".", 2)
            states.setdefault(int(index), {})[entry] = tensors.pop(name).clone()
        model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
        optimizer.load_state_dict(optimizer.state_dict() | dict(state=states))
        return Progress(**about["progress"])

    def _checkpoints(self) -> list[Path]:
        return sorted(self.path.glob("checkpoints/step_*.safetensors"))

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file under another name, then move it into place: it is whole or absent, even if the power fails."""
        path = self.path / name
        partial = path.with_name(f"{path.name}.partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise ValueError(
                f"{path} cannot be written: {error}. What was saved before is intact; continue with --resume"
            ) from error


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
