"""One run over two processes: the result of one process, and nothing lost when one of them dies."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sessions import finish, pair, session, signal_itself
from training_runs import TINY, checkpoints, outcome

from vit_course.train.run_folder import RunFolder

ROOT = Path(__file__).resolve().parents[2]
LOST = (
    r"error: process {} of 2 lost another one, and a run needs all of them: .+\nstopped; nothing is lost\. Continue .*"
)


def said(folder: Path) -> str:
    return folder.with_name("said").read_text()


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in RunFolder(folder).read_lines("log.jsonl")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a run of two processes, with dropout, trained without a break."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert pair([folder] * 2) == [0, 0]
    return folder


def assert_same_result(ours: Path, theirs: Path) -> None:
    """Assert equal weights and logs, but for rounding."""
    one, other = (load_file(folder / "weights.safetensors") for folder in (ours, theirs))
    for weights in (one, other):  # softmax does not see the bias of the keys: its gradient is rounding alone
        weights["encoder.layers.0.self_attention.qkv.bias"][16:32] = 0
    torch.testing.assert_close(one, other, rtol=0, atol=2e-5)
    mine, yours = (records(folder) for folder in (ours, theirs))
    assert mine == [pytest.approx(line, rel=1e-5) for line in yours]


def test_two_processes_come_to_the_result_of_one(tmp_path):
    two, one = tmp_path / "two", tmp_path / "one"
    options = ("--dropout", "0")  # which each process would draw for itself
    assert pair([two] * 2, *options) == [0, 0]
    assert said(two).count("test accuracy") == 1  # one process prints
    assert len(re.findall(r"^epoch", said(two), re.MULTILINE)) == 3
    finish(session(one, *options))
    assert_same_result(two, one)
    assert outcome(two) != outcome(one)  # two halves are not rounded like the whole
    assert [each["processes"] for each in json.loads((two / "environment.json").read_text())] == [2]


def test_under_torchrun_a_killed_process_ends_the_run_with_a_message_and_it_goes_on(whole, tmp_path):
    folder = tmp_path / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = [*launcher, "-m", "vit_course.train", *TINY, "--out", str(folder)]
    environment = os.environ | dict(OMP_NUM_THREADS="1")
    with subprocess.Popen(words, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as launched:
        deadline = time.monotonic() + 600
        while not checkpoints(folder) and time.monotonic() < deadline:
            time.sleep(0.001)
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
        children = [int(pid) for pid, parent, words in rows if int(parent) == launched.pid and "vit_course" in words]
        os.kill(children[1], signal.SIGKILL)
        _, errors = launched.communicate(timeout=600)
    assert launched.returncode != 0
    assert re.search(LOST.format(r"\d") + re.escape(f"--resume --out {folder}"), errors)
    assert not (folder / "result.json").exists()
    assert pair([folder] * 2, "--resume") == [0, 0]
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize("victim", [0, 1])
def test_whoever_dies_the_other_says_so_and_the_run_goes_on_to_the_same_bytes(victim, whole, tmp_path):
    folder = tmp_path / "run"
    prepare = [None, None]
    prepare[victim] = functools.partial(signal_itself, signal.SIGKILL, "train_step", 8)
    codes = pair([folder] * 2, prepare=prepare)
    assert (codes[victim], codes[1 - victim]) == (-signal.SIGKILL, 1)
    assert re.search(LOST.format(1 - victim) + re.escape(f"--resume --out {folder}"), said(folder))
    assert "Traceback" not in said(folder)
    assert checkpoints(folder)[0].stem == "step_000000006"
    assert pair([folder] * 2, "--resume") == [0, 0]
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize(
    ("prepare", "reached"),
    [
        ([None, functools.partial(signal_itself, signal.SIGTERM, "train_step", 3)], 3),
        ([functools.partial(signal_itself, signal.SIGINT, "evaluate", 1), None], 6),
    ],
    ids=["the second", "the first, while the second waits"],
)
def test_all_processes_stop_in_the_same_step(prepare, reached, whole, tmp_path):
    folder = tmp_path / "run"
    assert pair([folder] * 2, prepare=prepare) == [130, 130]
    assert said(folder).count("stopped; nothing is lost. Continue with the same command and --resume --out") == 1
    assert "error" not in said(folder)
    assert checkpoints(folder)[0].stem == f"step_00000000{reached}"
    elsewhere = tmp_path / "elsewhere"
    assert pair([folder, elsewhere], "--resume") == [1, 1]
    assert "error: --out must be a folder that all processes share" in said(folder)
    assert pair([folder] * 2, "--resume") == [0, 0]
    assert outcome(folder) == outcome(whole)


def test_what_is_wrong_for_all_is_said_once(whole, tmp_path):
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    with RunFolder(folder).locked():
        assert pair([folder] * 2, "--resume") == [1, 1]
    assert said(folder).startswith(f"error: {folder} is in use: another process is training there")
    assert "Traceback" not in said(folder)
    folder.with_name("said").unlink()
    assert pair([tmp_path / "new"] * 2, "--batch-size", "127") == [1, 1]
    message = "error: --batch-size must be at most 719, .* divisible by the number of processes, 2; got 127"
    assert re.fullmatch(message, said(folder).strip())


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_learns_the_same(tmp_path):
    options = ("--dropout", "0", "--epochs", "1", "--pool", "mean")
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    finish(session(plain, *options))
    finish(session(compiled, *options, "--compile"))
    (mine,), (yours,) = (records(folder) for folder in (compiled, plain))
    assert mine == pytest.approx(yours, rel=1e-4)
    one, other = (load_file(folder / "weights.safetensors") for folder in (compiled, plain))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
