"""Click a patch and see which positions are like its own."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vit_course import VisionTransformer, arguments
from vit_course.explore.figure import Explorer, GridExplorer, number, packed


def positions(model: VisionTransformer) -> Explorer:
    """Click a patch and see how similar its position embedding is to all others (Figure 7, center).

    Attributes: ``selected``, the patch ``(row, column)``; None for the class token. ``values`` are the cosine
    similarities with all patches' positions, ``(gh, gw)``.

    Args:
        model: any :class:`vit_course.VisionTransformer`.

    Raises:
        ValueError: not a Vision Transformer of this course.
    """
    arguments.vision_transformer(model)
    rows, columns = model.embedding.patch_embedding.grid_size
    embeddings = model.embedding.pos_embedding[0].detach().cpu()
    data = {"embeddings": packed(embeddings), "grid": [rows, columns]}
    directions = F.normalize(embeddings.double(), dim=-1)
    return PositionExplorer(data, dict(selected=(rows // 2, columns // 2)), directions=directions)


class PositionExplorer(GridExplorer, kind="positions"):
    """The similarities of one position, and next to them those of every position, each a small map."""

    def compute(self) -> tuple[Tensor, str]:
        """Return the similarities of the selected position and their summary."""
        values = (self.directions[1:] @ self.directions[self.token()]).reshape(self.grid())
        if self.selected is None:
            facts = dict(lowest=values.min(), highest=values.max(), mean=values.mean())
            return values, self.words["class_token"].format(**{name: number(fact, 2) for name, fact in facts.items()})
        rows, columns = torch.meshgrid(*map(torch.arange, self.grid()), indexing="ij")
        down, right = (rows - self.selected[0]).abs(), (columns - self.selected[1]).abs()
        near = (down <= 1) & (right <= 1)
        groups = {
            "near": near & (down + right > 0),
            "row": (down == 0) & ~near,
            "column": (right == 0) & ~near,
            "elsewhere": (down > 0) & (right > 0) & ~near,
        }
        means = {name: number(values[group].mean(), 2) for name, group in groups.items() if group.any()}
        if not means:
            return values, self.words["alone"]
        found = ", ".join(self.words[name].format(mean=mean) for name, mean in means.items())
        return values, self.words["patch"].format(query=self.selected, groups=found)
