"""What the appendix says about its numbers."""

import pytest
from support import assert_equal

ROWS = ["eps 1e-12", "eps 1e-5", "GELU by tanh", "mean of the patches", "q k v interleaved"]


def test_the_solutions_pass_their_checks(lesson_appendix):
    for name in ("changed_tokens", "count_tokens", "reorder_qkv"):
        assert lesson_appendix["checks"].exercise(lesson_appendix[name]).passed


def test_the_counts_tell_the_three_versions_apart(lesson_appendix):
    """The answer says: a has the norms over maps, b creates layers on every call, c is correct."""
    count, images, blackened = (lesson_appendix[name] for name in ("changed_tokens", "images", "blackened"))
    found = {}
    for letter, place in zip("abc", lesson_appendix["hidden_order"], strict=True):
        version = lesson_appendix["suspects"][place]
        pairs = [count(version(images), version(others)) for others in (images, blackened)]
        found[letter] = [counts.unique().tolist() for counts in pairs]
    assert found == {"a": [[0], [36]], "b": [[36], [36]], "c": [[0], [1]]}


def test_reordered_weights_of_the_post_fit_our_attention(lesson_appendix):
    ours, theirs = lesson_appendix["our_attention"], lesson_appendix["post_attention"]
    assert_equal(ours(lesson_appendix["batch"]), theirs(lesson_appendix["batch"]))
    ours.load_state_dict(theirs.state_dict())
    assert lesson_appendix["relative_change"](ours(lesson_appendix["batch"]), theirs(lesson_appendix["batch"])) > 0.5


def test_layer_3_attends_to_the_lower_and_the_upper_edge(lesson_appendix):
    grids = lesson_appendix["grids"].detach()
    assert [layer.max() > 0.2 for layer in grids] == [False, False, True, False]
    assert grids[2, [0, -1]].sum() > 0.8 * grids[2].sum()
    assert grids[2].max() == grids[2, -1].max()
    assert grids[2].max().item() == pytest.approx(0.3, abs=0.005)


def test_rows_of_the_tables_move_the_logits_in_the_order_of_the_answer(lesson_appendix):
    clothes, right = lesson_appendix["clothes"], lesson_appendix["clothes_logits"]
    shares = [lesson_appendix["relative_change"](lesson_appendix["variants"][name](clothes), right) for name in ROWS]
    assert shares == sorted(shares)
    assert shares[2] < 0.001
    assert shares[3] > 1000 * shares[2]
