"""Draw the figures of the course, one SVG each, into ``img/``.

    python -m tools.draw_figures                     all of them
    python -m tools.draw_figures encoder_block       one, by its name

``FIGURES`` lists them. Every figure is a :class:`Sheet` whose unit is a tenth of an inch. The colors are those of
``vit_course.plots``: one color for one thing. Fonts are matplotlib's own, and nothing depends on the time, the
machine or a random number, so that every machine writes the same file.
"""

import math
import sys
from functools import partial
from pathlib import Path

import matplotlib.style
import numpy as np
import torch
from einops import rearrange, reduce
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path as Outline

from tools.write_run_pages import read
from vit_course.data import load_test_images
from vit_course.embedding import patchify
from vit_course.plots import COLORS, FAINT, INK, patch_mosaic
from vit_course.training import learning_rate_schedule

FOLDER = Path(__file__).resolve().parents[1] / "img"
SETTINGS = {
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "cm",
    "image.composite_image": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "vit_course",
}
TITLE, WORD, SMALL = 18, 16, 14  # font sizes in points on a sheet ten inches wide
EM = 1 / 7.2  # one point in units of a sheet
MUTED = "#5b6372"  # remarks
GROUND = "#f4f6f9"  # panels
STAR, ELLIPSIS = "★", "· · ·"  # the class token, and what is left out
P = 16  # patch size of the running example
GRID = 6  # patches in a row
RUNS = {"red": "#d62f2f", "green": "#2e9e4f", "blue": "#2f5fd0"}  # the three channels


def blend(color, share, other="white"):
    """Mix ``share`` of the other color into the first one."""
    return tuple((1 - share) * np.array(to_rgb(color)) + share * np.array(to_rgb(other)))


def is_dark(color):
    """Whether white text reads better on this color than ink."""
    return np.dot(to_rgb(color), (0.299, 0.587, 0.114)) < 0.5


class Sheet:
    """An empty white page with helpers to draw on; ``x`` to the right, ``y`` up, places are centers.

    Args:
        right, top: the upper right corner, in tenths of an inch.
        left, bottom: the lower left corner.

    While ``faded`` is true everything is drawn pale.
    """

    def __init__(self, right, top, left=0, bottom=0):
        self.figure = Figure(figsize=((right - left) / 10, (top - bottom) / 10), facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(left, right), ylim=(bottom, top), autoscale_on=False)
        self.axes.set_axis_off()
        self.faded = False

    def tone(self, color, share=0.72):
        """Return the color as it is now: full or faded."""
        return blend(color, share) if self.faded else to_rgb(color)

    def words(self, x, y, text, *, size=WORD, color=INK, align="center", bold=False, mono=False):
        """Write one or more lines, centred on ``y`` by the height of a capital letter."""
        lines = text.split("\n")
        for number, line in enumerate(lines):
            middle = y + ((len(lines) - 1) / 2 - number) * 1.25 * size * EM
            self.axes.text(
                x,
                middle - 0.36 * size * EM,
                line,
                size=size,
                color=self.tone(color, 0.4),
                ha=align,
                va="baseline",
                weight="bold" if bold else "normal",
                family="DejaVu Sans Mono" if mono else None,
                zorder=5,
            )

    def shape(self, x, y, letters, sizes, *, align="center"):
        """Write a shape, such as ``(6, 37, 768)``, with the letter of every axis above its size."""
        letters, sizes = letters.split(), sizes.split()
        numbers = f"({', '.join(sizes)})"
        character = 0.602 * SMALL * EM
        left = x - character * len(numbers) * {"left": 0, "center": 0.5, "right": 1}[align]
        self.words(left, y - 0.55 * SMALL * EM, numbers, size=SMALL, align="left", bold=True, mono=True)
        edge = -math.inf  # of the letter before
        for number, name in enumerate(letters):
            before = 1 + sum(len(other) + 2 for other in sizes[:number])
            middle = left + character * max(before + len(sizes[number]) / 2, edge + 1 + len(name) / 2)
            edge = (middle - left) / character + len(name) / 2
            self.words(middle, y + 0.7 * SMALL * EM, name, size=SMALL, color=MUTED, mono=True)

    def box(self, x, y, width, height, color, label="", *, size=WORD, edge=None, round=1.2, line=1.5, behind=False):
        """Draw a rounded box, with a label in the middle."""
        self.axes.add_patch(
            FancyBboxPatch(
                (x - width / 2, y - height / 2),
                width,
                height,
                boxstyle=f"round,pad=0,rounding_size={round}",
                facecolor=self.tone(color),
                edgecolor=self.tone(edge or blend(color, 0.25, "black")),
                linewidth=line,
                zorder=0 if behind else 3,
            )
        )
        if label:
            self.words(x, y, label, size=size, color="white" if is_dark(color) and not self.faded else INK, bold=True)

    def arrow(self, *points, color=INK, width=2.2, dashed=False, head=True, layer=2):
        """Draw an arrow through the points, corners rounded."""
        points = [np.array(point, dtype=float) for point in dict.fromkeys(points)]
        end, back = points[-1], points[-2] - points[-1]
        back = back / np.hypot(*back)
        side = np.array([-back[1], back[0]])
        length = 1.1 + 0.35 * width
        if head:
            points[-1] = end + 0.8 * length * back
        route, codes = [points[0]], [Outline.MOVETO]
        for before, corner, after in zip(points, points[1:], points[2:], strict=False):
            into, out = before - corner, after - corner
            radius = min(1.4, np.hypot(*into) / 2, np.hypot(*out) / 2)
            route += [corner + radius * into / np.hypot(*into), corner, corner + radius * out / np.hypot(*out)]
            codes += [Outline.LINETO, Outline.CURVE3, Outline.CURVE3]
        self.axes.add_patch(
            PathPatch(
                Outline([*route, points[-1]], [*codes, Outline.LINETO]),
                fill=False,
                edgecolor=self.tone(color),
                linewidth=width,
                linestyle=(0, (3, 1.6)) if dashed else "solid",
                capstyle="butt",
                zorder=layer,
            )
        )
        if head:
            corners = [end, end + length * back + 0.55 * length * side, end + length * back - 0.55 * length * side]
            self.axes.add_patch(Polygon(corners, color=self.tone(color), linewidth=0, zorder=layer))

    def plus(self, x, y, *, radius=1.9, turned=False):
        """Draw an addition; ``turned``, a product."""
        color = COLORS["residual"]
        self.axes.add_patch(
            Circle((x, y), radius, facecolor="white", edgecolor=self.tone(color), linewidth=2.2, zorder=3)
        )
        a, b = (0.4 * radius, 0.4 * radius) if turned else (0.55 * radius, 0)
        for across, up in ((a, b), (-b, a)):
            self.arrow((x - across, y - up), (x + across, y + up), color=color, head=False, layer=4)

    def picture(self, pixels, x, y, width, height=None):
        """Place an image ``(h, w, 3)`` in [0, 1], every pixel a sharp square."""
        height = height or width
        pixels = np.asarray(pixels, dtype=float)
        if self.faded:
            pixels = 1 - 0.3 * (1 - pixels)
        extent = (x - width / 2, x + width / 2, y - height / 2, y + height / 2)
        pixels = np.round(pixels * 255).astype(np.uint8)
        self.axes.imshow(pixels, extent=extent, interpolation="none", aspect="auto", zorder=3)

    def rectangle(self, x, y, width, height, fill="none", *, edge=INK, line=2):
        """Draw a rectangle with sharp corners, empty by default."""
        fill = fill if fill == "none" else self.tone(fill)
        place = (x - width / 2, y - height / 2)
        look = dict(facecolor=fill, edgecolor=self.tone(edge), linewidth=line, zorder=4)
        self.axes.add_patch(Rectangle(place, width, height, **look))

    def matrix(self, x, y, fills, cell):
        """Draw a table of colors as cells of ``cell`` or ``(width, height)`` units; a row of the table is a row."""
        width, height = cell if isinstance(cell, tuple) else (cell, cell)
        rows, columns = len(fills), len(fills[0])
        for row, line in enumerate(fills):
            for column, fill in enumerate(line):
                center = x + (column - (columns - 1) / 2) * width, y - (row - (rows - 1) / 2) * height
                self.rectangle(*center, width, height, fill, edge="white", line=0.8)
        self.rectangle(x, y, columns * width, rows * height, edge=COLORS["residual"], line=1.5)

    def numbers(self, x, y, values, cell, color, *, highest, spec="g"):
        """Draw a table with each number in its cell; the color reaches its full strength at ``highest``."""
        self.matrix(x, y, tints(color, values / highest, palest=0.95), cell)
        (rows, columns), (width, height) = values.shape, cell
        for (row, column), value in np.ndenumerate(values):
            center = x + (column - (columns - 1) / 2) * width, y - (row - (rows - 1) / 2) * height
            self.words(*center, format(value, spec))

    def row_names(self, x, y, names, height, *, align):
        """Write the names of the rows of a table whose middle is at ``y``."""
        for row, name in enumerate(names):
            self.words(x, y - (row - (len(names) - 1) / 2) * height, name, size=SMALL, align=align)

    def row(self, centers, y, height, color, labels):
        """Draw a row of cells, such as tokens or positions; an ellipsis stays bare, a star is the class token."""
        for x, label in zip(centers, labels, strict=True):
            if label == ELLIPSIS:
                self.words(x, y, label, bold=True)
            else:
                self.box(x, y, 7.2, height, COLORS["class_token"] if label == STAR else color, label, round=0.7)

    def bracket(self, left, right, y, tip):
        """Draw a flat bracket from ``left`` to ``right`` whose ends point to ``y + tip``."""
        self.arrow((left, y + tip), (left, y), (right, y), (right, y + tip), head=False)


def strengths(rows, columns, seed=0):
    """Return a table of numbers from 0 to 1 without a pattern, the same at every run."""
    row, column = np.mgrid[:rows, :columns]
    return (37 * row + 73 * column + 19 * row * column + 53 * seed) % 11 / 10


def tints(color, values, *, palest=0.7):
    """Return a table of colors, the stronger the greater the value (0 to 1)."""
    return [[blend(color, palest * (1 - value)) for value in line] for line in values]


def token_tints(values):
    """Return a table of colors for tokens, one a row, the class token first."""
    return tints(COLORS["class_token"], values[:1]) + tints(COLORS["token"], values[1:])


def letter_and_patches():
    """Return the letter T ``(c, h, w)`` and its patches ``(n, c·p1·p2)``."""
    images = load_test_images()[:1]
    return images[0], patchify(images, P)[0]


def pixels_of(image):
    """Return an image ``(c, h, w)`` as pixels ``(h, w, c)``."""
    return rearrange(image, "c h w -> h w c")


def patch_pixels(patch):
    """Return a flat patch as pixels ``(p1, p2, c)``."""
    return rearrange(patch, "(c p1 p2) -> p1 p2 c", c=3, p1=P)


def run_pixels(patch, *, every=1):
    """Return the three runs of a flat patch, reds, greens, blues: ``(c, m, rgb)``, one pixel for ``every`` values."""
    light = reduce(patch, "(c m every) -> c m 1", "mean", c=3, every=every) ** 0.7
    tint = torch.tensor([to_rgb(color) for color in RUNS.values()])[:, None]
    return tint * (0.2 + 0.8 * light) + (1 - tint) * 0.3 * light


def draw_runs(sheet, runs, x, y, width, height):
    """Draw a flat patch: three runs side by side. Return their centers."""
    centers = x + width / 3 * np.array([-1, 0, 1])
    for run, center in zip(runs, centers, strict=True):
        sheet.picture(run[None], center, y, width / 3 - 0.5, height)
    return centers


PARTS = {"cut", "embed", "attention", "block", "head"}
COLUMNS = [STAR, "1", "2", "3", "4", "5", ELLIPSIS, "35", "36"]  # of a row of tokens
LOGITS = (0.22, 0.12, 0.3, 1.0, 0.16, 0.26, 0.1, 0.34, 0.2, 0.14)


def architecture(lit=PARTS, *, ring=False, training=False, cases=False, sections=()):
    """Draw the whole Vision Transformer, with parts that are not ``lit`` faded and ``sections`` next to their parts."""
    sheet = Sheet(113, 76, left=-3, bottom=-22) if training else Sheet(110, 74, bottom=-8 * cases)
    if training:
        draw_training(sheet)
    if ring:
        sheet.box(92, 11, 35, 21.4, blend(COLORS["head"], 0.9), edge=COLORS["head"], line=3, round=2, behind=True)
    draw_cutting(sheet, lit)
    draw_tokens(sheet, lit)
    draw_encoder(sheet, lit)
    draw_head(sheet, lit)
    if cases:
        draw_cases(sheet)
    sheet.faded = False
    for x, y, text in sections:
        sheet.words(x, y, text, size=WORD, color=COLORS["wrong"], bold=True)
    return sheet.figure


def draw_cutting(sheet, lit):
    """Top row: the image, its patches, the flat patches, and the projection."""
    (image, patches), y, title = letter_and_patches(), 60, 71.5
    sheet.faded = "cut" not in lit
    sheet.words(10, title, "image")
    sheet.picture(pixels_of(image), 10, y, 16)
    sheet.shape(10, 48.5, "b c h w", "6 3 96 96")
    sheet.arrow((19.2, y), (27, y))
    sheet.words(37.5, title, "6 × 6 patches")
    sheet.picture(pixels_of(patch_mosaic(image, P, gap=3)), 37.5, y, 18.5)
    sheet.arrow((48, y), (55, y))
    sheet.words(65, title, "flattened")
    for number, label in enumerate(["1", "2", "3", ELLIPSIS, "36"]):
        row = y + 7.2 - 3.6 * number
        if label == ELLIPSIS:
            sheet.words(65, row, ELLIPSIS, bold=True)
        else:
            draw_runs(sheet, run_pixels(patches[int(label) - 1], every=16), 65, row, 18, 2.6)
    sheet.shape(65, 48.5, "b n c·p1·p2", "6 36 768")
    sheet.faded = "embed" not in lit
    sheet.arrow((75.2, y), (85, y))
    sheet.box(97, y, 22, 13, COLORS["token"], "linear\nprojection")


def draw_tokens(sheet, lit):
    """Middle row: class token, patch tokens and positions."""
    sheet.faded = "embed" not in lit
    centers = 36.5 + 8.4 * np.arange(len(COLUMNS))
    left, right = centers[0] - 3.6, centers[-1] + 3.6
    sheet.arrow((97, 53.5), (97, 43.5), head=False)
    sheet.bracket(left + 8.4, right, 43.5, -1.6)
    sheet.shape(87, 48.5, "b n d", "6 36 768")
    sheet.words(31, 38.5, "class token", color=COLORS["class_token"], bold=True, align="right")
    sheet.row(centers, 38.5, 5.6, COLORS["token"], COLUMNS)
    sheet.words(31, 30.5, "positions", align="right", bold=True, color=blend(COLORS["position"], 0.4, INK))
    sheet.row(centers, 30.5, 4.6, COLORS["position"], ["0", *COLUMNS[1:]])
    for x in centers[np.array(COLUMNS) != ELLIPSIS]:
        sheet.words(x, 34.2, "+", bold=True)
    sheet.bracket(left, right, 26, 1.2)
    sheet.shape(12, 26.8, "b s d", "6 37 768")


def draw_encoder(sheet, lit):
    """Bottom row: the encoder block, L times, and the final LayerNorm."""
    stream, branch, norm = 7, 14.5, COLORS["norm"]
    sheet.faded = "block" not in lit
    for step in (2, 1, 0):
        sheet.box(39 + step, 10.5 + 0.9 * step, 65, 18.5, GROUND, edge=blend(FAINT, 0.12, INK), behind=True)
    sheet.words(8.5, 3.4, "encoder block", size=SMALL, align="left", color=MUTED)
    sheet.words(69, 3.4, "× L", align="right", bold=True)
    sheet.arrow((36.5, 26), (36.5, 23.5), (3, 23.5), (3, stream), (76, stream), color=COLORS["residual"], width=4)
    for start, width, part, label in (
        (8.5, 18.6, "attention", "multi-head\nself-attention"),
        (45.3, 8.7, "mlp", "MLP"),
    ):
        draw_branch(sheet, start, stream, branch, width, part, label, faded=not lit & {part, "block"})
    sheet.box(78.7, stream, 5.2, 8, norm, "LN")


def draw_branch(sheet, start, stream, branch, width, part, label, *, scale=1, faded=False):
    """Draw a branch of the encoder block: off the stream, LayerNorm, one part, and back by an addition."""
    norm, box, high = start + 5.6 * scale, start + 11.5 * scale + width / 2, 8 * scale
    stop = box + width / 2 + 4 * scale
    sheet.arrow((start, stream), (start, branch), (norm - 2.6 * scale, branch))
    sheet.box(norm, branch, 5.2 * scale, high, COLORS["norm"], "LN", size=WORD * scale**0.5)
    sheet.arrow((norm + 2.6 * scale, branch), (box - width / 2, branch))
    sheet.arrow((box + width / 2, branch), (stop, branch), (stop, stream + 1.9 * scale))
    sheet.plus(stop, stream, radius=1.9 * scale)
    whole, sheet.faded = sheet.faded, faded
    sheet.box(box, branch, width, high, COLORS[part], label, size=SMALL * scale**0.7)
    sheet.faded = whole


def draw_head(sheet, lit):
    """Bottom right: the head on the class token, and the classes."""
    sheet.faded = "head" not in lit
    sheet.arrow((81.3, 7), (89.5, 7))
    sheet.box(85.2, 7, 3.8, 3.8, COLORS["class_token"], STAR, size=SMALL, round=0.7)
    sheet.box(94, 7, 9, 8, COLORS["head"], "head")
    sheet.arrow((98.5, 7), (101.5, 7))
    for number, logit in enumerate(LOGITS):
        sheet.box(102.5 + 3 * logit, 11.5 - number, 6 * logit, 0.7, COLORS["head"], round=0.1, line=0)
    sheet.words(104, 19.5, "classes")
    sheet.shape(104, 15.5, "b k", "6 10")


def draw_training(sheet):
    """Draw the loop around the model: loss, gradients, update."""
    y = -11
    sheet.box(55, 37, 113, 75.5, "white", edge=INK, line=2, round=2, behind=True)
    sheet.arrow((104, -0.7), (104, y + 4.5), width=3)
    sheet.words(102, -3.8, "logits", align="right")
    sheet.box(100, y, 18, 9, INK, "loss", size=TITLE)
    sheet.words(100, y - 9, "labels")
    sheet.arrow((100, y - 7.4), (100, y - 4.5))
    sheet.arrow((91, y), (37, y), width=3, dashed=True)
    sheet.words(64, y + 2.8, "gradients", size=TITLE)
    sheet.box(22, y, 30, 9, INK, "optimizer step", size=TITLE)
    sheet.arrow((22, y + 4.5), (22, -0.7), width=3)
    sheet.words(24.5, -3.8, "new weights", align="left")


def draw_cases(sheet):
    """Number the parts that the cases of the bug clinic are about; the last row is about training."""
    for numbers, x, y in (
        ((4,), 11, 38.5),
        ((3, 4, 6), 6.5, 31.2),
        ((1, 2, 10, 11), 22.5, 19.2),
        ((5,), 42.6, 11.5),
        ((5,), 69.5, 11.5),
        ((9,), 20, -4.5),
        ((7, 8), 52, -4.5),
        ((12,), 81, -4.5),
    ):
        for place, number in enumerate(numbers):
            sheet.box(x + 4.4 * place, y, 3.9, 3.9, INK, str(number), size=SMALL, edge="white", round=1.9)
    for words, x in (("data augmentation", 22.8), ("pretraining", 59.2), ("fine-tuning", 83.8)):
        sheet.words(x, -4.5, words, align="left")
    sheet.words(3, -4.5, "training:", align="left", bold=True)


CHOSEN = (2, 2)  # row and column of the patch that is pulled out


def image_to_patches():
    """One image, cut into patches; one patch, flattened and projected."""
    sheet, (image, patches), y = Sheet(100, 76), letter_and_patches(), 58
    sheet.words(12, 73.3, "image")
    sheet.picture(pixels_of(image), 12, y, 20)
    sheet.shape(10, 44.6, "c h w", "3 96 96")
    sheet.arrow((23.5, y), (29.5, y))
    sheet.words(43.5, 73.3, "6 × 6 patches")
    side, gap = 25, 3
    pixel = side / (GRID * P + (GRID - 1) * gap)
    sheet.picture(pixels_of(patch_mosaic(image, P, gap=gap)), 43.5, y, side)
    x0 = 43.5 - side / 2 + CHOSEN[1] * (P + gap) * pixel
    y0 = y + side / 2 - CHOSEN[0] * (P + gap) * pixel
    x1, y1 = x0 + P * pixel, y0 - P * pixel
    sheet.rectangle((x0 + x1) / 2, (y0 + y1) / 2, P * pixel + 0.5, P * pixel + 0.5)
    for start, stop in (((x1, y0 + 0.2), (71.7, y + 9)), ((x1, y1 - 0.2), (71.7, y - 9))):
        sheet.arrow(start, stop, width=1.6, head=False, layer=4)
    patch = patches[CHOSEN[0] * GRID + CHOSEN[1]]
    sheet.words(80.7, 73.3, "one patch")
    sheet.picture(patch_pixels(patch), 80.7, y, 18)
    sheet.rectangle(80.7, y, 18, 18)
    sheet.shape(91.5, 44.5, "c p1 p2", "3 16 16")
    sheet.arrow((80.7, 44), (19.3, 44), (19.3, 39.6))
    sheet.arrow((50, 44), (50, 39.6))
    sheet.arrow((80.7, y - 9), (80.7, 39.6))
    runs = run_pixels(patch)
    centers = draw_runs(sheet, runs, 50, 20, 92.1, 5)
    for x, run, (name, color) in zip(centers, runs, RUNS.items(), strict=True):
        sheet.picture(rearrange(run, "(p1 p2) rgb -> p1 p2 rgb", p1=P), x, 33.5, 11)
        sheet.words(x + 7, 33.5, name, color=blend(color, 0.2, INK), bold=True, align="left")
        sheet.arrow((x, 27.5), (x, 23.3))
    sheet.bracket(4.2, 95.8, 15.2, 1.3)
    sheet.arrow((19.3, 15.2), (19.3, 10.5))
    sheet.words(22, 12.4, "(c p1 p2) = 3 · 16 · 16 = 768 values", align="left")
    sheet.box(19.3, 6, 32, 9, COLORS["token"], "linear projection")
    sheet.arrow((35.5, 6), (44, 6))
    sheet.matrix(62, 6, tints(COLORS["token"], strengths(1, 17)), (2, 5))
    sheet.words(81, 7.6, "token", align="left", bold=True)
    sheet.words(81, 4, "d values", align="left")
    return sheet.figure


def token_sequence():
    """Class token, patch tokens and positions make the sequence."""
    sheet, (_, patches) = Sheet(100, 70), letter_and_patches()
    centers = 30 + 8.2 * np.arange(len(COLUMNS))
    lines = {"patches": 62.5, "tokens": 46, "positions": 28.5, "sequence": 11}
    shapes = {"patches": "6 36 768", "tokens": "6 37 768", "positions": "1 37 768", "sequence": "6 37 768"}
    axes = {"patches": "b n c·p1·p2", "positions": "1 s d"}
    for name, y in lines.items():
        sheet.words(2, y + 3.2, name, align="left", bold=True)
        sheet.shape(2, y - 2, axes.get(name, "b s d"), shapes[name], align="left")
        sheet.words(centers[COLUMNS.index(ELLIPSIS)], y, ELLIPSIS, bold=True)
    sheet.words(2, 2, "index", align="left")
    sheet.words(2, 54.3, "linear projection", align="left", size=SMALL, color=MUTED)
    sheet.words(centers[0], 61.8, "class\ntoken", color=COLORS["class_token"], bold=True)
    values, positions = (strengths(len(COLUMNS), 5, seed)[:, :, None] for seed in (0, 5))
    for x, name, value, position in zip(centers, COLUMNS, values, positions, strict=True):
        if name == ELLIPSIS:
            continue
        if name != STAR:
            sheet.picture(patch_pixels(patches[int(name) - 1]), x, lines["patches"], 6.4)
        sheet.arrow((x, 58.2), (x, 52.2))
        token = tints(COLORS["class_token" if name == STAR else "token"], value)
        place = tints(COLORS["position"], position)
        both = [[blend(*pair[0], 0.5, pair[1][0])] for pair in zip(token, place, strict=True)]
        sheet.matrix(x, lines["tokens"], token, (5.8, 2.2))
        sheet.words(x, 37.3, "+", bold=True)
        sheet.matrix(x, lines["positions"], place, (5.8, 2.2))
        sheet.words(x, 19.8, "=", bold=True)
        sheet.matrix(x, lines["sequence"], both, (5.8, 2.2))
        sheet.words(x, 2, "0" if name == STAR else name)
    return sheet.figure


def head_of(seed):
    """Return queries, keys, values, scores, attention and output of one small head: 5 tokens, 3 features."""
    query, key, value = (strengths(5, 3, seed + part) for part in range(3))
    scores = (6 * query - 3) @ (6 * key - 3).T / math.sqrt(3)
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return query, key, value, scores, weights, weights @ value


def attention_tints(weights):
    """Return a table of colors for attention weights or scores, from the smallest to the greatest."""
    return tints(COLORS["attention"], (weights - weights.min()) / np.ptp(weights), palest=0.95)


# Three tokens of two features, the three projections of lesson 03, and the row whose arithmetic is written out.
THREE = {"letter": (1, 0), "ground": (0, 1), "edge": (1, 1)}
PROJECTIONS = {"query": ((0, 2), (0, 1)), "key": ((1, 0), (0, 1)), "value": ((10,), (20,))}


def attention_one_head():
    """One head of self-attention on three tokens, with every number."""
    sheet, tokens = Sheet(101, 76, bottom=-31), np.array([*THREE.values()])
    sheet.words(16, 41.2, "tokens", bold=True)
    sheet.numbers(16, 31, tokens, (6.4, 5), COLORS["token"], highest=2)
    sheet.row_names(8.6, 31, THREE, 5, align="right")
    tables = {}
    for y, (name, projection) in zip((58, 31, 4), PROJECTIONS.items(), strict=True):
        tables[name] = tokens @ projection
        narrow = 2.3 if name == "value" else 0
        sheet.arrow((22.8, 31), (25.3, 31), (25.3, y), (28.2 + narrow, y))
        sheet.words(33.8, y + 7.2, f"$U_{name[0]}$")
        sheet.numbers(33.8, y, np.array(projection), (5, 4.4), MUTED, highest=60 if name == "value" else 6)
        sheet.arrow((39.2 - narrow, y), (42 + 1.5 * narrow, y))
        title = {"query": "queries q", "key": "keys k", "value": "values v"}[name]
        sheet.words(49.5, y + 10.2, title, bold=True, color=COLORS[name])
        sheet.numbers(49.5, y, tables[name], (7, 5), COLORS[name], highest=60 if name == "value" else 6)
    scores = tables["query"] @ tables["key"].T
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    output = weights @ tables["value"]
    sheet.arrow((57, 58), (66.8, 58))
    sheet.arrow((57, 31), (61, 31), (61, 53), (66.8, 53))
    sheet.words(78.5, 72, r"scores $q\,k^{\top}$", bold=True)
    sheet.numbers(78.5, 58, scores, (7.4, 5), COLORS["attention"], highest=5)
    sheet.arrow((78.5, 49.8), (78.5, 44.9))
    sheet.words(80.5, 47.5, "softmax of each row", size=SMALL, align="left")
    sheet.words(78.5, 42.4, "attention weights", bold=True)
    sheet.numbers(78.5, 28, weights, (7.4, 5), COLORS["attention"], highest=1, spec=".2f")
    for y in (58, 28):
        for column, name in enumerate(THREE):
            sheet.words(78.5 + 7.4 * (column - 1), y + 9.4, name, size=12, color=MUTED)
    sheet.arrow((66.8, 28), (63, 28), (63, 5.9))
    sheet.arrow((53.6, 4), (61.1, 4))
    sheet.plus(63, 4, turned=True)
    sheet.arrow((64.9, 4), (73.6, 4))
    sheet.words(78.5, 14.2, "output", bold=True)
    sheet.numbers(78.5, 4, output, (9, 5), COLORS["value"], highest=60, spec=".1f")
    for y, right in ((58, 91), (28, 91), (4, 84.4)):
        sheet.row_names(right, y, THREE, 5, align="left")
    for x, y, width in ((49.5, 58, 14), (78.5, 58, 22.2), (78.5, 28, 22.2), (78.5, 4, 9)):
        sheet.rectangle(x, y + 5, width, 5, line=3)
    sheet.box(50.5, -18, 97, 22, GROUND, edge=FAINT, behind=True)
    sheet.words(4, -10.8, "The framed row, which belongs to the letter token", align="left", color=MUTED)
    for y, title, sum_ in (
        (-15.8, "score for ground", r"(0, 2) · (0, 1)  =  0 · 0 + 2 · 1  =  2"),
        (-20.4, "its weight", r"exp(2) / (exp(0) + exp(2) + exp(2))  =  7.39 / 15.78  =  0.47"),
        (-25, "output", r"0.06 · 10  +  0.47 · 20  +  0.47 · 30  ≈  24"),
    ):
        sheet.words(4, y, title, align="left", bold=True)
        sheet.words(28, y, sum_, align="left")
    return sheet.figure


def attention_many_heads():
    """Attention with many heads: split, attend in each, merge, project."""
    sheet, cell = Sheet(100, 74, bottom=-1.5), 1.7
    lanes = {"head 0": 57, "head 1": 38, "head 11": 12}
    bands = {"head 0": -6.5, "head 1": -0.8, "head 11": 7.8}  # places within the width d
    heads = {name: head_of(3 * seed) for seed, name in enumerate(lanes)}
    names = {"query": 53, "key": 38, "value": 23}
    for x, title in ((13, "split"), (51.5, "attention in every head"), (87.5, "merge")):
        sheet.words(x, 71, title, size=TITLE, bold=True)
    for part, (name, y) in enumerate(names.items()):
        for head, x in bands.items():
            sheet.matrix(13 + x, y, tints(COLORS[name], heads[head][part]), cell)
        sheet.words(13 + 3.5, y, "···", bold=True)
        sheet.words(1.8, y, name[0], size=TITLE, bold=True, color=COLORS[name])
    for head, x in bands.items():
        sheet.words(13 + x, 60, head.removeprefix("head "), size=SMALL)
    for x in (13, 87.5):
        sheet.words(x, 66.5, "(heads e)", size=SMALL, color=MUTED, mono=True)
    sheet.shape(13, 12.5, "b s d", "6 37 768")
    sheet.words(40.5, 25.5, ELLIPSIS, bold=True)
    for head, y in lanes.items():
        *parts, _, weights, output = heads[head]
        sheet.arrow((24, 38), (26.5, 38), (26.5, y), (31, y))
        for number, name in enumerate(names):
            sheet.matrix(34.5 + 6 * number, y, tints(COLORS[name], parts[number]), cell)
        sheet.words(40.5, y + 6.7, head)
        sheet.arrow((49.8, y), (53.2, y))
        sheet.matrix(58.6, y, attention_tints(weights), 1.9)
        sheet.arrow((64, y), (67.2, y))
        sheet.matrix(70.4, y, tints(COLORS["value"], output), cell)
        lane = [] if head == "head 0" else [(75, y), (75, 57)]
        sheet.arrow((73.5, y), *lane, (77.9, 57))
        sheet.matrix(87.5 + bands[head], 57, tints(COLORS["value"], output), cell)
    sheet.words(87.5 + 3.5, 57, "···", bold=True)
    sheet.shape(52, 2.5, "b heads s e", "6 12 37 64")
    sheet.arrow((87.5, 51.5), (87.5, 43))
    sheet.box(87.5, 38, 19, 9, COLORS["attention"], "output\nprojection", size=SMALL)
    sheet.arrow((87.5, 33.5), (87.5, 26))
    sheet.matrix(87.5, 20, token_tints(strengths(5, 10)), (1.9, cell))
    sheet.words(78.95, 23.4, STAR, size=11)
    sheet.shape(87.5, 12, "b s d", "6 37 768")
    return sheet.figure


def encoder_block():
    """The encoder block: two branches added to the residual stream."""
    sheet = Sheet(100, 50)
    stream, branch = 19, 38
    sheet.arrow((2, stream), (98.5, stream), color=COLORS["residual"], width=6)
    draw_branch(sheet, 13, stream, branch, 20.5, "attention", "multi-head\nself-attention", scale=1.3)
    draw_branch(sheet, 60, stream, branch, 12, "mlp", "MLP", scale=1.3)
    for x, symbol in ((7, r"$z_{\ell-1}$"), (57.3, r"$z^{\prime}_{\ell}$"), (97, r"$z_{\ell}$")):
        sheet.words(x, stream + 3.6, symbol, size=20)
    sheet.words(2, stream - 3.7, "residual stream", align="left", size=SMALL, color=MUTED)
    sheet.shape(9.5, 6, "b s d", "6 37 768")
    for x, number, equation in (
        (47, 2, r"$z^{\prime}_{\ell} = \mathrm{MSA}(\mathrm{LN}(z_{\ell-1})) + z_{\ell-1}$"),
        (84, 3, r"$z_{\ell} = \mathrm{MLP}(\mathrm{LN}(z^{\prime}_{\ell})) + z^{\prime}_{\ell}$"),
    ):
        sheet.words(x, 10.5, equation, size=20)
        sheet.words(x, 5, f"Eq. {number}", color=MUTED)
    return sheet.figure


def pre_post_norm():
    """LayerNorm on the stream (post-norm) and on the branch (pre-norm)."""
    sheet = Sheet(100, 84)
    for left, pre in ((0, False), (50, True)):
        stream, side = left + 10, left + 32
        title, remark = ("pre-norm", "ViT (2020)") if pre else ("post-norm", "Transformer (2017)")
        sheet.words(left + 24, 81, title, size=20, bold=True)
        sheet.words(left + 24, 76.5, remark, color=MUTED)
        sheet.words(left + 24, 3, "stream untouched" if pre else "LN on the stream", bold=True)
        sheet.arrow((stream, 72.5), (stream, 7.5), color=COLORS["residual"], width=6)
        for top, part, label in ((69, "attention", "self-attention"), (40, "mlp", "MLP")):
            end = top - (21.5 if pre else 14.5)
            sheet.arrow((stream, top), (side, top), (side, end), (stream + 1.9, end))
            sheet.plus(stream, end)
            sheet.box(side, end + 7.2, 25, 7.5, COLORS[part], label)
            if pre:
                sheet.box(side, top - 5.2, 25, 5.5, COLORS["norm"], "LN")
            else:
                sheet.box(stream, end - 7, 14, 5.5, COLORS["norm"], "LN")
    return sheet.figure


def learning_rate():
    """Warm-up and cosine, and what the cosine does when it is not stopped."""
    total, warmup, peak, final, shown = 100, 20, 1.0, 0.16, 146
    sheet = Sheet(100, 54)
    axes = sheet.figure.add_axes((0.12, 0.14, 0.86, 0.78))
    rate = partial(learning_rate_schedule, total_steps=total, warmup_steps=warmup, peak=peak, final=final)
    late = np.arange(total - 1, shown)
    climb = final + (peak - final) * (1 + np.cos(np.pi * (late - warmup + 1) / (total - warmup))) / 2
    axes.plot(late, climb, color=COLORS["wrong"], linewidth=3, linestyle=(0, (3, 1.6)))
    axes.plot(range(shown), [rate(step) for step in range(shown)], color=COLORS["train"], linewidth=4.5)
    ticks = {0: "0", warmup - 1: "warmup_steps − 1", total - 1: "total_steps − 1"}
    for step in ticks:
        axes.vlines(step, 0, rate(step), color=FAINT, linewidth=2, zorder=0)
        axes.plot(
            step, rate(step), "o", color="white", markeredgecolor=INK, markeredgewidth=2.5, markersize=12, zorder=4
        )
    for x, y, text, color in (
        (3, 0.03, "peak / warmup_steps", INK),
        (21, 0.42, "warm-up", COLORS["train"]),
        (warmup + 2, 1.02, "peak", INK),
        (62, 0.66, "cosine", COLORS["train"]),
        (total + 3, 0.07, "final, ever after", COLORS["train"]),
        (total + 3, 0.62, "not clamped:\nclimbs again", COLORS["wrong"]),
    ):
        axes.text(x, y, text, size=WORD, color=color, weight="bold", va="bottom", backgroundcolor="white")
    axes.set(xlim=(-3, shown), ylim=(0, 1.12), xticks=list(ticks), yticks=[0, final, peak])
    axes.set_xticklabels(ticks.values(), size=SMALL, color=INK)
    axes.set_yticklabels(["0", "final", "peak"], size=SMALL, color=INK)
    axes.set_xlabel("step", size=WORD, color=INK, loc="right")
    axes.set_ylabel("learning rate", size=WORD, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set(color=INK, linewidth=1.5)
    return sheet.figure


def transfer_methods():
    """The four methods of lesson 08: the weights that each model starts from, and which parts are trained."""
    sheet = Sheet(103, 55)
    for middle, (method, (body, start, trained)) in zip((13, 39, 65, 91), TRANSFER.items(), strict=True):
        x, frozen = middle - 1.5, trained < 1_000
        pretrained = start.startswith("pretrained")
        color = COLORS["token"] if pretrained else COLORS["residual"]
        ink = INK if frozen else "white"
        sheet.words(x, 52, method, bold=True)
        sheet.box(x, 43.5, 19, 10, COLORS["head"])
        sheet.words(x, 45.6, "new head" if pretrained else "head", bold=True, color="white")
        sheet.words(x, 41.4, "trained", size=SMALL, color="white")
        sheet.arrow((x, 33.5), (x, 38.5))
        sheet.box(x, 23, 19, 21, blend(color, 0.8) if frozen else color, edge=color if frozen else None)
        sheet.words(x, 29, body, bold=True, color=ink)
        sheet.words(x, 20, f"{start},\n{'frozen' if frozen else 'trained'}", size=SMALL, color=ink)
        sheet.arrow((x, 8), (x, 12.5))
        sheet.words(x, 5.5, "digits", size=SMALL)
        sheet.words(x, 1.8, f"{trained:,} trained", size=SMALL, color=MUTED)
        sheet.arrow((x + 11.3, 48.5), (x + 11.3, 38.5 if frozen else 12.5), color=COLORS["class_token"], dashed=True)
    return sheet.figure


def accuracy_against_time():
    """What the runs on CIFAR-10 reach on the validation images, and when: our presets and published recipes."""
    sheet = Sheet(100, 58)
    axes = sheet.figure.add_axes((0.1, 0.13, 0.89, 0.84))
    kinds = (("best", COLORS["train"], 3), ("cifar10", COLORS["attention"], 3), ("published", MUTED, 2))
    for group, color, width in kinds:
        for run in (run for run in read(group) if run["config"]["dataset"] == "cifar10"):
            minutes = [0, *(each["seconds"] / 60 for each in run["times"])]
            accuracies = [10, *(100 * line["valid_accuracy"] for line in run["log"])]
            axes.plot(minutes, accuracies, color=color, linewidth=width, marker="o", markersize=2 * width)
            if group == "published":
                name, right, up = NAMES_OF_RECIPES[run["name"].split("-")[1]]
                place = minutes[-1] + right, accuracies[-1] + up
                axes.text(*place, name, size=SMALL, color=color, va="center")
    for x, y, text, color in ((20.8, 81, "this course, best", "train"), (27.8, 67, "this course, long", "attention")):
        axes.text(x, y, text, size=SMALL, color=COLORS[color], va="center", weight="bold")
    axes.set(xlim=(0, 44), ylim=(0, 88), xticks=range(0, 41, 10), yticks=range(0, 81, 20))
    axes.tick_params(labelsize=SMALL, labelcolor=INK)
    axes.set_xlabel("minutes", size=WORD, color=INK, loc="right")
    axes.set_ylabel("validation accuracy in %", size=WORD, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    return sheet.figure


NAMES_OF_RECIPES = {  # and where they are written, from the last dot on
    "uva15": ("tutorial 15", -6.3, 2.8),
    "kentaroy47": ("kentaroy47", 0.4, 0),
    "vit_cifar": ("ViT-CIFAR", 0.4, 0),
    "vit_lite": ("ViT-Lite", 0.4, 0),
    "spt_lsa": ("SPT_LSA_ViT", 0.4, 0),
}
TRANSFER = {  # body, where its weights come from, and how many parameters are trained
    "linear probe": ("ViT body", "pretrained\non clothes", 650),
    "fine-tuning": ("ViT body", "pretrained\non clothes", 139_018),
    "ViT from scratch": ("ViT body", "random", 139_018),
    "CNN from scratch": ("CNN body", "random", 24_170),
}
SECTIONS = (  # of the appendix, next to the parts whose published lines they measure
    (37.5, 48.2, "A.2, A.4"),
    (97, 69.5, "A.1, A.5"),
    (12, 38.5, "A.1"),
    (12, 32, "A.2"),
    (29.3, 8.8, "A.3, A.5"),
    (43, 3.4, "A.2, A.3, A.5"),
    (94, 1.4, "A.3"),
)
LESSONS = {
    "architecture_01": dict(lit={"cut"}),
    "architecture_02": dict(lit={"cut", "embed"}),
    "architecture_03": dict(lit={"attention"}),
    "architecture_04": dict(lit={"attention", "block"}),
    "architecture_05": dict(ring=True),
    "architecture_06": dict(training=True),
    "architecture_10": dict(cases=True),
    "architecture_appendix": dict(sections=SECTIONS),
}
FIGURES = {
    "architecture": architecture,
    **{name: partial(architecture, **options) for name, options in LESSONS.items()},
    "image_to_patches": image_to_patches,
    "token_sequence": token_sequence,
    "attention_one_head": attention_one_head,
    "attention_many_heads": attention_many_heads,
    "encoder_block": encoder_block,
    "pre_post_norm": pre_post_norm,
    "learning_rate": learning_rate,
    "transfer_methods": transfer_methods,
    "accuracy_against_time": accuracy_against_time,
}


def draw(name, folder=FOLDER):
    """Draw one figure of ``FIGURES`` and write it as ``name.svg`` into the folder."""
    with matplotlib.style.context(["default", SETTINGS]):
        figure = FIGURES[name]()
        path = Path(folder) / f"{name}.svg"
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return path


def main(names):
    """Draw the named figures, or all of them."""
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        sys.exit(f"no figure is called {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    for name in names or FIGURES:
        print("wrote", draw(name).name)


if __name__ == "__main__":
    main(sys.argv[1:])
