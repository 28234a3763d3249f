"""What several test files of the training command use: a tiny run on digits, and what it leaves behind."""

import json
import shlex
from pathlib import Path

# 719 images to train on: 5 steps an epoch, 79 images left out; a checkpoint after steps 2 and 4, and after every epoch
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
