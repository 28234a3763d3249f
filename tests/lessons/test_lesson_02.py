"""What lesson 02 says about its numbers."""

import torch


def test_the_second_feature_shows_the_two_edges_of_the_stem(lesson):
    features = lesson.features
    left, right = features[[14, 20, 26], 1], features[[15, 21, 27], 1]
    assert (left < -0.2).all()
    assert (right > 0.1).all()


def test_every_patch_has_moved_and_sorting_by_brightness_is_the_same_for_both_rows(lesson):
    order = lesson.order
    assert not (order == torch.arange(36)).any()
    assert order[28] == 14
    brightness = lesson.patches[0].mean(dim=1)
    assert len(brightness.unique()) == 36
