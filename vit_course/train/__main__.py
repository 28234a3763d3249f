"""The command ``python -m vit_course.train``: its options, what stops it, and what it prints."""

import argparse
import re
import signal
import sys
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path

import torch

from vit_course.train.loop import Trainer
from vit_course.train.processes import Processes, process_group
from vit_course.train.recipes import Config, Recipe, preset
from vit_course.train.run_folder import RunFolder, describe

EPILOG = """examples:
  python -m vit_course.train --dataset digits                     about a minute
  python -m vit_course.train --dataset fashion_mnist              a few minutes
  python -m vit_course.train --resume --out runs/fashion_mnist-quick-seed0
  torchrun --nproc_per_node=2 -m vit_course.train --dataset fashion_mnist --threads 1

Stop a run whenever you like (Ctrl-C, or worse): --resume goes on from its last checkpoint."""


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    top = argparse.ArgumentParser(
        prog="python -m vit_course.train",
        usage="%(prog)s --dataset NAME [options]\n       %(prog)s --resume --out DIR",
        description="Train a Vision Transformer, and keep everything needed to repeat or continue the run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--out", metavar="DIR", help="the run's folder; default runs/DATASET-PRESET-seedSEED")
    top.add_argument("--resume", action="store_true", help="continue the run in this folder; all else stays as it was")
    top.add_argument("--checkpoint-steps", type=int, default=200, help="steps between two checkpoints; default 200")
    for title, kind in (("what to train, and on what", Config), ("instead of the preset's settings", Recipe)):
        group = top.add_argument_group(title)
        for field in (field for field in fields(kind) if "help" in field.metadata):
            how = dict(type=field.type, metavar=field.type.__name__.upper())
            if field.type is bool:
                how = dict(action=argparse.BooleanOptionalAction, default=None)
            group.add_argument(_typed(field.name), help=field.metadata["help"], **how)
    return top


def main(argv: list[str] | None = None) -> None:
    """Run the command; status 0 when done, 130 when stopped, 1 with a line that says what is wrong."""
    options = parser().parse_args(argv)
    path = folder_path(options)
    if options.dataset is None and not RunFolder(path).has("config.json"):
        where = f"there is no run in {path}" if options.out else "nothing to do"
        raise SystemExit(f"error: {where}: say --dataset NAME to start one, or --resume --out DIR to continue one")
    stopped = f"stopped; nothing is lost. Continue with the same command and --resume --out {path}"
    prints = Processes.from_environment().local_rank == 0  # an error of one process is one of all on this machine
    _on_signals(signal.default_int_handler)
    try:
        with process_group() as processes:
            folder = RunFolder(path)
            with folder.locked() if processes.first else nullcontext():
                run(options, folder, processes)
    except ConnectionError as error:
        raise SystemExit(f"error: {error}\n{stopped}") from error
    except (FloatingPointError, ValueError, OSError) as error:
        # options are named as they are typed, at the start of a message and wherever they have an underscore
        message = re.sub(r"^\w+|\w+_\w+", lambda word: _typed(word[0]) if word[0] in options else word[0], str(error))
        raise SystemExit(f"error: {message}" if prints else 1) from error
    except KeyboardInterrupt:
        if prints:
            print(stopped, file=sys.stderr)
        raise SystemExit(130) from None


def run(options: argparse.Namespace, folder: RunFolder, processes: Processes) -> None:
    """Start or continue the run that the options ask for, and print its result."""
    started = folder.has("config.json")
    if started and not options.resume:
        raise ValueError(f"{folder.path} holds a run already: continue it with --resume, or name another --out")
    config = _stored_config(options, folder) if started else new_config(options)
    trainer = None if folder.has("result.json") else Trainer(config, folder, processes, options.checkpoint_steps)
    session = describe(config.device) | dict(threads=config.threads, processes=processes.count)
    processes.wait()  # nothing is written before all processes have accepted the run
    if processes.first:
        sessions = folder.read_json("environment.json") if folder.has("environment.json") else []
        folder.write_json("environment.json", [*sessions, session])
        folder.write_json("config.json", asdict(config))
    if trainer:
        _on_signals(trainer.request_stop)
        trainer.train()
    if processes.first:
        result = folder.read_json("result.json")
        print(
            f"test accuracy {result['test_accuracy']:.2%} (validation {result['valid_accuracy']:.2%}), "
            f"{result['parameters']:,} parameters, {result['seconds'] / 60:.1f} minutes\n"
            f"in Python: from vit_course.weights import load_trained; "
            f"model, about = load_trained({str(folder.path / 'weights.safetensors')!r})"
        )


def new_config(options: argparse.Namespace) -> Config:
    """Return the config that the options ask for, with the defaults of all that they leave open."""
    given = _given(options)
    name = given.get("preset", "quick")
    recipe = preset(options.dataset, name, **{key: given[key] for key in given if key in Recipe.__dataclass_fields__})
    device = given.get("device", "cuda" if torch.cuda.is_available() else "cpu")
    half = device.startswith("cuda") and torch.cuda.is_bf16_supported()
    open_ones = dict(preset=name, seed=0, device=device, precision="bfloat16" if half else "float32", compile=False)
    config = open_ones | dict(threads=torch.get_num_threads()) | given
    return Config(recipe=recipe, **{key: config[key] for key in Config.__dataclass_fields__ if key != "recipe"})


def folder_path(options: argparse.Namespace) -> Path:
    """Return the folder of the run."""
    name = f"{options.dataset}-{options.preset or 'quick'}-seed{options.seed or 0}"
    return Path(options.out or Path("runs", name))


def _stored_config(options: argparse.Namespace, folder: RunFolder) -> Config:
    stored = folder.read_json("config.json")
    config = Config(**stored | dict(recipe=Recipe(**stored["recipe"])))
    for name, value in _given(options).items():
        before = (asdict(config) | stored["recipe"]).get(name, value)
        if value != before:
            raise ValueError(
                f"this run was started with {_typed(name)} {before}, and {_typed(name)} {value} would make it another "
                "one: leave the option out, or train into another --out"
            )
    return config


def _on_signals(handler) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _given(options: argparse.Namespace) -> dict:
    return {name: value for name, value in vars(options).items() if value is not None}


def _typed(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    main()
