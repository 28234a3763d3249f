"""The checks of a learner's code: every known mistake is refused and named, every right style passes."""

import glob
import importlib
from pathlib import Path

import pytest
import torch
from mutant_registry import ALTERNATIVES, MUTANTS

from vit_course import checks

for path in sorted(glob.glob(str(Path(__file__).parent / "mutants_*.py"))):
    importlib.import_module(Path(path).stem)

pytestmark = pytest.mark.usefixtures("as_readers_run_it")


def run(entry):
    options = {} if entry.mapping is None else {"mapping": entry.mapping}
    return getattr(checks, entry.check)(entry.code, **options)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda entry: f"{entry.check}-{entry.code.__name__}")
def test_a_mistake_is_refused_and_named(mutant):
    with pytest.raises(checks.CheckFailed) as caught:
        run(mutant)
    assert mutant.names in str(caught.value)
    assert mutant.source


@pytest.mark.parametrize("right", ALTERNATIVES, ids=lambda entry: f"{entry.check}-{entry.code.__name__}")
def test_a_right_implementation_passes(right):
    before = torch.random.get_rng_state()
    verdict = run(right)
    assert verdict.passed
    assert verdict.startswith(f"{right.check}: ")
    assert "\n" not in verdict
    assert torch.equal(before, torch.random.get_rng_state())
