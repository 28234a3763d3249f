"""Type an einops pattern and see the picture that comes out, or einops' own message."""

import re
import textwrap
import warnings
from collections.abc import Callable

import einops as library
import ipywidgets
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vit_course import arguments, plots
from vit_course.explore import drawing, model_input
from vit_course.explore.explorer import Explorer
from vit_course.explore.picture import OptionalGridPicture

OPERATIONS = ("rearrange", "reduce", "repeat")
REDUCTIONS = ("mean", "max", "min", "sum")
HEIGHT = 4.2  # inches
MOST_VALUES = 4_000_000
MOST_IMAGES = 16  # of a batch that are drawn
MOST_LINES = 13  # of a message
CELLS = 6  # rows and columns of parts that can be marked


@drawing.in_course_look
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
    none. ``values`` is the result, without the mark, or None where there is none; ``message`` is einops' message.
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
    batch = isinstance(image, Tensor) and image.ndim == 4
    shape = arguments.float_tensor("image", image, "b c h w" if batch else "c h w").shape
    if shape[-3] not in (1, 3):
        raise ValueError(f"image must have 1 or 3 channels, (c, h, w) or (b, c, h, w); got shape {tuple(shape)}")
    model_input.check_range("image", image)
    arguments.one_of("operation", operation, OPERATIONS)
    arguments.one_of("reduction", reduction, REDUCTIONS)
    wide = dict(width="430px", max_width="95%")
    pattern = pattern or ("b c h w -> c h (b w)" if batch else "c h w -> h w c")
    written = ", ".join(f"{name}={size}" for name, size in sizes.items())
    controls = dict(
        operation=ipywidgets.Dropdown(options=OPERATIONS, value=operation, description="operation"),
        pattern=ipywidgets.Text(pattern, description="pattern", layout=wide),
        sizes=ipywidgets.Text(written, description="sizes", placeholder="p1=16, p2=16"),
        reduction=ipywidgets.Dropdown(options=REDUCTIONS, value=reduction, description="reduction"),
    )
    return PatternExplorer(image.detach().cpu(), controls)


class PatternExplorer(Explorer):
    """The image and what the pattern makes of it."""

    name = "einops"
    hint = "Click a part of the left picture, and find it again in the result; Escape: none."
    message: str | None = None

    def __init__(self, image: Tensor, controls: dict) -> None:
        self.image = image
        figure = drawing.new_figure(HEIGHT)
        sheet, corners = lay_out(image)
        axes = drawing.add_axes(figure, 0.12, 0.85, 2.8, 2.8)
        drawing.add_image(axes, sheet, f"in: {tuple(image.shape)}")
        self._input, self._frames = axes.images[0], [(drawing.Frame(axes), corner) for corner in corners]
        left, top, across, down = drawing.place(axes)
        across, down = across / sheet.shape[2], down / sheet.shape[1]  # of one pixel
        height, width = image.shape[-2:]
        places = [[left + across * x, top + down * y, across * width, down * height] for y, x in corners]
        shape = (min(CELLS, height), min(CELLS, width))
        picture = OptionalGridPicture(shape=shape, places=places)
        axes = drawing.add_axes(figure, 3.2, 0.85, 5.18, 2.8)
        axes.set_anchor("C")
        plots.show_image(axes, torch.ones(1, 1, 1))
        self._result = axes.images[0]
        style = dict(va="top", size=9, family="monospace", color=plots.COLORS["wrong"], linespacing=1.5)
        self._note = figure.text(3.3 / drawing.WIDTH, 1 - 0.9 / HEIGHT, "", parse_math=False, **style)
        figure.text(3.05 / drawing.WIDTH, 1 - 2.25 / HEIGHT, "→", ha="center", va="center", size=14)
        moving = [self._input, *(frame for frame, _ in self._frames), self._result, axes.title, self._note]
        super().__init__(figure, controls, picture, moving)

    def show(self) -> str:
        """Apply the pattern, and draw the result or the message."""
        operation, pattern = self.controls["operation"].value, self.controls["pattern"].value
        self.controls["reduction"].disabled = operation != "reduce"
        marked = self._mark()
        self.values, self.message = None, None
        call = f'{operation}(image, "{pattern}")'
        try:
            apply = self._operation(operation, pattern, parse_sizes(self.controls["sizes"].value))
            self.values = apply(self.image)
        except Exception as error:  # whatever is typed, the answer is in the picture
            self.message = str(error).strip()
            lines = [textwrap.fill(line, 68, subsequent_indent="  ") for line in self.message.splitlines()]
            self._draw_result(None, "", "\n".join("\n".join(lines).splitlines()[:MOST_LINES]))
            return f"{call} stops: {self.message.splitlines()[-1].strip() if self.message else 'no message'}"
        shape = tuple(self.values.shape)
        drawn, reading = as_picture(self.values)
        if drawn is None:
            self._draw_result(None, f"out: {shape}", textwrap.fill(reading, 68))
            return f"{call} has the shape {shape}."
        self._draw_result(as_picture(apply(marked))[0], f"out: {shape}", "")
        return f"{call} has the shape {shape}, drawn as {reading}."

    def _operation(self, operation: str, pattern: str, sizes: dict[str, int]) -> Callable[[Tensor], Tensor]:
        """Return the call as a function of the image, once its result is known not to be too large."""
        if pattern.count("->") != 1:  # einops' own message is only that there is nothing to unpack
            raise ValueError("A pattern has one arrow, ->: the axes as they are, the arrow, the axes as they shall be.")
        options = (self.controls["reduction"].value,) if operation == "reduce" else ()

        def apply(image: Tensor) -> Tensor:
            with warnings.catch_warnings(action="ignore"):
                return getattr(library, operation)(image, pattern, *options, **sizes)

        shape = tuple(apply(self.image.to("meta")).shape)  # on the meta device a tensor has a shape and no memory
        count = torch.Size(shape).numel()
        if count > MOST_VALUES:
            raise ValueError(f"The result {shape} would have {count:,} values; {MOST_VALUES:,} is the most shown here.")
        return apply

    def _mark(self) -> Tensor:
        """Frame the marked part; return the image with that part as a negative, which is seen on every ground."""
        marked = self.image.clone()
        for frame, _ in self._frames:
            frame.surround(None)
        if self.picture.selected is not None:
            cells = zip(self.picture.selected, self.picture.shape, self.image.shape[-2:], strict=True)
            rows, columns = (slice(n * side // count, (n + 1) * side // count) for n, count, side in cells)
            marked[..., rows, columns] = 1 - marked[..., rows, columns]
            for frame, (y, x) in self._frames:
                corner = y + rows.start, x + columns.start
                frame.surround(corner, rows.stop - rows.start, columns.stop - columns.start)
        sheet, _ = lay_out(marked)
        self._input.set_data(rearrange(sheet.expand(3, -1, -1), "c h w -> h w c").numpy())
        return marked

    def _draw_result(self, picture: Tensor | None, title: str, note: str) -> None:
        axes = self._result.axes
        axes.title.set_text(title)
        self._note.set_text(note)
        self._result.set_visible(picture is not None)
        if picture is not None:
            height, width = picture.shape[:2]
            self._result.set_data(picture.clamp(0, 1).numpy())
            self._result.set_extent((-0.5, width - 0.5, height - 0.5, -0.5))
            aspect = "equal" if 1 / 20 < height / width < 20 else "auto"
            axes.set(aspect=aspect, xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))


def lay_out(image: Tensor) -> tuple[Tensor, list[tuple[int, int]]]:
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
