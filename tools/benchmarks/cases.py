"""What is measured: two models, a training step and an inference step of each, and the arithmetic that they need."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from vit_course import VARIANTS

MODES = ("training", "inference")


@dataclass(frozen=True)
class Case:
    """A model's sizes, as ``VisionTransformer`` takes them, and the number of images a step."""

    title: str
    batch: int
    sizes: dict


_GRAY = dict(patch_size=4, in_channels=1, num_classes=10)
_SMALL = dict(_GRAY, image_size=28, num_layers=6, num_heads=4, hidden_dim=64, mlp_dim=128)
CASES = {
    "ti16": Case("Ti/16, 224 pixels", 8, dict(VARIANTS["Ti/16"], image_size=224, in_channels=3, num_classes=1000)),
    "px28": Case("28 pixels, patch 4", 256, _SMALL),
}
TINY = Case("tiny", 2, dict(_GRAY, image_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=24))


def make_step(model: nn.Module, case: Case, mode: str) -> Callable[[], None]:
    """Return a function that does one step on a batch of random images, the same for every model.

    Training is forward, cross-entropy, backward and AdamW; inference is forward without gradients.
    """
    generator = torch.Generator().manual_seed(0)
    side = case.sizes["image_size"]
    images = torch.randn(case.batch, case.sizes["in_channels"], side, side, generator=generator)
    labels = torch.randint(case.sizes["num_classes"], (case.batch,), generator=generator)

    model.train(mode == "training")
    if mode == "inference":
        return torch.inference_mode()(lambda: model(images))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)

    def step() -> None:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def flops(case: Case, mode: str) -> int:
    """Return the floating-point operations of a step's matrix multiplications, two for each product and sum.

    Backward needs each multiplication twice, for the gradient of either factor; of the patch projection only once,
    since images need no gradient. What a fused attention computes a second time to save memory is not counted.
    """
    sizes = case.sizes
    d, mlp_dim = sizes["hidden_dim"], sizes["mlp_dim"]
    n = (sizes["image_size"] // sizes["patch_size"]) ** 2
    s = n + 1
    projection = n * sizes["in_channels"] * sizes["patch_size"] ** 2 * d
    attention = s * d * 3 * d + s * s * d + s * s * d + s * d * d  # q k v; scores; mean of the values; output
    block = attention + s * d * mlp_dim + s * mlp_dim * d
    products = projection + sizes["num_layers"] * block + d * sizes["num_classes"]
    if mode == "training":
        products = 3 * products - projection
    return 2 * case.batch * products
