"""A picture with cells that answer to clicks and keys; the part in the browser is picture.js."""

from pathlib import Path

import anywidget
import traitlets

HERE = Path(__file__).resolve().parent


class GridPicture(anywidget.AnyWidget):
    """A picture, and on it one grid of cells, which may lie in several places.

    Attributes:
        png: the picture, as a PNG file.
        shape: rows and columns of the grid.
        places: where the grid lies: ``[left, top, width, height]`` each, as fractions of the picture.
        selected: the chosen cell ``(row, column)``, counted from 0.
        optional: whether it may be None, for no cell; see :class:`OptionalGridPicture`.
        toggles: whether a click, Enter or Space also switches a cell.
        pressed: the cells that are switched.
        label: what the picture is for and how to use it, for a screen reader.
        text: what is seen now; read out whenever it changes.

    Raises:
        ValueError: on setting ``selected`` or ``pressed`` to a cell that the grid does not have.
    """

    _esm = (HERE / "picture.js").read_text(encoding="utf-8")
    _css = (HERE / "picture.css").read_text(encoding="utf-8")

    png = traitlets.Bytes(b"").tag(sync=True)
    shape = traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=(1, 1)).tag(sync=True)
    places = traitlets.List().tag(sync=True)
    selected = traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=(0, 0)).tag(sync=True)
    optional = traitlets.Bool(False).tag(sync=True)
    toggles = traitlets.Bool(False).tag(sync=True)
    pressed = traitlets.List(traitlets.Tuple(traitlets.Int(), traitlets.Int())).tag(sync=True)
    label = traitlets.Unicode().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)

    def arrange(self, shape: tuple[int, int], places: list[list[float]]) -> None:
        """Lay another grid over the picture; a selected cell that it does not have moves to its edge."""
        with self.hold_sync():
            if self.selected is not None:
                self.selected = tuple(min(place, size - 1) for place, size in zip(self.selected, shape, strict=True))
            self.shape, self.places = shape, places

    @traitlets.validate("selected", "pressed")
    def _on_the_grid(self, proposal: dict) -> object:
        name, value = proposal["trait"].name, proposal["value"]
        rows, columns = self.shape
        cells = value if name == "pressed" else [value]
        for row, column in cells:
            if not (0 <= row < rows and 0 <= column < columns):
                raise ValueError(
                    f"{name} must lie in the grid of {rows} x {columns} cells, counted from 0; got {(row, column)}"
                )
        return value


class OptionalGridPicture(GridPicture):
    """A picture on which no cell need be selected: ``selected`` may be None, and the Escape key makes it so."""

    selected = traitlets.Tuple(traitlets.Int(), traitlets.Int(), default_value=None, allow_none=True).tag(sync=True)
    optional = traitlets.Bool(True).tag(sync=True)
