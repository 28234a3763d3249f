"""The lessons' small exercises: called by the name of a function, and shown in a notebook."""

import pytest

from vit_course import checks, rewritten
from vit_course.checks import learner, twins

pytestmark = pytest.mark.usefixtures("as_readers_run_it")


def named(function, name):
    """Return a function under the name of an exercise."""

    def answer(*args):
        return function(*args)

    answer.__name__ = name
    return answer


def test_the_verdict_names_the_cases():
    assert checks.exercise(twins.negative) == "negative: right for six letters, one row."


def copied_without_the_bias(attention, x):
    """The post's attention, in which one bias is still random."""
    theirs = rewritten.multi_head_attention(32, 4).double().eval()
    state = dict(theirs.state_dict())
    for name, rows in zip(("query", "key", "value"), attention.qkv.weight.chunk(3), strict=True):
        state[f"{name}.weight"] = rows
    theirs.load_state_dict(state)
    return theirs(x)[0]


WRONG = [
    ("prepend_class_token", lambda token, rest: twins.prepend_class_token(token.data, rest), "reaches class_token: "),
    ("mean_cross_entropy", lambda *both: twins.mean_cross_entropy(*both).item(), "no gradient reaches logits: "),
    ("copied_attention", copied_without_the_bias, "Two calls with the same arguments return different tokens"),
    ("copied_attention", lambda attention, x: attention.q(x), "^copied_attention: your code stopped with AttributeE"),
]


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_a_wrong_answer_is_told_so(name, answer, says):
    with pytest.raises(checks.CheckFailed, match=says):
        checks.exercise(named(answer, name))


def test_parts_that_belong_into_one_tensor_are_to_be_stacked():
    with pytest.raises(checks.CheckFailed, match=r"torch\.stack"):
        checks.split_heads(lambda projected, num_heads: tuple(twins.split_heads(projected, num_heads)))


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
