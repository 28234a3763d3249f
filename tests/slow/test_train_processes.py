"""The training command in processes of its own: killed, shared out over two, under torchrun, and compiled.

The processes are forked from one that has imported everything, because importing torch takes seconds.
"""

import itertools
import json
import multiprocessing
import os
import pkgutil
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from unittest import mock

import psutil
import pytest
import torch
from safetensors.torch import load_file
from support import TINY, checkpoints, outcome, records, wait_until
from tqdm import tqdm

from tools.site_links import ROOT
from vit_course.train.__main__ import main

FORKS = multiprocessing.get_context("forkserver")
PRELOADED = ["vit_course.train.__main__", "sklearn.datasets", "sklearn.model_selection", "torch._dynamo"]
FORKS.set_forkserver_preload(PRELOADED)
SHORT = shlex.split("--epochs 2 --batch-size 256 --checkpoint-steps 1")  # two steps an epoch
LOST = r"error: process {} of 2 lost another one, and a run needs all of them: .+\nstopped; no progress is lost\. .*"


def session(folder: Path, *options: str, prepare: Callable | None = None, **environment: str) -> BaseProcess:
    """Start the tiny run in a process that calls ``prepare`` first; its output goes to the file ``said`` nearby."""
    words = [*TINY, "--out", str(folder), *options]
    process = FORKS.Process(target=_session, args=(words, folder.with_name("said"), prepare, environment))
    process.start()
    return process


def _session(words: list[str], said: Path, prepare: Callable | None, environment: dict[str, str]) -> None:
    with said.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.update(environment)
    tqdm.set_lock(threading.RLock())  # its usual lock outlives a process that is killed
    if prepare is not None:
        prepare()
    main(words)


def ends(*processes: BaseProcess) -> list[int]:
    """Wait for the end of processes, and return their exit codes."""
    for process in processes:
        process.join(600)  # against hanging: on a cold disk, importing torch alone can take minutes
        process.kill()
    return [process.exitcode for process in processes]


def pair(folder: Path, *options: str, prepare=(None, None)) -> list[int]:
    """Run two processes as torchrun would; return the exit codes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = dict(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    ranks = [dict(RANK=rank, LOCAL_RANK=rank) | meeting for rank in ("0", "1")]
    return ends(*(session(folder, *options, prepare=prepare[i], **ranks[i]) for i in (0, 1)))


def at_call(number: int, name: str, act: Callable) -> None:
    """Let this process act at a call, counted from 1, of the function with this full name, before the call goes on."""
    real, calls = pkgutil.resolve_name(name), itertools.count(1)

    def watched(*arguments, **options):
        if next(calls) == number:
            act(*arguments)
        return real(*arguments, **options)

    mock.patch(name, watched).start()


def die(written: int | os.PathLike) -> None:
    """Kill this process; of a file that was not synced yet, the end is lost."""
    if isinstance(written, int):
        os.ftruncate(written, max(os.fstat(written).st_size - 7, 0))
    os.kill(os.getpid(), signal.SIGKILL)


def terminate(*_) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def said(folder: Path) -> str:
    return folder.with_name("said").read_text()


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Return the outcome of a short run that was left alone."""
    folder = tmp_path_factory.mktemp("short") / "run"
    assert ends(session(folder, *SHORT)) == [0]
    return outcome(folder)


# Of the writes of the short run: the config, a line of the log, and at the end the weights; and a dropped checkpoint.
@pytest.mark.parametrize(("number", "call"), [(2, "os.fsync"), (4, "os.fsync"), (11, "os.fsync"), (1, "os.unlink")])
def test_killed_at_a_write_a_run_ends_with_the_same_bytes(number, call, short, tmp_path):
    folder = tmp_path / "run"
    assert ends(session(folder, *SHORT, prepare=partial(at_call, number, call, die))) == [-signal.SIGKILL]
    assert ends(session(folder, *SHORT, "--resume")) == [0]
    assert outcome(folder) == short
    assert not list(folder.rglob("*.partial"))
    assert json.loads((folder / "result.json").read_text())["images"]["test"] == 360


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a run of two processes, with dropout, trained without a break."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert pair(folder) == [0, 0]
    return folder


def assert_same_result(ours: Path, theirs: Path, *, rtol: float, atol: float) -> None:
    """Assert equal weights and logs, but for rounding."""
    one, other = (load_file(folder / "weights.safetensors") for folder in (ours, theirs))
    for weights in (one, other):  # softmax does not see the bias of the keys: its gradient is rounding alone
        weights["encoder.layers.0.self_attention.qkv.bias"][16:32] = 0
    torch.testing.assert_close(one, other, rtol=0, atol=atol)
    assert records(ours) == [pytest.approx(line, rel=rtol) for line in records(theirs)]


def test_two_processes_come_to_the_result_of_one(tmp_path):
    two, one = tmp_path / "two", tmp_path / "one"
    options = ("--dropout", "0")  # which each process would draw for itself
    assert pair(two, *options) == [0, 0]
    assert said(two).count("test accuracy") == 1  # one process prints
    assert len(re.findall(r"^epoch", said(two), re.MULTILINE)) == 3
    assert ends(session(one, *options)) == [0]
    assert_same_result(two, one, rtol=1e-5, atol=2e-5)
    assert outcome(two) != outcome(one)  # two halves are not rounded like the whole
    assert [each["processes"] for each in json.loads((two / "environment.json").read_text())] == [2]


def test_under_torchrun_a_killed_process_ends_the_run_with_a_message_and_it_goes_on(whole, tmp_path):
    folder = tmp_path / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = [*launcher, "-m", "vit_course.train", *TINY, "--out", str(folder)]
    environment = os.environ | dict(OMP_NUM_THREADS="1")
    with subprocess.Popen(words, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as launched:
        wait_until(lambda: checkpoints(folder))
        children = psutil.Process(launched.pid).children()
        [child for child in children if "vit_course.train" in child.cmdline()][1].kill()
        _, errors = launched.communicate(timeout=600)
    assert launched.returncode != 0
    assert re.search(LOST.format(r"\d") + re.escape(f"--resume --out {folder}"), errors)
    assert not (folder / "result.json").exists()
    assert pair(folder, "--resume") == [0, 0]
    assert outcome(folder) == outcome(whole)


def test_all_processes_stop_in_the_same_step(whole, tmp_path):
    folder = tmp_path / "run"
    stops = partial(at_call, 3, "vit_course.train.loop.regularized_train_step", terminate)
    assert pair(folder, prepare=(None, stops)) == [130, 130]
    assert said(folder).count("stopped; no progress is lost. Continue with the same command and --resume --out") == 1
    assert "error" not in said(folder)
    assert checkpoints(folder)[0].stem == "step_000000003"
    assert pair(folder, "--resume") == [0, 0]
    assert outcome(folder) == outcome(whole)


def test_what_is_wrong_for_all_is_said_once(tmp_path):
    folder = tmp_path / "run"
    assert pair(folder, "--batch-size", "127") == [1, 1]
    message = "error: --batch-size must be at most 719, .* divisible by 2, the number of processes; got 127"
    assert re.fullmatch(message, said(folder).strip())


def compile_without_c() -> None:
    """Let this process trace the model as ``torch.compile`` does, and leave out the C++ compiler."""
    real = torch.nn.Module.compile
    torch.nn.Module.compile = lambda model: real(model, backend="aot_eager")


def test_a_compiled_model_learns_the_same(tmp_path):
    options = ("--dropout", "0", "--epochs", "0.4")
    plain, compiled = tmp_path / "plain", tmp_path / "compiled"
    sessions = session(plain, *options), session(compiled, *options, "--compile", prepare=compile_without_c)
    assert ends(*sessions) == [0, 0]
    assert_same_result(compiled, plain, rtol=1e-4, atol=1e-4)
