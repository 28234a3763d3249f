"""The settings of a training run: recipes, their presets, and the complete config."""

from dataclasses import MISSING, Field, dataclass, field, replace

import torch

from vit_course import arguments


def _setting(text: str, default: object = MISSING) -> Field:
    return field(default=default, metadata=dict(help=text))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a run except the data and the seed, each with its help text."""

    patch_size: int = _setting("side of a patch in pixels")
    num_layers: int = _setting("encoder blocks")
    num_heads: int = _setting("attention heads", 4)
    hidden_dim: int = _setting("width of a token", 64)
    mlp_dim: int = _setting("width inside the MLP", 128)
    pool: str = _setting("input of the head: token (class token) or mean", "token")
    positions: bool = _setting("learn position embeddings; otherwise they remain zero", True)
    dropout: float = _setting("dropout probability", 0.0)
    epochs: float = _setting("passes over the training images; fractions are allowed")
    batch_size: int = _setting("images per step, of all processes together", 128)
    peak_lr: float = _setting("highest learning rate, after the warm-up", 2e-3)
    warmup: float = _setting("share of all steps in which the learning rate rises to peak_lr", 0.1)
    cooldown: float = _setting("share of all steps, at the end, in which the rate falls linearly; 0 for a cosine", 0.0)
    optimizer: str = _setting("adamw, or muon for the matrices of the encoder and AdamW for the rest", "adamw")
    weight_decay: float = _setting("weight decay, for the weights of linear layers only", 0.05)
    label_smoothing: float = _setting("share of the target that is spread over all classes", 0.1)
    max_grad_norm: float = _setting("longer gradients are scaled down to this norm", 1.0)
    flip: bool = _setting("mirror each image with probability 1/2", False)
    crop: int = _setting("shift every image by up to this many pixels", 0)
    small_share: float = _setting("share of the steps, from the first on, in which the images are smaller", 0.0)
    small_side: int = _setting("height and width of the smaller images in pixels; a multiple of patch_size", 16)
    valid_fraction: float = _setting("share of the training images used for validation, the same for every seed", 0.1)

    def __post_init__(self) -> None:
        """Check every setting that the model does not check."""
        for name in ("batch_size", "patch_size", "small_side"):
            arguments.whole_number(name, getattr(self, name))
        for name in ("epochs", "peak_lr", "max_grad_norm", "valid_fraction"):
            arguments.positive_number(name, getattr(self, name))
        for name in ("warmup", "cooldown", "dropout", "label_smoothing", "small_share", "valid_fraction"):
            arguments.probability(name, getattr(self, name))
        arguments.whole_number("crop", self.crop, minimum=0)
        arguments.real_number("weight_decay", self.weight_decay)
        arguments.one_of("optimizer", self.optimizer, ("adamw", "muon"))
        if self.small_share:
            arguments.divisible("small_side", self.small_side, "patch_size", self.patch_size)
        arguments.at_most("cooldown", self.cooldown, "1 - warmup", 1 - self.warmup)


_MUON = dict(optimizer="muon", warmup=0.05, batch_size=256, pool="mean")
_BEST = _MUON | dict(patch_size=4, num_layers=6, num_heads=3, hidden_dim=96, mlp_dim=192, peak_lr=5e-3, flip=True)
_FOUR_PATCHES = _MUON | dict(patch_size=14, num_layers=2, num_heads=2, mlp_dim=256, peak_lr=8e-3)
PRESETS = {
    "digits": {"quick": Recipe(patch_size=4, num_layers=3, epochs=60.0, batch_size=64, valid_fraction=0.15)},
    "fashion_mnist": {  # quick: fewer tokens win when there are only minutes to learn
        "quick": Recipe(**_FOUR_PATCHES, epochs=20.0, crop=1, valid_fraction=1 / 12),
        "long": Recipe(patch_size=4, num_layers=4, epochs=35.0, flip=True, crop=1, valid_fraction=1 / 12),
        "best": Recipe(**_BEST, epochs=16.0, crop=1, valid_fraction=1 / 12),
    },
    "cifar10": {
        "quick": Recipe(patch_size=8, num_layers=6, hidden_dim=128, mlp_dim=256, epochs=6.0, flip=True),
        "long": Recipe(patch_size=4, num_layers=4, num_heads=3, hidden_dim=96, mlp_dim=192, epochs=10.0, flip=True),
        "best": Recipe(**_BEST, epochs=20.0, crop=3, small_share=0.9, cooldown=0.4),  # 16 of 64 tokens first, then all
    },
}


def preset(dataset: str, name: str = "quick", **changes) -> Recipe:
    """Return a preset of a data set, with ``changes`` to its settings; ``ValueError`` for a bad name or value."""
    arguments.one_of("dataset", dataset, PRESETS)
    arguments.one_of("preset", name, PRESETS[dataset])
    return replace(PRESETS[dataset][name], **changes)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings that determine the final weights on a given machine."""

    dataset: str = _setting("data set: digits, fashion_mnist or cifar10")
    preset: str = _setting("; ".join(f"{dataset}: {', '.join(names)}" for dataset, names in PRESETS.items()), "quick")
    seed: int = _setting("seed of all random numbers (default: 0)", 0)
    device: str = _setting("cpu, cuda, ... (default: cuda if available)")
    precision: str = _setting("float32 or bfloat16 (default: bfloat16 on a GPU that supports it)")
    threads: int = _setting("CPU threads of each process (default: chosen by torch)")
    compile: bool = _setting("use torch.compile: a slow first step, then faster ones", False)
    recipe: Recipe

    def __post_init__(self) -> None:
        """Check what a recipe does not check."""
        arguments.whole_number("seed", self.seed, minimum=0)
        arguments.at_most("seed", self.seed, "2**63 - 1", 2**63 - 1)
        arguments.whole_number("threads", self.threads)
        arguments.one_of("precision", self.precision, ("float32", "bfloat16"))
        try:
            torch.zeros(1, device=self.device).item()
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device must be one that this machine has; got {self.device!r}: {error}") from error
