"""The figures of ``vit_course.plots``: what they show, and that color-blind readers can tell the colors apart."""

from itertools import combinations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb

from vit_course import plots
from vit_course.data import load_test_images

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


@pytest.fixture(autouse=True)
def no_window():
    matplotlib.use("agg")
    yield
    plt.close("all")


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


def test_a_figure_says_in_words_what_it_shows():
    """This text is stored beside every picture: screen readers read it, nbval compares it."""
    figure, axes = plots.subplots(1, 4)
    plots.show_image(axes[0], torch.rand(3, 8, 8), "T, cut\nin patches")
    picture = plots.show_matrix(axes[1], torch.rand(3, 4), xlabel="key", ylabel="query")
    figure.colorbar(picture, ax=axes[1], label="weight")
    axes[2].plot([1, 2, 3], [3, 2, 1], label="train")
    axes[2].plot([1, 2, 3], [3, 2, 2], label="valid")
    axes[2].axhline(2)  # two points: it marks a place
    axes[2].set(title="loss", xlabel="step")
    axes[2].legend()
    axes[3].bar(["a", "b"], [1, 2])
    figure.suptitle("all")
    assert repr(figure) == (
        'Figure: all; picture "T, cut in patches"; picture (query against key); '
        '2 curves "loss" (step): train, valid; colour scale (weight); 2 bars'
    )


def test_figures_without_titles_are_counted_and_many_are_cut_short():
    assert repr(plots.show_images(load_test_images())) == "Figure: 6 pictures"
    assert repr(plots.subplots()[0]) == "Figure: nothing yet"
    figure, axes = plots.subplots(2, 7)
    for number, one in enumerate(axes.flat):
        one.scatter([number], [number])
        one.set_title(str(number))
    words = repr(figure)
    assert words.startswith('Figure: cloud of points "0"; cloud of points "1"')
    assert words.endswith('cloud of points "11"; and 2 more')
