"""What the training command trains: a recipe's figures, and the presets it starts from."""

from dataclasses import dataclass, fields, replace

from torch import Tensor

from vit_course import VisionTransformer, arguments


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what is learned, apart from the data and the seed. Batches count over all processes.

    ``positions=False`` keeps the position embeddings at zero, to see what they are worth. ``epochs`` may end within
    one, ``warmup`` is a share of all steps, ``crop`` is in pixels (:func:`vit_course.augmentation.random_crop`).
    ``valid_fraction`` of the training images is held back, the same ones for every seed.
    """

    patch_size: int
    num_layers: int
    num_heads: int
    hidden_dim: int
    mlp_dim: int
    pool: str = "token"
    positions: bool = True
    dropout: float = 0.0
    epochs: float
    batch_size: int
    peak_lr: float
    warmup: float = 0.1
    weight_decay: float = 0.05
    label_smoothing: float = 0.1
    max_grad_norm: float = 1.0
    flip: bool = False
    crop: int = 0
    valid_fraction: float

    def __post_init__(self) -> None:
        """Check every figure that :class:`VisionTransformer` does not check."""
        arguments.whole_number("batch_size", self.batch_size)
        arguments.whole_number("crop", self.crop, minimum=0)
        arguments.real_number("weight_decay", self.weight_decay)
        for name in ("epochs", "peak_lr", "max_grad_norm"):
            arguments.positive_number(name, getattr(self, name))
        for name in ("warmup", "dropout", "label_smoothing", "valid_fraction"):
            arguments.probability(name, getattr(self, name))

    def model_sizes(self, images: Tensor, num_classes: int) -> dict:
        """Return the arguments of a :class:`VisionTransformer` for images ``(b, c, h, w)`` such as these."""
        names = ("patch_size", "num_layers", "num_heads", "hidden_dim", "mlp_dim", "pool", "dropout")
        sizes = {name: getattr(self, name) for name in names}
        return sizes | dict(in_channels=images.shape[1], image_size=tuple(images.shape[2:]), num_classes=num_classes)

    def build(self, sizes: dict) -> VisionTransformer:
        """Build the model of these :meth:`model_sizes`, with fresh weights."""
        model = VisionTransformer(**sizes)
        if not self.positions:
            model.embedding.pos_embedding.requires_grad_(False).zero_()
        return model


PRESETS = {
    "digits": {
        "quick": Recipe(
            patch_size=4, num_layers=3, num_heads=4, hidden_dim=64, mlp_dim=128,
            epochs=60.0, batch_size=64, peak_lr=2e-3, valid_fraction=0.15,
        ),
    },
    "fashion_mnist": {
        "quick": Recipe(  # four patches of 14 pixels: with minutes to learn, fewer tokens win
            patch_size=14, num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=128,
            epochs=12.0, batch_size=128, peak_lr=2e-3, flip=True, valid_fraction=1 / 12,
        ),
        "long": Recipe(
            patch_size=4, num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=128,
            epochs=35.0, batch_size=128, peak_lr=2e-3, flip=True, crop=1, valid_fraction=1 / 12,
        ),
    },
    "cifar10": {
        "quick": Recipe(
            patch_size=8, num_layers=6, num_heads=4, hidden_dim=128, mlp_dim=256,
            epochs=6.0, batch_size=128, peak_lr=2e-3, flip=True, valid_fraction=0.1,
        ),
        "long": Recipe(
            patch_size=4, num_layers=4, num_heads=3, hidden_dim=96, mlp_dim=192,
            epochs=10.0, batch_size=128, peak_lr=2e-3, flip=True, valid_fraction=0.1,
        ),
    },
}  # fmt: skip


def preset(dataset: str, name: str = "quick", **changes) -> Recipe:
    """Return a preset of a data set, with ``changes`` to its figures.

    Raises:
        ValueError: an unknown data set, preset or figure, or a value out of range.
    """
    recipe = PRESETS[arguments.one_of("dataset", dataset, PRESETS)]
    recipe = recipe[arguments.one_of("preset", name, recipe)]
    known = [field.name for field in fields(Recipe)]
    for change in changes:
        arguments.one_of("a recipe's figure", change, known)
    return replace(recipe, **changes)
