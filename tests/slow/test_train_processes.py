"""One run over two processes: the result of one process, and nothing lost when one of them dies."""

import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sessions import session
from training_runs import TINY, checkpoints, outcome
from vit_course.runs import RunFolder

from vit_course import trainer

ROOT = Path(__file__).resolve().parents[2]
NO_DROPOUT = ("--dropout", "0")
LOST = (
    r"error: process {} of 2 lost another one, and a run needs all of them: .+\nstopped; nothing is lost\. Continue .*"
)


def workers(folders: list[Path], *options: str, prepare=(None, None)) -> list:
    """Start what torchrun would: one process for each folder, which is usually the same."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    meeting = dict(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    return [
        session(folder, *options, prepare=prepare[rank], RANK=str(rank), LOCAL_RANK=str(rank), **meeting)
        for rank, folder in enumerate(folders)
    ]


def ended(processes: list, seconds: float = 60) -> list[int]:
    """Return the exit codes; all must end within so many seconds."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(deadline - time.monotonic(), 0))
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    assert None not in codes
    return codes


def said(folder: Path) -> str:
    return folder.with_name("said").read_text()


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a run of two processes, with dropout, trained without a break."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert ended(workers([folder] * 2), 600) == [0, 0]  # the first one imports torch
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return the run of one process without dropout, which each process would draw for itself."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert ended([session(folder, *NO_DROPOUT)], 600) == [0]
    return folder


def torchrun(folder: Path, *options: str) -> subprocess.Popen:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = [*launcher, "-m", "vit_course.train", *TINY, "--out", str(folder), *options]
    environment = os.environ | dict(OMP_NUM_THREADS="1")
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True)


def same_result(ours: Path, theirs: Path) -> None:
    """Assert equal weights and logs, but for rounding."""
    one, other = (load_file(folder / "weights.safetensors") for folder in (ours, theirs))
    for weights in (one, other):  # softmax does not see the bias of the keys: its gradient is rounding alone
        weights["encoder.layers.0.self_attention.qkv.bias"][16:32] = 0
    torch.testing.assert_close(one, other, rtol=0, atol=2e-5)
    for mine, yours in zip(records(ours), records(theirs), strict=True):
        assert mine == pytest.approx(yours, rel=1e-5)
    assert len(records(ours)) == 3


def test_torchrun_with_two_processes_comes_to_the_result_of_one(alone, tmp_path):
    with torchrun(tmp_path / "run", *NO_DROPOUT) as launched:
        output, errors = launched.communicate(timeout=600)
    assert launched.returncode == 0, errors
    same_result(tmp_path / "run", alone)
    assert outcome(tmp_path / "run") != outcome(alone)  # two halves are not rounded like the whole
    (run,) = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert run["processes"] == 2
    assert output.count("test accuracy") == 1  # one process speaks
    assert len(re.findall(r"^epoch", errors, re.MULTILINE)) == 3


def children_of(parent: int) -> list[int]:
    """Return the processes that torchrun has started for the run."""
    command = ["ps", "-A", "-o", "pid=,ppid=,args="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    return [int(pid) for pid, of, arguments in rows if int(of) == parent and "vit_course" in arguments]


def test_under_torchrun_a_killed_process_ends_the_run_with_a_message_and_it_goes_on(whole, tmp_path):
    folder = tmp_path / "run"
    with torchrun(folder) as launched:
        deadline = time.monotonic() + 600
        while len(children := children_of(launched.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        while not checkpoints(folder) and time.monotonic() < deadline:
            time.sleep(0.001)
        os.kill(children[1], signal.SIGKILL)
        died = time.monotonic()
        _, errors = launched.communicate(timeout=120)
    assert launched.returncode != 0
    assert time.monotonic() - died < 60
    assert re.search(LOST.format(r"\d") + re.escape(f"--resume --out {folder}"), errors)
    assert not (folder / "result.json").exists()
    assert ended(workers([folder] * 2, "--resume")) == [0, 0]
    assert outcome(folder) == outcome(whole)


def die_in_step(number: int) -> None:
    """Let this process kill itself in a step, counted from 1, when the others count on it."""
    real, steps = trainer.train_step, []

    def may_die(*arguments, **options):
        steps.append(arguments)
        if len(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    trainer.train_step = may_die


@pytest.mark.parametrize("victim", [0, 1])
def test_whoever_dies_the_other_says_so_and_the_run_goes_on_to_the_same_bytes(victim, whole, tmp_path):
    folder = tmp_path / "run"
    prepare = [None, None]
    prepare[victim] = functools.partial(die_in_step, 8)
    codes = ended(workers([folder] * 2, prepare=prepare))
    assert codes[victim] == -signal.SIGKILL
    assert codes[1 - victim] == 1
    assert re.search(LOST.format(1 - victim) + re.escape(f"--resume --out {folder}"), said(folder))
    assert "Traceback" not in said(folder)
    assert checkpoints(folder)[0].name.startswith("step_000000006")
    assert ended(workers([folder] * 2, "--resume")) == [0, 0]
    assert outcome(folder) == outcome(whole)
    assert [run["processes"] for run in json.loads((folder / "environment.json").read_text())] == [2, 2]


def signal_itself(number: int, moment: str) -> None:
    """Let this process send itself a signal, in its third step or in its first validation."""
    name = dict(step="train_step", validation="evaluate")[moment]
    real, calls = getattr(trainer, name), []

    def call(*arguments, **options):
        calls.append(arguments)
        if len(calls) == dict(step=3, validation=1)[moment]:
            os.kill(os.getpid(), number)
        return real(*arguments, **options)

    setattr(trainer, name, call)


@pytest.mark.parametrize(
    ("prepare", "reached"),
    [
        ([functools.partial(signal_itself, signal.SIGINT, "step")] * 2, 3),
        ([None, functools.partial(signal_itself, signal.SIGTERM, "step")], 3),
        ([functools.partial(signal_itself, signal.SIGINT, "validation"), None], 6),
    ],
    ids=["both", "the second", "the first, while the second waits"],
)
def test_all_processes_stop_in_the_same_step(prepare, reached, whole, tmp_path):
    folder = tmp_path / "run"
    assert ended(workers([folder] * 2, prepare=prepare)) == [130, 130]
    assert said(folder).count("stopped; nothing is lost. Continue with the same command and --resume --out") == 1
    assert "error" not in said(folder)
    assert checkpoints(folder)[0].name.startswith(f"step_00000000{reached}")
    assert ended(workers([folder] * 2, "--resume")) == [0, 0]
    assert outcome(folder) == outcome(whole)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--batch-size 127",
            "error: --batch-size must be at most 719, .* divisible by the number of processes, 2; got 127",
        ),
        ("--peak-lr 1e30 --max-grad-norm 1e30", r"error: the loss is (nan|inf) at step \d+, in epoch \d\. Train anew"),
    ],
)
def test_what_is_wrong_for_all_is_said_once(options, message, tmp_path):
    folder = tmp_path / "run"
    assert ended(workers([folder] * 2, *options.split())) == [1, 1]
    assert len(re.findall(message, said(folder))) == 1
    assert said(folder).count("error") == 1
    assert "Traceback" not in said(folder)


def test_a_folder_in_use_ends_all_processes(whole, tmp_path):
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    with RunFolder(folder):
        codes = ended(workers([folder] * 2, "--resume"))
    assert codes == [1, 1]
    assert said(folder).startswith(f"error: {folder} is in use: another process is training there")
    assert "Traceback" not in said(folder)


def test_processes_that_do_not_share_the_folder_are_told_so(tmp_path):
    folder, other = tmp_path / "run", tmp_path / "elsewhere"
    stop = [functools.partial(signal_itself, signal.SIGINT, "step")] * 2
    assert ended(workers([folder] * 2, prepare=stop)) == [130, 130]
    assert ended(workers([folder, other], "--resume")) == [1, 1]
    assert "the processes do not see the same run: --out must be a folder that all share" in said(folder)


# torch.compile


@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++"))), reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_learns_the_same(tmp_path):
    options = (*NO_DROPOUT, "--epochs", "1", "--pool", "mean")
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    assert ended([session(plain, *options), session(compiled, *options, "--compile")], 600) == [0, 0]
    (mine,), (yours,) = records(compiled), records(plain)
    assert mine == pytest.approx(yours, rel=1e-4)
    one, other = (load_file(folder / "weights.safetensors") for folder in (compiled, plain))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
