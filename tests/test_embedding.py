"""Lesson 02: patches, patch embedding, class token and positions."""

import pytest
import torch
from support import assert_equal, randn, randomize_
from torch import nn

from vit_course import ImageEmbedding, PatchEmbedding, patchify, unpatchify

# channels, height, width, patch size: colour and grey, square and rectangular, odd patches, one patch, single pixels
CUTS = [(3, 8, 12, 4), (1, 12, 8, 2), (2, 10, 15, 5), (3, 6, 9, 3), (1, 7, 7, 7), (3, 2, 3, 1)]
cuts = pytest.mark.parametrize(("channels", "height", "width", "patch_size"), CUTS)


def test_patchify_cuts_row_by_row():
    counting = torch.arange(16.0).view(1, 1, 4, 4)
    expected = [[[0.0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]
    assert patchify(counting, 2).tolist() == expected


def test_patchify_flattens_channel_by_channel():
    channels = torch.tensor([10.0, 20.0]).view(1, 2, 1, 1).expand(1, 2, 2, 2)
    assert patchify(channels, 2).tolist() == [[[10.0] * 4 + [20.0] * 4]]


@cuts
def test_patchify_equals_a_loop(channels, height, width, patch_size):
    images = randn(2, channels, height, width)
    by_loop = [
        images[:, :, top : top + patch_size, left : left + patch_size].flatten(1)
        for top in range(0, height, patch_size)
        for left in range(0, width, patch_size)
    ]
    assert_equal(patchify(images, patch_size), torch.stack(by_loop, dim=1), atol=0)


@cuts
def test_unpatchify_is_the_exact_inverse(channels, height, width, patch_size):
    images = randn(2, channels, height, width)
    sizes = dict(patch_size=patch_size, image_size=(height, width), channels=channels)
    patches = patchify(images, patch_size)
    assert_equal(unpatchify(patches, **sizes), images, atol=0)
    other = torch.randn_like(patches)
    assert_equal(patchify(unpatchify(other, **sizes), patch_size), other, atol=0)


def test_unpatchify_takes_one_side_of_a_square_colour_image():
    images = randn(2, 3, 6, 6)
    assert_equal(unpatchify(patchify(images, 2), patch_size=2, image_size=6), images, atol=0)


@cuts
def test_patch_embedding_equals_conv2d(channels, height, width, patch_size):
    conv = randomize_(nn.Conv2d(channels, 16, kernel_size=patch_size, stride=patch_size))
    ours = PatchEmbedding(
        image_size=(height, width), patch_size=patch_size, hidden_dim=16, in_channels=channels
    ).double()
    ours.projection.load_state_dict({"weight": conv.weight.flatten(1), "bias": conv.bias})
    images = randn(2, channels, height, width)
    assert_equal(ours(images), conv(images).flatten(2).transpose(1, 2))


def test_one_number_and_a_pair_are_the_same_image_size():
    from_number, from_pair = (PatchEmbedding(image_size=size, patch_size=4, hidden_dim=8) for size in (12, (12, 12)))
    assert from_number.image_size == from_pair.image_size == (12, 12)
    assert from_number.grid_size == from_pair.grid_size == (3, 3)
    assert PatchEmbedding(image_size=(8, 12), patch_size=4, hidden_dim=8).grid_size == (2, 3)


def test_embedding_puts_the_class_token_first_and_adds_each_position_to_its_own_token():
    embedding = randomize_(ImageEmbedding(image_size=(8, 12), patch_size=4, hidden_dim=16))
    images = randn(2, 3, 8, 12)
    tokens, patch_tokens = embedding(images), embedding.patch_embedding(images)
    assert tokens.shape == (2, 7, 16)
    for image in range(2):
        assert_equal(tokens[image, 0], embedding.class_token[0, 0] + embedding.pos_embedding[0, 0])
        for patch in range(6):
            expected = patch_tokens[image, patch] + embedding.pos_embedding[0, 1 + patch]
            assert_equal(tokens[image, 1 + patch], expected)


def test_embedding_dropout_comes_after_the_positions_and_only_in_training():
    sizes = dict(image_size=(8, 12), patch_size=4, hidden_dim=64)
    embedding = randomize_(ImageEmbedding(**sizes, dropout=0.5))
    without = randomize_(ImageEmbedding(**sizes))
    images = randn(4, 3, 8, 12)
    tokens = embedding(images)
    assert_equal(tokens, without(images), atol=0)
    dropped = embedding.train()(images)
    kept = dropped != 0
    assert 0.45 < kept.double().mean() < 0.55
    assert_equal(dropped, torch.where(kept, 2 * tokens, 0))


# Initial values


def test_patch_projection_starts_normal_with_variance_one_over_fan_in():
    projection = PatchEmbedding(image_size=32, patch_size=16, hidden_dim=768).projection
    scaled = projection.weight.detach() * 768**0.5  # fan-in 16 * 16 * 3
    assert abs(scaled.mean()) < 0.01
    assert abs(scaled.std() - 1) < 0.01
    # the shares of a normal distribution within one and two standard deviations
    assert abs((scaled.abs() < 1).float().mean() - 0.6827) < 0.005
    assert abs((scaled.abs() < 2).float().mean() - 0.9545) < 0.005
    assert projection.bias.count_nonzero() == 0


def test_patch_projection_is_truncated_at_two():
    # with a fan-in of 1 the limits at -2 and 2 lie two standard deviations out, where they can be seen
    weight = PatchEmbedding(image_size=2, patch_size=1, hidden_dim=20_000, in_channels=1).projection.weight.detach()
    assert 1.9 < weight.abs().max() <= 2
    assert abs(weight.std() - 0.8796) < 0.02


def test_class_token_starts_at_zero_and_positions_small_and_normal():
    embedding = ImageEmbedding(image_size=64, patch_size=4, hidden_dim=128)
    scaled = embedding.pos_embedding.detach() / 0.02
    assert embedding.class_token.count_nonzero() == 0
    assert abs(scaled.mean()) < 0.03
    assert abs(scaled.std() - 1) < 0.02
    assert abs((scaled.abs() < 1).float().mean() - 0.6827) < 0.01
