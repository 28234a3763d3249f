"""The figures of ``vit_course.plots``: what they show, and that color-blind readers can tell the colors apart."""

from itertools import combinations

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb

from vit_course import plots

matplotlib.use("agg")

# colors that are next to each other in one figure
TOGETHER = [
    ("patch", "token", "class_token", "position"),
    ("norm", "attention", "mlp", "head", "residual"),
    ("query", "key", "value"),
    ("train", "valid", "test"),
    ("right", "wrong"),
]
# how the three cones see them with one missing (Machado, Oliveira and Fernandes 2009, severity 1), in linear RGB
VISION = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def lab(color, vision):
    """Return CIE Lab coordinates of a color as seen with this vision."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    f = np.cbrt(np.maximum(xyz / [0.9505, 1, 1.089], 0.008856))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("names", TOGETHER, ids="-".join)
def test_colors_in_one_figure_can_be_told_apart(names, vision):
    for first, second in combinations(names, 2):
        distance = np.linalg.norm(lab(plots.COLORS[first], vision) - lab(plots.COLORS[second], vision))
        assert distance > 15, (first, second)  # 2.3 is the smallest difference that an eye can see


def test_numbers_are_dark_on_light_and_white_on_dark():
    _, axes = plots.subplots()
    matrix = torch.tensor([[0.0, 1.0], [0.25, 0.125]])
    plots.write_numbers(plots.show_matrix(axes, matrix, cmap="gray", vmin=0, vmax=1), matrix, ".2f")
    assert [text.get_text() for text in axes.texts] == ["0.00", "1.00", "0.25", "0.12"]
    assert [to_hex(text.get_color()) for text in axes.texts[:2]] == ["#ffffff", plots.INK]


def test_an_empty_figure_says_so():
    """What a figure with something in it says is stored in the lessons."""
    assert repr(plots.subplots()[0]) == "Figure: nothing yet"  # which a rule for notebooks refuses
