"""What lesson 02 says about its numbers."""

import pytest
import torch


def test_patch_14_has_the_three_features_that_the_text_explains(lesson_02):
    features = lesson_02["features"]
    assert [round(value, 2) for value in features[14].tolist()] == [0.37, -0.29, -0.06]
    left, right = features[[14, 20, 26], 1], features[[15, 21, 27], 1]  # the two edges of the stem
    assert (left < -0.2).all()
    assert (right > 0.1).all()


def test_the_four_tiny_tokens_are_those_of_the_answer(lesson_02):
    assert lesson_02["tiny_tokens"].tolist() == [[1, 0, 0], [1, 2, 0], [1.5, 0, 3], [5, 0, 0]]


def test_two_layers_differ_until_they_share_weights_in_one_order(lesson_02):
    embedding, images, conv_tokens = (lesson_02[name] for name in ("embedding", "images", "conv_tokens"))
    assert lesson_02["difference"] > 1
    assert 0 < (embedding(images) - conv_tokens).abs().max() < 1e-5  # "only rounding errors remain"
    wrong = (lesson_02["wrong_tokens"] - conv_tokens).abs().max().item()
    assert wrong > 0.5


def test_the_class_token_is_one_vector_and_a_patch_six(lesson_02):
    assert [len(lesson_02["z0"][:, index].unique(dim=0)) for index in (0, 15)] == [1, 6]


def test_shuffled_patches_are_the_same_set_until_positions_are_added(lesson_02):
    assert (lesson_02["without"], lesson_02["with_positions"]) == (36, 0)
    order = lesson_02["order"]
    assert not (order == torch.arange(36)).any()  # "every patch has moved"
    assert order[28] == 14
    brightness = lesson_02["patches"][0].mean(dim=1)
    assert len(brightness.unique()) == 36  # so that sorting by it is the same for both rows of the figure


def test_the_entries_of_a_token_have_the_size_that_positions_are_compared_with(lesson_02):
    size = lesson_02["letter_tokens"].square().mean().sqrt().item()
    assert size == pytest.approx(0.62, abs=0.005)


def test_torchsummary_misses_the_class_token_and_the_positions(lesson_02):
    assert lesson_02["total"] == 619_776
