"""The command ``python -m vit_course.train``: its options, its signals and its messages."""

import argparse
import re
import signal
import sys
from contextlib import nullcontext
from dataclasses import asdict, fields

import torch

from vit_course.machine import describe
from vit_course.train.loop import Trainer
from vit_course.train.processes import Processes
from vit_course.train.recipes import Config, Recipe, preset
from vit_course.train.run_folder import RunFolder

EPILOG = """examples:
  python -m vit_course.train --dataset digits                     about a minute
  python -m vit_course.train --dataset fashion_mnist              a few minutes
  python -m vit_course.train --resume --out runs/fashion_mnist-quick-seed0
  torchrun --nproc_per_node=2 -m vit_course.train --dataset fashion_mnist --threads 1

You can stop a run at any time, for example with Ctrl-C. --resume continues it from its last checkpoint."""

OPTION = re.compile(r"(^\w+|(?<![\w/\\.-])\w+_\w+)(?![\w/\\-])")  # in a message; not a part of a path


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    top = argparse.ArgumentParser(
        prog="python -m vit_course.train",
        usage="%(prog)s --dataset NAME [options]\n       %(prog)s --resume --out DIR",
        description="Train a Vision Transformer and store everything that is needed to repeat or continue the run.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/DATASET-PRESET-seedSEED)")
    top.add_argument("--resume", action="store_true", help="continue the run in this folder with its settings")
    top.add_argument("--checkpoint-steps", type=int, default=200, help="steps between two checkpoints (default: 200)")
    for title, kind in (("data and machine", Config), ("settings that replace those of the preset", Recipe)):
        group = top.add_argument_group(title)
        for field in (field for field in fields(kind) if "help" in field.metadata):
            how = dict(type=field.type, metavar=field.type.__name__.upper())
            if field.type is bool:
                how = dict(action=argparse.BooleanOptionalAction, default=None)
            group.add_argument(_typed(field.name), help=field.metadata["help"], **how)
    return top


def main(argv: list[str] | None = None) -> None:
    """Run the command; exit with status 0 when done, 130 when stopped, and 1 after printing an error."""
    options, processes = parser().parse_args(argv), Processes()
    folder = RunFolder(options.out or f"runs/{options.dataset}-{options.preset or 'quick'}-seed{options.seed or 0}")
    stopped = f"stopped; no progress is lost. Continue with the same command and --resume --out {folder.path}"
    prints = processes.local_rank == 0  # an error of one process is one of all on this machine
    _on_signals(signal.default_int_handler)
    try:
        if options.dataset is None and not folder.read_json("config.json"):
            where = f"there is no run in {folder.path}" if options.out else "nothing to do"
            raise ValueError(f"{where}: use --dataset NAME to start a run, or --resume --out DIR to continue one")
        with processes.connected(), folder.locked() if processes.first else nullcontext():
            run(options, folder, processes)
    except ConnectionError as error:
        raise SystemExit(f"error: {error}\n{stopped}") from error
    except (FloatingPointError, ValueError, OSError) as error:
        # options are named as they are typed
        message = OPTION.sub(lambda word: _typed(word[0]) if word[0] in options else word[0], str(error))
        raise SystemExit(f"error: {message}" if prints else 1) from error
    except KeyboardInterrupt:
        if prints:
            print(stopped, file=sys.stderr)
        raise SystemExit(130) from None


def run(options: argparse.Namespace, folder: RunFolder, processes: Processes) -> None:
    """Start or continue the run that the options describe, and print its result."""
    stored, result = folder.read_json("config.json"), folder.read_json("result.json")
    if stored and not options.resume:
        raise ValueError(f"{folder.path} already contains a run: continue it with --resume, or choose another --out")
    config = new_config(options, stored)
    trainer = None if result else Trainer(config, folder, options.checkpoint_steps)
    session = describe(config.device) | dict(threads=config.threads, processes=processes.count)
    processes.means(0.0)  # nothing is written before all processes have accepted the run
    if processes.first and trainer:
        folder.write_json("environment.json", [*(folder.read_json("environment.json") or []), session])
        folder.write_json("config.json", stored or asdict(config))  # an older version may have stored fewer settings
    if trainer:
        _on_signals(trainer.request_stop)
        result = trainer.train()
    if processes.first:
        print(
            f"test accuracy {result['test_accuracy']:.2%} (validation {result['valid_accuracy']:.2%}), "
            f"{result['parameters']:,} parameters, {result['seconds'] / 60:.1f} minutes\n"
            f"in Python: from vit_course.weights import load_trained; "
            f"model, about = load_trained({str(folder.path / 'weights.safetensors')!r})"
        )


def new_config(options: argparse.Namespace, stored: dict | None = None) -> Config:
    """Return the stored config, which the options must not change; without one, that of the options and defaults."""
    names = {field.name for kind in (Config, Recipe) for field in fields(kind)}
    given = {name: value for name, value in vars(options).items() if name in names and value is not None}
    if stored:
        try:
            config = Config(**stored | dict(recipe=Recipe(**stored["recipe"])))
        except (KeyError, TypeError) as error:
            raise ValueError(f"config.json is not of this version of the course, or was changed: {error}") from error
        before = vars(config) | vars(config.recipe)
        for name in (name for name, value in given.items() if value != before[name]):
            setting = f"{_typed(name)} {before[name]}, not {given[name]}"
            raise ValueError(f"this run was started with {setting}: omit the option, or choose another --out")
        return config
    recipe = {field.name: given.pop(field.name) for field in fields(Recipe) if field.name in given}
    device = given.get("device", "cuda" if torch.cuda.is_available() else "cpu")
    half = device.startswith("cuda") and torch.cuda.is_bf16_supported()
    defaults = dict(device=device, precision="bfloat16" if half else "float32", threads=torch.get_num_threads())
    return Config(**defaults | given, recipe=preset(options.dataset, given.get("preset", "quick"), **recipe))


def _on_signals(handler) -> None:
    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)


def _typed(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    main()
