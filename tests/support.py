"""What several test files use: small models, random weights and tensors, Hugging Face's model, and tiny runs."""

import json
import linecache
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import jaxtyping
import torch
from filelock import FileLock
from torch import Tensor, nn

from tools.benchmarks import peers
from vit_course import VisionTransformer

# a model small enough to be instant, with every size different from every other
SMALL = dict(image_size=(8, 12), patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=24, num_classes=5)


def as_run_by_readers() -> AbstractContextManager:
    """Switch the checking of types off for a while."""
    return mock.patch.object(jaxtyping.config, "jaxtyping_disable", True)


def randomize_(module: nn.Module, *, seed: int = 0, std: float = 0.3) -> nn.Module:
    """Draw every parameter anew, so that zeros and ones at the start hide no fault; in double precision, eval mode."""
    generator = torch.Generator().manual_seed(seed)
    module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=std, generator=generator)
    return module


def randn(*shape: int, seed: int = 1) -> Tensor:
    """Draw a double-precision tensor, the same one for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small_model(**changes) -> VisionTransformer:
    """Build the small model with random weights."""
    return randomize_(VisionTransformer(**SMALL | changes))


def images_of(model: VisionTransformer) -> Tensor:
    """Draw three images of the size that the model reads."""
    embedding = model.embedding.patch_embedding
    return randn(3, embedding.in_channels, *embedding.image_size)


def assert_equal(actual, expected, *, atol: float = 1e-12) -> None:
    """Assert equal values, shapes and types; ``atol=0`` for bit by bit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of all parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def parameter_count(module: nn.Module) -> int:
    """Return the number of all trained values of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def hugging_face(**sizes) -> nn.Module:
    """Build Hugging Face's model of these sizes, with other random weights."""
    return randomize_(peers.hugging_face(**dict(in_channels=3) | sizes).model, seed=3)


def run_python(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run Python in a process of its own; the timeout is there only to keep a hanging test from waiting forever."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, **options)


def wait_until(happened: Callable[[], object], every: float = 0.001) -> None:
    """Wait for something, looking again after so many seconds; the timeout is there only for a test that hangs."""
    deadline = time.monotonic() + 600
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(every)


def once(tmp_path_factory, name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder that ``fill`` has filled, once for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    filled = folder.with_suffix(".filled")
    with FileLock(folder.with_suffix(".lock")):
        if not filled.exists():
            folder.mkdir(exist_ok=True)
            fill(folder)
            filled.touch()
    return folder


def run_cell(source: str, names: dict[str, object], place: str) -> None:
    """Run code as a cell of a notebook, whose source stays readable under the name of its place."""
    linecache.cache[place] = len(source), None, source.splitlines(keepends=True), place
    exec(compile(source, place, "exec"), names)


# a run on the digits; 719 images to train on: 5 steps an epoch, 79 images left out; a checkpoint after every second
# step and after every epoch
TINY = shlex.split(
    "--dataset digits --threads 1 --num-layers 1 --num-heads 2 --hidden-dim 16 --mlp-dim 16 --epochs 3 "
    "--batch-size 128 --valid-fraction 0.5 --checkpoint-steps 2 --dropout 0.1 --flip --crop 1"
)


def outcome(folder: Path) -> dict[str, bytes]:
    """Return what must be the same however often a run was interrupted."""
    return {name: (folder / name).read_bytes() for name in ("weights.safetensors", "log.jsonl")}


def checkpoints(folder: Path) -> list[Path]:
    """Return a run's checkpoints, the last one first."""
    return sorted((folder / "checkpoints").glob("step_*.safetensors"), reverse=True)


def records(folder: Path, name: str = "log.jsonl") -> list[dict]:
    """Return the lines of a log."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]
