"""A run's folder: never half written, read without running code, and damage is refused by name."""

import errno
import hashlib
import json
import os
import pickle
import random
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save, save_file
from support import SMALL, assert_equal, parameters_of, randomize_
from torch import nn

from vit_course import VisionTransformer
from vit_course.runs import Progress, RunError, RunFolder, load_trained

CONFIG = dict(seed=3, recipe=dict(epochs=4, peak_lr=2e-3))
ABOUT = dict(model=SMALL, dataset="letters", class_names=[*"abcde"], mean=[0.1, 0.2, 0.3], std=[1 / 3] * 3)


class Bomb:
    """Unpickled, it leaves a file behind."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def model_and_optimizer(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a small model that has made two steps, or the moments of AdamW would be missing."""
    model = randomize_(VisionTransformer(**SMALL), seed=seed).float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2):
        step(model, optimizer)
    return model, optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    images = torch.linspace(-1, 1, 2 * 3 * 8 * 12).reshape(2, 3, 8, 12)
    model(images).square().sum().backward()
    optimizer.step()


@pytest.fixture
def folder(tmp_path):
    """Return a folder in which a run has been started."""
    with RunFolder(tmp_path / "run") as folder:
        folder.start(CONFIG)
        yield folder


def log_line(folder: RunFolder, progress: Progress, epoch: int) -> None:
    folder.log(progress, dict(epoch=epoch, loss=1 / 3), dict(epoch=epoch, seconds=0.5))


# Config and other JSON


def test_a_config_comes_back_as_it_was_and_every_run_is_another(tmp_path):
    runs = []
    for name in "ab":
        with RunFolder(tmp_path / name) as folder:
            assert not folder.started
            folder.start(CONFIG)
            assert folder.started
            assert folder.config() == CONFIG
            runs.append(folder.read_json("config.json")["run"])
    assert runs[0] != runs[1]


def test_every_session_is_listed(folder):
    for threads in (1, 2):
        folder.add_session(dict(threads=threads))
    assert folder.read_json("environment.json", list) == [dict(threads=1), dict(threads=2)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "config.json cannot be read: .*No such file"),
        (b"", "config.json cannot be read: Expecting value"),
        (b'{"run": "a', "config.json cannot be read: Unterminated string"),
        (b"\xff\xfe", "config.json cannot be read: .*can't decode"),
        (b"[1]", "config.json cannot be read: expected a JSON dict, got list"),
        (b'{"seed": 3}', "config.json lacks the run's identity"),
    ],
)
def test_a_config_that_is_none_is_refused(content, message, folder):
    path = folder.path / "config.json"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(RunError, match=message):
        folder.config()


# One process at a time


def test_a_folder_in_use_is_refused_until_the_other_process_is_gone(tmp_path):
    with RunFolder(tmp_path):
        pass
    code = "import sys; from filelock import FileLock; a = FileLock(sys.argv[1]).acquire(); print(flush=True); input()"
    command = [sys.executable, "-c", code, tmp_path / ".lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(RunError, match="is in use: another process is training there"), RunFolder(tmp_path):
            pass
        other.kill()
    with RunFolder(tmp_path) as folder:
        assert not folder.started


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_made_is_named(place, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=f"--out must be a folder that can be written to; .*{place} is not"):
        RunFolder(tmp_path / place).__enter__()


def test_who_only_reads_makes_no_folder_and_says_nothing(tmp_path):
    said = []
    with RunFolder(tmp_path / "run", said.append, writable=False) as folder:
        folder.report("a line")
        assert (folder.started, folder.result()) == (False, None)
    assert said == []
    assert not (tmp_path / "run").exists()


# Never half written


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_names_it(call, folder, monkeypatch):
    def no_room(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = sorted(folder.path.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr(os, call, no_room)
        with pytest.raises(RunError, match=r"config.json cannot be written: .*No space left.*; continue with --resume"):
            folder.write_json("config.json", dict(other=1))
    assert folder.config() == CONFIG
    assert sorted(folder.path.rglob("*")) == before


def test_what_a_killed_session_left_half_written_is_removed(folder):
    halves = [folder.path / "result.json.partial", folder.checkpoints / "step_000000002_0.safetensors.partial"]
    for half in halves:
        half.write_text("{")
    folder.__exit__()
    with folder:
        assert not any(half.exists() for half in halves)
        assert folder.config() == CONFIG


# The log


def test_rewind_takes_the_log_back_to_the_checkpoint(folder):
    progress = Progress()
    log_line(folder, progress, 1)
    assert (folder.path / "log.jsonl").read_text() == '{"epoch": 1, "loss": 0.3333333333333333}\n'
    assert progress.log_bytes == (folder.path / "log.jsonl").stat().st_size
    kept = {name: (folder.path / name).read_bytes() for name in ("log.jsonl", "times.jsonl")}
    log_line(folder, Progress(), 2)
    for name in kept:
        with (folder.path / name).open("a") as file:
            file.write('{"epoch": 3, "lo')  # and a half line more
    folder.rewind(progress)
    assert {name: (folder.path / name).read_bytes() for name in kept} == kept
    folder.rewind(Progress())
    assert (folder.path / "log.jsonl").read_bytes() == (folder.path / "times.jsonl").read_bytes() == b""


def test_the_last_record_is_the_logs_last_line(folder):
    progress = Progress()
    for epoch in (1, 2):
        log_line(folder, progress, epoch)
    assert folder.last_record() == dict(epoch=2, loss=1 / 3)


# Checkpoints


def test_a_checkpoint_brings_back_weights_moments_and_progress(folder):
    model, optimizer = model_and_optimizer()
    progress = Progress(step=7, loss_sum=1 / 3, seconds=2.5)
    log_line(folder, progress, 1)
    folder.save_checkpoint(progress, model, optimizer)
    again, other_optimizer = model_and_optimizer(seed=1)
    assert folder.load_checkpoint(again, other_optimizer) == progress
    for _ in range(2):  # moments and their step count show only in what they do next
        assert_equal(parameters_of(again), parameters_of(model), atol=0)
        step(model, optimizer)
        step(again, other_optimizer)


def test_a_name_tells_the_step_and_the_contents_and_two_are_kept(folder):
    model, optimizer = model_and_optimizer()
    for number in (8, 9, 10, 11):
        folder.save_checkpoint(Progress(step=number), model, optimizer)
    paths = sorted(folder.checkpoints.iterdir())
    digests = [hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths]
    assert [path.name for path in paths] == [
        f"step_0000000{number}_{digest}.safetensors" for number, digest in zip((10, 11), digests, strict=True)
    ]


def test_without_checkpoints_a_run_is_at_its_beginning(folder):
    model, optimizer = model_and_optimizer()
    before = parameters_of(model)
    assert folder.load_checkpoint(model, optimizer) == Progress(0, 0.0, 0.0, 0, hashlib.sha256(b"").hexdigest())
    assert_equal(parameters_of(model), before, atol=0)


def rewrite(folder: RunFolder, change, tensors=None) -> None:
    """Put a checkpoint with other metadata in place of the last one, under the name that its contents ask for."""
    last = max(folder.checkpoints.glob("step_*"))
    content = last.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    about = change(json.loads(header["__metadata__"]["vit_course"]))
    content = save(tensors or dict(a=torch.zeros(1)), metadata=dict(vit_course=json.dumps(about)))
    last.unlink()
    (folder.checkpoints / f"step_000000009_{hashlib.sha256(content).hexdigest()[:16]}.safetensors").write_bytes(content)


STRANGE = {
    "metadata that are a list": (lambda about: [1], "its metadata hold a list"),
    "a config that is none": (lambda about: dict(run={}), "it belongs to another run"),
    "no progress": (lambda about: dict(run=about["run"]), "progress"),
    "another version's progress": (lambda about: about | dict(progress=dict(steps=9)), "unexpected keyword"),
    "weights of another model": (lambda about: about, "its weights do not fit the model"),
    "a changed figure": (
        lambda about: about | dict(run=about["run"] | dict(recipe=dict(epochs=5, peak_lr=2e-3))),
        "config.json has changed since: epochs was 5, is 4$",
    ),
}


@pytest.mark.parametrize("case", STRANGE)
def test_a_strange_checkpoint_is_refused_and_put_aside_and_the_one_before_it_is_used(case, tmp_path):
    change, reason = STRANGE[case]
    said = []
    model, optimizer = model_and_optimizer()
    with RunFolder(tmp_path, said.append) as folder:
        folder.start(CONFIG)
        for number in (8, 9):
            folder.save_checkpoint(Progress(step=number), model, optimizer)
        rewrite(folder, change)
        again, other_optimizer = model_and_optimizer(seed=1)
        progress = folder.load_checkpoint(again, other_optimizer)
        assert progress == Progress(step=8)
        assert_equal(parameters_of(again), parameters_of(model), atol=0)
        (line,) = said
        assert re.fullmatch(f"step_000000009_.* is refused: .*{reason}.*", line, re.DOTALL)
        folder.rewind(progress)
        for number in (9, 10):
            folder.save_checkpoint(Progress(step=number), model, optimizer)
        names = [(path.name[:14], path.suffix) for path in folder.checkpoints.iterdir()]
        last_two = [("step_000000009", ".safetensors"), ("step_000000010", ".safetensors")]
        assert sorted(names) == sorted([*last_two, ("step_000000009", ".refused")])


def test_where_no_checkpoint_can_be_used_each_is_named_with_its_reason(folder):
    model, optimizer = model_and_optimizer()
    for number in (8, 9):
        folder.save_checkpoint(Progress(step=number), model, optimizer)
    old, new = sorted(folder.checkpoints.iterdir())
    old.write_bytes(b"")
    new.write_bytes(new.read_bytes()[:-1])
    reasons = rf"{new.name} is refused: truncated or altered: .*; {old.name} is refused: truncated or altered: "
    with pytest.raises(RunError, match=f"no checkpoint in .* can be used: {reasons}.*Put an intact one back, or"):
        folder.load_checkpoint(model, optimizer)


# The trained model


@pytest.fixture
def trained(tmp_path):
    """Return a trained model's file, and the model."""
    model = randomize_(VisionTransformer(**SMALL)).float()
    with RunFolder(tmp_path / "run") as folder:
        digest = folder.save_weights(model, ABOUT)
    path = tmp_path / "run" / "weights.safetensors"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    return path, model


def test_a_trained_model_comes_back_with_what_belongs_to_it(trained):
    path, model = trained
    loaded, about = load_trained(path)
    images = torch.randn(4, 3, 8, 12)
    with torch.no_grad():
        assert_equal(loaded(images), model(images), atol=0)
    assert not any(module.training for module in loaded.modules())
    assert about == {name: value for name, value in ABOUT.items() if name != "model"}


def test_no_flipped_bit_gives_another_model(trained):
    path, model = trained
    content, weights = path.read_bytes(), parameters_of(model)
    about = load_trained(path)[1]
    header = 8 + int.from_bytes(content[:8], "little")
    draw = random.Random(0)
    places = [*range(8), *draw.sample(range(8, header), 150), *draw.sample(range(header, len(content)), 50)]
    accepted = 0
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        with suppress(ValueError):
            loaded, other = load_trained(path)
            assert_equal(parameters_of(loaded), weights, atol=0)
            assert other.items() >= about.items()
            accepted += 1
    assert accepted <= 5  # where a letter of the word sha256 itself was hit


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(path.with_name("exploded"))))


def torch_pickled(path: Path) -> None:
    torch.save(dict(model=Bomb(path.with_name("exploded"))), path)


def too_wide(path: Path) -> None:
    about = ABOUT | dict(model=SMALL | dict(hidden_dim=15))
    tensors = load_trained(path)[0].state_dict()
    about["sha256"] = hashlib.sha256(save(tensors, metadata=dict(vit_course=json.dumps(about)))).hexdigest()
    path.write_bytes(save(tensors, metadata=dict(vit_course=json.dumps(about))))


def without_digest(path: Path) -> None:
    path.write_bytes(save(load_trained(path)[0].state_dict(), metadata=dict(vit_course=json.dumps(ABOUT))))


DAMAGE = {
    "missing": (lambda path: path.unlink(), "No such file"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "Is a directory"),
    "empty": (lambda path: path.write_bytes(b""), "not a whole safetensors file of this course"),
    "its last byte missing": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "not a whole safetensors file"),
    "its second half missing": (lambda path: path.write_bytes(path.read_bytes()[:9000]), "not a whole safetensors"),
    "another library's": (lambda path: save_file(dict(a=torch.zeros(3)), path), "not a whole safetensors file of this"),
    "sizes that do not fit": (too_wide, "hidden_dim must be divisible by num_heads=2; got 15"),
    "no digest": (without_digest, "altered since it was saved: its SHA-256 is missing or another"),
    "a pickle": (pickled, "not a whole safetensors file of this course"),
    "torch's pickle": (torch_pickled, "not a whole safetensors file of this course"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_model_that_is_none_is_refused_and_runs_no_code(case, trained):
    path, _ = trained
    damage, reason = DAMAGE[case]
    damage(path)
    message = f"path must be weights.safetensors of a run, or one of 'fashion_mnist'; {path} is not: .*{reason}"
    with pytest.raises(ValueError, match=message):
        load_trained(path)
    assert not path.with_name("exploded").exists()


def test_the_bombs_would_explode(tmp_path):
    for name, put in (("a", pickled), ("b", torch_pickled)):
        (tmp_path / name).mkdir()
        put(tmp_path / name / "file")
        with (tmp_path / name / "file").open("rb") as file:
            pickle.load(file) if name == "a" else torch.load(file, weights_only=False)
        assert (tmp_path / name / "exploded").exists()


def test_a_checkpoint_is_no_trained_model(folder):
    folder.save_checkpoint(Progress(step=1), *model_and_optimizer())
    (path,) = folder.checkpoints.iterdir()
    with pytest.raises(ValueError, match=r"path must be weights\.safetensors of a run"):
        load_trained(path)
