"""Click a patch and see what it attends to."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor
from traitlets import Any, Bool, Int, validate

from vit_course import VisionTransformer, inside
from vit_course.explore import model_input
from vit_course.explore.figure import Explorer, GridExplorer, packed, percent

NEAR = 2  # patches, between the centers


def attention(model: VisionTransformer, image: Float[Tensor, "c h w"], *, about: Mapping | None = None) -> Explorer:
    """Click a patch of the image and see what it attends to: by layer, by head, or rolled out over the layers.

    Attributes: ``layer`` and ``head`` (both counted from 0; ``head`` may be ``"mean"``), ``rollout`` (attention rollout
    over the layers up to this one, heads averaged), and ``selected``, the query patch ``(row, column)``; None for the
    class token. ``values`` is the row of the query token, ``(n + 1,)``, the class token first; its sum is 1. The
    browser receives the weights as 16-bit numbers, so three digits agree with the model's.

    Args:
        model: any :class:`vit_course.VisionTransformer`; it is used in eval mode and left as it was.
        image: ``(c, h, w)``, of the model's size. Without ``about``, what the model reads, as ``model(image[None])``
            does; outside [0, 1] it is drawn stretched from black to white.
        about: what :func:`vit_course.weights.load_trained` returns with the model. The image is then one in [0, 1],
            normalized here by ``about["mean"]`` and ``about["std"]``, and the model's prediction is named.

    Raises:
        ValueError: a model or an image of another kind or size, or an image outside [0, 1] though ``about`` is given.
    """
    images = model_input.as_read("image", image, "c h w", model, about)[None]
    with model_input.eval_mode(model) as device:
        maps = torch.cat(inside.attention_maps(model, images.to(device))).cpu().half()
        probabilities = model(images.to(device))[0].softmax(dim=-1).cpu()
    best = probabilities.argmax().item()
    name = model_input.class_names(about, len(probabilities))[best]
    gh, gw = model.embedding.patch_embedding.grid_size
    data = {
        "maps": packed(maps),
        "image": packed(drawable(image.detach())),
        "grid": [gh, gw],
        "prediction": f"the model: {name}, {percent(probabilities[best])}",
    }
    state = dict(layer=len(maps) - 1, head="mean", rollout=False, selected=(gh // 2, gw // 2))
    return AttentionExplorer(data, state, maps=maps.double())  # (layers, heads, s, s)


def drawable(image: Tensor) -> Tensor:
    """Return the image, stretched to [0, 1] if it goes beyond; of other than 1 or 3 channels their mean, in gray."""
    low, high = image.min(), image.max()
    if low < 0 or high > 1:
        image = (image - low) / (high - low if high > low else 1)
    return image if len(image) in (1, 3) else image.mean(dim=0, keepdim=True)


class AttentionExplorer(GridExplorer, kind="attention"):
    """The image, the attention of one token, and that of every head of the layer."""

    layer = Int().tag(sync=True)
    head = Any().tag(sync=True)
    rollout = Bool().tag(sync=True)

    @validate("layer", "head")
    def _in_the_model(self, proposal: dict) -> int | str:
        name, value = proposal["trait"].name, proposal["value"]
        count = len(self.maps) if name == "layer" else self.maps.shape[1]
        if value not in range(count) and (name, value) != ("head", "mean"):
            raise ValueError(f"{name} must lie in 0 .. {count - 1}; got {value!r}")
        return value

    def compute(self) -> tuple[Tensor, str]:
        """Return the row of the query token and its summary."""
        query = self.token()
        if self.rollout:
            maps = list(self.maps[: self.layer + 1, None])
            values, what = inside.attention_rollout(maps)[0, query], self.words["rollout"]
        elif self.head == "mean":
            values, what = self.maps[self.layer, :, query].mean(dim=0), self.words["mean"]
        else:
            values, what = self.maps[self.layer, self.head, query], self.words["head"]
        return values, self._summary(values, what.format(layer=self.layer, head=self.head))

    def _summary(self, values: Tensor, what: str) -> str:
        patches = values[1:].reshape(self.grid())
        most = patches.max()
        best = divmod(patches.argmax().item(), patches.shape[1])
        facts = dict(what=what, best=best, most=percent(most), token=percent(values[0]))
        if self.selected is None:
            added_up = patches.flatten().sort(descending=True).values.cumsum(dim=0)
            half = (added_up < added_up[-1] / 2).sum().item() + 1
            return self.words["class_token"].format(half=half, count=patches.numel(), **facts)
        rows, columns = torch.meshgrid(*map(torch.arange, self.grid()), indexing="ij")
        near = (rows - self.selected[0]) ** 2 + (columns - self.selected[1]) ** 2 <= NEAR**2
        uniform = percent(near.sum() / len(values))
        return self.words["patch"].format(
            query=self.selected, near=percent(patches[near].sum()), uniform=uniform, **facts
        )
