"""Click a patch and see which positions are like its own."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vit_course import VisionTransformer, arguments, inside, plots
from vit_course.explore import drawing
from vit_course.explore.explorer import Explorer, TokenExplorer

SIDE = 3.6  # inches


@drawing.in_course_look
def positions(model: VisionTransformer) -> Explorer:
    """Click a patch and see how similar its position embedding is to all others (Figure 7, center).

    Controls: ``class_token`` (the class token's position, instead of a patch's).
    ``picture.selected`` is the patch, ``(row, column)``; None for the class token.
    ``values`` are the cosine similarities with all patches' positions, ``(gh, gw)``.

    Args:
        model: any :class:`vit_course.VisionTransformer`.

    Raises:
        ValueError: not a Vision Transformer of this course.
    """
    arguments.vision_transformer(model)
    return PositionExplorer(inside.position_similarity(model).cpu(), model.embedding.pos_embedding[0].detach().cpu())


class PositionExplorer(TokenExplorer):
    """The similarities of one position, and beside them those of every position, each a small picture."""

    name = "positions"

    def __init__(self, similarity: Tensor, pos_embedding: Tensor) -> None:
        self.similarity = similarity
        self.grid_size = gh, gw = tuple(similarity.shape[:2])
        class_token, patches = pos_embedding.split([1, gh * gw])
        self.to_class_token = F.cosine_similarity(class_token, patches).reshape(gh, gw)
        others = ~torch.eye(gh * gw, dtype=torch.bool).reshape(gh, gw, gh, gw)
        limit = similarity[others].abs().max().item() if gh * gw > 1 else 1.0
        colors = dict(around_zero=True, vmin=-limit, vmax=limit)
        figure = drawing.new_figure(5.35)
        axes = drawing.add_axes(figure, 0.12, 0.95, SIDE, SIDE)
        self._map = plots.show_matrix(axes, self.to_class_token, **colors)
        self._frame = drawing.Frame(axes)
        highest = drawing.add_scale(figure, 0.75, 0.95 + SIDE + 0.12, SIDE - 1.2, f"{-limit:.2f}", around_zero=True)
        highest.set_text(f"{limit:.2f}")
        # every position's picture at its place in the grid, half an empty cell around each
        tiles = torch.full((gh, gw, 2 * gh + 1, 2 * gw + 1), torch.nan)
        tiles[..., 1:, 1:] = similarity.repeat_interleave(2, dim=-2).repeat_interleave(2, dim=-1)
        mosaic = rearrange(tiles, "gh gw h w -> (gh h) (gw w)")
        axes = drawing.add_axes(figure, 4.75, 0.95, SIDE, SIDE)
        plots.show_matrix(axes, mosaic, "every position's picture of the grid", **colors)
        self._tile_frame = drawing.Frame(axes)
        places = [drawing.place(self._map.axes), drawing.place(axes)]
        moving = [self._map, self._map.axes.title, self._frame, self._tile_frame]
        super().__init__(figure, {}, self.grid_size, places, moving)

    def show(self) -> str:
        """Draw the similarities of the chosen position."""
        patch = self.query()
        self.values = self.to_class_token if patch is None else self.similarity[patch]
        self._map.set_data(self.values.numpy())
        self._frame.surround(patch)
        height, width = (2 * side + 1 for side in self.grid_size)
        self._tile_frame.surround(patch and (patch[0] * height, patch[1] * width), height, width)
        if patch is None:
            self._map.axes.title.set_text("similarity with the class token's position")
            return (
                f"The class token's position has a cosine similarity of {self.values.min():.2f} to "
                f"{self.values.max():.2f} with those of the patches, {self.values.mean():.2f} on average."
            )
        self._map.axes.title.set_text(f"similarity with the position of patch {patch}")
        return f"Position of patch {patch}: its cosine similarity is {self._averages(patch)}."

    def _averages(self, patch: tuple[int, int]) -> str:
        rows, columns = torch.meshgrid(*map(torch.arange, self.grid_size), indexing="ij")
        down, right = (rows - patch[0]).abs(), (columns - patch[1]).abs()
        near = (down <= 1) & (right <= 1)
        groups = {
            "with its neighbors": near & (down + right > 0),
            "with the rest of its row": (down == 0) & ~near,
            "with the rest of its column": (right == 0) & ~near,
            "elsewhere": (down > 0) & (right > 0) & ~near,
        }
        means = {name: f"{self.values[group].mean():.2f}" for name, group in groups.items() if group.any()}
        found = [f"{mean} {name}".replace("-0.00", "0.00") for name, mean in means.items()]
        return "on average " + ", ".join(found) if found else "1.00 with itself"
