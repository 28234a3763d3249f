"""What all explorers share: controls above a picture, drawn again whenever one of them changes."""

import base64
import io
import textwrap
from collections.abc import Iterable, Mapping

import ipywidgets
import numpy as np
from PIL import Image
from torch import Tensor

from vit_course.explore.drawing import WIDTH, in_course_look
from vit_course.explore.picture import GridPicture, OptionalGridPicture
from vit_course.plots import COLORS, INK

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
        self.figure, self.controls, self.picture = figure, dict(controls), picture
        edge = 0.1 / figure.get_figheight()
        at_top = dict(va="top", size=10, color=INK, linespacing=1.4, parse_math=False)  # a $ may have been typed
        self._headline = figure.text(0.1 / WIDTH, 1 - edge, "", **at_top)
        self._footer = figure.text(0.1 / WIDTH, edge, self.hint, va="bottom", size=9, color=COLORS["residual"])
        self._moving = [*moving, self._headline]  # everything else is drawn once
        for artist in self._moving:
            artist.set_animated(True)
        self._backgrounds = {}  # by footer
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
        """Put what the controls hold into the figure and into ``values``; return what is seen, in words."""
        raise NotImplementedError

    def still(self) -> bytes:
        """Return the picture as a PNG file whose footer tells that it does not respond."""
        return self._draw(STILL)

    @in_course_look
    def _draw(self, footer: str) -> bytes:
        canvas = self.figure.canvas
        if footer not in self._backgrounds:
            self._footer.set_text(footer)
            canvas.draw()  # leaves out what moves
            self._backgrounds[footer] = canvas.copy_from_bbox(self.figure.bbox)
        canvas.restore_region(self._backgrounds[footer])
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
        how = "Run this cell in JupyterLab or Notebook to use the figure interactively."
        words = f"explore.{self.name}: {self.text}\n{how}"
        return bundle | {"text/plain": words, "image/png": base64.b64encode(self.still()).decode()}


class TokenExplorer(Explorer):
    """An explorer whose picture selects a patch, or, by a check box or the Escape key, the class token."""

    hint = "Click a patch, or reach the picture by Tab and move with the arrow keys; Escape: the class token."

    def __init__(
        self, figure, controls: dict, grid_size: tuple[int, int], places: list[list[float]], moving: Iterable
    ) -> None:
        self._patch = self._was = (grid_size[0] // 2, grid_size[1] // 2)  # to come back to from the class token
        box = ipywidgets.Checkbox(False, description="class token", indent=False)
        picture = OptionalGridPicture(shape=grid_size, places=places, selected=self._patch)
        super().__init__(figure, controls | dict(class_token=box), picture, moving)

    def query(self) -> tuple[int, int] | None:
        """Return the chosen patch, or None for the class token, after bringing check box and picture into step."""
        box = self.controls["class_token"]
        if self.picture.selected != self._was:
            box.value = self.picture.selected is None
        else:
            self.picture.selected = None if box.value else self._patch
        self._was = self.picture.selected
        self._patch = self._was or self._patch
        return self._was
