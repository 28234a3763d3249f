"""One training run from its last checkpoint to its result: lesson 06's loop, and what a long run needs around it.

Around ``train_step``, ``evaluate`` and the schedule it puts a folder with all that was done, checkpoints, several
processes, mixed precision. Every random number of a run follows from the seed and the step alone, so a checkpoint holds
none of them, and an interrupted run ends with the very same weights.
"""

import dataclasses
import hashlib
import math
import sys
import time

import torch
from torch import Tensor, nn
from tqdm import tqdm

from vit_course import arguments, data
from vit_course.augmentation import random_crop, random_flip
from vit_course.processes import Processes
from vit_course.recipes import Recipe
from vit_course.runs import RunError, RunFolder
from vit_course.training import evaluate, learning_rate_schedule, parameter_groups, train_step


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """What was asked for: all that decides the final weights on a given machine."""

    dataset: str
    preset: str
    seed: int
    device: str
    precision: str
    threads: int
    compile: bool
    recipe: Recipe

    def __post_init__(self) -> None:
        """Check what a recipe does not check."""
        arguments.at_most("seed", arguments.whole_number("seed", self.seed, minimum=0), "2**63 - 1", 2**63 - 1)
        arguments.whole_number("threads", self.threads)
        try:
            torch.zeros(1, device=self.device).item()
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device must be one that this machine has; got {self.device!r}: {error}") from error

    @classmethod
    def from_json(cls, config: dict) -> "Config":
        """Return the config that ``config.json`` holds."""
        try:
            return cls(**config | dict(recipe=Recipe(**config["recipe"])))
        except (TypeError, KeyError, ValueError) as error:
            raise RunError(f"config.json cannot be trained here: {error}") from error


class MixedPrecision(nn.Module):
    """A model whose matrix products run in bfloat16; weights, gradients and logits stay float32."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.model, self.device = model, device

    def forward(self, images: Tensor) -> Tensor:
        """Return float32 logits ``(b, k)``."""
        with torch.autocast(self.device.type, torch.bfloat16):
            logits = self.model(images)
        return logits.float()


class Stopped(Exception):
    """Someone asked the run to stop, and it has saved its last step."""


class Trainer:
    """A run from its last checkpoint to its result.

    Args:
        config: what to train.
        folder: where this config was, or will be, started; nothing is written before :meth:`train`.
        processes: this process among those that share the work.
        checkpoint_steps: steps between two checkpoints; there is one after every epoch as well.

    Raises:
        RunError: no checkpoint can be used, or not all processes have come to the same one.
        ValueError: a figure that does not fit the data, the model or the processes.
    """

    def __init__(
        self, config: Config, folder: RunFolder, processes: Processes | None = None, checkpoint_steps: int = 200
    ) -> None:
        self.config, self.recipe, self.folder = config, config.recipe, folder
        self.processes = processes or Processes()
        self.checkpoint_steps = arguments.whole_number("checkpoint_steps", checkpoint_steps)
        self.started = time.perf_counter()
        self.stop_requested = self.stopping = False  # by someone; agreed by all processes
        torch.set_num_threads(config.threads)
        train_set, test_set = data.load_dataset(config.dataset)
        about = dict(class_names=train_set.class_names, mean=train_set.mean.tolist(), std=train_set.std.tolist())
        sizes = self.recipe.model_sizes(train_set.images, len(train_set.class_names))
        self.about = dict(model=sizes, dataset=config.dataset, **about)
        try:
            self.train_set, self.valid_set = train_set.normalized().split(self.recipe.valid_fraction)
        except ValueError as error:
            raise ValueError(f"valid_{error}") from error  # split calls it fraction
        self.test_set = test_set.normalized()
        batch_size, count = self.recipe.batch_size, self.processes.count
        if batch_size > len(self.train_set) or batch_size % count:
            raise ValueError(
                f"batch_size must be at most {len(self.train_set)}, the images to train on, and divisible by the "
                f"number of processes, {count}; got {batch_size}"
            )
        self.steps_per_epoch = len(self.train_set) // batch_size  # the rest waits for the next epoch's order
        self.total_steps = max(round(self.recipe.epochs * self.steps_per_epoch), 1)
        self.warmup_steps = round(self.recipe.warmup * self.total_steps)

        torch.manual_seed(config.seed)
        self.device = torch.device(config.device)
        self.model = self.recipe.build(sizes).to(self.device)
        groups = parameter_groups(self.model, self.recipe.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, lr=self.recipe.peak_lr, fused=True)
        self.progress = folder.load_checkpoint(self.model, self.optimizer)
        self.seconds_before = self.progress.seconds
        if not self.processes.agree(config.dataset, config.seed, self.recipe, self.progress):
            raise RunError(
                f"the processes do not see the same run: --out must be a folder that all share; {folder.path}"
            )

        self.evaluated = self.model
        if config.precision == "bfloat16":
            self.evaluated = MixedPrecision(self.evaluated, self.device)
        if config.compile:
            self.evaluated = torch.compile(self.evaluated)
        self.trained = self.processes.average_gradients(self.evaluated)

    def train(self) -> dict:
        """Train to the end, look at the test set, once, and return what result.json says.

        Raises:
            Stopped: as :meth:`request_stop` asked; the run can be resumed.
            FloatingPointError: the loss is no longer finite.
        """
        if self.processes.first:
            self.folder.rewind(self.progress)
            if self.progress.step:
                self.folder.report(f"continuing after step {self.progress.step} of {self.total_steps}")
        options = dict(total=self.total_steps, initial=self.progress.step, ascii=True)
        options |= dict(bar_format="{percentage:3.0f}%|{bar}| {remaining} left{postfix}")  # in 80 columns
        self.accuracy = ""
        with tqdm(**options, disable=None if self.processes.first else True) as self.bar:
            while self.progress.step < self.total_steps:
                self.epoch()
        return self.result()

    def epoch(self) -> None:
        """Train to the end of the running epoch, validate, write a line of the log."""
        epoch, place = divmod(self.progress.step, self.steps_per_epoch)
        order = torch.randperm(len(self.train_set), generator=self.generator("order", epoch))
        epoch_started = time.perf_counter()
        end = min(self.steps_per_epoch, self.total_steps - epoch * self.steps_per_epoch)
        for batch in order.split(self.recipe.batch_size)[place:end]:
            loss = self.step(batch)
            images = (self.progress.step - epoch * self.steps_per_epoch - place) * self.recipe.batch_size
            speed = images / (time.perf_counter() - epoch_started)
            self.bar.set_postfix_str(f"epoch {epoch + 1}, loss {loss:.3f}, {self.accuracy}{speed:,.0f} images/s", False)
            self.bar.update()
            within = self.progress.step < epoch * self.steps_per_epoch + end
            if within and (self.stopping or self.progress.step % self.checkpoint_steps == 0):
                self.save()
                if self.stopping:
                    raise Stopped
        if self.processes.first:
            self.validate(epoch, speed)
        self.progress.loss_sum = 0.0
        self.save()
        if self.stopping and self.progress.step < self.total_steps:
            raise Stopped

    def step(self, batch: Tensor) -> float:
        """Train on the images of these indices; return the mean loss over all processes."""
        step = self.progress.step
        schedule = dict(total_steps=self.total_steps, warmup_steps=self.warmup_steps, peak=self.recipe.peak_lr)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate_schedule(step, **schedule)
        images, labels = self.train_set[batch]
        # all processes draw for the whole batch, so that their number changes nothing; dropout is each one's own
        images = self.processes.share(self.augment(images.to(self.device), self.generator("augmentation", step)))
        torch.manual_seed(self.generator("dropout", step, self.processes.rank).initial_seed())
        options = dict(label_smoothing=self.recipe.label_smoothing, max_grad_norm=self.recipe.max_grad_norm)
        loss = train_step(self.trained, self.optimizer, images, self.processes.share(labels), **options)
        loss, stops = self.processes.means(loss, float(self.stop_requested))
        self.stopping = stops > 0
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"the loss is {loss} at step {step + 1}, in epoch {step // self.steps_per_epoch + 1}. Train anew, with "
                f"--peak-lr below {self.recipe.peak_lr:g}, into another --out; the log so far is in {self.folder.path}"
            )
        self.progress.step += 1
        self.progress.loss_sum += loss
        return loss

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Mirror and shift images as the recipe says."""
        images = random_flip(images, generator) if self.recipe.flip else images
        return random_crop(images, self.recipe.crop, generator) if self.recipe.crop else images

    def generator(self, *purpose: object) -> torch.Generator:
        """Return random numbers that follow from the seed and this purpose, such as ``"order"`` and an epoch."""
        digest = hashlib.sha256(repr((self.config.seed, *purpose)).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))

    def validate(self, epoch: int, speed: float) -> None:
        """Look at the validation images, and write the epoch's line of the log."""
        loss, accuracy = evaluate(self.evaluated, self.valid_set)
        record = dict(
            epoch=epoch + 1,
            step=self.progress.step,
            learning_rate=self.optimizer.param_groups[0]["lr"],
            train_loss=self.progress.loss_sum / (self.progress.step - epoch * self.steps_per_epoch),
            valid_loss=loss,
            valid_accuracy=accuracy,
        )
        times = dict(epoch=epoch + 1, seconds=round(self.seconds(), 1), images_per_second=round(speed))
        self.folder.log(self.progress, record, times)
        self.accuracy = f"validation {accuracy:.1%}, "
        self.bar.write(
            f"epoch {epoch + 1:3}/{self.recipe.epochs:g}   train loss {record['train_loss']:.3f}   "
            f"validation loss {loss:.3f}, accuracy {accuracy:.1%}   {speed:,.0f} images/s",
            file=sys.stderr,
        )

    def request_stop(self, *_: object) -> None:
        """Stop after the running step; asked a second time, at once."""
        if self.stop_requested:
            raise KeyboardInterrupt
        self.stop_requested = True

    def seconds(self) -> float:
        """Return the time that the run has taken in all its sessions, loading the data included."""
        return self.seconds_before + time.perf_counter() - self.started

    def save(self) -> None:
        """Write a checkpoint."""
        self.progress.seconds = self.seconds()
        if self.processes.first:
            self.folder.save_checkpoint(self.progress, self.model, self.optimizer)

    def result(self) -> dict:
        """Write the weights, look at the test set, and return what result.json says."""
        if not self.processes.first:
            self.processes.wait()
            return self.folder.result()
        digest = self.folder.save_weights(self.model, self.about)
        last = self.folder.last_record()
        loss, accuracy = evaluate(self.evaluated, self.test_set)
        result = dict(
            test_accuracy=accuracy,
            test_loss=loss,
            valid_accuracy=last["valid_accuracy"],
            valid_loss=last["valid_loss"],
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            images=dict(train=len(self.train_set), valid=len(self.valid_set), test=len(self.test_set)),
            seconds=round(self.seconds(), 1),
            weights_sha256=digest,
        )
        self.folder.write_json("result.json", result)
        self.processes.wait()
        return result
