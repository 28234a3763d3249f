"""What all explorers share: a figure that computes and draws in the browser, its state, and its words."""

import base64
import json
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import anywidget
import torch
from torch import Tensor
from traitlets import Dict, Int, List, Tuple, Unicode, validate

FIGURES = Path(__file__).resolve().parent / "figures"
WORDS = json.loads((FIGURES / "words.json").read_text(encoding="utf-8"))
STORED = "vit_course.explore"  # the key of a figure in the metadata of a stored output
WHERE = "The figure is interactive in JupyterLab, in Notebook and on the course's website."


class Explorer(anywidget.AnyWidget):
    """A figure whose state can be read and set from Python; the browser computes and draws the same by itself.

    A kind of figure has a file in ``figures`` and its words in ``words.json``, which both sides fill in.

    Args:
        data: what the browser receives once: tensors, each by :func:`packed`, words, and other facts.
        state: the attributes that can be chosen, and their first values.
        **facts: other attributes, which only Python needs.

    Attributes:
        kind: the name of the function that makes it.
        choices: the names of the attributes that make up the state.
        values: the tensor that is drawn.
        text: what is seen, in words.
    """

    _css = "\n".join((FIGURES / name).read_text(encoding="utf-8") for name in ("drawing.css", "figure.css"))
    kind = Unicode().tag(sync=True)
    data = Dict().tag(sync=True)
    choices = List(Unicode()).tag(sync=True)

    def __init_subclass__(cls, kind: str | None = None, **options: object) -> None:
        if kind:  # anywidget makes subclasses of its own, without a keyword
            cls._kind, cls.words, cls._esm = kind, WORDS[kind], module(kind)
        super().__init_subclass__(**options)

    def __init__(self, data: dict, state: dict, **facts: object) -> None:
        vars(self).update(facts)  # before the state, which is checked by them
        super().__init__(kind=self._kind, data=data | {"words": self.words}, choices=list(state), **state)

    def compute(self) -> tuple[Tensor | None, str]:
        """Return ``values`` and ``text``."""
        raise NotImplementedError

    @property
    def values(self) -> Tensor | None:
        """The tensor that is drawn."""
        return self.compute()[0]

    @property
    def text(self) -> str:
        """What is seen, in words."""
        return self.compute()[1]

    def _repr_mimebundle_(self, **options: object) -> tuple[dict, dict]:
        data, metadata = super()._repr_mimebundle_(**options)
        state = {name: getattr(self, name) for name in self.choices}
        stored = {"kind": self.kind, "data": self.data, "state": state}
        return data | {"text/plain": f"explore.{self.kind}: {self.text}\n{WHERE}"}, metadata | {STORED: stored}


class GridExplorer(Explorer):
    """A figure in which a cell of a grid is selected.

    Attributes:
        selected: ``(row, column)``, counted from 0; in some figures None, for no cell.

    Raises:
        ValueError: on setting ``selected`` to a patch that the grid does not have.
    """

    selected = Tuple(Int(), Int(), allow_none=True, default_value=None).tag(sync=True)

    def grid(self) -> tuple[int, int]:
        """Return the rows and columns."""
        return tuple(self.data["grid"])

    def token(self) -> int:
        """Return the number of the selected patch's token; without a patch 0, that of the class token."""
        return 0 if self.selected is None else 1 + self.selected[0] * self.grid()[1] + self.selected[1]

    @validate("selected")
    def _on_the_grid(self, proposal: dict) -> tuple[int, int] | None:
        cell, grid = proposal["value"], self.grid()
        if cell is not None and not all(0 <= at < size for at, size in zip(cell, grid, strict=True)):
            raise ValueError(f"selected must lie in the grid of {grid[0]} x {grid[1]}, counted from 0; got {cell}")
        return cell


def module(kind: str) -> str:
    """Return the JavaScript of a kind of figure as one module, as Jupyter loads it."""
    parts = [(FIGURES / f"{name}.js").read_text(encoding="utf-8") for name in ("drawing", "figure", kind)]
    return "\n".join([*parts, "export default { render: figures.render };"])


def packed(tensor: Tensor) -> dict:
    """Return a tensor as text: one byte a value for images of 256 shades, else 16 or 32 bits."""
    tensor = tensor.detach().cpu()
    shades = (tensor * 255).round() if tensor.dtype != torch.float16 else None
    if shades is not None and shades.min() >= 0 and shades.max() <= 255 and torch.allclose(shades / 255, tensor):
        array = shades.to(torch.uint8).numpy()
    else:
        array = tensor.numpy() if tensor.dtype == torch.float16 else tensor.float().numpy()
    return {"shape": list(array.shape), "type": str(array.dtype), "data": base64.b64encode(array.tobytes()).decode()}


def number(value: object, digits: int = 0) -> str:
    """Write a number as JavaScript does: a half is rounded away from zero, and zero has no sign."""
    rounded = Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    return str(rounded if rounded else abs(rounded)).replace("-", "−")


def percent(share: object, digits: int = 0) -> str:
    """Write a share as ``41%``."""
    return f"{number(100 * float(share), digits)}%"
