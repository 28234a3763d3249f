"""Checks of arguments. A ``ValueError`` names the argument, what was expected and what was passed."""

import math
from collections.abc import Collection, Sequence
from numbers import Integral, Real

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset


def whole_number(name: str, value: object, *, minimum: int = 1) -> int:
    """Return ``value`` as an int of at least ``minimum``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}; got {value!r}")
    return int(value)


def size_pair(name: str, value: object) -> tuple[int, int]:
    """Return ``value``, one positive whole number or a pair ``(height, width)``, as a pair."""
    if not isinstance(value, (tuple, list)):
        return (whole_number(name, value),) * 2
    if len(value) != 2:
        raise ValueError(f"{name} must be one number or a pair (height, width); got {len(value)} numbers: {value!r}")
    return whole_number(name, value[0]), whole_number(name, value[1])


def real_number(name: str, value: object) -> None:
    """Check that ``value`` is a finite number of at least 0."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}")


def positive_number(name: str, value: object) -> None:
    """Check that ``value`` is a finite number above 0."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a finite number above 0; got {value!r}")


def probability(name: str, value: object) -> None:
    """Check that ``value`` is a number in [0, 1)."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 <= value < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1; got {value!r}")


def at_most(name: str, value: int | float, limit_name: str, limit: int | float) -> None:
    """Check that one number does not exceed another."""
    if value > limit:
        raise ValueError(f"{name} must be at most {limit_name}={limit}; got {value}")


def divisible(name: str, value: int, divisor_name: str, divisor: int) -> None:
    """Check that one whole number divides another."""
    if value % divisor:
        raise ValueError(f"{name} must be divisible by {divisor_name}={divisor}; got {value}")


def one_of(name: str, value: object, choices: Collection[str] | Collection[int]) -> None:
    """Check that ``value`` is among ``choices``."""
    if not isinstance(value, (str, int)) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def float_tensor(name: str, value: object, axes: str) -> Tensor:
    """Return ``value`` if it is a floating-point tensor with the named axes, such as ``"b s d"``."""
    letters = axes.split()
    shape = f"({', '.join(letters)})"
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a torch.Tensor {shape}; got {type(value).__name__}")
    if value.ndim != len(letters):
        raise ValueError(f"{name} must have {len(letters)} axes, {shape}; got {value.ndim}: shape {tuple(value.shape)}")
    if not value.is_floating_point():
        raise ValueError(f"{name} must be floating point; got {value.dtype}: convert with .float(), scale with / 255")
    return value


def shaped(name: str, value: object, axes: str, sizes: tuple[int | None, ...]) -> None:
    """Check a floating-point tensor with the named axes and these sizes; ``None`` for any size."""
    float_tensor(name, value, axes)
    if any(size not in (None, came) for size, came in zip(sizes, value.shape, strict=True)):
        letters = axes.split()
        expected = ", ".join(f"{axis}={size}" if size else axis for axis, size in zip(letters, sizes, strict=True))
        raise ValueError(f"{name} must have shape ({expected}); got {tuple(value.shape)}")


def divisible_images(images: object, patch_size: object) -> None:
    """Check a batch ``(b, c, h, w)`` that will be cut into patches."""
    float_tensor("images", images, "b c h w")
    height, width = images.shape[2:]
    if not height or not width or height % whole_number("patch_size", patch_size) or width % patch_size:
        expected = f"a height and a width that patch_size={patch_size} divides"
        raise ValueError(f"images must have {expected}; got {height} x {width}")


def patch_grid(image_size: object, patch_size: object) -> tuple[int, int]:
    """Return the patch grid ``(gh, gw)`` of an image of this size."""
    height, width = size_pair("image_size", image_size)
    patch_size = whole_number("patch_size", patch_size)
    if height % patch_size or width % patch_size:
        raise ValueError(f"image_size must be divisible by patch_size={patch_size}; got {height} x {width}")
    return height // patch_size, width // patch_size


def vision_transformer(model: object) -> None:
    """Check that a model has modules with the same names as the course's, as a reader's own model may."""
    names = ("embedding.patch_embedding", "encoder.layers", "head")
    modules = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
    if missing := [name for name in names if name not in modules]:
        came = type(model).__name__ + (f" without {', '.join(missing)}" if modules else "")
        raise ValueError(f"model must be a VisionTransformer, with the names of the course's modules; got {came}")


def one_label_an_image(images: Tensor, labels: object) -> None:
    """Check that there are images, and that ``labels`` is an int64 vector with one entry per image."""
    float_tensor("images", images, "b c h w")
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        came = f"{labels.dtype} of shape {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise ValueError(f"labels must be int64 of shape ({len(images)},), one an image; got {came}")
    if not len(images):
        raise ValueError("images must hold at least one image; got an empty batch or data set")


def label_range(labels: Tensor, num_classes: int) -> None:
    """Check that every label is in 0 .. num_classes - 1."""
    low, high = labels.min().item(), labels.max().item()
    if low < 0 or high >= num_classes:
        expected = f"0 .. {num_classes - 1} for {num_classes} classes"
        raise ValueError(f"labels must lie in {expected}; got values from {low} to {high}")


def image_datasets(**datasets: object) -> None:
    """Check that each is a ``TensorDataset`` of images and labels that is not empty."""
    for name, dataset in datasets.items():
        if not isinstance(dataset, TensorDataset) or len(dataset.tensors) != 2 or not len(dataset):
            came = f"{len(dataset)} images" if isinstance(dataset, TensorDataset) else type(dataset).__name__
            raise ValueError(f"{name} must be a TensorDataset of images and labels with at least one image; got {came}")


def maps_of_layers(maps: object) -> None:
    """Check that ``maps`` is a list with the attention weights of each layer, square and all of one shape."""
    if not isinstance(maps, Sequence) or not maps:
        came = "an empty one" if isinstance(maps, Sequence) else type(maps).__name__
        raise ValueError(f"maps must be a list with one tensor a layer; got {came}")
    for layer in maps:
        float_tensor("maps", layer, "b heads s s")
    shapes = [tuple(layer.shape) for layer in maps]
    if set(shapes) != {shapes[0]} or shapes[0][-1] != shapes[0][-2]:
        raise ValueError(f"maps must be square and all of one shape, (b, heads, s, s); got {shapes}")


def grid_of(name: str, grid_size: object, patches: int) -> None:
    """Check that ``grid_size`` is a pair ``(gh, gw)`` with this number of patches."""
    if not isinstance(grid_size, (tuple, list)):
        raise ValueError(f"{name} must be a pair (gh, gw); got {grid_size!r}")
    gh, gw = size_pair(name, grid_size)
    if gh * gw != patches:
        raise ValueError(f"{name} must have n = {patches} patches; got {gh} x {gw} = {gh * gw}")


def heads_of(model: nn.Module, heads: object) -> None:
    """Check that ``heads`` holds pairs ``(layer, head)``, counted from 0, of heads that the model has."""
    layers = model.encoder.layers
    for pair in heads if isinstance(heads, Collection) else [heads]:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"heads must hold pairs (layer, head), such as [(0, 1)]; got {pair!r}")
        layer, head = pair
        at_most("layer", whole_number("layer", layer, minimum=0), "num_layers - 1", len(layers) - 1)
        last = layers[layer].self_attention.num_heads - 1
        at_most("head", whole_number("head", head, minimum=0), "num_heads - 1", last)
