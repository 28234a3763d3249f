"""A run that is killed with ``kill -9``, again and again, ends with the very bytes of one that was left alone."""

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
from sessions import session
from training_runs import TINY, checkpoints, outcome

ROOT = Path(__file__).resolve().parents[2]
LONG = ("--epochs", "8")  # 40 steps, 24 checkpoints
SHORT = shlex.split("--epochs 2 --batch-size 256 --checkpoint-steps 1")  # two steps an epoch
KILLS = 10


def last_step(folder: Path) -> int:
    """Return the step of the last checkpoint, 0 without one."""
    return int(checkpoints(folder)[0].name.split("_")[1]) if checkpoints(folder) else 0


def finish(process) -> None:
    process.join(600)  # on a cold disk, importing torch alone can take minutes
    assert process.exitcode == 0


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
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    print(f"seed {seed}; a whole run takes {seconds:.2f} s")
    steps = []  # of the last checkpoint at every kill
    for run in range(3 * KILLS):
        folder = tmp_path / f"run{run}"
        sessions = went_on = 0
        while True:
            before = last_step(folder)
            process = session(folder, *LONG, "--resume")
            sessions += 1
            # over the whole life of a session, start-up included; then the rest in peace
            process.join(draw.uniform(0, seconds) if len(steps) < KILLS else 600)
            if process.is_alive():
                process.kill()
                process.join()
            went_on += last_step(folder) > before
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
            steps.append(last_step(folder))
            print(f"run {run} killed with a checkpoint of step {steps[-1]}")
        assert outcome(folder) == expected
        listed = json.loads((folder / "environment.json").read_text())
        assert max(went_on, 1) <= len(listed) <= sessions
        if len(steps) >= KILLS and any(step % 5 for step in steps):  # some went on in the middle of an epoch
            break
    assert len(steps) >= KILLS
    assert any(step % 5 for step in steps)


def test_the_command_itself_is_killed_and_goes_on(left_alone, tmp_path):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "vit_course.train", *TINY, *LONG, "--resume", "--out", str(folder)]
    options = dict(cwd=ROOT, env=os.environ | dict(OMP_NUM_THREADS="1"), stderr=subprocess.PIPE, text=True)
    draw = random.Random(0)
    for moment in ("start-up", "training"):
        with subprocess.Popen(command, **options) as process:
            deadline = time.monotonic() + 600
            while moment == "training" and not checkpoints(folder) and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(draw.uniform(0, 1) if moment == "start-up" else 0)
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert bool(checkpoints(folder)) == (moment == "training")
    reached = last_step(folder)
    assert reached < 40
    ended = subprocess.run(command, check=True, timeout=600, **options)
    assert f"continuing after step {reached} of 40" in ended.stderr
    assert outcome(folder) == left_alone[0]
    assert len(json.loads((folder / "environment.json").read_text())) == 2


# Killed at every single write


def die_at(call: str, number: int) -> None:
    """Let this process kill itself at a call of a function of ``os``, counted from 1.

    What was not synced is half lost, as if the power had failed.
    """
    real, calls = getattr(os, call), []

    def may_die(*arguments, **options):
        calls.append(arguments)
        if len(calls) == number:
            if call == "fsync":
                (file,) = arguments
                os.ftruncate(file, max(os.fstat(file).st_size - 7, 0))
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    setattr(os, call, may_die)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Return the outcome of a short run that was left alone."""
    folder = tmp_path_factory.mktemp("short") / "run"
    finish(session(folder, *SHORT))
    return outcome(folder)


@pytest.mark.parametrize(("call", "least"), [("fsync", 14), ("unlink", 12)])
def test_killed_at_every_write_a_run_ends_with_the_same_bytes(call, least, short, tmp_path):
    for number in range(1, 100):
        folder = tmp_path / str(number)
        process = session(folder, *SHORT, prepare=functools.partial(die_at, call, number))
        process.join(600)
        if process.exitcode == 0:  # so many calls there are not
            break
        assert process.exitcode == -signal.SIGKILL
        finish(session(folder, *SHORT, "--resume"))
        assert outcome(folder) == short
        assert not list(folder.rglob("*.partial"))
        assert json.loads((folder / "result.json").read_text())["images"]["test"] == 360
    assert number > least
