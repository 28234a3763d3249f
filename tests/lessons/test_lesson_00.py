"""What the sentences of the opening notebook claim."""

import pytest
import torch


def test_the_exercise_takes_the_solution_and_reports_the_mistake_that_the_text_suggests(lesson_00):
    checks = lesson_00["checks"]
    assert checks.exercise(lesson_00["negative"]).passed

    def negative(images):
        return -images

    with pytest.raises(checks.CheckFailed, match="minus 1"):
        checks.exercise(negative)


def test_the_answers_of_the_self_test(lesson_00):
    tokens, positions = torch.zeros(6, 37, 768), torch.zeros(1, 37, 768)
    assert tokens[:, 0].shape == (6, 768)
    assert (tokens + positions).shape == (6, 37, 768)
    assert (torch.tensor([[1, 2], [3, 4]]) @ torch.tensor([[5, 6], [7, 8]])).tolist() == [[19, 22], [43, 50]]
    assert lesson_00["w"].grad == 8
