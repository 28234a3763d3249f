"""The folder of a training run: config, environment, log, checkpoints, weights. Nothing in it is ever half written.

    config.json          what was asked for, and the run's identity
    environment.json     one entry a session: versions, processor, threads, processes
    log.jsonl            one line an epoch: the same, byte for byte, however often the run was interrupted
    times.jsonl          the same epochs: seconds, images a second
    checkpoints/         the last two; the file's name carries its step and the start of its SHA-256
                         (a damaged or foreign one is put aside as .refused)
    weights.safetensors  the trained model; load_trained reads it
    result.json          validation and test, and what it took

Loading runs no code from a file: JSON and safetensors only.
"""

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from vit_course import VisionTransformer

CHECKPOINTS_KEPT = 2


class RunError(Exception):
    """A run that cannot be started, continued or read; the message says why and what to do."""


@dataclass
class Progress:
    """Where a run stands; with the tensors, all that a checkpoint has to hold. Random numbers follow from the step.

    ``loss_sum`` adds up the losses of the running epoch, ``seconds`` the time of all sessions; the log had
    ``log_bytes`` bytes, of this SHA-256.
    """

    step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    log_bytes: int = 0
    log_sha256: str = field(default_factory=lambda: hashlib.sha256().hexdigest())


class RunFolder:
    """A run's folder, held by one process at a time: use it in a ``with`` statement.

    Args:
        path: the folder.
        report: is called with a line of text when something needs saying, such as a checkpoint that is refused.
        writable: False for a process that shares the run and leaves the writing to the first one.

    Raises:
        RunError: on entering: another process holds the folder, or it cannot be written to.
    """

    def __init__(
        self, path: str | Path, report: Callable[[str], None] = lambda line: None, *, writable: bool = True
    ) -> None:
        self.path = Path(path)
        self.writable = writable
        self.report = report if writable else lambda line: None
        self.checkpoints = self.path / "checkpoints"
        self.refused: list[Path] = []

    def __enter__(self) -> "RunFolder":
        if not self.writable:
            return self
        self._lock = FileLock(self.path / ".lock")
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self._lock.acquire(blocking=False)
            for leftover in self.path.rglob("*.partial"):  # of a session that was killed while it wrote
                leftover.unlink()
        except Timeout:
            raise RunError(f"{self.path} is in use: another process is training there") from None
        except OSError as error:
            raise RunError(f"--out must be a folder that can be written to; {self.path} is not: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        if self.writable:
            self._lock.release()

    @property
    def started(self) -> bool:
        """Whether a run has been started here."""
        return (self.path / "config.json").exists()

    def start(self, config: dict) -> None:
        """Begin a run with this config, in a folder that holds none."""
        self.write_json("config.json", dict(run=uuid.uuid4().hex, **config))

    def config(self) -> dict:
        """Return the config of the run in this folder.

        Raises:
            RunError: there is none, or it cannot be read.
        """
        return {name: value for name, value in self._identity().items() if name != "run"}

    def read_json(self, name: str, kind: type = dict) -> dict | list:
        """Return what a JSON file of the folder holds."""
        try:
            value = json.loads((self.path / name).read_text(encoding="utf-8"))
            if not isinstance(value, kind):
                raise ValueError(f"expected a JSON {kind.__name__}, got {type(value).__name__}")
        except (OSError, ValueError) as error:
            raise RunError(f"{self.path / name} cannot be read: {error}") from error
        return value

    def write_json(self, name: str, value: object) -> None:
        """Put a JSON file in place, in one move."""
        self._write(self.path / name, (json.dumps(value, indent=2) + "\n").encode())

    def add_session(self, environment: dict) -> None:
        """Add this session's versions and machine to the list."""
        sessions = self.read_json("environment.json", list) if (self.path / "environment.json").exists() else []
        self.write_json("environment.json", [*sessions, environment])

    def log(self, progress: Progress, record: dict, times: dict) -> None:
        """Add one line to the log and one to the times; the next checkpoint makes them last."""
        line = (json.dumps(record) + "\n").encode()
        for name, text in (("log.jsonl", line), ("times.jsonl", (json.dumps(times) + "\n").encode())):
            with _writing(self.path / name), (self.path / name).open("ab") as file:
                _write_through(file, text)
        written = (self.path / "log.jsonl").read_bytes()
        progress.log_bytes, progress.log_sha256 = len(written), hashlib.sha256(written).hexdigest()

    def save_checkpoint(self, progress: Progress, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Write a checkpoint, and drop all but the last two."""
        tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in state.items()}
        content = _pack(tensors, dict(run=self._identity(), progress=vars(progress)))
        self._write(self.checkpoints / _checkpoint_name(progress.step, content), content)
        for old in self._checkpoints()[CHECKPOINTS_KEPT:]:
            with _writing(old):
                old.unlink()

    def load_checkpoint(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Load the last checkpoint that is whole and this run's own.

        One that is truncated, altered or another run's is reported with the reason, and the one before it is tried;
        :meth:`rewind` puts it aside.
        A run that was stopped before its first checkpoint starts from the beginning.

        Raises:
            RunError: there are checkpoints, and none can be used.
        """
        reasons = []
        for path in self._checkpoints():
            try:
                progress, tensors = self._read(path)
                self._restore(model, optimizer, tensors)
            except (RunError, OSError, KeyError, TypeError, ValueError) as error:
                self.refused.append(path)
                reasons.append(f"{path.name} is refused: {error}")
            else:
                for reason in reasons:
                    self.report(reason)
                return progress
        if reasons:
            raise RunError(
                f"no checkpoint in {self.checkpoints} can be used: " + "; ".join(reasons) + ". "
                "Put an intact one back, or train anew into another folder with --out"
            )
        return Progress()

    def last_record(self) -> dict:
        """Return the log's last line."""
        return json.loads((self.path / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])

    def result(self) -> dict | None:
        """Return what the finished run came to, or None while it is not finished."""
        return self.read_json("result.json") if (self.path / "result.json").exists() else None

    def save_weights(self, model: VisionTransformer, about: dict) -> str:
        """Write ``weights.safetensors``; return its SHA-256. ``about`` is what :func:`load_trained` returns."""
        digest = hashlib.sha256(_pack(model.state_dict(), about)).hexdigest()
        content = _pack(model.state_dict(), dict(**about, sha256=digest))
        self._write(self.path / "weights.safetensors", content)
        return hashlib.sha256(content).hexdigest()

    def _identity(self) -> dict:
        """Return what a checkpoint must agree with: the whole of config.json."""
        config = self.read_json("config.json")
        if "run" not in config:
            raise RunError(f"{self.path / 'config.json'} lacks the run's identity: it is not one of this command's")
        return config

    def _checkpoints(self) -> list[Path]:
        return sorted(self.checkpoints.glob("step_*.safetensors"), reverse=True)

    def _read(self, path: Path) -> tuple[Progress, dict[str, Tensor]]:
        content = path.read_bytes()
        expected, came = path.stem.rpartition("_")[2], hashlib.sha256(content).hexdigest()
        if came[:16] != expected:
            raise RunError(f"truncated or altered: its name says SHA-256 {expected}…, its contents have {came[:16]}…")
        tensors, about = _unpack(content)
        if about.get("run", {}).get("run") != self._identity()["run"]:
            raise RunError("it belongs to another run")
        differences = ", ".join(_differences(about["run"], self._identity()))
        if differences:
            raise RunError(f"config.json has changed since: {differences}")
        progress = Progress(**about["progress"])
        if path.name != _checkpoint_name(progress.step, content):
            raise RunError(f"renamed: it was written after step {progress.step}")
        log = self.path / "log.jsonl"
        written = log.read_bytes()[: progress.log_bytes] if log.exists() else b""
        if hashlib.sha256(written).hexdigest() != progress.log_sha256:
            raise RunError("log.jsonl is not the one it was written with: lines have been changed or lost")
        return progress, tensors

    def _restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
        weights = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".", 2)
                states.setdefault(int(index), {})[key] = value
        try:
            model.load_state_dict(weights)
        except RuntimeError as error:
            raise RunError(f"its weights do not fit the model: {error}") from error
        optimizer.load_state_dict(optimizer.state_dict() | dict(state=states))

    def rewind(self, progress: Progress) -> None:
        """Take the log back to where it was at this checkpoint; what came after will be written again.

        Checkpoints that were refused get another name, or they would count among the last two.
        """
        for path in self.refused:
            with _writing(path):
                path.rename(path.with_name(f"{path.name}.refused"))
        self.refused = []
        log, times = self.path / "log.jsonl", self.path / "times.jsonl"
        kept = log.read_bytes()[: progress.log_bytes] if log.exists() else b""
        self._write(log, kept)
        lines = times.read_bytes().splitlines(keepends=True) if times.exists() else []
        self._write(times, b"".join(lines[: kept.count(b"\n")]))

    def _write(self, path: Path, content: bytes) -> None:
        """Write beside the place, then move there: the file is whole or absent, whenever the power fails."""
        partial = path.with_name(f"{path.name}.partial")
        with _writing(path):
            try:
                with partial.open("wb") as file:
                    _write_through(file, content)
                os.replace(partial, path)
            finally:
                partial.unlink(missing_ok=True)


def load_trained(path: str | Path) -> tuple[VisionTransformer, dict]:
    """Load a trained model and what belongs to it.

    Args:
        path: a file ``weights.safetensors`` of a run, or the name of the model that comes with the course:
            ``"fashion_mnist"``, patch size 4.

    Returns:
        The model, in eval mode, and ``about``: ``class_names``, ``mean`` and ``std`` of the training images,
        a list with one number a channel each, and ``dataset``.

    Raises:
        ValueError: no such file, or one that is damaged or is not a trained model of this course.
    """
    shipped = {"fashion_mnist": Path(__file__).resolve().parents[1] / "resources" / "fashion_mnist_patch4.safetensors"}
    path = shipped.get(str(path), Path(path))
    try:
        tensors, about = _unpack(path.read_bytes())
        if about.pop("sha256", None) != hashlib.sha256(_pack(tensors, about)).hexdigest():
            raise RunError("altered since it was saved: its SHA-256 is missing or another")
        sizes = about.pop("model")
        model = VisionTransformer(**sizes | dict(image_size=tuple(sizes["image_size"])))
        model.load_state_dict(tensors)
    except (OSError, RunError, RuntimeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"path must be weights.safetensors of a run, or one of {', '.join(map(repr, shipped))}; "
            f"{path} is not: {error}"
        ) from error
    return model.eval(), about


def _pack(tensors: dict[str, Tensor], about: dict) -> bytes:
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(tensors, metadata=dict(vit_course=json.dumps(about)))  # one entry: several have no fixed order


def _unpack(content: bytes) -> tuple[dict[str, Tensor], dict]:
    try:
        size = int.from_bytes(content[:8], "little")
        about = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["vit_course"])
        if not isinstance(about, dict):
            raise ValueError(f"its metadata hold a {type(about).__name__}")
        return load(content), about
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"not a whole safetensors file of this course ({error})") from error


def _checkpoint_name(step: int, content: bytes) -> str:
    return f"step_{step:09d}_{hashlib.sha256(content).hexdigest()[:16]}.safetensors"


def _differences(old: dict, new: dict) -> Iterator[str]:
    for name in {**old, **new}:
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after)
        elif before != after:
            yield f"{name} was {before!r}, is {after!r}"


def _write_through(file: BinaryIO, content: bytes) -> None:
    """Write, and return when it is on the disk."""
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say which file could not be written."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path} cannot be written: {error}. What was saved before is intact; continue with --resume"
        ) from error
