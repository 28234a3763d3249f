"""The figures of ``vit_course.plots``: what they show, and that colour-blind readers can tell the colours apart."""

from itertools import combinations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex, to_rgb

from vit_course import patchify, plots
from vit_course.data import load_test_images

# colours that stand beside each other in one figure
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
    """Return CIE Lab coordinates of a colour as seen with this vision."""
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    f = np.cbrt(np.maximum(xyz / [0.9505, 1, 1.089], 0.008856))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("names", TOGETHER, ids="-".join)
def test_colours_in_one_figure_can_be_told_apart(names, vision):
    distances = {
        pair: np.linalg.norm(lab(plots.COLORS[pair[0]], vision) - lab(plots.COLORS[pair[1]], vision))
        for pair in combinations(names, 2)
    }
    assert min(distances.values()) > 15, distances  # 2.3 is the smallest difference that an eye can see


def test_images_are_drawn_as_they_are():
    images = load_test_images()
    figure = plots.show_images(images, list("TOKENS"))
    assert [axes.get_title() for axes in figure.axes] == list("TOKENS")
    for axes, image in zip(figure.axes, images, strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), image.permute(1, 2, 0))


def test_places_without_an_image_stay_empty():
    figure = plots.show_images(load_test_images(), columns=4)
    assert [axes.axison for axes in figure.axes] == [True] * 6 + [False] * 2


def test_the_mosaic_holds_every_patch_between_white_gaps():
    image = load_test_images()[2]
    mosaic = plots.patch_mosaic(image, 16, gap=3)
    assert mosaic.shape == (3, 6 * 16 + 5 * 3, 6 * 16 + 5 * 3)
    patches = patchify(image[None], 16)[0].reshape(36, 3, 16, 16)
    rest = torch.ones_like(mosaic, dtype=torch.bool)
    for n, patch in enumerate(patches):
        place = (slice(None), slice(n // 6 * 19, n // 6 * 19 + 16), slice(n % 6 * 19, n % 6 * 19 + 16))
        assert torch.equal(mosaic[place], patch)
        rest[place] = False
    assert (mosaic[rest] == 1).all()


def test_zero_is_in_the_middle_of_two_sided_colours():
    _, axes = plots.subplots()
    picture = plots.show_matrix(axes, torch.tensor([[-1.0, 3.0]]), "name", around_zero=True)
    assert picture.get_clim() == (-3, 3)
    assert axes.get_title() == "name"


def test_numbers_are_dark_on_light_and_white_on_dark():
    _, axes = plots.subplots()
    matrix = torch.tensor([[0.0, 1.0], [0.25, 0.125]])
    plots.write_numbers(plots.show_matrix(axes, matrix, cmap="gray", vmin=0, vmax=1), matrix, ".2f")
    assert [text.get_text() for text in axes.texts] == ["0.00", "1.00", "0.25", "0.12"]
    assert [to_hex(text.get_color()) for text in axes.texts[:2]] == ["#ffffff", plots.INK]
