"""The loop of the training command: one run from its last checkpoint to its result.

Lesson 06's step, evaluation and schedule do the work. Every random number follows from the seed and the step alone, so
that a run which was interrupted ends with exactly the same weights.
"""

import hashlib
import math
import sys
import time

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from tqdm import tqdm

from vit_course import VisionTransformer, arguments, data, weights
from vit_course.augmentation import random_crop, random_flip, shrunk
from vit_course.muon import Muon, muon_groups
from vit_course.train.processes import Processes
from vit_course.train.recipes import Config
from vit_course.train.run_folder import RunFolder
from vit_course.training import evaluate, learning_rate_schedule, parameter_groups, regularized_train_step
from vit_course.transfer import AnySize

MODEL_SETTINGS = ("patch_size", "num_layers", "num_heads", "hidden_dim", "mlp_dim", "pool", "dropout")
OPTIMIZERS = dict(adamw=(AdamW, parameter_groups), muon=(Muon, muon_groups))


class Trainer:
    """A run of ``config`` in ``folder``, in which nothing is written before :meth:`train`.

    A checkpoint is written after every epoch, and every ``checkpoint_steps`` steps in between.
    """

    def __init__(self, config: Config, folder: RunFolder, checkpoint_steps: int = 200) -> None:
        arguments.whole_number("checkpoint_steps", checkpoint_steps)
        self.config, self.recipe, self.folder, self.checkpoint_steps = config, config.recipe, folder, checkpoint_steps
        self.processes = Processes()
        started = time.perf_counter()
        self.stop_requested = self.stopping = False  # in this process; agreed by all processes
        torch.set_num_threads(config.threads)
        self._load_data()
        self._build_model()
        self.progress, self.damage = folder.load_checkpoint(self.model, self.optimizer)
        self.started = started - self.progress.seconds  # as if all sessions had followed one another
        if self.processes.means(float(self.progress.step)) != [self.progress.step]:
            raise ValueError(f"--out must be a folder that all processes share; {folder.path} is not")

    def _load_data(self) -> None:
        train_set, test_set = data.load_dataset(self.config.dataset)
        names, (_, channels, *image_size) = train_set.class_names, train_set.images.shape
        sizes = {name: getattr(self.recipe, name) for name in MODEL_SETTINGS}
        sizes |= dict(in_channels=channels, image_size=tuple(image_size), num_classes=len(names))
        self.about = dict(model=sizes, dataset=self.config.dataset, class_names=names)
        self.about |= dict(mean=train_set.mean.tolist(), std=train_set.std.tolist())
        self.train_set, self.valid_set = train_set.normalized().split(self.recipe.valid_fraction)
        self.test_set = test_set.normalized()
        most, batch_size, count = len(self.train_set), self.recipe.batch_size, self.processes.count
        if batch_size > most or batch_size % count:
            limits = f"at most {most}, the images to train on, and divisible by {count}, the number of processes"
            raise ValueError(f"batch_size must be {limits}; got {batch_size}")
        self.steps_per_epoch = most // batch_size  # the images left over wait for the next epoch's order
        self.total_steps = max(round(self.recipe.epochs * self.steps_per_epoch), 1)

    def _build_model(self) -> None:
        torch.manual_seed(self.config.seed)
        self.model = VisionTransformer(**self.about["model"]).to(self.config.device)
        if not self.recipe.positions:
            self.model.embedding.pos_embedding.requires_grad_(False).zero_()
        self.any_size = AnySize(self.model)
        if self.config.precision == "bfloat16":
            # matrix products run in bfloat16; weights, gradients and logits stay float32
            forward = torch.autocast(torch.device(self.config.device).type, torch.bfloat16)(self.any_size.forward)
            self.any_size.forward = lambda images: forward(images).float()
        if self.config.compile:
            self.any_size.compile()
        optimizer, groups = OPTIMIZERS[self.recipe.optimizer]
        self.optimizer = optimizer(groups(self.model, self.recipe.weight_decay), lr=self.recipe.peak_lr, fused=True)
        several = self.processes.count > 1  # then the gradients are averaged over all processes
        self.trained = nn.parallel.DistributedDataParallel(self.any_size) if several else self.any_size

    def train(self) -> dict:
        """Train to the end, evaluate on the test set once, and return what ``result.json`` holds."""
        first, step = self.processes.first, self.progress.step
        if first and step:
            because = f", because {self.damage}" if self.damage else ""
            tqdm.write(f"continuing after step {step} of {self.total_steps}{because}", file=sys.stderr)
        options = dict(total=self.total_steps, initial=step, ascii=True, disable=None if first else True)
        with tqdm(**options, bar_format="{percentage:3.0f}%|{bar}| {remaining} left{postfix}") as self.bar:
            while self.progress.step < self.total_steps:
                self._train_epoch()
        if first:
            self._write_result()
        self.processes.means(0.0)  # all wait for the result
        return self.folder.read_json("result.json")

    def _train_epoch(self) -> None:
        epoch, resumed_at = self.progress.step // self.steps_per_epoch, self.progress.step
        first_step = epoch * self.steps_per_epoch
        last_step = min(first_step + self.steps_per_epoch, self.total_steps)
        order = torch.randperm(len(self.train_set), generator=self.generator("order", epoch))
        started = time.perf_counter()
        for batch in order.split(self.recipe.batch_size)[resumed_at - first_step : last_step - first_step]:
            loss, step = self.step(batch), self.progress.step
            speed = (step - resumed_at) * self.recipe.batch_size / (time.perf_counter() - started)
            self.bar.set_postfix_str(f"epoch {epoch + 1}, loss {loss:.3f}, {speed:,.0f} images/s", refresh=False)
            self.bar.update()
            if step == last_step and self.processes.first:
                self.validate(epoch, speed)
            if step == last_step or self.stopping or step % self.checkpoint_steps == 0:
                self.save()
            if self.stopping and step < self.total_steps:
                raise KeyboardInterrupt

    def step(self, batch: Tensor) -> float:
        """Train on the images of these indices; return the mean loss over all processes."""
        step, recipe = self.progress.step, self.recipe
        if step % self.steps_per_epoch == 0:
            self.progress.loss_sum = 0.0
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        images, labels = (part.to(self.config.device) for part in self.train_set[batch])
        # all processes draw for the whole batch, so their number changes nothing; only dropout is each one's own
        generator = self.generator("augmentation", step)
        images = random_flip(images, generator) if recipe.flip else images
        images = random_crop(images, recipe.crop, generator) if recipe.crop else images
        count, rank = self.processes.count, self.processes.rank
        images, labels = (part.tensor_split(count)[rank] for part in (images, labels))
        images = shrunk(images, recipe.small_side) if step < recipe.small_share * self.total_steps else images
        torch.manual_seed(self.generator("dropout", step, rank).initial_seed())
        options = dict(label_smoothing=recipe.label_smoothing, max_grad_norm=recipe.max_grad_norm)
        loss = regularized_train_step(self.trained, self.optimizer, images, labels, **options)
        loss, stops = self.processes.means(loss, float(self.stop_requested))
        self.stopping = stops > 0
        if not math.isfinite(loss):
            advice = f"Train again with --peak-lr below {recipe.peak_lr:g}, into another --out"
            raise FloatingPointError(f"the loss is {loss} at step {step + 1} of {self.total_steps}. {advice}")
        self.progress.step += 1
        self.progress.loss_sum += loss
        return loss

    def learning_rate(self, step: int) -> float:
        """Return the rate of a step: after the warm-up a cosine, or constant until the cooldown, which is linear."""
        recipe, total, warmup_steps = self.recipe, self.total_steps, round(self.recipe.warmup * self.total_steps)
        if recipe.cooldown and step >= warmup_steps:
            return recipe.peak_lr * min((total - step) / (recipe.cooldown * total), 1.0)
        return learning_rate_schedule(step, total_steps=total, warmup_steps=warmup_steps, peak=recipe.peak_lr)

    def generator(self, *purpose: object) -> torch.Generator:
        """Return random numbers that follow from the seed and this purpose, such as ``"order"`` and an epoch."""
        digest = hashlib.sha256(repr((self.config.seed, *purpose)).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))

    def validate(self, epoch: int, speed: float) -> None:
        """Evaluate on the validation images, and write the epoch's lines of the logs."""
        loss, accuracy = evaluate(self.any_size, self.valid_set)
        step, rate = self.progress.step, self.optimizer.param_groups[0]["lr"]
        train_loss = self.progress.loss_sum / (step - epoch * self.steps_per_epoch)
        line = dict(epoch=epoch + 1, step=step, learning_rate=rate, train_loss=train_loss)
        self.progress.log.append(line | dict(valid_loss=loss, valid_accuracy=accuracy))
        seconds = round(time.perf_counter() - self.started, 1)
        self.progress.times.append(dict(epoch=epoch + 1, seconds=seconds, images_per_second=round(speed)))
        self.folder.write_json("log.jsonl", self.progress.log)
        self.folder.write_json("times.jsonl", self.progress.times)
        trained = f"epoch {epoch + 1:3}/{self.recipe.epochs:g}   train loss {train_loss:.3f}"
        validated = f"validation loss {loss:.3f}, accuracy {accuracy:.1%}"
        self.bar.write(f"{trained}   {validated}   {speed:,.0f} images/s", file=sys.stderr)

    def request_stop(self, *_: object) -> None:
        """Stop after the current step, or at once when asked a second time."""
        if self.stop_requested:
            raise KeyboardInterrupt
        self.stop_requested = True

    def save(self) -> None:
        """Write a checkpoint."""
        self.progress.seconds = time.perf_counter() - self.started
        if self.processes.first:
            self.folder.save_checkpoint(self.progress, self.model, self.optimizer)

    def _write_result(self) -> None:
        trained = weights.packed_with_checksum(self.model.state_dict(), self.about)
        self.folder.write("weights.safetensors", trained)
        test_loss, test_accuracy = evaluate(self.any_size, self.test_set)
        result = dict(
            test_accuracy=test_accuracy,
            test_loss=test_loss,
            valid_accuracy=self.progress.log[-1]["valid_accuracy"],
            valid_loss=self.progress.log[-1]["valid_loss"],
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            images=dict(train=len(self.train_set), valid=len(self.valid_set), test=len(self.test_set)),
            seconds=round(time.perf_counter() - self.started, 1),
            weights_sha256=hashlib.sha256(trained).hexdigest(),
        )
        self.folder.write_json("result.json", result)
