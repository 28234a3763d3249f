"""What several test files use: small models, random weights and tensors, and Hugging Face's model."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import jaxtyping
import torch
from filelock import FileLock
from torch import Tensor, nn

from vit_course import VisionTransformer

# a model small enough to be instant, with every size different from every other
SMALL = dict(image_size=(8, 12), patch_size=4, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=24, num_classes=5)


def as_run_by_readers() -> AbstractContextManager:
    """Switch the checking of types off for a while."""
    return mock.patch.object(jaxtyping.config, "jaxtyping_disable", True)


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


def images_of(model: VisionTransformer) -> Tensor:
    """Draw three images of the size that the model reads."""
    embedding = model.embedding.patch_embedding
    return randn(3, embedding.in_channels, *embedding.image_size)


def assert_equal(actual, expected, *, atol: float = 1e-12) -> None:
    """Assert equal values, shapes and types; ``atol=0`` for bit by bit."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """Return copies of all parameters by name."""
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def parameter_count(module: nn.Module) -> int:
    """Return the number of all trained values of a module."""
    return sum(parameter.numel() for parameter in module.parameters())


def hugging_face(model: VisionTransformer, **changes) -> nn.Module:
    """Build Hugging Face's model of the same sizes, with other random weights."""
    from transformers import ViTConfig, ViTForImageClassification

    embedding, block = model.embedding.patch_embedding, model.encoder.layers[0]
    config = ViTConfig(
        hidden_size=embedding.projection.out_features,
        num_hidden_layers=len(model.encoder.layers),
        num_attention_heads=block.self_attention.num_heads,
        intermediate_size=block.mlp.linear_1.out_features,
        image_size=embedding.image_size,
        patch_size=embedding.patch_size,
        num_channels=embedding.in_channels,
        num_labels=model.head.out_features,
        **dict(layer_norm_eps=1e-6, attn_implementation="sdpa") | changes,
    )
    return randomize_(ViTForImageClassification(config), seed=3)


def run_python(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run Python in a process of its own; the timeout is there only to keep a hanging test from waiting forever."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, **options)


def wait_until(happened: Callable[[], object]) -> None:
    """Wait for something; the timeout is there only to keep a hanging test from waiting forever."""
    deadline = time.monotonic() + 600
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def once(tmp_path_factory, name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder that ``fill`` has filled, once for all processes of a test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    filled = folder.with_suffix(".filled")
    with FileLock(folder.with_suffix(".lock")):
        if not filled.exists():
            folder.mkdir(exist_ok=True)
            fill(folder)
            filled.touch()
    return folder


class Harmful:
    """What must not be run."""

    def __reduce__(self):
        return print, ("harm",)
