"""Draw the six test images of the course, the letters T O K E N S, into ``resources/test_images.npy``.

    python -m tools.draw_test_images

Everything comes from formulas: no font, no photograph, no random number. A letter is a set of strokes, a stroke a
distance; ground and letter each have two colors and a texture. Each image is asymmetric on purpose (lighter at the
top left, darker at the bottom right, textures with a direction), so that a transpose, a flip or a patch in the wrong
place can be seen. Values are rounded to whole 255ths, so that every machine writes the same array.
"""

from itertools import pairwise
from pathlib import Path

import numpy as np

SIZE = 96  # pixels
FINE = 4  # subpixels a pixel, in each direction: smooth edges
HALF_STROKE = 0.092  # half the width of a stroke, as a share of the image

# x to the right and y down, in image sides, pixel centers at subpixel resolution
_ticks = (np.arange(SIZE * FINE) + 0.5) / (SIZE * FINE)
X, Y = np.meshgrid(_ticks, _ticks)


def segment(x0, y0, x1, y1):
    """Distance of every subpixel to a straight stroke."""
    along = ((X - x0) * (x1 - x0) + (Y - y0) * (y1 - y0)) / ((x1 - x0) ** 2 + (y1 - y0) ** 2)
    along = np.clip(along, 0, 1)
    return np.hypot(X - x0 - along * (x1 - x0), Y - y0 - along * (y1 - y0))


def path(points):
    """Distance to a chain of straight strokes."""
    return np.minimum.reduce([segment(*start, *stop) for start, stop in pairwise(points)])


def arc(x, y, rx, ry, start, stop):
    """Distance to a part of an ellipse, angles in degrees, clockwise from the right."""
    angles = np.radians(np.linspace(start, stop, 25))
    return path([(x + rx * np.cos(a), y + ry * np.sin(a)) for a in angles])


# the strokes of each letter, in a box from 0.2 to 0.8
LETTERS = {
    "T": lambda: np.minimum(segment(0.22, 0.24, 0.78, 0.24), segment(0.5, 0.24, 0.5, 0.78)),
    "O": lambda: arc(0.5, 0.5, 0.27, 0.28, 0, 360),
    "K": lambda: np.minimum(segment(0.29, 0.22, 0.29, 0.78), path([(0.74, 0.22), (0.33, 0.52), (0.76, 0.78)])),
    "E": lambda: np.minimum(path([(0.72, 0.23), (0.3, 0.23), (0.3, 0.77), (0.74, 0.77)]), segment(0.3, 0.5, 0.63, 0.5)),
    "N": lambda: path([(0.26, 0.78), (0.26, 0.23), (0.74, 0.77), (0.74, 0.22)]),
    "S": lambda: np.minimum(arc(0.5, 0.37, 0.22, 0.155, -25, -270), arc(0.5, 0.645, 0.23, 0.15, -90, 150)),
}

# letter: ground from top left to bottom right, letter from top to bottom, texture of the ground
LOOKS = {
    "T": ("#ffd98a", "#e2711d", "#5b1d5e", "#1d0a3b", "stripes"),
    "O": ("#bfe8ff", "#2176ae", "#fff6d6", "#ffb627", "rings"),
    "K": ("#f7c6d9", "#a4133c", "#fffdf7", "#ffd6a5", "dots"),
    "E": ("#d8f3c4", "#2d6a4f", "#12263a", "#06466b", "waves"),
    "N": ("#d9c8ff", "#5a2ca0", "#f6ff8f", "#8ee000", "checks"),
    "S": ("#ffe3d1", "#8d5a3b", "#0b5d6b", "#02c3bd", "rays"),
}

# each in [-1, 1], with a direction or a center that is not the middle of the image
TEXTURES = {
    "stripes": lambda: np.sin(2 * np.pi * (X * 5 + Y * 11)),
    "rings": lambda: np.sin(2 * np.pi * 11 * np.hypot(X - 0.12, Y - 0.2)),
    "dots": lambda: np.cos(2 * np.pi * 8 * (X + 0.25 * Y)) * np.cos(2 * np.pi * 8 * Y),
    "waves": lambda: np.sin(2 * np.pi * (9 * Y + 0.45 * np.sin(2 * np.pi * 2 * X))),
    "checks": lambda: np.sign(np.sin(2 * np.pi * 6 * (X + 0.2 * Y)) * np.sin(2 * np.pi * 4 * Y)),
    "rays": lambda: np.sin(18 * np.arctan2(Y + 0.15, X + 0.1)),
}


def color(code):
    """``"#rrggbb"`` as three floats in [0, 1]."""
    return np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def blend(first, second, share):
    """Mix two colors (or pictures), ``share`` of the second."""
    return first + (second - first) * share[..., None]


def draw(letter):
    """Return one image ``(96, 96, 3)`` in [0, 1]."""
    top_left, bottom_right, high, low, texture = LOOKS[letter]
    picture = blend(color(top_left), color(bottom_right), 0.35 * X + 0.65 * Y)
    picture = picture * (1 + 0.12 * TEXTURES[texture]()[..., None])
    distance = LETTERS[letter]() - HALF_STROKE
    shadow = np.roll(distance, (3 * FINE, 3 * FINE), axis=(0, 1))
    picture = picture * (1 - 0.45 * np.clip(1 - shadow / 0.06, 0, 1)[..., None])
    body = blend(color(high), color(low), np.clip((Y - 0.15) / 0.7, 0, 1))
    body = body + 0.25 * np.clip(1 + distance / 0.035, 0, 1)[..., None] * (0.55 - 0.6 * X - 0.5 * Y)[..., None]
    picture = np.where((distance < 0)[..., None], body, picture)
    pixels = picture.reshape(SIZE, FINE, SIZE, FINE, 3).mean(axis=(1, 3))
    return np.round(np.clip(pixels, 0, 1) * 255) / 255


def make_test_images():
    """Return all six, ``(6, 96, 96, 3)`` float32."""
    return np.stack([draw(letter) for letter in "TOKENS"]).astype(np.float32)


if __name__ == "__main__":
    target = Path(__file__).resolve().parents[1] / "resources" / "test_images.npy"
    np.save(target, make_test_images(), allow_pickle=False)
    print(f"wrote {target.name}")
