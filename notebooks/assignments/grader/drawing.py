"""Inputs of hidden tests, drawn afresh: nobody knows them before, and no two runs have the same."""

import secrets

import torch
from torch import Tensor, nn

generator = torch.Generator()


def start_anew() -> None:
    """Take a new seed from the system's randomness."""
    generator.manual_seed(secrets.randbits(63))


def normal(*shape: int) -> Tensor:
    """Draw a float32 tensor from the standard normal distribution."""
    return torch.randn(shape, generator=generator)


def images(b: int, c: int, h: int, w: int) -> Tensor:
    """Draw a batch of float32 images with values in [0, 1)."""
    return torch.rand((b, c, h, w), generator=generator)


def whole(low: int, high: int) -> int:
    """Draw a whole number from ``low`` to ``high``, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def choice(*options: object) -> object:
    """Draw one of the options."""
    return options[whole(0, len(options) - 1)]


def uniform(low: float, high: float) -> float:
    """Draw a number between ``low`` and ``high``."""
    return low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Draw every parameter of a model anew, at a scale that keeps the values of deep models moderate."""
    return {name: _weight(name, parameter) for name, parameter in model.named_parameters()}


def _weight(name: str, parameter: Tensor) -> Tensor:
    drawn = normal(*parameter.shape)
    if parameter.ndim == 2:
        return drawn * parameter.shape[1] ** -0.5
    return 1 + 0.3 * drawn if name.endswith("weight") else 0.5 * drawn
