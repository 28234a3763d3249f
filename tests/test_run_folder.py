"""Files of a run: never half written, read without running code, damage is named; checkpoints are in test_train.py."""

import errno
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support import SMALL, Harmful, randomize_

from vit_course import VisionTransformer, weights
from vit_course.train.run_folder import RunFolder
from vit_course.weights import load_trained

ABOUT = dict(model=SMALL, dataset="letters", class_names=[*"abcde"], mean=[0.1, 0.2, 0.3], std=[1 / 3] * 3)


@pytest.fixture
def folder(tmp_path):
    """Return a folder in which a run has been started."""
    folder = RunFolder(tmp_path / "run")
    folder.write_json("config.json", dict(seed=3))
    return folder


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--out must be a folder that can be written to; .*file is not"):
        RunFolder(tmp_path / "file").locked()


def test_a_write_that_fails_leaves_the_old_file_and_names_it(folder, monkeypatch):
    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = sorted(folder.path.rglob("*"))
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(ValueError, match=r"config.json cannot be written: .*No space left.*; continue with --resume"):
        folder.write_json("config.json", dict(other=1))
    assert folder.read_json("config.json") == dict(seed=3)
    assert sorted(folder.path.rglob("*")) == before


@pytest.fixture
def trained(folder):
    """Return a trained model's file."""
    model = randomize_(VisionTransformer(**SMALL)).float()
    folder.write("weights.safetensors", weights.packed_with_checksum(model.state_dict(), ABOUT))
    return folder.path / "weights.safetensors"


def too_wide(path: Path) -> None:
    about = ABOUT | dict(model=SMALL | dict(hidden_dim=15))
    path.write_bytes(weights.packed_with_checksum(load_trained(path)[0].state_dict(), about))


def flip_bit(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5] + bytes([path.read_bytes()[-5] ^ 1]) + path.read_bytes()[-4:])


NOT_OURS = "not a whole safetensors file of this course"
DAMAGE = {
    "missing": (lambda path: path.unlink(), "No such file"),
    "another library's": (lambda path: save_file(dict(a=torch.zeros(3)), path), NOT_OURS),
    "sizes that do not fit": (too_wide, "hidden_dim must be divisible by num_heads=2; got 15"),
    "a flipped bit": (flip_bit, "its contents do not have the SHA-256 that was saved with them"),
    "a pickle": (lambda path: path.write_bytes(pickle.dumps(Harmful())), NOT_OURS),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_file_that_is_no_trained_model_is_refused_and_runs_no_code(case, trained, capsys):
    path, (damage, reason) = trained, DAMAGE[case]
    damage(path)
    message = f"path must be weights.safetensors of a run, or one of 'fashion_mnist'; {path} is not: .*{reason}"
    with pytest.raises(ValueError, match=message):
        load_trained(path)
    assert "harm" not in capsys.readouterr().out
