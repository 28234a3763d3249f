"""Training: mistakes as they were published, and right code in other styles."""

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from witness_registry import alternative, mutant


@mutant(
    "learning_rate_schedule",
    source="ERRATA, siblings of source 000: back at 1.0 at step 1950; lesson 06",
    names="learning_rate_schedule.rises_again",
)
def schedule_unclamped(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = (step - top) / max(total_steps - 1 - top, 1)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant(
    "learning_rate_schedule",
    source="learners; Hugging Face's get_cosine_schedule_with_warmup",
    names="learning_rate_schedule.from_zero + learning_rate_schedule.step_late",
)
def schedule_from_zero(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * step / max(1, warmup_steps)
    progress = min((step - warmup_steps) / max(1, total_steps - warmup_steps), 1)
    return final + (peak - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


@mutant(
    "learning_rate_schedule",
    source="learners; Hugging Face's, also unclamped",
    names="learning_rate_schedule.from_zero + learning_rate_schedule.step_late + learning_rate_schedule.rises_again",
)
def schedule_from_zero_unclamped(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * float(step) / float(max(1, warmup_steps))
    progress = float(step - warmup_steps) / float(max(1, total_steps - warmup_steps))
    return final + (peak - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


@mutant(
    "learning_rate_schedule",
    source="learners; a linear schedule, Hugging Face's default",
    names="learning_rate_schedule.straight",
)
def schedule_linear(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return peak + (final - peak) * progress


@alternative("learning_rate_schedule")
def schedule_piecewise(step, total_steps, warmup_steps, peak, final=0.0):
    if step + 1 < warmup_steps:
        return peak / warmup_steps * (step + 1)
    if step >= total_steps:
        return final
    if step <= warmup_steps - 1:
        return peak
    left = total_steps - 1 - max(0, warmup_steps - 1)
    return final + (peak - final) * math.cos(math.pi / 2 * (step - max(0, warmup_steps - 1)) / left) ** 2


@alternative("learning_rate_schedule")
def schedule_interpolated(step, *, total_steps, warmup_steps, peak, final=0.0):
    angle = np.interp(step, [max(warmup_steps - 1, 0), max(total_steps - 1, warmup_steps)], [0.0, np.pi])
    rising = (step + 1) / warmup_steps if step < warmup_steps else 1.0
    return rising * (final + (peak - final) * (1 + np.cos(angle)) / 2)


@mutant("train_step", source="ERRATA, siblings of source 000 (2.361151)", names="train_step.softmax")
def plain_step_softmax(model, optimizer, images, labels):
    model.train()
    optimizer.zero_grad()
    probabilities = torch.softmax(model(images), dim=1)
    loss = nn.CrossEntropyLoss()(probabilities, labels)
    loss.backward()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners; a loop that never clears", names="train_step.accumulated")
def plain_step_accumulating(model, optimizer, images, labels):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


@alternative("train_step")
def plain_step_clearing_last(model, optimizer, images, labels):
    model.train()
    loss = nn.CrossEntropyLoss()(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


@alternative("train_step")
def plain_step_by_hand(model, optimizer, x, y):
    model.train()
    optimizer.zero_grad(set_to_none=False)
    logits = model(x)
    loss = (logits.logsumexp(dim=-1) - logits[torch.arange(len(y)), y]).mean()
    loss.backward()
    optimizer.step()
    return loss.detach().numpy().item()


@mutant(
    "regularized_train_step",
    source="ERRATA, siblings of source 000 (2.361151)",
    names="train_step.softmax",
)
def step_softmax(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    optimizer.zero_grad()
    probabilities = torch.softmax(model(images), dim=1)
    loss = nn.CrossEntropyLoss(label_smoothing=label_smoothing)(probabilities, labels)
    loss.backward()
    if max_grad_norm:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant(
    "regularized_train_step",
    source="learners; many tutorials spread over k - 1 classes",
    names="regularized_train_step.others_smoothed",
)
def step_smooths_others(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    log_probabilities = model(images).log_softmax(dim=-1)
    k = log_probabilities.shape[-1]
    target = torch.full_like(log_probabilities, label_smoothing / (k - 1))
    target.scatter_(1, labels[:, None], 1 - label_smoothing)
    loss = -(target * log_probabilities).sum(dim=-1).mean()
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@alternative("regularized_train_step")
def step_clearing_last(model, optimizer, images, labels, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    criterion = nn.CrossEntropyLoss(label_smoothing=label_smoothing)
    loss = criterion(model(images), labels)
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


@alternative("regularized_train_step")
def step_with_closure(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=math.inf):
    def closure():
        optimizer.zero_grad()
        logits = model(images)
        target = F.one_hot(labels, logits.shape[-1]) * (1 - label_smoothing) + label_smoothing / logits.shape[-1]
        loss = -(target * (logits - logits.logsumexp(dim=-1, keepdim=True))).sum() / len(labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
        return loss

    model.train()
    optimizer.zero_grad()
    loss = closure()
    optimizer.step()
    return loss.detach().cpu().numpy().item()


@mutant(
    "evaluate",
    source="ERRATA, siblings of source 000: divided by another size",
    names="evaluate.loss_adds_means_by_images",
)
def evaluate_means_by_images(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels).item()
            right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), right / len(dataset)


@mutant("evaluate", source="ERRATA, siblings of source 000: evaluation without no_grad", names="gradients are tracked")
def evaluate_with_gradients(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    for images, labels in DataLoader(dataset, batch_size=batch_size):
        logits = model(images)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), right / len(dataset)


@mutant("evaluate", source="ariecattan/SciCo#2; lesson 06", names="evaluate.softmax")
def evaluate_softmax(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            probabilities = model(images).softmax(dim=-1)
            loss += F.cross_entropy(probabilities, labels, reduction="sum").item()
            right += (probabilities.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), right / len(dataset)


@alternative("evaluate")
def evaluate_with_loader(model, dataset, batch_size=256):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    total, right = 0.0, 0
    with torch.inference_mode():
        for images, labels in DataLoader(dataset, batch_size=batch_size, shuffle=True):
            log_probabilities = F.log_softmax(model(images), dim=-1)
            total += F.nll_loss(log_probabilities, labels).item() * len(labels)
            right += int((log_probabilities.max(dim=1).indices == labels).sum())
    for module, mode in modes:
        module.train(mode) if not list(module.children()) else setattr(module, "training", mode)
    return [total / len(dataset), right / len(dataset)]


@alternative("evaluate")
def evaluate_gathering(model, dataset, *, batch_size=256):
    modes = {name: module.training for name, module in model.named_modules()}
    model.eval()
    images, labels = dataset.tensors
    with torch.no_grad():
        logits = torch.cat([model(images[i : i + batch_size]) for i in range(0, len(images), batch_size)])
    for name, module in model.named_modules():
        module.training = modes[name]
    return F.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).double().mean().item()


@mutant(
    "parameter_groups",
    source="learners; torchvision's default: nothing is left out",
    names="decayed, though they should not be",
)
def groups_all_decayed(model, weight_decay):
    return [dict(params=model.parameters(), weight_decay=weight_decay)]


@alternative("parameter_groups")
def groups_by_walking(model, weight_decay):
    groups = [{"params": [], "weight_decay": 0.0}, {"params": [], "weight_decay": weight_decay}]
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            groups[isinstance(module, (nn.Linear, nn.Conv2d)) and name == "weight"]["params"].append(parameter)
    return groups


@alternative("parameter_groups")
def groups_one_each(model, weight_decay):
    layers = {name for name, module in model.named_modules() if type(module) in (nn.Linear, nn.Conv2d)}
    return [
        dict(params=[parameter], weight_decay=weight_decay if name.rpartition(".weight")[0] in layers else 0)
        for name, parameter in model.named_parameters()
    ]


@alternative("random_shift")
def shift_by_index(images, generator):
    h, w = images.shape[2:]
    down, right = torch.randint(-1, 2, (2,), generator=generator).tolist()
    rows = (torch.arange(h) - down).clamp(0, h - 1)
    columns = (torch.arange(w) - right).clamp(0, w - 1)
    return images[:, :, rows][:, :, :, columns]


@alternative("random_shift")
def shift_by_choice(images, generator):
    shifts = list(itertools.product((-1, 0, 1), repeat=2))
    down, right = shifts[torch.randint(9, (), generator=generator)]
    moved = images
    if down:
        moved = torch.cat(
            [moved[:, :, :1], moved[:, :, :-1]] if down > 0 else [moved[:, :, 1:], moved[:, :, -1:]], dim=2
        )
    if right:
        columns = [moved[..., :1], moved[..., :-1]] if right > 0 else [moved[..., 1:], moved[..., -1:]]
        moved = torch.cat(columns, dim=3)
    return moved
