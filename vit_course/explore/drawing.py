"""The parts of a figure that several explorers draw: axes at a place, images, color scales and frames."""

import matplotlib
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torch import Tensor

from vit_course import plots
from vit_course.plots import COLORS, STYLE

WIDTH = 8.5  # inches

# decorates a function that draws, so that what was plotted before it is called changes nothing
in_course_look = matplotlib.rc_context(STYLE)


def new_figure(height: float) -> Figure:
    """Return an empty figure, without the pyplot that would show it twice."""
    figure = Figure(figsize=(WIDTH, height), dpi=110, layout="none")  # no layout to compute at every click
    FigureCanvasAgg(figure)
    return figure


def add_axes(figure, left: float, top: float, width: float, height: float, *, ticks: bool = False):
    """Add axes at a place given in inches from the figure's upper left corner."""
    total = figure.get_figheight()
    axes = figure.add_axes((left / WIDTH, (total - top - height) / total, width / WIDTH, height / total))
    axes.set_anchor("N")
    if not ticks:  # an axis without ticks takes its time to draw nothing
        axes.xaxis.set_visible(False)
        axes.yaxis.set_visible(False)
    return axes


def place(axes) -> list[float]:
    """Return where axes lie in the picture: ``[left, top, width, height]`` as fractions, from the upper left corner."""
    axes.apply_aspect()
    box = axes.get_position()
    return [box.x0, 1 - box.y1, box.width, box.height]


def add_image(axes, image: Tensor, title: str = "") -> None:
    """Draw an image and keep the axes to it, whatever is added to them later."""
    plots.show_image(axes, image, title)
    height, width = image.shape[1:]
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))


def add_scale(figure, left: float, top: float, width: float, low: str, *, around_zero: bool = False):
    """Add a color scale with its lowest value at the left; return the text at its right, for the highest one."""
    axes = add_axes(figure, left, top, width, 0.09)
    plots.show_matrix(axes, torch.linspace(-1, 1, 256)[None], aspect="auto", around_zero=around_zero)
    axes.text(-8, 0, low, ha="right", va="center", size=9)
    return axes.text(264, 0, "", ha="left", va="center", size=9)


def percent(share: object, decimals: int = 0) -> str:
    """Write a share as ``41 %``."""
    return f"{100 * float(share):.{decimals}f}\u00a0%"  # a space at which no line breaks


class Frame(Rectangle):
    """An outline around one cell of axes, in a color with a white rim, seen on light and dark."""

    def __init__(self, axes, color: str = "query") -> None:
        super().__init__((0, 0), 1, 1, fill=False, color=COLORS[color], linewidth=2.2, zorder=5, clip_on=False)
        self.set_path_effects([withStroke(linewidth=4.5, foreground="white")])
        axes.add_patch(self)

    def surround(self, corner: tuple[int, int] | None, height: int = 1, width: int = 1) -> None:
        """Surround ``height`` rows and ``width`` columns from their upper left ``corner``, or hide where it is None."""
        self.set_visible(corner is not None)
        if corner is not None:
            self.set_bounds(corner[1] - 0.5, corner[0] - 0.5, width, height)
