"""One training run by the clock: a published recipe tested at several marks, or our preset tested at its end.

The clock stands still while a model is validated, tested or saved, so that only training is counted, for all alike.
"""

import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor

from tools.benchmarks.published_recipes import PublishedRecipe
from vit_course import training
from vit_course.data import LabeledImages
from vit_course.train.loop import Trainer
from vit_course.train.recipes import Config, preset
from vit_course.train.run_folder import RunFolder

PRESET = "quick"
SEED = 0
SLICE = 30.0  # seconds: speed and loss are noted so often, so that a disturbance shows


class Pace:
    """How far a run has come: seconds of training, images, and for each slice its images per second and mean loss."""

    def __init__(self, slice_seconds: float) -> None:
        self.slice_seconds = slice_seconds
        self.started, self.left_out = time.perf_counter(), 0.0
        self.images, self.seconds = 0, 0.0
        self.first_image, self.first_second, self.losses = 0, 0.0, []  # of the running slice
        self.slices: list[dict] = []

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Leave out the time that passes inside."""
        began = time.perf_counter()
        yield
        self.left_out += time.perf_counter() - began

    def add(self, images: int, loss: float) -> None:
        """Count a training step that has just ended."""
        self.images += images
        self.losses.append(loss)
        self.seconds = time.perf_counter() - self.started - self.left_out
        if self.seconds - self.first_second >= self.slice_seconds:
            self.end_slice()

    def end_slice(self) -> None:
        """Note the running slice, if it has a step, and begin the next one."""
        if self.losses:
            speed = (self.images - self.first_image) / (self.seconds - self.first_second)
            loss = statistics.fmean(self.losses)
            figures = dict(seconds=round(self.seconds, 2), images_per_second=round(speed, 1))
            self.slices.append(figures | dict(loss=round(loss, 4) if math.isfinite(loss) else None))
        self.first_image, self.first_second, self.losses = self.images, self.seconds, []

    def tested(self, mark: float, accuracy: float) -> dict:
        """Return the entry of a test that follows the last step."""
        return dict(mark=mark, seconds=round(self.seconds, 2), images=self.images, accuracy=round(accuracy, 4))


def train_published(
    recipe: PublishedRecipe,
    train_set: LabeledImages,
    test_set: LabeledImages,
    *,
    marks: Sequence[float],
    slice_seconds: float,
) -> dict:
    """Train by a published recipe and test after the step that reaches each of the ``marks``, in seconds of training.

    Returns:
        ``parameters``, ``slices`` and ``tests``, one for each mark.
    """
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    if recipe.normalized:
        train_set, test_set = train_set.normalized(), test_set.normalized()
    model = recipe.model().train()
    optimizer = recipe.optimizer(model.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, recipe.tenths, gamma=0.1)
    left, tests = sorted(marks), []
    pace = Pace(slice_seconds)
    while left:
        for batch in torch.randperm(len(train_set), generator=generator).split(recipe.batch_size):
            images, labels = train_set[batch]
            images = images if recipe.augment is None else recipe.augment(images, generator)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pace.add(len(batch), loss.item())
            if pace.seconds >= left[0]:
                with pace.stopped():
                    accuracy = training.evaluate(model, test_set)[1]
                while left and pace.seconds >= left[0]:
                    tests.append(pace.tested(left.pop(0), accuracy))
                if not left:
                    break
        schedule.step()
    pace.end_slice()
    return dict(parameters=sum(weight.numel() for weight in model.parameters()), slices=pace.slices, tests=tests)


class TimedTrainer(Trainer):
    """The training command's own trainer, with a clock; it validates at its end only, and writes no checkpoint."""

    pace: Pace

    def step(self, batch: Tensor) -> float:
        """Train on one batch, by the clock."""
        loss = super().step(batch)
        self.pace.add(len(batch), loss)
        return loss

    def validate(self, *arguments: float) -> None:
        """Look at the validation images after the last step."""
        if self.progress.step == self.total_steps:
            super().validate(*arguments)

    def save(self) -> None:
        """Do nothing: the folder is thrown away, and the published recipes write no checkpoint either."""


@contextmanager
def our_trainer(dataset: str, *, epochs: float, threads: int) -> Iterator[TimedTrainer]:
    """Set up a run of our preset, in a folder that is thrown away."""
    about = dict(dataset=dataset, preset=PRESET, seed=SEED, device="cpu", precision="float32", compile=False)
    config = Config(**about, threads=threads, recipe=preset(dataset, PRESET, epochs=epochs))
    with tempfile.TemporaryDirectory() as path:
        yield TimedTrainer(config, RunFolder(path))


def our_epochs_a_second(dataset: str, *, threads: int, seconds: float) -> float:
    """Measure our preset's speed for so many seconds."""
    with our_trainer(dataset, epochs=1.0, threads=threads) as trainer:
        batch = torch.arange(trainer.recipe.batch_size)
        for warm_up in (True, False):  # the first step is slower
            trainer.pace = Pace(math.inf)
            while trainer.pace.seconds < (0 if warm_up else seconds) or not trainer.pace.images:
                trainer.step(batch)
        return trainer.pace.images / trainer.pace.seconds / (trainer.steps_per_epoch * len(batch))


def train_ours(dataset: str, *, budget: float, epochs: float, threads: int, slice_seconds: float) -> dict:
    """Train our preset for so many epochs, at whose end its schedule ends as well, and test it there.

    Returns:
        ``epochs``, ``parameters``, ``slices`` and ``tests``: one, with the budget as its mark.
    """
    with our_trainer(dataset, epochs=epochs, threads=threads) as trainer:
        pace = trainer.pace = Pace(slice_seconds)
        result = trainer.train()
    pace.end_slice()
    tests = [pace.tested(budget, result["test_accuracy"])]
    return dict(epochs=epochs, parameters=result["parameters"], slices=pace.slices, tests=tests)
