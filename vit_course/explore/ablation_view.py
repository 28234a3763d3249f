"""Switch heads off and see what the model still gets right."""

from collections.abc import Mapping

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from traitlets import Dict, Int, List, Tuple, observe, validate

from vit_course import VisionTransformer, arguments, inside
from vit_course.explore import model_input
from vit_course.explore.figure import Explorer, packed, percent


def head_ablation(
    model: VisionTransformer,
    images: Float[Tensor, "b c h w"],
    labels: Int64[Tensor, "b"],
    *,
    about: Mapping | None = None,
    count: int = 100,
) -> Explorer:
    """Click heads to switch them off, and see what accuracy is left, class by class.

    Attributes: ``off`` is the list of heads that are off, ``(layer, head)`` each, counted from 0; set it from Python.
    ``values`` holds one number per image: 1 where the prediction is right; ``values.mean()`` is the accuracy that is
    shown. ``alone`` is what :func:`vit_course.inside.head_ablation` returns for the same images: each head off by
    itself.

    Args:
        model: any :class:`vit_course.VisionTransformer`; it is used in eval mode and left as it was.
        images, labels: ``(b, c, h, w)`` and ``(b,)``. Without ``about``, what the model reads.
        about: what :func:`vit_course.weights.load_trained` returns with the model: the images are then in [0, 1] and
            normalized here, and classes have names.
        count: how many of the images are used, the first ones, so that the result comes at once.

    Raises:
        ValueError: a model, images or labels of another kind or size.
    """
    images = model_input.as_read("images", images, "b c h w", model, about)
    arguments.one_label_an_image(images, labels)
    arguments.label_range(labels, model.head.out_features)
    count = arguments.whole_number("count", count)
    images, labels = images[:count], labels[:count].cpu()
    with model_input.eval_mode(model) as device:
        images = images.to(device)
        alone = inside.head_ablation(model, images, labels.to(device)).cpu()
    names = model_input.class_names(about, model.head.out_features)
    every = predicted_right(model, images, labels, [])
    data = {"alone": packed(alone), "labels": packed(labels.float()), "names": names, "every": every}
    state = dict(off=[], answer={"off": [], "right": every})
    return AblationExplorer(data, state, model=model, images=images, labels=labels, alone=alone, every=every)


def predicted_right(model: VisionTransformer, images: Tensor, labels: Tensor, off: list[tuple[int, int]]) -> str:
    """Return for every image whether the prediction is right without these heads: 1 or 0."""
    silenced = inside.silence_heads(model, off)
    with model_input.eval_mode(silenced):
        right = silenced(images).argmax(dim=-1).cpu() == labels
    return "".join(map(str, right.int().tolist()))


class AblationExplorer(Explorer, kind="head_ablation"):
    """What each head is worth alone, and what the model gets right without those that are off."""

    off = List(Tuple(Int(), Int())).tag(sync=True)
    answer = Dict().tag(sync=True)  # the heads that were off, and for each image "1" where the prediction is right

    @validate("off")
    def _in_the_model(self, proposal: dict) -> list[tuple[int, int]]:
        arguments.heads_of(self.model, proposal["value"])
        return sorted(proposal["value"])

    @observe("off")
    def _run(self, change: dict) -> None:
        right = predicted_right(self.model, self.images, self.labels, self.off)
        self.answer = {"off": self.off, "right": right}

    def compute(self) -> tuple[Tensor, str]:
        """Return for every image whether the prediction is right, and the accuracy in words."""
        values, every = (torch.tensor([*map(int, right)]).double() for right in (self.answer["right"], self.every))
        which = "none" if not self.off else "one" if len(self.off) == 1 else "some"
        off = self.words[which].format(number=len(self.off), heads=self.alone.numel())
        facts = dict(right=percent(values.mean(), 1), every=percent(every.mean(), 1), count=len(values))
        most = percent(self.labels.bincount().max() / len(self.labels))
        return values, self.words["text"].format(off=off, most=most, **facts)
