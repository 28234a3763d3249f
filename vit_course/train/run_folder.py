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
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout
from torch import nn, optim

from vit_course import weights
from vit_course.atomic import replacing


@dataclass
class Progress:
    """How far a run is, and the lines of its logs, one per epoch."""

    step: int = 0
    loss_sum: float = 0.0  # of the current epoch
    seconds: float = 0.0  # of all sessions
    log: list[dict] = field(default_factory=list)
    times: list[dict] = field(default_factory=list)


class RunFolder:
    """The files of one run, in the folder ``path``."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def locked(self) -> AcquireReturnProxy:
        """Make the folder, and keep other processes from training in it during a ``with`` block."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return FileLock(self.path / ".lock").acquire(blocking=False)
        except Timeout:
            raise ValueError(f"{self.path} is in use: another process is training there") from None
        except OSError as error:
            raise ValueError(f"--out must be a folder that can be written to; {self.path} is not: {error}") from error

    def read_json(self, name: str) -> dict | list | None:
        """Return what a JSON file of the folder holds, None without the file; ``ValueError`` if it is damaged."""
        path = self.path / name
        try:
            return json.loads(path.read_bytes()) if path.exists() else None
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}): put it back, or choose another --out") from error

    def write_json(self, name: str, value: object) -> None:
        """Write a JSON file; the values of a list in ``.jsonl`` get a line each."""
        lines = map(json.dumps, value) if name.endswith(".jsonl") else [json.dumps(value, indent=2)]
        self.write(name, "".join(f"{line}\n" for line in lines).encode())

    def save_checkpoint(self, progress: Progress, model: nn.Module, optimizer: optim.Optimizer) -> None:
        """Write a checkpoint, and drop all but the last two."""
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
        about = dict(config=self.read_json("config.json"), progress=vars(progress))
        self.write(f"checkpoints/step_{progress.step:09d}.safetensors", weights.packed(tensors, about))
        for old in self._checkpoints()[:-2]:
            old.unlink()

    def load_checkpoint(self, model: nn.Module, optimizer: optim.Optimizer) -> tuple[Progress, str]:
        """Load the newest checkpoint that can be read; return its progress, and what is wrong with a newer one.

        A run without a checkpoint is at its beginning.

        Raises:
            ValueError: all checkpoints are damaged, or the one that can be read belongs to another config.
        """
        damage = []
        for path in reversed(self._checkpoints()):
            try:
                tensors, about = weights.unpacked(path)
            except (OSError, ValueError) as error:
                damage.append(f"{path} cannot be read: {error}")
                continue
            if about["config"] != self.read_json("config.json"):
                raise ValueError(f"{path} is of a run with another config.json: put that one back, or change --out")
            states = defaultdict(dict)
            for name in [name for name in tensors if name.startswith("optimizer.")]:
                _, index, entry = name.split(".")
                states[int(index)][entry] = tensors.pop(name).clone()
            model.load_state_dict({name.removeprefix("model."): tensor for name, tensor in tensors.items()})
            optimizer.load_state_dict(optimizer.state_dict() | dict(state=states))
            return Progress(**about["progress"]), "; ".join(damage)
        if damage:
            raise ValueError(f"{'; '.join(damage)}. Delete what is damaged to train from the beginning")
        return Progress(), ""

    def _checkpoints(self) -> list[Path]:
        return sorted(self.path.glob("checkpoints/step_*.safetensors"))

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which is whole or absent whatever happens."""
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                partial.write_bytes(content)
        except OSError as error:
            intact = "What was saved before is intact; continue with --resume"
            raise ValueError(f"{path} cannot be written: {error}. {intact}") from error
