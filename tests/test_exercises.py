"""The table of the lessons' small exercises: its oracles are told from wrong answers, and a notebook goes on."""

import pytest
import torch

from vit_course import checks
from vit_course.checks import learner
from vit_course.checks.exercises import EXERCISES

pytestmark = pytest.mark.usefixtures("as_readers_run_it")


def named(function, name):
    """Return a function under the name of an exercise."""

    def answer(*args):
        return function(*args)

    answer.__name__ = name
    return answer


def changed(result):
    """Return a result of the same kind and shape in which a single value is another."""
    if not isinstance(result, torch.Tensor):
        return result + 1
    result = result.detach().clone()
    result.view(-1)[-1] += 1
    return result


@pytest.mark.parametrize("name", EXERCISES)
def test_the_oracle_passes_and_one_other_value_is_refused(name):
    oracle, _ = EXERCISES[name]
    assert checks.exercise(named(oracle, name)).passed
    with pytest.raises(checks.CheckFailed, match=f"^{name}: "):
        checks.exercise(named(lambda *args: changed(oracle(*args)), name))


def test_in_a_notebook_a_failure_is_shown_and_not_raised(monkeypatch):
    monkeypatch.setattr(learner, "shell", lambda: True)
    monkeypatch.setattr(learner, "_older_than_a_syntax_error", lambda subject: None)
    verdict = checks.exercise(named(lambda images: -images, "negative"))
    assert verdict.state == "wrong"
    assert not verdict
    assert verdict.startswith("negative: ")


def test_a_name_of_no_exercise_is_refused():
    with pytest.raises(ValueError, match="under the name that the lesson gives it; got 'my_negative'"):
        checks.exercise(named(abs, "my_negative"))
