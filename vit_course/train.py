"""The training command: ``python -m vit_course.train --dataset fashion_mnist``.

What is typed becomes a config and a :class:`vit_course.trainer.Trainer`; a run's folder, signals, several processes and
what is said when something is wrong are looked after here.
"""

import argparse
import dataclasses
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from tqdm import tqdm

from vit_course import machine
from vit_course.processes import Processes, joined
from vit_course.recipes import PRESETS, Recipe, preset
from vit_course.runs import RunError, RunFolder
from vit_course.trainer import Config, Stopped, Trainer


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
    session = machine.describe(config.device) | dict(threads=config.threads, processes=processes.count)
    processes.wait()  # all have looked, and nothing was refused, before the first one writes
    if processes.first:
        if not folder.started:
            folder.start(dataclasses.asdict(config))
        folder.add_session(session)
    if trainer:
        with signals_to(trainer.request_stop):
            result = trainer.train()
    if processes.first:
        print(
            f"test accuracy {result['test_accuracy']:.2%} (validation {result['valid_accuracy']:.2%}), "
            f"{result['parameters']:,} parameters, {result['seconds'] / 60:.1f} minutes\n"
            f"in Python: from vit_course.runs import load_trained; "
            f"model, about = load_trained({str(folder.path / 'weights.safetensors')!r})"
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
