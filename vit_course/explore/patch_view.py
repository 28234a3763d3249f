"""Click a patch of an image and see its vector."""

import ipywidgets
import torch
from einops import rearrange
from jaxtyping import Float
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from torch import Tensor

from vit_course import arguments, patchify, plots
from vit_course.explore import drawing, model_input
from vit_course.explore.explorer import Explorer
from vit_course.explore.picture import GridPicture

MOST_PATCHES = 1024  # finer grids cannot be clicked
FIRST = 12  # numbers that are written out
SIDE = 2.6  # inches
CHANNELS = {1: {"grey": "#555c68"}, 3: {"red": "#b3261e", "green": "#1b7f4b", "blue": "#2f6fb0"}}
ORDERS = ("(c p1 p2)", "(p1 p2 c)")


@drawing.in_course_look
def patches(image: Float[Tensor, "c h w"], *, patch_size: int | None = None) -> Explorer:
    """Click a patch of the image and see its vector: for each patch size that fits, in both orders of flattening.

    Controls: ``patch_size``, ``order`` (``"(c p1 p2)"``, the order of :func:`vit_course.patchify`, or ``"(p1 p2 c)"``).
    ``picture.selected`` is the patch, ``(row, column)``; ``values`` is its vector, ``(c·p·p,)``.

    Args:
        image: ``(c, h, w)`` in [0, 1], with 1 or 3 channels.
        patch_size: to begin with, in pixels; by default the one with a grid nearest to 6 rows.

    Raises:
        ValueError: no such image, or a patch size that does not divide its sides or leaves more than 1,024 patches.
    """
    c, height, width = arguments.float_tensor("image", image, "c h w").shape
    if c not in CHANNELS:
        raise ValueError(f"image must have 1 or 3 channels in front, (c, h, w); got shape {tuple(image.shape)}")
    model_input.check_range("image", image)
    common = [p for p in range(1, min(height, width) + 1) if height % p == width % p == 0]
    sizes = [p for p in common if height * width // p**2 <= MOST_PATCHES]
    if not sizes:
        raise ValueError(f"image must have sides with a common patch size; got {height} x {width}")
    if patch_size is None:
        patch_size = min(sizes, key=lambda p: abs(height // p - 6))
    if patch_size not in sizes:
        raise ValueError(f"patch_size must be one of {', '.join(map(str, sizes))}; got {patch_size!r}")
    return PatchExplorer(image.detach().cpu(), sizes, patch_size)


class PatchExplorer(Explorer):
    """The image cut into patches, one of them enlarged, its channels, and its vector."""

    name = "patches"
    hint = "Click a patch, or reach the picture by Tab and move with the arrow keys."

    def __init__(self, image: Tensor, sizes: list[int], patch_size: int) -> None:
        self.image, self.channels = image, CHANNELS[len(image)]
        colors = torch.tensor([to_rgb(color) for color in self.channels.values()])
        self._bright = colors / colors.amax(dim=1, keepdim=True) if len(image) == 3 else torch.ones(1, 3)
        figure = drawing.new_figure(5.1)
        axes = drawing.add_axes(figure, 0.12, 0.95, SIDE, SIDE)
        drawing.add_image(axes, image)
        self._cuts = axes.add_collection(LineCollection([], colors="white"))
        self._frame = drawing.Frame(axes)
        self._draw_patch(figure)
        self._draw_vector(figure)
        controls = dict(
            patch_size=ipywidgets.SelectionSlider(options=sizes, value=patch_size, description="patch size"),
            order=ipywidgets.Dropdown(options=ORDERS, description="order"),
        )
        shape = tuple(side // patch_size for side in image.shape[1:])
        middle = tuple(size // 2 for size in shape)
        picture = GridPicture(shape=shape, places=[drawing.place(axes)], selected=middle)
        moving = [self._cuts, self._frame, axes.title, self._patch, self._patch.axes.title]
        moving += [*self._planes, *self._indices, self._strip.axes, self._first, *self._numbers]
        super().__init__(figure, controls, picture, moving)

    def _draw_patch(self, figure) -> None:
        axes = drawing.add_axes(figure, 3.0, 0.95, SIDE, SIDE)
        plots.show_image(axes, torch.zeros(len(self.image), 1, 1))
        self._patch = axes.images[0]
        self._planes, self._indices = [], []
        for number, (name, color) in enumerate(self.channels.items()):
            side, top = SIDE / 3 - 0.08, 0.95 + SIDE / 3 * number
            axes = drawing.add_axes(figure, 5.95, top, side, side)
            plots.show_image(axes, torch.zeros(3, 1, 1))
            self._planes.append(axes.images[0])
            axes.text(1.08, 0.62, name, transform=axes.transAxes, color=color, va="center", size=10)
            self._indices.append(axes.text(1.08, 0.32, "", transform=axes.transAxes, va="center", size=9))

    def _draw_vector(self, figure) -> None:
        axes = drawing.add_axes(figure, 0.12, 3.8, 8.26, 0.24, ticks=True)
        self._strip = plots.show_matrix(axes, torch.zeros(1, 1, 3), aspect="auto")
        axes.yaxis.set_visible(False)
        axes.tick_params(labelsize=9, length=3, pad=2)
        axes = drawing.add_axes(figure, 0.12, 4.34, 8.26, 0.26)
        self._first = plots.show_matrix(axes, torch.zeros(1, FIRST, 3), aspect="auto")
        style = dict(ha="center", va="center", color="white", size=9)
        self._numbers = [axes.text(index, 0, "", **style) for index in range(FIRST)]

    def show(self) -> str:
        """Draw the chosen patch and its vector."""
        p, order = self.controls["patch_size"].value, self.controls["order"].value
        c, height, width = self.image.shape
        rows, columns = height // p, width // p
        self.picture.set_shape((rows, columns))
        row, column = self.picture.selected
        number = row * columns + column
        flat = patchify(self.image[None], p)[0, number]
        self.values = rearrange(flat, f"(c p1 p2) -> {order}", c=c, p1=p)
        self._show_cuts(p)
        self._show_patch(rearrange(flat, "(c p1 p2) -> c p1 p2", c=c, p1=p), order)
        self._show_vector(order, p)
        self._frame.axes.title.set_text(f"{rows} × {columns} = {rows * columns} patches")
        self._patch.axes.title.set_text(f"patch {row, column}: {p} × {p} pixels")
        if c == 1:
            about_order = "With one channel both orders are the same."
        elif order == ORDERS[0]:
            about_order = f"Flattened as {order}, the order of patchify, all {p * p:,} red values come first."
        else:
            about_order = f"Flattened as {order}, red, green and blue of a pixel stand together: not patchify's order."
        return (
            f"Patch {row, column} is number {number} of 0 to {rows * columns - 1}. "
            f"It has {c} · {p} · {p} = {len(flat):,} values. {about_order}"
        )

    def _show_cuts(self, p: int) -> None:
        _, height, width = self.image.shape
        across = [[(-0.5, y - 0.5), (width - 0.5, y - 0.5)] for y in range(p, height, p)]
        down = [[(x - 0.5, -0.5), (x - 0.5, height - 0.5)] for x in range(p, width, p)]
        self._cuts.set_segments(across + down)
        self._cuts.set_linewidth(2.5 if height // p <= 8 else 1.2 if height // p <= 16 else 0.6)
        row, column = self.picture.selected
        self._frame.surround((row * p, column * p), p, p)

    def _show_patch(self, patch: Tensor, order: str) -> None:
        c, p, _ = patch.shape
        planes = patch[..., None] * self._bright[:, None, None]  # (c, p1, p2, rgb)
        picture = patch[0] if c == 1 else rearrange(patch, "c p1 p2 -> p1 p2 c")
        for image, data in zip([self._patch, *self._planes], [picture, *planes], strict=True):
            image.set_data(data.numpy())
            image.set_extent((-0.5, p - 0.5, p - 0.5, -0.5))
        for channel, text in enumerate(self._indices):
            first, step = (channel * p * p, 1) if order == ORDERS[0] else (channel, c)
            middle = " to " if step == 1 else f", {first + step}, … "
            text.set_text(f"index {first}" if p == 1 else f"index {first}{middle}{first + step * (p * p - 1)}")

    def _show_vector(self, order: str, p: int) -> None:
        c, length = len(self.channels), len(self.values)
        channel = rearrange(torch.arange(c)[:, None, None].expand(c, p, p), f"c p1 p2 -> {order}")
        self._strip.set_data((self.values[None, :, None] * self._bright[channel]).numpy())
        self._strip.set_extent((-0.5, length - 0.5, 0.5, -0.5))
        ticks = sorted({*range(0, length, p * p), length - 1})
        self._strip.axes.set(xlim=(-0.5, length - 0.5), xticks=ticks)
        below = f"below, the first {FIRST}" if length > FIRST else "below, all of them"
        self._strip.axes.set_title(f"its vector, {order}: {length:,} values; {below}", loc="left", size=10)
        names, grounds = list(self.channels), torch.ones(1, FIRST, 3)
        for index, text in enumerate(self._numbers):
            text.set_text("")
            if index < length:
                name = names[channel[index]]
                grounds[0, index] = torch.tensor(to_rgb(self.channels[name]))
                text.set_text((f"{name[0].upper()} " if c > 1 else "") + f"{self.values[index]:.2f}")
        self._first.set_data(grounds.numpy())
