"""A picture with cells that answer to clicks and keys; the part in the browser is picture.js."""

from pathlib import Path

import anywidget
from traitlets import Bool, Bytes, Int, List, Tuple, Unicode, validate

HERE = Path(__file__).resolve().parent


class GridPicture(anywidget.AnyWidget):
    """A picture, and on it one grid of cells, which may lie in several places.

    Attributes:
        png: the picture, as a PNG file.
        shape: rows and columns of the grid.
        places: where the grid lies: ``[left, top, width, height]`` each, as fractions of the picture.
        selected: the chosen cell ``(row, column)``, counted from 0.
        optional: whether ``selected`` may be None, for no cell; see :class:`OptionalGridPicture`.
        toggles: whether a click, Enter or Space also switches a cell.
        pressed: the cells that are switched.
        label: what the picture is for and how to use it, for a screen reader.
        text: what is seen now; read out whenever it changes.

    Raises:
        ValueError: on setting ``selected`` or ``pressed`` to a cell that the grid does not have.
    """

    _esm = (HERE / "picture.js").read_text(encoding="utf-8")
    _css = (HERE / "picture.css").read_text(encoding="utf-8")

    png = Bytes(b"").tag(sync=True)
    shape = Tuple(Int(), Int(), default_value=(1, 1)).tag(sync=True)
    places = List().tag(sync=True)
    selected = Tuple(Int(), Int(), default_value=(0, 0)).tag(sync=True)
    optional = Bool(False).tag(sync=True)
    toggles = Bool(False).tag(sync=True)
    pressed = List(Tuple(Int(), Int())).tag(sync=True)
    label = Unicode().tag(sync=True)
    text = Unicode().tag(sync=True)

    def set_shape(self, shape: tuple[int, int]) -> None:
        """Divide the picture into other cells; a selected cell that there is no longer moves to the edge."""
        with self.hold_sync():
            if self.selected is not None:
                self.selected = tuple(min(place, size - 1) for place, size in zip(self.selected, shape, strict=True))
            self.shape = shape

    @validate("selected", "pressed")
    def _on_the_grid(self, proposal: dict) -> object:
        name, value = proposal["trait"].name, proposal["value"]
        rows, columns = self.shape
        for cell in value if name == "pressed" else [value]:
            if not (0 <= cell[0] < rows and 0 <= cell[1] < columns):
                raise ValueError(f"{name} must lie in the grid of {rows} x {columns} cells, counted from 0; got {cell}")
        return value


class OptionalGridPicture(GridPicture):
    """A picture on which no cell need be selected: ``selected`` may be None, and the Escape key makes it so."""

    selected = Tuple(Int(), Int(), default_value=None, allow_none=True).tag(sync=True)
    optional = Bool(True).tag(sync=True)
