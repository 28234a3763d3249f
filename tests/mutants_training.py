"""Schedule, training step, evaluation and two helpers: wrong implementations, and right ones in other styles."""

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F
from mutant_registry import alternative, mutant
from torch import nn
from torch.utils.data import DataLoader

# --- learning_rate_schedule ------------------------------------------------------------------------------------------


@mutant(
    "learning_rate_schedule",
    source="ERRATA, siblings of source 000: back at 1.0 at step 1950; lesson 06",
    names="the rate rises again",
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
    names="the warm-up starts from 0",
)
def schedule_from_zero(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * step / max(1, warmup_steps)
    progress = min((step - warmup_steps) / max(1, total_steps - warmup_steps), 1)
    return final + (peak - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


@mutant(
    "learning_rate_schedule", source="learners; Hugging Face's, also unclamped", names="cosine comes back up. Clamp"
)
def schedule_from_zero_unclamped(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * float(step) / float(max(1, warmup_steps))
    progress = float(step - warmup_steps) / float(max(1, total_steps - warmup_steps))
    return final + (peak - final) * 0.5 * (1.0 + math.cos(math.pi * progress))


@mutant("learning_rate_schedule", source="learners: division by warmup_steps + 1", names="stops short of the peak")
def schedule_short_of_peak(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / (total_steps - 1 - top or 1), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: the warm-up forgotten", names="there is no warm-up")
def schedule_without_warmup(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: the cosine counts from step 0", names="the rate jumps")
def schedule_over_all_steps(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min(step / (total_steps - 1), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: the cosine counts from step 0", names="ends a step late")
def schedule_over_all_steps_late(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return final + (peak - final) * (1 + math.cos(math.pi * min(step / total_steps, 1.0))) / 2


@mutant("learning_rate_schedule", source="learners: off by one", names="not yet final at step total_steps - 1")
def schedule_never_final(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / max(total_steps - warmup_steps, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: off by one", names="the peak comes twice")
def schedule_peak_twice(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / max(total_steps - 1 - warmup_steps, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: the wrong length", names="far from final at the last step")
def schedule_wrong_length(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min((step - warmup_steps) / total_steps, 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant(
    "learning_rate_schedule",
    source="learners; lesson 06's formula where there is no warm-up",
    names="without warm-up the cosine",
)
def schedule_of_the_formula(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min((step - (warmup_steps - 1)) / max(total_steps - warmup_steps, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: no warm-up not thought of", names="ZeroDivisionError with step=0")
def schedule_divides_by_no_warmup(step, *, total_steps, warmup_steps, peak, final=0.0):
    rising = peak * (step + 1) / warmup_steps
    top = warmup_steps - 1
    progress = min((step - top) / max(total_steps - warmup_steps, 1), 1.0)
    return min(rising, final + (peak - final) * (1 + math.cos(math.pi * max(progress, 0))) / 2)


@mutant(
    "learning_rate_schedule",
    source="learners: nothing but warm-up not thought of",
    names="ZeroDivisionError with step=6",
)
def schedule_divides_by_no_rest(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / (total_steps - 1 - top), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant(
    "learning_rate_schedule",
    source="learners; a linear schedule, Hugging Face's default",
    names="along a straight line",
)
def schedule_linear(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return peak + (final - peak) * progress


@mutant("learning_rate_schedule", source="learners: warm-up alone", names="stays at its peak")
def schedule_constant(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak


@mutant("learning_rate_schedule", source="learners: an argument forgotten", names="final has no effect")
def schedule_ignores_final(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return peak * (1 + math.cos(math.pi * progress)) / 2


@mutant(
    "learning_rate_schedule",
    source="learners: lesson 06's first schedule, with a clamp",
    names="max(warmup_steps - 1, 0). The rate goes down to 0: final has no effect",
)
def schedule_of_the_lesson(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min((step - (warmup_steps - 1)) / (total_steps - warmup_steps), 1.0)
    return peak * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: final added", names="the rate jumps above it")
def schedule_adds_final(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + 0.5 * peak * (1 + math.cos(math.pi * progress))


@mutant("learning_rate_schedule", source="learners; nanoGPT-like: max(min_lr, lr)", names="cut off at final")
def schedule_cuts_at_final(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return max(0.5 * peak * (1 + math.cos(math.pi * progress)), final)


@mutant("learning_rate_schedule", source="learners: final at both ends", names="the warm-up starts from final")
def schedule_warms_up_from_final(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return final + (peak - final) * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners; torch's LambdaLR wants a factor", names="a share of the peak")
def schedule_as_factor(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    floor = final / peak
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: 180 for pi", names="degrees")
def schedule_in_degrees(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(180 * progress)) / 2


@mutant("learning_rate_schedule", source="learners: 2 pi", names="a full turn")
def schedule_full_turn(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(2 * math.pi * progress)) / 2


@mutant("learning_rate_schedule", source="learners: the one added is forgotten", names="becomes negative")
def schedule_negative(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * math.cos(math.pi * progress)


@mutant("learning_rate_schedule", source="learners: pi forgotten", names="π is missing")
def schedule_without_pi(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * (1 + math.cos(progress)) / 2


@mutant("learning_rate_schedule", source="learners: a quarter turn", names="a quarter of a cosine")
def schedule_quarter(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * math.cos(math.pi / 2 * progress)


@mutant("learning_rate_schedule", source="learners: torch for math", names="the rates come as tensors")
def schedule_in_torch(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return torch.tensor(peak * (step + 1) / warmup_steps)
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return final + (peak - final) * (1 + torch.cos(torch.tensor(math.pi * progress))) / 2


@mutant("learning_rate_schedule", source="learners: a branch without return", names="a rate is None")
def schedule_forgets_a_return(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps


@mutant("learning_rate_schedule", source="learners: other names", names="must take the arguments (step, total_steps")
def schedule_other_names(step, total, warmup, lr):
    return lr * min(1, (step + 1) / warmup) * (1 - step / total)


@mutant("learning_rate_schedule", source="learners: unknown to the check", names="the values are wrong.")
def schedule_exponential(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return final + (peak - final) * 0.9 ** (step - warmup_steps)


@mutant("learning_rate_schedule", source="learners: unknown to the check", names="; wrong for a final rate above 0.")
def schedule_final_times_peak(step, *, total_steps, warmup_steps, peak, final=0.0):
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    top = max(warmup_steps - 1, 0)
    progress = min((step - top) / max(total_steps - 1 - top, 1), 1.0)
    return peak * (final + (1 - final) * (1 + math.cos(math.pi * progress)) / 2)


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


schedule_lambda = alternative("learning_rate_schedule")(
    lambda step, *, total_steps, warmup_steps, peak, final=0.0: (
        peak * (step + 1) / warmup_steps
        if step < warmup_steps
        else (peak + final) / 2
        + (peak - final)
        / 2
        * math.cos(math.pi * min(1.0, (step + 1 - max(1, warmup_steps)) / max(1, total_steps - max(1, warmup_steps))))
    )
)

# --- train_step ------------------------------------------------------------------------------------------------------


@mutant(
    "train_step",
    source="ERRATA, siblings of source 000 (2.361151); bkitano/llama-from-scratch#5",
    names="softmax before cross-entropy",
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
    "train_step", source="learners; lesson 06: the line that looks like housekeeping", names="gradients are accumulated"
)
def step_accumulates(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: zero_grad in the wrong place", names="cleared between backward() and step()")
def step_clears_too_late(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    loss.backward()
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: the same with zeros", names="cleared between backward() and step()")
def step_clears_to_zeros(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    loss.backward()
    optimizer.zero_grad(set_to_none=False)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: a line forgotten", names="optimizer.step() is never called")
def step_without_step(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    return loss.item()


@mutant("train_step", source="learners: a line forgotten", names="loss.backward() is missing")
def step_without_backward(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: the order", names="runs before loss.backward()")
def step_before_backward(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.step()
    optimizer.zero_grad()
    loss.backward()
    return loss.item()


@mutant("train_step", source="learners: a line copied", names="optimizer.step() is called 2 times")
def step_twice(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners; lesson 06: call backward twice", names="backward() has run twice")
def step_backward_twice(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: an evaluation left eval mode on; lesson 06", names="not in train mode")
def step_in_eval_mode(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: the flag set by hand", names="or a layer in it, is not in train mode")
def step_sets_one_flag(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.training = True
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: the loss kept as a tensor", names="the loss comes as a tensor")
def step_returns_tensor(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss


@mutant("train_step", source="learners: a forgotten return", names="the loss is None")
def step_returns_nothing(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@mutant("train_step", source="learners: measured once more", names="is that after the step")
def step_returns_loss_after(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    optimizer.zero_grad()
    F.cross_entropy(model(images), labels, label_smoothing=label_smoothing).backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    with torch.no_grad():
        return F.cross_entropy(model(images), labels, label_smoothing=label_smoothing).item()


@mutant(
    "train_step", source="learners: loss times batch size, as for an epoch's sum", names="multiplied by the batch size"
)
def step_returns_sum(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item() * images.size(0)


@mutant("train_step", source="learners: reduction='sum'; lesson 06's table", names="summed over the batch")
def step_sums(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing, reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: divided once more", names="mean loss is divided by the batch size once more")
def step_divides_again(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing) / len(images)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: F.nll_loss for F.cross_entropy", names="nll_loss gets raw logits")
def step_nll_of_logits(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.nll_loss(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: a regression's loss", names="between logits and one-hot labels")
def step_squared_error(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    logits = model(images)
    target = torch.zeros_like(logits)
    target[torch.arange(len(labels)), labels] = 1.0
    loss = nn.MSELoss()(logits, target)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: BCE", names="binary cross-entropy")
def step_binary(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    logits = model(images)
    loss = nn.BCEWithLogitsLoss()(logits, F.one_hot(labels, logits.size(1)).float())
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: an argument forgotten", names="label_smoothing has no effect")
def step_ignores_smoothing(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant(
    "train_step", source="learners; many tutorials spread over k - 1 classes", names="goes to the other classes alone"
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


@mutant("train_step", source="learners: the recipe's value written in", names="label_smoothing is always 0.1")
def step_smooths_always(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: an argument forgotten", names="max_grad_norm has no effect")
def step_ignores_clipping(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: the order", names="Clip between backward() and step()")
def step_clips_too_late(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    return loss.item()


@mutant("train_step", source="learners: a loop over parameters", names="gradient is clipped on its own")
def step_clips_each(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        for parameter in model.parameters():
            parameter.grad *= min(1.0, max_grad_norm / parameter.grad.norm().item())
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners; torch's other clipping", names="clip_grad_value_")
def step_clips_values(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_value_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: min(1, …) forgotten", names="scaled up to it")
def step_scales_up(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None:
        norm = sum(parameter.grad.pow(2).sum() for parameter in model.parameters()).sqrt()
        for parameter in model.parameters():
            parameter.grad *= max_grad_norm / norm
    optimizer.step()
    return loss.item()


@mutant(
    "train_step",
    source="learners; lesson 06's own, before smoothing and clipping",
    names="must take the arguments (model,",
)
def step_of_the_lesson(model, optimizer, images, labels):
    model.train()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: no_grad left from the evaluation", names="your code stopped with RuntimeError")
def step_without_graph(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    with torch.no_grad():
        loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: an optimizer of one's own", names="optimizer.step() is never called")
def step_own_optimizer(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    own = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    own.zero_grad()
    loss.backward()
    own.step()
    return loss.item()


@mutant("train_step", source="learners: images normalised in place", names="in place")
def step_changes_images(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    images -= images.mean()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: unknown to the check", names="the values are wrong.")
def step_first_half(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    half = len(images) // 2
    model.train()
    loss = F.cross_entropy(model(images[:half]), labels[:half], label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@mutant(
    "train_step",
    source="learners: unknown to the check",
    names="a linear model and SGD: the weights after one step, at [0]",
)
def step_adds_decay(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    (loss + 0.01 * sum(parameter.square().sum() for parameter in model.parameters())).backward()
    if max_grad_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@mutant("train_step", source="learners: unknown to the check", names="; wrong for smoothing and clipping together.")
def step_smooths_or_clips(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    model.train()
    loss = F.cross_entropy(model(images), labels, label_smoothing=label_smoothing)
    optimizer.zero_grad()
    loss.backward()
    if max_grad_norm is not None and not label_smoothing:
        nn.utils.clip_grad_norm_(model.parameters(), max_grad_norm)
    optimizer.step()
    return loss.item()


@alternative("train_step")
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


@alternative("train_step")
def step_by_hand(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None):
    was_training = model.training
    for module in model.modules():
        module.training = True
    for parameter in model.parameters():
        parameter.grad = None
    log_probabilities = F.log_softmax(model(images), dim=-1)
    plain = F.nll_loss(log_probabilities, labels)
    loss = (1 - label_smoothing) * plain - label_smoothing * log_probabilities.mean()
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    if max_grad_norm is not None:
        norm = math.sqrt(sum(parameter.grad.square().sum().item() for parameter in parameters))
        if norm > max_grad_norm:
            for parameter in parameters:
                parameter.grad = parameter.grad * (max_grad_norm / norm)
    optimizer.step()
    model.train(was_training)
    return loss.item()


@alternative("train_step")
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


# --- evaluate --------------------------------------------------------------------------------------------------------


@mutant("evaluate", source="learners; lesson 06: the mean of batch means", names="mean over batches of unequal size")
def evaluate_batch_means(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    losses, accuracies = [], []
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            losses.append(F.cross_entropy(logits, labels).item())
            accuracies.append((logits.argmax(-1) == labels).float().mean().item())
    for module, mode in modes.items():
        module.training = mode
    return sum(losses) / len(losses), sum(accuracies) / len(accuracies)


@mutant("evaluate", source="learners: the loss alone", names="the loss is the mean over batches of unequal size")
def evaluate_loss_of_batch_means(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, batches, right = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels).item()
            batches += 1
            right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / batches, right / len(dataset)


@mutant(
    "evaluate", source="ERRATA, siblings of source 000: divided by another size", names="divides them by the number of"
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


@mutant("evaluate", source="learners: mean times batch_size", names="takes every batch for a full one")
def evaluate_full_batches_assumed(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    batch_size = min(batch_size, len(dataset))
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels).item() * batch_size
            right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), right / len(dataset)


@mutant("evaluate", source="learners; lesson 06: dropout left on", names="not in eval mode")
def evaluate_in_train_mode(model, dataset, *, batch_size=256):
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
    return loss / len(dataset), right / len(dataset)


@mutant("evaluate", source="learners: eval() and no way back", names="left in eval mode")
def evaluate_leaves_eval(model, dataset, *, batch_size=256):
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
    return loss / len(dataset), right / len(dataset)


@mutant("evaluate", source="learners: train() at the end, always", names="came in eval mode is left in train mode")
def evaluate_leaves_train(model, dataset, *, batch_size=256):
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
    model.train()
    return loss / len(dataset), right / len(dataset)


@mutant(
    "evaluate",
    source="learners; lesson 06's own, which the package does better",
    names="model.train() switches everything",
)
def evaluate_of_the_lesson(model, dataset, batch_size=256):
    was_training = model.training
    model.eval()
    loss = correct = 0
    with torch.no_grad():
        for batch in torch.arange(len(dataset)).split(batch_size):
            images, labels = dataset[batch]
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            correct += (logits.argmax(dim=-1) == labels).sum().item()
    model.train(was_training)
    return loss / len(dataset), correct / len(dataset)


@mutant("evaluate", source="learners: drop_last=True", names="the last batch is dropped")
def evaluate_drops_last(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right, seen = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=min(batch_size, len(dataset)), drop_last=True):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
            seen += len(labels)
    for module, mode in modes.items():
        module.training = mode
    return loss / seen, right / seen


@mutant("evaluate", source="learners: range(n // batch_size)", names="the last batch is dropped")
def evaluate_whole_batches_only(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for number in range(len(dataset) // batch_size):
            images, labels = dataset[number * batch_size : (number + 1) * batch_size]
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    seen = len(dataset) // batch_size * batch_size
    return loss / seen, right / seen


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


@mutant("evaluate", source="ariecattan/SciCo#2; lesson 06", names="takes a softmax before cross-entropy")
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


@mutant("evaluate", source="learners: = for +=", names="only the last batch counts")
def evaluate_last_batch(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss = F.cross_entropy(logits, labels).item()
            accuracy = (logits.argmax(-1) == labels).float().mean().item()
    for module, mode in modes.items():
        module.training = mode
    return loss, accuracy


@mutant("evaluate", source="learners: = for += in one line", names="the accuracy is that of the last batch")
def evaluate_accuracy_of_last(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss = 0.0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            accuracy = (logits.argmax(-1) == labels).float().mean().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), accuracy


@mutant("evaluate", source="learners: a return inside the loop", names="only the first batch counts")
def evaluate_first_batch(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            for module, mode in modes.items():
                module.training = mode
            return F.cross_entropy(logits, labels).item(), (logits.argmax(-1) == labels).float().mean().item()


@mutant("evaluate", source="learners: percent", names="in percent")
def evaluate_percent(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), 100 * right / len(dataset)


@mutant("evaluate", source="learners: two slips at once", names="a count of right answers")
def evaluate_sums(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss, right


@mutant("evaluate", source="learners: dim=0", names="argmax runs over the images")
def evaluate_wrong_argmax(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(0) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), right / len(dataset)


@mutant("evaluate", source="learners: the order", names="the two numbers are swapped")
def evaluate_swapped(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return right / len(dataset), loss / len(dataset)


@mutant("evaluate", source="learners: .item() forgotten", names="they come as tensors")
def evaluate_tensors(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum")
            right += (logits.argmax(-1) == labels).sum()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), right / len(dataset)


@mutant("evaluate", source="learners: batch_size forgotten", names="images at once where batch_size=5")
def evaluate_all_at_once(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    images, labels = dataset.tensors
    with torch.no_grad():
        logits = model(images)
    for module, mode in modes.items():
        module.training = mode
    return F.cross_entropy(logits, labels).item(), (logits.argmax(-1) == labels).float().mean().item()


@mutant("evaluate", source="learners: the training loop copied", names="changes the model's weights")
def evaluate_trains(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.eval()
    loss, right = 0.0, 0
    for images, labels in DataLoader(dataset, batch_size=batch_size):
        logits = model(images)
        part = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        part.backward()
        optimizer.step()
        loss += part.item() * len(labels)
        right += (logits.argmax(-1) == labels).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), right / len(dataset)


@mutant("evaluate", source="learners: one number", names="must return two numbers, (loss, accuracy); got float")
def evaluate_accuracy_only(model, dataset, *, batch_size=256):
    model.eval()
    with torch.no_grad():
        images, labels = dataset[:]
        return (model(images).argmax(-1) == labels).float().mean().item()


@mutant("evaluate", source="learners: a forgotten return", names="None: is a return missing?")
def evaluate_returns_nothing(model, dataset, *, batch_size=256):
    model.eval()
    with torch.no_grad():
        model(dataset[:][0])


@mutant("evaluate", source="learners: the data set called as a model", names="your code stopped with TypeError")
def evaluate_mixes_up(model, dataset, *, batch_size=256):
    return dataset(model), 0.0


@mutant("evaluate", source="learners: unknown to the check", names="the values are wrong.")
def evaluate_top_two(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.multi_margin_loss(logits, labels, reduction="sum").item()
            right += (logits.topk(2).indices == labels[:, None]).any(-1).sum().item()
    for module, mode in modes.items():
        module.training = mode
    return loss / len(dataset), right / len(dataset)


@mutant(
    "evaluate", source="learners: unknown to the check", names="two batches of 5: the accuracy, expected 0.7, got 0.8"
)
def evaluate_counts_top_two(model, dataset, *, batch_size=256):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    loss, right = 0.0, 0
    with torch.no_grad():
        for images, labels in DataLoader(dataset, batch_size=batch_size):
            logits = model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            right += (logits.topk(2).indices == labels[:, None]).any(-1).sum().item()
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
@torch.no_grad()
def evaluate_image_by_image(model, dataset, *, batch_size=256, device="cpu"):
    training = [module.training for module in model.modules()]
    for module in model.modules():
        module.training = False
    losses, answers = [], []
    for image, label in dataset:
        logits = model(image.unsqueeze(0).to(device))[0]
        losses.append((logits.logsumexp(dim=0) - logits[label]).item())
        answers.append(bool(logits.argmax() == label))
    for module, mode in zip(model.modules(), training, strict=True):
        module.training = mode
    return float(np.mean(losses)), np.mean(answers)


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


# --- parameter_groups ------------------------------------------------------------------------------------------------


@mutant(
    "parameter_groups", source="learners; timm's rule, without its list of names; lesson 06", names="'two axes or more'"
)
def groups_by_axes(model, weight_decay):
    decayed = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    rest = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    return [dict(params=decayed, weight_decay=weight_decay), dict(params=rest, weight_decay=0.0)]


@mutant(
    "parameter_groups",
    source="learners; torchvision's default: nothing is left out",
    names="decayed, though they should not be",
)
def groups_all_decayed(model, weight_decay):
    return [dict(params=model.parameters(), weight_decay=weight_decay)]


@mutant("parameter_groups", source="learners: 'weight' in the name", names="vit.encoder.layers.0.ln_1.weight")
def groups_by_name(model, weight_decay):
    groups = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups["weight" in name].append(parameter)
    return [dict(params=groups[True], weight_decay=weight_decay), dict(params=groups[False], weight_decay=0.0)]


@mutant("parameter_groups", source="learners: convolutions forgotten", names="not decayed, though they should be: conv")
def groups_without_convolutions(model, weight_decay):
    decayed = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    known = {id(parameter) for parameter in decayed}
    rest = [parameter for parameter in model.parameters() if id(parameter) not in known]
    return [dict(params=decayed, weight_decay=weight_decay), dict(params=rest, weight_decay=0.0)]


@mutant("parameter_groups", source="learners: the other group forgotten", names="in no group")
def groups_decayed_alone(model, weight_decay):
    decayed = [module.weight for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    return [dict(params=decayed, weight_decay=weight_decay)]


@mutant("parameter_groups", source="learners: AdamW's default decays", names="no weight_decay is set for")
def groups_without_a_zero(model, weight_decay):
    decayed = [module.weight for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    rest = [parameter for parameter in model.parameters() if not any(parameter is weight for weight in decayed)]
    return [dict(params=decayed, weight_decay=weight_decay), dict(params=rest)]


@mutant("parameter_groups", source="learners: a number written in", names="and 0.05 is set")
def groups_with_a_number(model, weight_decay):
    decayed = [module.weight for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    rest = [parameter for parameter in model.parameters() if not any(parameter is weight for weight in decayed)]
    return [dict(params=decayed, weight_decay=0.05), dict(params=rest, weight_decay=0.0)]


@mutant("parameter_groups", source="learners: a parameter in both groups", names="more than one parameter group")
def groups_overlap(model, weight_decay):
    decayed = [module.weight for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    return [dict(params=decayed, weight_decay=weight_decay), dict(params=model.parameters(), weight_decay=0.0)]


@mutant("parameter_groups", source="learners: a forgotten return", names="is a return missing?")
def groups_not_returned(model, weight_decay):
    [dict(params=list(model.parameters()), weight_decay=weight_decay)]


@mutant("parameter_groups", source="learners: two lists", names="got a tuple with a list in it")
def groups_as_lists(model, weight_decay):
    decayed = [module.weight for module in model.modules() if isinstance(module, (nn.Linear, nn.Conv2d))]
    return decayed, [parameter for parameter in model.parameters() if not any(parameter is w for w in decayed)]


@mutant("parameter_groups", source="learners: the key's name", names="a group has the keys ['parameters'")
def groups_under_another_key(model, weight_decay):
    return [dict(parameters=list(model.parameters()), weight_decay=weight_decay)]


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


# --- random_shift ----------------------------------------------------------------------------------------------------


@mutant("random_shift", source="learners: F.pad's default", names="what comes in is 0")
def shift_with_zeros(images, generator):
    h, w = images.shape[2:]
    top, left = torch.randint(0, 3, (2,), generator=generator).tolist()
    return F.pad(images, (1, 1, 1, 1))[:, :, top : top + h, left : left + w]


@mutant("random_shift", source="learners: torch.roll", names="comes in on the other")
def shift_by_rolling(images, generator):
    down, right = (torch.randint(0, 3, (2,), generator=generator) - 1).tolist()
    return torch.roll(images, (down, right), (-2, -1))


@mutant("random_shift", source="learners: another padding", names="mirrors the image")
def shift_reflecting(images, generator):
    h, w = images.shape[2:]
    top, left = torch.randint(0, 3, (2,), generator=generator).tolist()
    return F.pad(images, (1, 1, 1, 1), mode="reflect")[:, :, top : top + h, left : left + w]


@mutant("random_shift", source="learners: randint's upper end", names="of the 9 shifts never occur")
def shift_never_up(images, generator):
    h, w = images.shape[2:]
    top, left = torch.randint(0, 2, (2,), generator=generator).tolist()
    return F.pad(images, (1, 1, 1, 1), mode="replicate")[:, :, top : top + h, left : left + w]


@mutant("random_shift", source="learners: one number for both", names="6 of the 9 shifts never occur")
def shift_diagonally(images, generator):
    h, w = images.shape[2:]
    at = torch.randint(0, 3, (), generator=generator).item()
    return F.pad(images, (1, 1, 1, 1), mode="replicate")[:, :, at : at + h, at : at + w]


@mutant("random_shift", source="learners: the generator forgotten", names="Draw from it alone")
def shift_of_its_own(images, generator):
    h, w = images.shape[2:]
    top, left = torch.randint(0, 3, (2,)).tolist()
    return F.pad(images, (1, 1, 1, 1), mode="replicate")[:, :, top : top + h, left : left + w]


@mutant("random_shift", source="learners: a draw for each image", names="each image has a shift of its own")
def shift_each(images, generator):
    h, w = images.shape[2:]
    padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
    corners = torch.randint(0, 3, (len(images), 2), generator=generator).tolist()
    return torch.stack([image[:, y : y + h, x : x + w] for image, (y, x) in zip(padded, corners, strict=True)])


@mutant("random_shift", source="learners: too far", names="by more than one pixel")
def shift_too_far(images, generator):
    h, w = images.shape[2:]
    top, left = torch.randint(0, 5, (2,), generator=generator).tolist()
    return F.pad(images, (2, 2, 2, 2), mode="replicate")[:, :, top : top + h, left : left + w]


@mutant("random_shift", source="learners: not cut back", names="must keep their shape")
def shift_grows(images, generator):
    top, left = torch.randint(0, 3, (2,), generator=generator).tolist()
    return F.pad(images, (left, 2 - left, top, 2 - top), mode="replicate")


@mutant("random_shift", source="learners: unknown to the check", names="none of the nine shifts")
def shift_and_noise(images, generator):
    return images + 0.1 * torch.randn(images.shape, generator=generator)


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
