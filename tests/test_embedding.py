"""Lesson 02: patches and what an embedding starts with. What it computes is compared in test_parity.py."""

import pytest
import torch
from support import assert_equal, randn

from vit_course import ImageEmbedding, PatchEmbedding, patchify, unpatchify

# channels, height, width, patch size: colour and grey, square and rectangular, odd patches, one patch, single pixels
CUTS = [(3, 8, 12, 4), (1, 12, 8, 2), (2, 10, 15, 5), (3, 6, 9, 3), (1, 7, 7, 7), (3, 2, 3, 1)]


@pytest.mark.parametrize(("channels", "height", "width", "patch_size"), CUTS)
def test_patchify_equals_a_loop_and_unpatchify_is_its_inverse(channels, height, width, patch_size):
    images = randn(2, channels, height, width)
    by_loop = [
        images[:, :, top : top + patch_size, left : left + patch_size].flatten(1)
        for top in range(0, height, patch_size)
        for left in range(0, width, patch_size)
    ]
    patches = patchify(images, patch_size)
    assert_equal(patches, torch.stack(by_loop, dim=1), atol=0)
    image_size = height if height == width else (height, width)  # one number for a square
    assert_equal(unpatchify(patches, patch_size=patch_size, image_size=image_size, channels=channels), images, atol=0)


# Initial values


def assert_normal(values: torch.Tensor) -> None:
    """Compare with the standard normal distribution: mean, deviation, and the share within one deviation."""
    assert abs(values.mean()) < 0.03
    assert abs(values.std() - 1) < 0.02
    assert abs((values.abs() < 1).float().mean() - 0.6827) < 0.01


def test_patch_projection_starts_normal_with_variance_one_over_fan_in():
    projection = PatchEmbedding(image_size=32, patch_size=16, hidden_dim=768).projection
    assert_normal(projection.weight.detach() * (3 * 16 * 16) ** 0.5)
    assert projection.bias.count_nonzero() == 0


def test_patch_projection_is_truncated_at_two():
    # with a fan-in of 1 the limits at -2 and 2 lie two standard deviations out, where they can be seen
    weight = PatchEmbedding(image_size=2, patch_size=1, hidden_dim=20_000, in_channels=1).projection.weight.detach()
    assert 1.9 < weight.abs().max() <= 2
    assert abs(weight.std() - 0.8796) < 0.02


def test_class_token_starts_at_zero_and_positions_small_and_normal():
    embedding = ImageEmbedding(image_size=64, patch_size=4, hidden_dim=128)
    assert embedding.class_token.count_nonzero() == 0
    assert_normal(embedding.pos_embedding.detach() / 0.02)
