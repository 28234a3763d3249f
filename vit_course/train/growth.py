"""Training on smaller images first: fewer tokens make a step cheaper."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from vit_course import VisionTransformer
from vit_course.transfer import resize_positions

POSITIONS = "embedding.pos_embedding"


class AnySize(nn.Module):
    """A model that also takes images of another size, for which its position embeddings are interpolated.

    Args:
        model: the model of the full size; its parameters are the only ones.
        sizes: the arguments with which it was built.
    """

    def __init__(self, model: VisionTransformer, sizes: dict) -> None:
        super().__init__()
        self.model, self.sizes = model, sizes
        self.models = {}  # of other sizes, of which only the code is used, not the parameters

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Return the logits of images whose sides are multiples of the patch size."""
        size, patch_size = tuple(images.shape[2:]), self.sizes["patch_size"]
        if size == tuple(self.sizes["image_size"]):
            return self.model(images)
        if size not in self.models:
            with torch.device("meta"):  # takes no memory, and draws no random numbers
                self.models[size] = VisionTransformer(**self.sizes | dict(image_size=size))
        grids = [tuple(side // patch_size for side in sides) for sides in (self.sizes["image_size"], size)]
        parameters = dict(self.model.named_parameters())
        parameters[POSITIONS] = resize_positions(parameters[POSITIONS], *grids)
        self.models[size].train(self.model.training)
        return functional_call(self.models[size], parameters, (images,))


def shrunk(images: Float[Tensor, "b c h w"], side: int) -> Float[Tensor, "b c side side"]:
    """Return the images with another height and width, interpolated without aliasing."""
    return F.interpolate(images, size=(side, side), mode="bilinear", antialias=True)
