"""What the sentences of the opening notebook claim."""

import torch


def test_a_mistake_in_the_exercise_is_reported(lesson_00):
    assert "-images" not in str(lesson_00["checks"].exercise(lesson_00["negative"]))

    def negative(images):
        return -images

    try:
        passed = lesson_00["checks"].exercise(negative).passed
    except lesson_00["checks"].CheckFailed:
        passed = False
    assert not passed


def test_the_answers_of_the_self_test(lesson_00):
    tokens, positions = torch.zeros(6, 37, 768), torch.zeros(1, 37, 768)
    assert tokens[:, 0].shape == (6, 768)
    assert (tokens + positions).shape == (6, 37, 768)
    assert (torch.tensor([[1, 2], [3, 4]]) @ torch.tensor([[5, 6], [7, 8]])).tolist() == [[19, 22], [43, 50]]
    assert lesson_00["w"].grad == 8
