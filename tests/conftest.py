"""Shapes and types are checked while the tests run: jaxtyping's annotations, looked after by beartype."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # files are tested side by side: one core for each, kernels included

from pathlib import Path

import jaxtyping
import pytest
import torch

# Before the package is imported for the first time. At a reader's, nothing is checked and nothing is slower. What runs
# the code of learners is left out: it defines functions on every run, and each would be wrapped anew.
PARTS = {path.stem for path in Path(__file__).parents[1].glob("vit_course/[!_]*")} - {"checks", "mine"}
jaxtyping.install_import_hook([f"vit_course.{part}" for part in PARTS], "beartype.beartype")


@pytest.fixture(autouse=True)
def same_random_numbers():
    """Let every test draw the same numbers, alone or after others."""
    torch.manual_seed(0)


@pytest.fixture
def as_readers_run_it(monkeypatch):
    """Switch the checking of types off, so that the package's own messages speak."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
