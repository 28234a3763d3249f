"""Lesson 08: adapting a trained model to another task (Section 3.2)."""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.func import functional_call

from vit_course import arguments
from vit_course.data import LabeledImages
from vit_course.last_block import logits_with_short_last_block
from vit_course.training import learning_rate_schedule, train_step


def few_labels(dataset: LabeledImages, per_class: int, *, seed: int) -> LabeledImages:
    """Draw ``per_class`` images of each class at random.

    Raises:
        ValueError: a class has fewer images.
    """
    arguments.whole_number("per_class", per_class)
    fewest = int(dataset.labels.bincount(minlength=len(dataset.class_names)).min())
    arguments.at_most("per_class", per_class, "the images of the smallest class", fewest)
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed))
    classes = range(len(dataset.class_names))
    drawn = torch.cat([order[dataset.labels[order] == k][:per_class] for k in classes])
    about = dict(class_names=dataset.class_names, mean=dataset.mean, std=dataset.std)
    return LabeledImages(*dataset[drawn], **about)


def replace_head(model: nn.Module, num_classes: int) -> nn.Module:
    """Freeze all parameters of a model and give it a new, trainable head of zeros; return the same model.

    Args:
        model: a Vision Transformer with the last layer ``model.head``; changed in place.
        num_classes: number of classes of the new task.
    """
    arguments.vision_transformer(model)
    arguments.whole_number("num_classes", num_classes)
    for parameter in model.parameters():
        parameter.requires_grad = False
    model.head = nn.Linear(model.head.in_features, num_classes)
    nn.init.zeros_(model.head.weight)
    nn.init.zeros_(model.head.bias)
    return model


def fine_tune(
    model: nn.Module,
    images: Float[Tensor, "n c h w"],
    labels: Int64[Tensor, "n"],
    *,
    steps: int,
    peak: float,
    batch_size: int = 32,
    seed: int = 0,
) -> list[float]:
    """Train all parameters that are not frozen, with AdamW, warm-up and cosine (Appendix B.1); return the losses.

    Args:
        model: maps images to logits; trained in place.
        images, labels: the training data.
        steps: number of batches, which are drawn at random with replacement; a tenth of them is the warm-up.
        peak: highest learning rate.
        batch_size: images per step.
        seed: seed of the random batches.
    """
    arguments.one_label_an_image(images, labels)
    arguments.whole_number("steps", steps)
    arguments.whole_number("batch_size", batch_size)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=peak)
    plan = dict(total_steps=steps, warmup_steps=steps // 10, peak=peak)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = learning_rate_schedule(step, **plan)
        batch = torch.randint(len(images), (batch_size,), generator=generator)
        losses.append(train_step(model, optimizer, images[batch], labels[batch]))
    return losses


def resize_positions(
    positions: Float[Tensor, "1 s d"], old_grid: tuple[int, int], new_grid: tuple[int, int]
) -> Float[Tensor, "1 new d"]:
    """Interpolate position embeddings for images of another size (Section 3.2), as timm does it.

    Args:
        positions: the first one belongs to the class token and is kept, the others to the patches, row by row.
        old_grid, new_grid: patches ``(gh, gw)`` of the images before and after.

    Raises:
        ValueError: the positions do not fit ``old_grid``.
    """
    gh, gw = old_grid
    arguments.shaped("positions", positions, "1 s d", (1, gh * gw + 1, None))
    patches = rearrange(positions[:, 1:], "1 (gh gw) d -> 1 d gh gw", gh=gh)
    patches = F.interpolate(patches, size=new_grid, mode="bicubic", antialias=True)
    patches = rearrange(patches, "1 d gh gw -> 1 (gh gw) d")
    return torch.cat([positions[:, :1], patches], dim=1)


class AnySize(nn.Module):
    """A model that also takes images of another size, for which its position embeddings are interpolated."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Return the logits of images whose sides are multiples of the patch size."""
        patches, size = self.model.embedding.patch_embedding, tuple(images.shape[2:])
        if size == patches.image_size:
            return logits_with_short_last_block(self.model, images)
        grid = tuple(side // patches.patch_size for side in size)
        positions = resize_positions(self.model.embedding.pos_embedding, patches.grid_size, grid)
        whole, patches.image_size = patches.image_size, size
        try:
            return functional_call(self.model, {"embedding.pos_embedding": positions}, (images,))
        finally:
            patches.image_size = whole
