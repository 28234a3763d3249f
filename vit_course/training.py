"""Lesson 06: the training loop (Section 4.1 and Appendix B.1)."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vit_course import arguments


def learning_rate_schedule(step: int, *, total_steps: int, warmup_steps: int, peak: float, final: float = 0.0) -> float:
    """Linear warm-up followed by a cosine decay (Appendix B.1); after the last step, the rate remains ``final``.

    Args:
        step: counted from 0.
        total_steps: the rate is ``final`` from step ``total_steps - 1`` on; one step later if the peak is only there.
        warmup_steps: from ``peak / warmup_steps`` at step 0 to ``peak`` at step ``warmup_steps - 1``; 0 for none.
        peak, final: the highest and the last learning rate.

    Raises:
        ValueError: a number of steps is negative, fractional or too large, or a rate is out of range.
    """
    arguments.whole_number("step", step, minimum=0)
    arguments.whole_number("total_steps", total_steps)
    arguments.whole_number("warmup_steps", warmup_steps, minimum=0)
    arguments.at_most("warmup_steps", warmup_steps, "total_steps", total_steps)
    arguments.real_number("final", final)
    arguments.real_number("peak", peak)
    arguments.at_most("final", final, "peak", peak)
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)  # the step at which the rate is at its peak
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Return two parameter groups: the weights of linear layers and convolutions, with weight decay, and the others."""
    arguments.real_number("weight_decay", weight_decay)
    decayed = [module.weight for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    in_layers = set(decayed)
    rest = [parameter for parameter in model.parameters() if parameter not in in_layers]
    return [dict(params=decayed, weight_decay=weight_decay), dict(params=rest, weight_decay=0.0)]


def train_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Float[Tensor, "b c h w"], labels: Int64[Tensor, "b"]
) -> float:
    """Train on one batch with cross-entropy, in train mode; return the loss before the step.

    Args:
        model, optimizer: maps images to logits ``(b, k)``, without a softmax; has the model's parameters.
        images, labels: on the model's device; labels that do not fit raise a ``ValueError``.
    """
    arguments.one_label_an_image(images, labels)
    model.train()
    logits = model(images)
    arguments.label_range(labels, logits.shape[-1])
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def regularized_train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: Float[Tensor, "b c h w"],
    labels: Int64[Tensor, "b"],
    *,
    label_smoothing: float = 0.0,
    max_grad_norm: float | None = None,
) -> float:
    """Train on one batch like :func:`train_step`, with label smoothing and gradient clipping.

    Args:
        model, optimizer, images, labels: see :func:`train_step`.
        label_smoothing: share of the target, in [0, 1), that is spread evenly over all classes.
        max_grad_norm: longer gradients, all parameters taken together, are scaled down to this norm, which is above 0.
    """
    arguments.one_label_an_image(images, labels)
    arguments.probability("label_smoothing", label_smoothing)
    if max_grad_norm is not None:
        arguments.positive_number("max_grad_norm", max_grad_norm)
    model.train()
    logits = model(images)
    arguments.label_range(labels, logits.shape[-1])
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


def evaluate(model: nn.Module, dataset: TensorDataset, *, batch_size: int = 256) -> tuple[float, float]:
    """Return mean cross-entropy and accuracy (0 to 1) over all images, in eval mode and without gradients.

    Both are means over the images, so the batch size has no effect. Every module returns to the mode that it had.

    Args:
        model: maps images to logits ``(b, k)``; batches are moved to the device of its parameters.
        dataset, batch_size: images ``(b, c, h, w)`` with labels ``(b,)``; how many pass through the model at a time.
    """
    arguments.image_datasets(dataset=dataset)
    arguments.one_label_an_image(*dataset.tensors)
    arguments.whole_number("batch_size", batch_size)
    device = next(model.parameters(), dataset.tensors[0]).device
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, correct = 0.0, 0
    try:
        with torch.no_grad():
            for images, labels in DataLoader(dataset, batch_size=batch_size):
                images, labels = images.to(device), labels.to(device)
                logits = model(images)
                arguments.label_range(labels, logits.shape[-1])
                loss += F.cross_entropy(logits, labels, reduction="sum").item()
                correct += (logits.argmax(dim=-1) == labels).sum().item()
    finally:
        for module, mode in modes.items():
            module.training = mode
    return loss / len(dataset), correct / len(dataset)


def fit(
    model: nn.Module,
    train_set: TensorDataset,
    valid_set: TensorDataset,
    *,
    epochs: int,
    batch_size: int,
    peak_lr: float,
    warmup_epochs: int = 1,
    weight_decay: float = 0.05,
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    seed: int = 0,
    **step_options,
) -> dict[str, list[float]]:
    """Train with AdamW, warm-up and cosine decay, and evaluate on the validation set after every epoch.

    Args:
        model: maps images to logits ``(b, k)``; trained in place.
        train_set, valid_set: images for training and for validation.
        epochs, warmup_epochs, batch_size: passes over the training set, how many of them warm up; images per step.
        peak_lr, weight_decay: settings of AdamW; see :func:`learning_rate_schedule` and :func:`parameter_groups`.
        augment: ``augment(images, generator) -> images``, such as ``augmentation.random_shift``.
        seed: for the order of the images and the augmentation; dropout depends on torch's global seed.
        **step_options: ``label_smoothing`` and ``max_grad_norm``, see :func:`regularized_train_step`.

    Returns:
        ``learning_rate``, one per step; ``train_loss``, ``valid_loss`` and ``valid_accuracy``, one per epoch.

    Raises:
        ValueError: a data set is empty, or an argument is out of range.
        FloatingPointError: the loss is no longer finite.
    """
    arguments.image_datasets(train_set=train_set, valid_set=valid_set)
    arguments.whole_number("batch_size", batch_size)
    arguments.whole_number("epochs", epochs)
    arguments.whole_number("warmup_epochs", warmup_epochs, minimum=0)
    arguments.at_most("warmup_epochs", warmup_epochs, "epochs", epochs)
    arguments.real_number("peak_lr", peak_lr)
    steps_per_epoch = math.ceil(len(train_set) / batch_size)
    total_steps, warmup_steps = epochs * steps_per_epoch, warmup_epochs * steps_per_epoch
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay), lr=peak_lr)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(seed)
    history = dict(learning_rate=[], train_loss=[], valid_loss=[], valid_accuracy=[])
    for _ in range(epochs):
        train_loss = 0.0
        for batch in torch.randperm(len(train_set), generator=generator).split(batch_size):
            step = len(history["learning_rate"])
            rate = learning_rate_schedule(step, total_steps=total_steps, warmup_steps=warmup_steps, peak=peak_lr)
            for group in optimizer.param_groups:
                group["lr"] = rate
            images, labels = train_set[batch]
            images = images if augment is None else augment(images, generator)
            loss = regularized_train_step(model, optimizer, images.to(device), labels.to(device), **step_options)
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss is {loss} at step {step}: lower peak_lr, or look for nan in images")
            history["learning_rate"].append(rate)
            train_loss += loss * len(batch) / len(train_set)
        valid_loss, valid_accuracy = evaluate(model, valid_set)
        history["train_loss"].append(train_loss)
        history["valid_loss"].append(valid_loss)
        history["valid_accuracy"].append(valid_accuracy)
    return history
