"""Click a patch and see what it attends to."""

import math
from collections.abc import Mapping

import ipywidgets
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vit_course import VisionTransformer, arguments, inside, plots
from vit_course.explore import drawing, model_input
from vit_course.explore.drawing import percent
from vit_course.explore.explorer import Explorer, TokenExplorer

NEAR = 2  # patches, between the centers
SIDE = 2.5  # inches
LETTERING = 0.06  # height of a line, as a share of SIDE


@drawing.in_course_look
def attention(model: VisionTransformer, image: Float[Tensor, "c h w"], *, about: Mapping | None = None) -> Explorer:
    """Click a patch of the image and see what it attends to: by layer, by head, or rolled out over the layers.

    Controls: ``layer`` and ``head`` (both counted from 0; ``head`` may be ``"mean"``), ``rollout`` (attention rollout
    over the layers up to this one, heads averaged), ``class_token`` (the class token is the query, not a patch).
    ``picture.selected`` is the query patch, ``(row, column)``; None for the class token.
    ``values`` is the row of the query token, ``(n + 1,)``, the class token first; its sum is 1.

    Args:
        model: any :class:`vit_course.VisionTransformer`; it is used in eval mode and left as it was.
        image: ``(c, h, w)``, of the model's size. Without ``about``, what the model reads, as ``model(image[None])``
            does; outside [0, 1] it is drawn stretched from black to white.
        about: what :func:`vit_course.weights.load_trained` returns with the model. The image is then one in [0, 1],
            normalized here by ``about["mean"]`` and ``about["std"]``, and the model's answer is named.

    Raises:
        ValueError: a model or an image of another kind or size, or an image outside [0, 1] though ``about`` is given.
    """
    arguments.vision_transformer(model)
    model_input.check_size("image", image, model, "c h w")
    images = model_input.as_read("image", image, about)[None]
    with model_input.eval_mode(model) as device:
        maps = [layer.cpu() for layer in inside.attention_maps(model, images.to(device))]
        probabilities = model(images.to(device))[0].softmax(dim=-1).cpu()
    best = probabilities.argmax().item()
    name = model_input.class_names(about, len(probabilities))[best]
    answer = f"the model: {name}, {percent(probabilities[best])}"
    grid_size = model.embedding.patch_embedding.grid_size
    return AttentionExplorer(maps, drawable(image.detach()), grid_size, answer)


def drawable(image: Tensor) -> Tensor:
    """Return the image, stretched to [0, 1] if it goes beyond; of other than 1 or 3 channels their mean, in gray."""
    low, high = image.min(), image.max()
    if low < 0 or high > 1:
        image = (image - low) / (high - low if high > low else 1)
    return image if len(image) in (1, 3) else image.mean(dim=0, keepdim=True)


class AttentionExplorer(TokenExplorer):
    """The image, the attention of one token, and that of every head of the layer."""

    name = "attention"

    def __init__(self, maps: list[Tensor], image: Tensor, grid_size: tuple[int, int], answer: str) -> None:
        self.maps, self.grid_size = maps, grid_size
        self.rollouts = [inside.attention_rollout(maps[: layer + 1])[0] for layer in range(len(maps))]
        heads = maps[0].shape[1]
        figure = drawing.new_figure(4.2)
        self._draw_image(figure, image, answer)
        axes = drawing.add_axes(figure, 3.0, 0.95, SIDE, SIDE)
        self._map = plots.show_matrix(axes, torch.zeros(grid_size), vmin=0, vmax=1)
        self._map_frame = drawing.Frame(axes)
        self._highest = drawing.add_scale(figure, 3.35, 0.95 + SIDE + 0.1, SIDE - 0.7, "0 %")
        self._draw_heads(figure, heads)
        controls = dict(
            layer=ipywidgets.IntSlider(len(maps) - 1, 0, len(maps) - 1, description="layer"),
            head=ipywidgets.Dropdown(value="mean", options=["mean", *range(heads)], description="head"),
            rollout=ipywidgets.Checkbox(False, description="rollout up to this layer", indent=False),
        )
        places = [drawing.place(self._image_frame.axes), drawing.place(axes)]
        moving = [self._map, axes.title, self._highest, self._heads, self._heads.axes.title]
        moving += [self._image_frame, self._map_frame, self._head_frame]
        super().__init__(figure, controls, grid_size, places, moving)

    def _draw_image(self, figure, image: Tensor, answer: str) -> None:
        gh, gw = self.grid_size
        axes = drawing.add_axes(figure, 0.12, 0.95, SIDE, SIDE)
        drawing.add_image(axes, image, "the image")
        height, width = image.shape[1:]
        self._cell = cell_h, cell_w = height // gh, width // gw  # in pixels
        borders = dict(color="white", linewidth=0.5, alpha=0.35)
        axes.hlines([cell_h * row - 0.5 for row in range(1, gh)], -0.5, width - 0.5, **borders)
        axes.vlines([cell_w * column - 0.5 for column in range(1, gw)], -0.5, height - 0.5, **borders)
        axes.text(0.5, -0.03, answer, transform=axes.transAxes, ha="center", va="top")
        self._image_frame = drawing.Frame(axes)

    def _draw_heads(self, figure, heads: int) -> None:
        gh, gw = self.grid_size
        columns = math.ceil(heads**0.5)
        rows = -(-heads // columns)
        cells, tiles = max(rows * gh, columns * gw), max(rows, columns)
        gap = math.ceil(LETTERING * cells / (1 - LETTERING * tiles))  # above each map, for its name
        # top and left of each head's map
        self._tiles = [(gap + head // columns * (gh + gap), head % columns * (gw + gap)) for head in range(heads)]
        self._mosaic = torch.full((rows * (gh + gap), columns * (gw + gap) - gap), torch.nan)
        axes = drawing.add_axes(figure, 5.88, 0.95, SIDE, SIDE)
        self._heads = plots.show_matrix(axes, self._mosaic, vmin=0, vmax=1)
        for head, (top, left) in enumerate(self._tiles):
            axes.text(left - 0.5, top - 0.5 - gap / 8, f"head {head}", size=9, va="bottom")
        self._head_frame = drawing.Frame(axes, color="attention")

    def show(self) -> str:
        """Draw the attention of the query token."""
        layer, head, rollout = (self.controls[name].value for name in ("layer", "head", "rollout"))
        self.controls["head"].disabled = rollout
        patch = self.query()
        query = 0 if patch is None else 1 + patch[0] * self.grid_size[1] + patch[1]

        every_head = self.maps[layer][0, :, query]  # (heads, s)
        if rollout:
            self.values, title = self.rollouts[layer][query], f"rollout, layers 0 to {layer}"
        elif head == "mean":
            self.values, title = every_head.mean(dim=0), f"layer {layer}, mean of its heads"
        else:
            self.values, title = every_head[head], f"layer {layer}, head {head}"

        grid = rearrange(self.values[1:], "(gh gw) -> gh gw", gh=self.grid_size[0])
        self._map.set_data(grid.numpy())
        self._map.set_clim(0, grid.max().item())
        self._highest.set_text(percent(grid.max()))
        self._map.axes.title.set_text(title)
        self._show_heads(layer, every_head, None if rollout or head == "mean" else head)
        self._map_frame.surround(patch)
        cell_h, cell_w = self._cell
        self._image_frame.surround(patch and (patch[0] * cell_h, patch[1] * cell_w), cell_h, cell_w)
        who = "Class token" if patch is None else f"Patch {patch}"
        return f"{who}, {title}: {self._summary(patch, grid)}"

    def _show_heads(self, layer: int, every_head: Tensor, chosen: int | None) -> None:
        gh, gw = self.grid_size
        for (top, left), row in zip(self._tiles, every_head, strict=True):
            self._mosaic[top : top + gh, left : left + gw] = rearrange(row[1:], "(gh gw) -> gh gw", gh=gh)
        highest = every_head[:, 1:].max()
        self._heads.set_data(self._mosaic.numpy())
        self._heads.set_clim(0, highest.item())
        self._heads.axes.title.set_text(f"heads of layer {layer}, up to {percent(highest)}")
        self._head_frame.surround(None if chosen is None else self._tiles[chosen], gh, gw)

    def _summary(self, patch: tuple[int, int] | None, grid: Tensor) -> str:
        best = divmod(grid.argmax().item(), grid.shape[1])
        most = f"Most goes to patch {best}: {percent(grid.max())}."
        if patch is None:
            added_up = grid.flatten().sort(descending=True).values.cumsum(dim=0)
            half = (added_up < added_up[-1] / 2).sum().item() + 1
            return (
                f"{percent(self.values[0])} of its attention stays with itself. {most} "
                f"Half of what the patches get lies on {half} of {grid.numel()}."
            )
        rows, columns = torch.meshgrid(*map(torch.arange, grid.shape), indexing="ij")
        near = (rows - patch[0]) ** 2 + (columns - patch[1]) ** 2 <= NEAR**2
        return (
            f"{percent(grid[near].sum())} of its attention stays within {NEAR} patches "
            f"({percent(near.sum() / len(self.values))} if it attended uniformly), "
            f"{percent(self.values[0])} goes to the class token. {most}"
        )
