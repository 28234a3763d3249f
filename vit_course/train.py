"""The training command: ``python -m vit_course.train --dataset fashion_mnist``.

Around lesson 06's ``train_step``, ``evaluate`` and schedule it puts what a long run needs: a folder with all that was
done, checkpoints and ``--resume``, several processes, mixed precision. Every random number of a run follows from the
seed and the step alone, so a checkpoint holds none of them, and an interrupted run ends with the very same weights.
"""

import argparse
import dataclasses
import hashlib
import math
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from vit_course import arguments, data, machine
from vit_course.augmentation import random_crop, random_flip
from vit_course.processes import Processes, joined
from vit_course.recipes import PRESETS, Recipe, preset
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


def run(options: argparse.Namespace, folder: RunFolder, processes: Processes) -> None:
    """Start or continue the run that the options ask for, and say how it ended."""
    if folder.started:
        config = Config.from_json(folder.config())
        if not options.resume:
            raise RunError(f"{folder.path} holds a run already: continue it with --resume, or name another --out")
        refuse_changes(options, config)
    else:
        config = new_config(options)
    result = folder.result()
    trainer = None if result else Trainer(config, folder, processes, options.checkpoint_steps)
    processes.wait()  # all have looked, and nothing was refused, before the first one writes
    if processes.first:
        if not folder.started:
            folder.start(dataclasses.asdict(config))
        folder.add_session(machine.describe(config.device) | dict(threads=config.threads, processes=processes.count))
    if trainer:
        with signals_to(trainer.request_stop):
            result = trainer.train()
    if processes.first:
        print(
            f"test accuracy {result['test_accuracy']:.2%} (validation {result['valid_accuracy']:.2%}), "
            f"{result['parameters']:,} parameters, {result['seconds'] / 60:.1f} minutes\n"
            f"the model: load_trained({str(folder.path / 'weights.safetensors')!r}) of vit_course.runs"
        )


@contextmanager
def signals_to(handler: Callable) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM call this function, as long as the context lasts."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def new_config(options: argparse.Namespace) -> Config:
    """Return the config that the options ask for, everything left open decided."""
    changes = {name: value for name, value in given(options).items() if name in RECIPE_HELP}
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    half = device.startswith("cuda") and torch.cuda.is_bf16_supported()
    return Config(
        dataset=options.dataset,
        preset=options.preset or "quick",
        seed=0 if options.seed is None else options.seed,
        device=device,
        precision=options.precision or ("bfloat16" if half else "float32"),
        threads=torch.get_num_threads() if options.threads is None else options.threads,
        compile=bool(options.compile),
        recipe=preset(options.dataset, options.preset or "quick", **changes),
    )


def refuse_changes(options: argparse.Namespace, config: Config) -> None:
    """Check that no option asks for something else than the run was started with."""
    started = dataclasses.asdict(config) | dataclasses.asdict(config.recipe)
    for name, value in given(options).items():
        if name in started and value != started[name]:
            raise RunError(
                f"this run was started with {typed(name)} {started[name]}, and {typed(name)} {value} would make it "
                f"another one: leave the option out, or train into another --out"
            )


def given(options: argparse.Namespace) -> dict:
    """Return the options that were named on the command line."""
    return {name: value for name, value in vars(options).items() if value is not None}


def typed(name: str) -> str:
    """Return an option as it is typed: ``--batch-size`` for ``batch_size``."""
    return "--" + name.replace("_", "-")


def with_typed_names(message: str, options: argparse.Namespace) -> str:
    """Return a message with the names of options as they are typed, at its start and wherever they have a ``_``."""
    return re.sub(r"^\w+|\w+_\w+", lambda word: typed(word[0]) if word[0] in options else word[0], message)


def folder_path(options: argparse.Namespace) -> Path:
    """Return where the run is, or will be."""
    name = f"{options.dataset}-{options.preset or 'quick'}-seed{options.seed or 0}"
    return Path(options.out or Path("runs", name))


RECIPE_HELP = {
    "epochs": "passes over the training images; may be a fraction",
    "batch_size": "images a step, over all processes",
    "peak_lr": "highest learning rate, after the warm-up",
    "warmup": "share of all steps in which the rate climbs to it",
    "weight_decay": "of AdamW, for weights of linear layers only",
    "label_smoothing": "share of the target spread over all classes",
    "max_grad_norm": "longer gradients are scaled down to this norm",
    "flip": "mirror every second image, at random",
    "crop": "shift every image by up to this many pixels",
    "dropout": "probability, in the model",
    "patch_size": "pixels along a patch",
    "num_layers": "encoder blocks",
    "num_heads": "attention heads",
    "hidden_dim": "width of a token",
    "mlp_dim": "width inside the MLP",
    "pool": "token or mean: what the head reads",
    "positions": "learn position embeddings",
    "valid_fraction": "share of the training images held back to choose by",
}


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    top = argparse.ArgumentParser(
        prog="python -m vit_course.train",
        usage="%(prog)s --dataset NAME [options]\n       %(prog)s --resume --out DIR",
        description="Train a Vision Transformer, and keep everything needed to repeat or continue the run.",
        epilog=(
            "examples:\n"
            "  python -m vit_course.train --dataset digits                     about a minute\n"
            "  python -m vit_course.train --dataset fashion_mnist              a few minutes\n"
            "  python -m vit_course.train --resume --out runs/fashion_mnist-quick-seed0\n"
            "  torchrun --nproc_per_node=2 -m vit_course.train --dataset fashion_mnist --threads 1\n\n"
            "Stop a run whenever you like (Ctrl-C, or worse): --resume goes on from its last checkpoint."
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    main_options = top.add_argument_group("what to train")
    main_options.add_argument("--dataset", choices=PRESETS, help="images to learn from")
    main_options.add_argument("--preset", help="; ".join(f"{name}: {', '.join(PRESETS[name])}" for name in PRESETS))
    main_options.add_argument("--seed", type=int, help="decides everything random; default 0")
    where = top.add_argument_group("where, and on what")
    where.add_argument("--out", metavar="DIR", help="the run's folder; default runs/DATASET-PRESET-seedSEED")
    where.add_argument(
        "--resume", action="store_true", help="continue the run in this folder; all else stays as it was"
    )
    where.add_argument("--threads", type=int, help="processor cores a process uses; default: as torch chooses")
    where.add_argument("--device", help="cpu, cuda, ...; default cuda where there is one")
    where.add_argument(
        "--precision", choices=("float32", "bfloat16"), help="default bfloat16 on a GPU that has it, else float32"
    )
    where.add_argument("--compile", action="store_true", default=None, help="torch.compile: slow to start, then faster")
    where.add_argument("--checkpoint-steps", type=int, default=200, help="steps between two checkpoints; default 200")
    recipe = top.add_argument_group("figures of the recipe, instead of the preset's")
    for field in dataclasses.fields(Recipe):
        flag, text = typed(field.name), RECIPE_HELP[field.name]
        if field.type is bool:
            recipe.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            recipe.add_argument(flag, type=field.type, metavar=field.type.__name__.upper(), help=text)
    return top


def main(argv: list[str] | None = None) -> None:
    """Run the command; status 0 when done, 130 when stopped, 1 with a line that says what is wrong."""
    options = parser().parse_args(argv)
    path = folder_path(options)
    if options.dataset is None and not RunFolder(path).started:
        where = f"there is no run in {path}" if options.out else "nothing to do"
        raise SystemExit(f"error: {where}: say --dataset NAME to start one, or --resume --out DIR to continue one")
    stopped = f"stopped; nothing is lost. Continue with the same command and --resume --out {path}"
    speaks = Processes.from_environment().local_rank == 0  # what is wrong for one is so for all on the machine
    try:
        with (
            joined() as processes,
            signals_to(signal.default_int_handler),
            RunFolder(path, report, writable=processes.first) as folder,
        ):
            run(options, folder, processes)
    except ConnectionError as error:
        raise SystemExit(f"error: {error}\n{stopped}") from error
    except (RunError, FloatingPointError, ValueError, OSError) as error:
        raise SystemExit(f"error: {with_typed_names(str(error), options)}" if speaks else 1) from error
    except (Stopped, KeyboardInterrupt):
        if speaks:
            print(stopped, file=sys.stderr)
        raise SystemExit(130) from None


def report(line: str) -> None:
    """Say something without breaking the progress bar."""
    tqdm.write(line, file=sys.stderr)


if __name__ == "__main__":
    main()
