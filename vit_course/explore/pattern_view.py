"""Type an einops pattern and see the picture that comes out, or what einops says to it."""

import re
import textwrap
import warnings

import einops as library
import ipywidgets
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vit_course import arguments, plots
from vit_course.explore import model_input
from vit_course.explore.explorer import WIDTH, Explorer, Frame, add_axes, add_image, in_course_look, new_figure, place
from vit_course.explore.picture import OptionalGridPicture

OPERATIONS = ("rearrange", "reduce", "repeat")
REDUCTIONS = ("mean", "max", "min", "sum")
HEIGHT = 4.2  # inches
MOST_VALUES = 4_000_000
MOST_IMAGES = 16  # of a batch that are drawn
MOST_LINES = 13  # of a message
CELLS = 6  # rows and columns of parts that can be marked


@in_course_look
def einops(
    image: Float[Tensor, "c h w"] | Float[Tensor, "b c h w"],
    pattern: str | None = None,
    *,
    operation: str = "rearrange",
    reduction: str = "mean",
    **sizes: int,
) -> Explorer:
    """Type a pattern and see what einops makes of the image, or its message, at every letter.

    Controls: ``operation``, ``pattern``, ``sizes`` (typed as ``p1=16, p2=16``), ``reduction`` (of ``reduce``).
    ``picture.selected`` is a part of the image, of 6 × 6, that is marked to be found again in the result; None for
    none. ``values`` is the result, without the mark, or None where there is none; ``message`` is what einops says.
    A result is drawn if it has two axes, or three with 1 or 3 channels last or first.

    Args:
        image: ``(c, h, w)`` or a batch ``(b, c, h, w)`` in [0, 1], with 1 or 3 channels.
        pattern: to begin with.
        operation: ``"rearrange"``, ``"reduce"`` or ``"repeat"``.
        reduction: ``"mean"``, ``"max"``, ``"min"`` or ``"sum"``.
        **sizes: of axes, as einops takes them.

    Raises:
        ValueError: no such image, operation or reduction. A wrong pattern raises nothing: the explorer shows why.
    """
    four = isinstance(image, Tensor) and image.ndim == 4
    shape = arguments.float_tensor("image", image, "b c h w" if four else "c h w").shape
    if shape[-3] not in (1, 3):
        raise ValueError(f"image must have 1 or 3 channels, (c, h, w) or (b, c, h, w); got shape {tuple(shape)}")
    model_input.in_range("image", image)
    arguments.one_of("operation", operation, OPERATIONS)
    arguments.one_of("reduction", reduction, REDUCTIONS)
    pattern = pattern or ("b c h w -> c h (b w)" if four else "c h w -> h w c")
    written = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return PatternExplorer(image.detach().cpu(), operation, pattern, written, reduction)


class PatternExplorer(Explorer):
    """The image and what the pattern makes of it."""

    name = "einops"
    hint = "Click a part of the left picture, and find it again in the result; Escape: none."
    message: str | None = None

    def __init__(self, image: Tensor, operation: str, pattern: str, sizes: str, reduction: str) -> None:
        self.image = image
        figure = new_figure(HEIGHT)
        sheet, corners = self._sheet(image)
        axes = add_axes(figure, 0.12, 0.85, 2.8, 2.8)
        add_image(axes, sheet, f"in: {tuple(image.shape)}")
        self._input = axes.images[0]
        height, width = image.shape[-2:]
        self._frames = [(Frame(axes), corner) for corner in corners]
        axes = add_axes(figure, 3.2, 0.85, 5.18, 2.8)
        axes.set_anchor("C")
        plots.show_image(axes, torch.ones(1, 1, 1))
        self._result = axes.images[0]
        style = dict(va="top", size=9, family="monospace", color=plots.COLORS["wrong"], linespacing=1.5)
        self._says = figure.text(3.3 / WIDTH, 1 - 0.9 / HEIGHT, "", parse_math=False, **style)
        figure.text(3.05 / WIDTH, 1 - 2.25 / HEIGHT, "→", ha="center", va="center", size=14)
        wide = dict(width="430px", max_width="95%")
        controls = dict(
            operation=ipywidgets.Dropdown(options=OPERATIONS, value=operation, description="operation"),
            pattern=ipywidgets.Text(pattern, description="pattern", layout=wide),
            sizes=ipywidgets.Text(sizes, description="sizes", placeholder="p1=16, p2=16"),
            reduction=ipywidgets.Dropdown(options=REDUCTIONS, value=reduction, description="reduction"),
        )
        left, top, across, down = place(self._input.axes)
        share_w, share_h = across * width / sheet.shape[2], down * height / sheet.shape[1]
        places = [
            [left + across * x / sheet.shape[2], top + down * y / sheet.shape[1], share_w, share_h] for y, x in corners
        ]
        shape = (min(CELLS, height), min(CELLS, width))
        moving = [self._input, *(frame.rectangle for frame, _ in self._frames)]
        moving += [self._result, self._result.axes.title, self._says]
        super().__init__(figure, controls, OptionalGridPicture(shape=shape, places=places), moving)

    @staticmethod
    def _sheet(image: Tensor) -> tuple[Tensor, list[tuple[int, int]]]:
        """Lay a batch out in rows; return the picture and each image's upper left corner, ``(y, x)``."""
        images = image[None] if image.ndim == 3 else image[:MOST_IMAGES]
        b, c, h, w = images.shape
        columns = min(b, 2 if b <= 6 else 4)
        rows, gap = -(-b // columns), 0 if b == 1 else max(1, h // 16)
        sheet = torch.ones(c, rows * (h + gap) - gap, columns * (w + gap) - gap)
        corners = [(n // columns * (h + gap), n % columns * (w + gap)) for n in range(b)]
        for picture, (y, x) in zip(images, corners, strict=True):
            sheet[:, y : y + h, x : x + w] = picture
        return sheet, corners

    def show(self) -> str:
        """Apply the pattern, and draw the result or the message."""
        operation, pattern = self.controls["operation"].value, self.controls["pattern"].value
        self.controls["reduction"].disabled = operation != "reduce"
        self._show_marks()
        self.values, self.message = None, None
        try:
            apply = self._operation(operation, pattern, parse_sizes(self.controls["sizes"].value))
            self.values = apply(self.image)
        except Exception as error:  # whatever is typed, the answer stands in the picture
            self.message = str(error).strip()
        call = f'{operation}(image, "{pattern}")'
        if self.message is not None:
            return self._show_message(call)
        return self._show_result(call, apply)

    def _operation(self, operation: str, pattern: str, sizes: dict[str, int]):
        """Return the call as a function of the image, once its result is known not to be too large."""
        if pattern.count("->") != 1:  # einops itself says only that there is nothing to unpack
            raise ValueError("A pattern has one arrow, ->: the axes as they are, the arrow, the axes as they shall be.")
        function = getattr(library, operation)
        options = (self.controls["reduction"].value,) if operation == "reduce" else ()

        def apply(image: Tensor) -> Tensor:
            with warnings.catch_warnings(action="ignore"):
                return function(image, pattern, *options, **sizes)

        shape = tuple(apply(self.image.to("meta")).shape)  # on the meta device a tensor has a shape and no memory
        count = torch.Size(shape).numel()
        if count > MOST_VALUES:
            raise ValueError(f"The result {shape} would have {count:,} values; {MOST_VALUES:,} is the most shown here.")
        return apply

    def _show_marks(self) -> None:
        sheet, _ = self._sheet(self._marked())
        self._input.set_data(rearrange(sheet.expand(3, -1, -1), "c h w -> h w c").numpy())
        for frame, (y, x) in self._frames:
            frame.around(None)
            if self.picture.selected is not None:
                rows, columns = self._cell()
                corner = y + rows.start, x + columns.start
                frame.around(corner, rows.stop - rows.start, columns.stop - columns.start)

    def _cell(self) -> tuple[slice, slice]:
        """Return the marked rows and columns of pixels."""
        sides = zip(self.picture.selected, self.picture.shape, self.image.shape[-2:], strict=True)
        return tuple(slice(place * side // count, (place + 1) * side // count) for place, count, side in sides)

    def _marked(self) -> Tensor:
        """Return the image with its marked part as a negative, which is seen on every ground."""
        image = self.image.clone()
        if self.picture.selected is not None:
            rows, columns = self._cell()
            image[..., rows, columns] = 1 - image[..., rows, columns]
        return image

    def _show_message(self, call: str) -> str:
        lines = [textwrap.fill(line, 68, subsequent_indent="  ") for line in self.message.splitlines()]
        self._says.set_text("\n".join("\n".join(lines).splitlines()[:MOST_LINES]))
        self._result.set_visible(False)
        self._result.axes.title.set_text("")
        last = self.message.splitlines()[-1].strip() if self.message else "no message"
        return f"{call} stops: {last}"

    def _show_result(self, call: str, apply) -> str:
        shape = tuple(self.values.shape)
        drawn, reading = as_picture(self.values)
        self._result.set_visible(drawn is not None)
        self._result.axes.title.set_text(f"out: {shape}")
        if drawn is None:
            self._says.set_text(textwrap.fill(reading, 68))
            return f"{call} has the shape {shape}."
        self._says.set_text("")
        drawn, _ = as_picture(apply(self._marked()))
        height, width = drawn.shape[:2]
        self._result.set_data(drawn.clamp(0, 1).numpy())
        self._result.set_extent((-0.5, width - 0.5, height - 0.5, -0.5))
        self._result.axes.set(aspect="equal" if 1 / 20 < height / width < 20 else "auto")
        self._result.axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
        return f"{call} has the shape {shape}, drawn as {reading}."


def parse_sizes(written: str) -> dict[str, int]:
    """Read ``p1=16, p2=16``.

    Raises:
        ValueError: it reads otherwise.
    """
    sizes = {}
    for part in filter(None, map(str.strip, written.split(","))):
        found = re.fullmatch(r"(\w+)\s*=\s*(\d+)", part)
        if not found:
            raise ValueError(f"sizes must read like p1=16, p2=16; got {part!r}")
        sizes[found[1]] = int(found[2])
    return sizes


def as_picture(values: Tensor) -> tuple[Tensor | None, str]:
    """Return what can be drawn, ``(h, w, 3)``, and how it is read; or None, and what a picture needs."""
    shape = tuple(values.shape)
    if 0 in shape or len(shape) not in (2, 3) or (len(shape) == 3 and not {shape[0], shape[2]} & {1, 3}):
        return None, (
            "No error, and no picture: to be drawn, a result needs two axes, or three, of which the first or the last "
            f"has 1 or 3 channels. This one has the shape {shape}."
        )
    if len(shape) == 2:
        picture, reading = values[..., None], "h w"
    elif shape[2] in (1, 3):
        picture, reading = values, "h w c"
    else:
        picture, reading = rearrange(values, "c h w -> h w c"), "c h w"
    if picture.max() > 1:
        picture, reading = picture / picture.max(), f"{reading}, from 0 to {picture.max():.2f}"
    return picture.expand(*picture.shape[:2], 3), reading
