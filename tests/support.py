"""What several test files use: random weights, random tensors, a small model, and how equal is equal."""

import torch
from torch import Tensor, nn

from vit_course import VisionTransformer

# a model small enough to be instant, with every size different from every other
SMALL = dict(image_size=(8, 12), patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=24, num_classes=5)


def randomize_(module: nn.Module, *, seed: int = 0, std: float = 0.3) -> nn.Module:
    """Draw every parameter anew, so that zeros and ones at the start hide no fault; in double precision, eval mode."""
    generator = torch.Generator().manual_seed(seed)
    module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=std, generator=generator)
    return module


def randn(*shape: int, seed: int = 1) -> Tensor:
    """Draw a double-precision tensor, the same one for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def small_model(**changes) -> VisionTransformer:
    """Build the small model with random weights."""
    return randomize_(VisionTransformer(**SMALL | changes))


def assert_equal(actual, expected, *, atol: float = 1e-12) -> None:
    """Assert equal values, shapes and types; ``atol=0`` for bit by bit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of all parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
