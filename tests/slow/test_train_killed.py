"""A run that is killed with ``kill -9``, again and again, ends with exactly the bytes of one that was left alone."""

import functools
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sessions import die_at, finish, session
from training_runs import TINY, checkpoints, outcome

ROOT = Path(__file__).resolve().parents[2]
LONG = ("--epochs", "8")  # 40 steps, 24 checkpoints
SHORT = shlex.split("--epochs 2 --batch-size 256 --checkpoint-steps 1")  # two steps an epoch
KILLS = 4


def last_step(folder: Path) -> int:
    """Return the step of the last checkpoint, 0 without one."""
    return int(checkpoints(folder)[0].stem.split("_")[1]) if checkpoints(folder) else 0


@pytest.fixture(scope="module")
def left_alone(tmp_path_factory):
    """Return a long run's outcome, and the seconds that it took."""
    folder = tmp_path_factory.mktemp("left_alone") / "run"
    finish(session(folder.with_name("warm"), "--epochs", "0.2"))  # starts the process that others are forked from
    started = time.perf_counter()
    finish(session(folder, *LONG))
    return outcome(folder), time.perf_counter() - started


def test_killed_at_random_moments_a_run_ends_with_the_same_bytes(left_alone, tmp_path):
    expected, seconds = left_alone
    folder, kills = tmp_path / "run", 0
    draw = random.Random(seed := random.randrange(2**32))
    print(f"seed {seed}; a whole run takes {seconds:.2f} s")
    while True:
        process = session(folder, *LONG, "--resume")
        process.join(draw.uniform(0, seconds) if kills < KILLS else 600)
        if process.is_alive():
            process.kill()
            process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        kills += 1
        print(f"killed with a checkpoint of step {last_step(folder)}")
    assert outcome(folder) == expected
    assert len(json.loads((folder / "environment.json").read_text())) <= kills + 1


def test_the_command_itself_is_killed_and_goes_on(left_alone, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "vit_course.train", *TINY, *LONG, "--out", str(folder)]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | dict(OMP_NUM_THREADS="1")) as process:
        deadline = time.monotonic() + 600
        while not checkpoints(folder) and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
    reached = last_step(folder)
    assert 0 < reached < 40
    finish(session(folder, *LONG, "--resume"))
    assert f"continuing after step {reached} of 40" in (tmp_path / "said").read_text()
    assert outcome(folder) == left_alone[0]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Return the outcome of a short run that was left alone."""
    folder = tmp_path_factory.mktemp("short") / "run"
    finish(session(folder, *SHORT))
    return outcome(folder)


# Of the 14 writes of the short run: the config, the checkpoint inside the first epoch, its line in the log, its line of
# times, its checkpoint, and at the end the weights and the result. A checkpoint is dropped from the third one on.
@pytest.mark.parametrize(
    ("call", "number"), [*(("fsync", number) for number in (2, 5, 6, 7, 8, 13, 14)), ("unlink", 1)]
)
def test_killed_at_a_write_a_run_ends_with_the_same_bytes(call, number, short, tmp_path):
    folder = tmp_path / "run"
    process = session(folder, *SHORT, prepare=functools.partial(die_at, call, number))
    process.join(600)
    assert process.exitcode == -signal.SIGKILL
    finish(session(folder, *SHORT, "--resume"))
    assert outcome(folder) == short
    assert not list(folder.rglob("*.partial"))
    assert json.loads((folder / "result.json").read_text())["images"]["test"] == 360
