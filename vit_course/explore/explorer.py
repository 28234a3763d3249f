"""What all explorers share: controls above a picture, drawn again whenever one of them changes."""

import base64
import functools
import io
import textwrap
from collections.abc import Callable, Iterable, Mapping

import ipywidgets
import numpy as np
import torch
from torch import Tensor

from vit_course import plots
from vit_course.explore.picture import GridPicture
from vit_course.plots import COLORS, INK, STYLE

WIDTH = 8.5  # inches
DPI = 110
LINE = 112  # letters in a line of the headline
STILL = "A still picture: run the cell in JupyterLab or Notebook, and it answers."


class Explorer(ipywidgets.VBox):
    """Controls and a picture. Each kind draws its figure once; its ``show`` changes what is in it.

    Attributes:
        controls: the widgets by name; read and set ``.value``.
        picture: the picture, with ``selected``, the chosen cell ``(row, column)``.
        values: the tensor that is drawn.
        text: what is seen, in words.
    """

    name = "explorer"
    hint = ""  # what one can do with the picture, written below it
    values: Tensor

    def __init__(
        self, figure, controls: Mapping[str, ipywidgets.Widget], picture: GridPicture, moving: Iterable
    ) -> None:
        height = figure.get_figheight()
        self.figure, self.controls, self.picture = figure, dict(controls), picture
        at_top = dict(va="top", size=10, color=INK, linespacing=1.4, parse_math=False)  # a $ may have been typed
        self._headline = figure.text(0.1 / WIDTH, 1 - 0.1 / height, "", **at_top)
        self._footer = figure.text(0.1 / WIDTH, 0.1 / height, self.hint, va="bottom", size=9, color=COLORS["residual"])
        self._moving = [*moving, self._headline]  # all else is drawn once
        for artist in self._moving:
            artist.set_animated(True)
        self._grounds = {}
        self.picture.label = f"{self.name}. {self.hint}"
        for control in self.controls.values():
            control.style.description_width = "initial"
            control.observe(self._respond, "value")
        self.picture.observe(self._respond, ["selected", "pressed"])
        row = ipywidgets.HBox(list(self.controls.values()), layout=dict(flex_flow="row wrap", overflow="visible"))
        super().__init__([row, self.picture], layout=dict(overflow="visible"))
        self.add_class("vit-explorer")
        self._responding = False
        self._respond()

    @property
    def text(self) -> str:
        """What is seen, in words."""
        return self.picture.text

    def show(self) -> str:
        """Put what the controls say into the figure and into ``values``; return what is seen, in words."""
        raise NotImplementedError

    def still(self) -> bytes:
        """Return the picture as a PNG file that says that it stands still."""
        return self._draw(STILL)

    def _draw(self, footer: str) -> bytes:
        import matplotlib
        from PIL import Image

        canvas = self.figure.canvas
        with matplotlib.rc_context(STYLE):
            if footer not in self._grounds:
                self._footer.set_text(footer)
                canvas.draw()  # leaves out what moves
                self._grounds[footer] = canvas.copy_from_bbox(self.figure.bbox)
            canvas.restore_region(self._grounds[footer])
            for artist in self._moving:
                self.figure.draw_artist(artist)
        file = io.BytesIO()
        Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).save(file, format="png", compress_level=1)
        return file.getvalue()

    def _respond(self, change: object = None) -> None:
        if self._responding:  # a control that moves another one is drawn once
            return
        self._responding = True
        try:
            with self.picture.hold_sync():
                text = self.show()
                self._headline.set_text(textwrap.fill(text, LINE, max_lines=2, placeholder=" …"))
                self.picture.text, self.picture.png = text, self._draw(self.hint)
        finally:
            self._responding = False

    def _repr_mimebundle_(self, **options: object) -> dict[str, object]:
        bundle = super()._repr_mimebundle_(**options)
        words = f"explore.{self.name}: {self.text}\nRun this cell in JupyterLab or Notebook, and the picture answers."
        return bundle | {"text/plain": words, "image/png": base64.b64encode(self._draw(STILL)).decode()}


def in_course_look(make: Callable[..., Explorer]) -> Callable[..., Explorer]:
    """Let a function draw in the course's look, whatever was plotted before it is called."""

    @functools.wraps(make)
    def drawn(*arguments: object, **options: object) -> Explorer:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return make(*arguments, **options)

    return drawn


def new_figure(height: float):
    """Return an empty figure in the course's look, without the pyplot that would show it twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="none")  # no layout to compute at every click
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
    """Add a colour scale with its lowest value at the left; return the text at its right, for the highest one."""
    axes = add_axes(figure, left, top, width, 0.09)
    plots.show_matrix(axes, torch.linspace(-1, 1, 256)[None], aspect="auto", around_zero=around_zero)
    axes.text(-8, 0, low, ha="right", va="center", size=9)
    return axes.text(264, 0, "", ha="left", va="center", size=9)


def percent(share: object, decimals: int = 0) -> str:
    """Write a share as ``41 %``."""
    return f"{100 * float(share):.{decimals}f}\u00a0%"  # a space at which no line breaks


class Frame:
    """An outline around one cell of axes, in a colour with a white rim, seen on light and dark."""

    def __init__(self, axes, color: str = "query") -> None:
        from matplotlib.patches import Rectangle
        from matplotlib.patheffects import withStroke

        self.rectangle = Rectangle((0, 0), 1, 1, fill=False, color=COLORS[color], linewidth=2.2, zorder=5)
        self.rectangle.set(path_effects=[withStroke(linewidth=4.5, foreground="white")], clip_on=False)
        axes.add_patch(self.rectangle)

    def around(self, corner: tuple[int, int] | None, height: int = 1, width: int = 1) -> None:
        """Lie around ``height`` rows and ``width`` columns of the picture from its upper left ``corner``, or hide."""
        self.rectangle.set_visible(corner is not None)
        if corner is not None:
            self.rectangle.set_bounds(corner[1] - 0.5, corner[0] - 0.5, width, height)
