"""The course's look, and the figures that several lessons draw.

Each thing has the same color in every figure of ``img/`` and in every plot of the notebooks.
"""

import re
from collections import Counter
from collections.abc import Sequence

import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

# Told apart by color-blind readers (after Okabe and Ito, and Tol); light grounds carry INK, dark ones white.
COLORS = {
    "patch": "#8fd0f2",  # pixels of an image, cut or whole
    "token": "#2f6fb0",  # embedded patches
    "class_token": "#d1495b",
    "position": "#cc79a7",
    "norm": "#f2d95c",
    "attention": "#e8912a",
    "query": "#7b2d8b",
    "key": "#1b7f4b",
    "value": "#b8860b",
    "mlp": "#3fae9f",
    "residual": "#6b7280",
    "head": "#3d3580",
    "train": "#2f6fb0",
    "valid": "#e8912a",
    "test": "#3d3580",
    "wrong": "#b3261e",
    "right": "#1b7f4b",
}
INK = "#1f2430"  # text and lines
FAINT = "#d8dce3"  # grids and frames
SEQUENTIAL = "viridis"  # one-sided values: attention, counts
DIVERGING = "RdBu_r"  # values around zero: weights, similarities

STYLE = {
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "lines.solid_capstyle": "round",
}


def subplots(rows: int = 1, columns: int = 1, *, size: tuple[float, float] | None = None, **options):
    """``plt.subplots`` in the course's style, which also applies to everything that is drawn later.

    The figure's ``repr`` is :func:`describe`: it is stored with the picture for screen readers and tests.
    Its ``size`` is in inches, ``(width, height)``; at most 8.5 wide, so that it fits a notebook cell.
    """
    import matplotlib.pyplot as plt

    plt.rcParams.update(STYLE)  # for good: titles and labels read it when they are set
    described = type("DescribedFigure", (plt.Figure,), {"__repr__": describe})
    return plt.subplots(rows, columns, figsize=size, FigureClass=described, **options)


def describe(figure) -> str:
    """Describe in one line what a figure shows: kinds, titles, axes and legends, such as ``Figure: picture "T"``."""
    parts = list(filter(None, [figure.get_suptitle().strip()]))
    unnamed = Counter()
    for axes in figure.axes:
        count, kind = _content(axes)
        if words := _words(axes):
            parts.append(f"{_counted(count, kind)} {words}".replace(" :", ":").strip())
        elif count:
            unnamed[count, kind] += 1
    for (count, kind), times in unnamed.items():
        parts.append(_counted(times, kind) if count == 1 else f"{times} times " * (times > 1) + _counted(count, kind))
    if len(parts) > 12:
        parts[12:] = [f"and {len(parts) - 12} more"]
    return " ".join(f"Figure: {'; '.join(parts or ['nothing yet'])}".split())  # in one line


def _content(axes) -> tuple[int, str]:
    """Count what is drawn in one pair of axes: how many, of what."""
    if hasattr(axes, "_colorbar"):
        return 1, "color scale"
    bars = sum(len(container) for container in axes.containers if hasattr(container, "orientation"))
    curves = [line for line in axes.lines if len(line.get_xdata()) > 2]  # shorter ones mark a place
    marks = [line for line in axes.lines if len(line.get_xdata()) == 1]
    clouds = [collection for collection in axes.collections if hasattr(collection, "get_sizes")]
    counts = {"picture": axes.images, "bar": [0] * bars, "curve": curves, "cloud of points": clouds, "point": marks}
    return next(((len(found), kind) for kind, found in counts.items() if found), (0, ""))


def _words(axes) -> str:
    """Give the title, the names of both axes, the legend's entries, and the words written into the axes."""
    title = " ".join(axes.get_title(place) for place in ("left", "center", "right")).strip()
    names = " against ".join(filter(None, (axes.get_ylabel().strip(), axes.get_xlabel().strip())))
    texts = axes.get_legend().get_texts() if axes.get_legend() else axes.texts
    entries = [text.get_text().strip() for text in texts if re.search(r"[^\W\d]", text.get_text())]  # words, no numbers
    head = " ".join(filter(None, [f'"{title}"' if title else "", f"({names})" if names else ""]))
    return head + (": " + ", ".join(entries[:8]) if entries else "")


def _counted(count: int, kind: str) -> str:
    plural = "clouds of points" if kind == "cloud of points" else f"{kind}s"
    return f"{count} {plural}" if count > 1 else kind


def show_image(axes, image: Tensor, title: str = "") -> None:
    """Draw one image ``(c, h, w)`` in [0, 1] (1 channel as gray, 3 as color), without ticks."""
    image = image.detach().cpu().clamp(0, 1).numpy()
    if image.shape[0] == 1:
        axes.imshow(image[0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    else:
        axes.imshow(rearrange(image, "c h w -> h w c"), interpolation="nearest")
    axes.set(title=title, xticks=[], yticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def show_images(images: Tensor, titles: Sequence[str] = (), *, columns: int | None = None, side: float = 1.35):
    """Draw a batch ``(b, c, h, w)`` in rows of ``columns`` images, ``side`` inches each, and return the figure."""
    columns = columns or min(len(images), 6)
    rows = -(-len(images) // columns)
    height = side * (1.22 if any(titles) else 1.04)
    figure, grid = subplots(rows, columns, size=(side * columns, height * rows), squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, image, title in zip(grid.flat, images, [*titles, *[""] * len(images)], strict=False):
        axes.set_axis_on()
        show_image(axes, image, title)
    return figure


def patch_mosaic(image: Tensor, patch_size: int, *, gap: int = 2) -> Tensor:
    """Return the image ``(c, h, w)`` cut into its patches with ``gap`` white pixels between them."""
    patches = rearrange(image, "c (gh p1) (gw p2) -> c gh gw p1 p2", p1=patch_size, p2=patch_size)
    framed = F.pad(patches, (0, gap, 0, gap), value=1.0)  # white on the right and below
    mosaic = rearrange(framed, "c gh gw p1 p2 -> c (gh p1) (gw p2)")
    return mosaic[:, : mosaic.shape[1] - gap, : mosaic.shape[2] - gap]


def show_matrix(
    axes, matrix: Tensor, title: str = "", *, xlabel: str = "", ylabel: str = "", around_zero: bool = False, **options
):
    """Draw a matrix ``(rows, columns)`` as colored cells, with options of ``axes.imshow`` such as ``vmin``.

    With ``around_zero``, the color scale is symmetric around zero. Return the picture, for
    ``figure.colorbar(picture, ax=axes)``.
    """
    matrix = matrix.detach().cpu().numpy()
    if around_zero:
        limit = abs(matrix).max()
        options = dict(cmap=DIVERGING, vmin=-limit, vmax=limit) | options
    picture = axes.imshow(matrix, **(dict(cmap=SEQUENTIAL, interpolation="nearest") | options))
    axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return picture


def write_numbers(picture, matrix: Tensor, spec: str = "g") -> None:
    """Write each value of a matrix into its cell, dark on a light cell and white on a dark one.

    The values need not be those that gave the cells of ``picture``, from :func:`show_matrix`, their colors.
    """
    grounds = picture.to_rgba(picture.get_array(), alpha=picture.get_alpha())
    for row, values in enumerate(matrix.tolist()):
        for column, value in enumerate(values):
            red, green, blue, alpha = grounds[row, column]
            light = 1 - alpha * (1 - (0.299 * red + 0.587 * green + 0.114 * blue))  # on white paper
            color = INK if light > 0.5 else "white"
            picture.axes.text(column, row, format(value, spec), ha="center", va="center", color=color)
