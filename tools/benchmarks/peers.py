"""Published Vision Transformers: import those that are there, and build them at our sizes.

versions, missing = peers.find()
model = peers.build("timm", image_size=28, patch_size=4, ...)  # images (b, c, h, w) -> logits (b, k)
"""

import importlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version

import torch
from torch import nn

from vit_course import VisionTransformer
from vit_course.transfer import AnySize

OURS = "vit_course"
COMPILED = f"{OURS}, compiled"
SHORT = f"{OURS}, short last block"  # as the training command runs it


@dataclass(frozen=True)
class Peer:
    """A library: what pip calls it, what to import, how to build its model, and how its parameters differ."""

    distribution: str
    module: str
    build: Callable[..., nn.Module]
    difference: str = ""


class Logits(nn.Module):
    """Return the logits alone of a model that returns them among other things."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify images: ``(b, c, h, w) -> (b, k)``."""
        return self.model(images).logits


def _timm(*, image_size, num_layers, hidden_dim, mlp_dim, in_channels, **sizes):
    from timm.models.vision_transformer import VisionTransformer

    widths = dict(embed_dim=hidden_dim, mlp_ratio=mlp_dim / hidden_dim)
    return VisionTransformer(img_size=image_size, depth=num_layers, in_chans=in_channels, **widths, **sizes)


def _torchvision(*, hidden_dim, patch_size, in_channels, **sizes):
    from torchvision.models import VisionTransformer

    model = VisionTransformer(hidden_dim=hidden_dim, patch_size=patch_size, **sizes)
    if in_channels != 3:  # it has no argument for that
        model.conv_proj = nn.Conv2d(in_channels, hidden_dim, kernel_size=patch_size, stride=patch_size)
    return model


def hugging_face(*, num_layers, num_heads, hidden_dim, mlp_dim, num_classes, in_channels, **sizes):
    """Build Hugging Face's model of the course's sizes; the model itself is the attribute ``model``."""
    from transformers import ViTConfig, ViTForImageClassification

    widths = dict(hidden_size=hidden_dim, num_attention_heads=num_heads, intermediate_size=mlp_dim)
    counts = dict(num_hidden_layers=num_layers, num_labels=num_classes, num_channels=in_channels)
    config = ViTConfig(**widths, **counts, **sizes, layer_norm_eps=1e-6, attn_implementation="sdpa")
    return Logits(ViTForImageClassification(config))


def _vit_pytorch(*, num_layers, num_heads, hidden_dim, in_channels, **sizes):
    from vit_pytorch import ViT

    widths = dict(dim=hidden_dim, heads=num_heads, dim_head=hidden_dim // num_heads)
    return ViT(depth=num_layers, channels=in_channels, **widths, **sizes)


PEERS = {
    "timm": Peer("timm", "timm.models.vision_transformer", _timm),
    "torchvision": Peer("torchvision", "torchvision.models", _torchvision),
    "Hugging Face": Peer("transformers", "transformers.models.vit.modeling_vit", hugging_face),
    "vit-pytorch": Peer(
        "vit-pytorch",
        "vit_pytorch",
        _vit_pytorch,
        "one LayerNorm before the patch projection and another after it, and no biases on queries, keys and values",
    ),
}


_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # torch forgets what a library that is gone declared


def import_torchvision() -> None:
    """Import torchvision; where its compiled part is missing, without it. The others import it, so it comes first.

    torchvision's wheel holds code that was compiled for one build of PyTorch. Next to another, such as the CPU-only
    one, that code does not load and ``import torchvision`` ends in a ``RuntimeError``, because two operators are
    missing. They are declared here; a ViT calls neither.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for operator in ("nms", "qnms"):
            _LIBRARY.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")


def reason(error: Exception) -> str:
    """Return an error's type and the first line of its message, for a log."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def find() -> tuple[dict[str, str], dict[str, str]]:
    """Import every peer that is there: return the versions of those, and of the others the reason why not."""
    versions, missing = {}, {}
    with suppress(Exception):  # the loop meets it again, and says whom it concerns
        import_torchvision()
    for name, peer in PEERS.items():
        try:
            importlib.import_module(peer.module)
            versions[name] = version(peer.distribution)
        except Exception as error:  # a library that does not fit its surroundings raises whatever it meets
            missing[name] = reason(error)
    return versions, missing


def build(name: str, **sizes) -> nn.Module:
    """Build a library's Vision Transformer with fresh weights, without dropout: images to logits.

    Args:
        name: a name in ``PEERS``, ``OURS`` or ``SHORT``.
        **sizes: all sizes, as :class:`vit_course.VisionTransformer` takes them; ``image_size`` one number.
    """
    if name in PEERS:
        return PEERS[name].build(**sizes)
    model = VisionTransformer(**sizes)
    return AnySize(model) if name == SHORT else model
