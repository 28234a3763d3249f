"""Click a patch and see which positions are like its own."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vit_course import VisionTransformer, inside, plots
from vit_course.explore import model_input
from vit_course.explore.explorer import Explorer, Frame, add_axes, add_scale, in_course_look, new_figure, place
from vit_course.explore.token_choice import TokenExplorer

SIDE = 3.6  # inches


@in_course_look
def positions(model: VisionTransformer) -> Explorer:
    """Click a patch and see how similar its position embedding is to all others (Figure 7, centre).

    Controls: ``class_token`` (the class token's position, instead of a patch's).
    ``picture.selected`` is the patch, ``(row, column)``; None for the class token.
    ``values`` are the cosine similarities with all patches' positions, ``(gh, gw)``.

    Args:
        model: any :class:`vit_course.VisionTransformer`.

    Raises:
        ValueError: not a Vision Transformer of this course.
    """
    model = model_input.checked_model(model)
    similarity = inside.position_similarity(model).cpu()
    class_token, patches = model.embedding.pos_embedding[0].detach().cpu().split([1, len(similarity[0, 0].flatten())])
    to_class_token = F.cosine_similarity(class_token, patches).reshape(similarity.shape[:2])
    return PositionExplorer(similarity, to_class_token)


class PositionExplorer(TokenExplorer):
    """The similarities of one position, and beside them those of every position, each a small picture."""

    name = "positions"

    def __init__(self, similarity: Tensor, to_class_token: Tensor) -> None:
        self.similarity, self.to_class_token = similarity, to_class_token
        self.grid_size = gh, gw = tuple(similarity.shape[:2])
        others = ~torch.eye(gh * gw, dtype=torch.bool).reshape(gh, gw, gh, gw)
        self.limit = similarity[others].abs().max().item() if gh * gw > 1 else 1.0
        figure = new_figure(5.35)
        colors = dict(around_zero=True, vmin=-self.limit, vmax=self.limit)
        axes = add_axes(figure, 0.12, 0.95, SIDE, SIDE)
        self._map = plots.show_matrix(axes, to_class_token, **colors)
        self._frame = Frame(axes)
        low, high = f"{-self.limit:.2f}", f"{self.limit:.2f}"
        add_scale(figure, 0.75, 0.95 + SIDE + 0.12, SIDE - 1.2, low, around_zero=True).set_text(high)
        axes = add_axes(figure, 4.75, 0.95, SIDE, SIDE)
        plots.show_matrix(axes, self._mosaic(), "every position's picture of the grid", **colors)
        self._tile = Frame(axes)
        places = [place(self._map.axes), place(axes)]
        moving = [self._map, self._map.axes.title, self._frame.rectangle, self._tile.rectangle]
        super().__init__(figure, {}, self.grid_size, places, moving)

    def _mosaic(self) -> Tensor:
        """Every position's picture at its place in the grid, half an empty cell around each."""
        gh, gw = self.grid_size
        tiles = torch.full((gh, gw, 2 * gh + 1, 2 * gw + 1), torch.nan)
        tiles[..., 1:, 1:] = self.similarity.repeat_interleave(2, dim=-2).repeat_interleave(2, dim=-1)
        return rearrange(tiles, "gh gw h w -> (gh h) (gw w)")

    def show(self) -> str:
        """Draw the similarities of the chosen position."""
        patch = self.asking()
        self.values = self.to_class_token if patch is None else self.similarity[patch]
        self._map.set_data(self.values.numpy())
        self._frame.around(patch)
        gh, gw = self.grid_size
        tile = (2 * gh + 1, 2 * gw + 1)
        self._tile.around(patch and (patch[0] * tile[0], patch[1] * tile[1]), *tile)
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
            "with its neighbours": near & (down + right > 0),
            "with the rest of its row": (down == 0) & ~near,
            "with the rest of its column": (right == 0) & ~near,
            "elsewhere": (down > 0) & (right > 0) & ~near,
        }
        means = {name: f"{self.values[group].mean():.2f}" for name, group in groups.items() if group.any()}
        found = [f"{mean} {name}".replace("-0.00", "0.00") for name, mean in means.items()]
        return "on average " + ", ".join(found) if found else "1.00 with itself"
