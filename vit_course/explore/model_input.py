"""What a model reads, and its answer in eval mode."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from vit_course import VisionTransformer, arguments


def check_range(name: str, images: Tensor, where: str = "") -> None:
    """Check that all values are in [0, 1]."""
    if not images.numel() or not (images.min() >= 0 and images.max() <= 1):
        came = f"{images.min():.2f} to {images.max():.2f}" if images.numel() else "no values"
        raise ValueError(f"{name} must hold values in [0, 1]{where}; got {came}")


def as_read(name: str, images: Tensor, axes: str, model: VisionTransformer, about: Mapping | None) -> Tensor:
    """Return an image ``"c h w"`` or a batch ``"b c h w"`` as the model reads it: normalized by ``about``, or as it is.

    Raises:
        ValueError: not a model, images of another size than the model's, or outside [0, 1] though ``about`` is given.
    """
    arguments.vision_transformer(model)
    embedding = model.embedding.patch_embedding
    batch = (None,) * axes.count("b")
    arguments.shaped(name, images, axes, (*batch, embedding.in_channels, *embedding.image_size))
    images = images.detach()
    if about is None:
        return images
    if not isinstance(about, Mapping) or not {"mean", "std"} <= about.keys():
        raise ValueError(f"about must hold mean and std, as load_trained returns them; got {about!r}")
    check_range(name, images, ", as they are before about normalizes them")
    mean, std = (torch.as_tensor(about[key]).to(images)[:, None, None] for key in ("mean", "std"))
    if len(mean) != images.shape[-3] or len(std) != images.shape[-3]:
        raise ValueError(f"about must have one mean and std a channel, {images.shape[-3]}; got {len(mean)}, {len(std)}")
    return (images - mean) / std


@contextmanager
def eval_mode(model: VisionTransformer) -> Iterator[torch.device]:
    """Put the model in eval mode, without gradients, and every module back afterwards; give its device."""
    modes = {module: module.training for module in model.modules()}
    try:
        with torch.no_grad():
            yield next(model.eval().parameters()).device
    finally:
        for module, training in modes.items():
            module.training = training


def class_names(about: Mapping | None, count: int) -> list[str]:
    """Return the classes' names, or their numbers."""
    names = list((about or {}).get("class_names", ()))
    return names if len(names) == count else [f"class {index}" for index in range(count)]
