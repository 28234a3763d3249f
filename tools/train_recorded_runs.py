"""Train every recorded run with the training command, and keep what it logged: one line a run, in ``resources/runs``.

    python -m tools.train_recorded_runs             all of them: about a day on two cores
    python -m tools.train_recorded_runs cifar10     one group: digits, fashion_mnist, cifar10, best, published,
                                                    ablation, best_ablation, full_ablation

Runs go one after another, so that none slows another down; those of the ablations, which use one core each, two at
a time. A run is recorded when it ends, one that was interrupted is resumed, and a finished one is read again: delete
``runs/recorded`` to train anew.
The weights of the long run on Fashion-MNIST are copied to ``resources/fashion_mnist_patch4.safetensors``, and
``write_run_pages.py`` writes ``README.md`` and that model's card from the lines.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from tools.write_run_pages import RUNS, SHIPPED, write_pages
from vit_course.atomic import replacing

FOLDERS = Path(__file__).resolve().parents[1] / "runs" / "recorded"
AT_ONCE = 2  # runs of the ablations, which use one core each; all others have the machine to themselves
TWO_PROCESSES = (SHIPPED, "best-", "published-")  # how the names of runs begin that are shared out
EPOCHS = {14: 8, 7: 4, 4: 1.2}  # of the first ablation, by patch size: less than a minute each, by the times in the log
ABLATION = {  # the quick preset of Fashion-MNIST, and what is changed
    "the preset": "",
    "AdamW": "--optimizer adamw --peak-lr 3e-3",
    "no positions": "--no-positions",
    "class token": "--pool token",
    "no shifts": "--crop 0",
    "mirror images": "--flip",
    "no label smoothing": "--label-smoothing 0",
    "no warm-up": "--warmup 0",
    "no weight decay": "--weight-decay 0",
    "patch 7": "--patch-size 7",
    "patch 4": "--patch-size 4",
}
LARGE = "large images from the first step on"
ABLATION_OF_BEST = {  # the preset best of CIFAR-10, a fifth of its epochs, and what is changed
    "the preset": "--epochs 4",
    "cosine after the warm-up": "--cooldown 0 --epochs 4",
    "AdamW for all parameters": "--epochs 4 --optimizer adamw --peak-lr 2e-3",
    LARGE: "--epochs 1.4 --small-share 0",  # what the same minutes allow
    "class token": "--epochs 4 --pool token",
    "no positions": "--epochs 4 --no-positions",
    "no shifts": "--epochs 4 --crop 0",
    "no mirror images": "--epochs 4 --no-flip",
    "no warm-up": "--epochs 4 --warmup 0",
    "no weight decay": "--epochs 4 --weight-decay 0",
    "no label smoothing": "--epochs 4 --label-smoothing 0",
}
# and those that are also trained for all 20 epochs
FULL_LENGTH = [change for change in ABLATION_OF_BEST if change not in ("the preset", LARGE)]
# What other pages train on CIFAR-10, with the course's model and trainer: size of the model, dropout, optimizer (Adam's
# weight decay as AdamW's), learning rate, warm-up, batch, label smoothing, mirror images and shifts, no clipping. The
# schedule is shortened to the epochs that two cores train in half an hour; strong augmentation, stochastic depth and
# attention dropout, which are meant for hundreds of epochs, are left out.
COMMON = "--max-grad-norm 1e9 --flip"
PUBLISHED = {
    "uva15": "--epochs 3.3 --num-layers 6 --num-heads 8 --hidden-dim 256 --mlp-dim 512 --dropout 0.2 --batch-size 128 "
    "--peak-lr 3e-4 --warmup 0 --weight-decay 0.01 --label-smoothing 0",
    "kentaroy47": "--epochs 0.8 --num-layers 6 --num-heads 8 --hidden-dim 512 --mlp-dim 512 --dropout 0.1 "
    "--batch-size 512 --peak-lr 1e-4 --warmup 0 --weight-decay 0 --label-smoothing 0 --crop 4",
    "vit_cifar": "--epochs 1.9 --num-layers 7 --num-heads 12 --hidden-dim 384 --mlp-dim 384 --batch-size 128 "
    "--peak-lr 1e-3 --warmup 0.025 --weight-decay 5e-5 --crop 4",
    "vit_lite": "--epochs 3.4 --num-layers 7 --num-heads 4 --hidden-dim 256 --mlp-dim 512 --batch-size 128 "
    "--peak-lr 5e-4 --warmup 0.025 --weight-decay 0.03 --crop 4",
    "spt_lsa": "--epochs 4 --num-layers 9 --num-heads 12 --hidden-dim 192 --mlp-dim 384 --batch-size 128 "
    "--peak-lr 1e-3 --warmup 0.1 --weight-decay 0.05 --crop 4",
}


def recorded_runs() -> dict[str, dict[str, str]]:
    """Return, for every group, the runs by name, and the options of each."""
    clothes = "--dataset fashion_mnist"
    return {
        "digits": {f"digits-seed{seed}": f"--dataset digits --threads 1 --seed {seed}" for seed in range(5)},
        "fashion_mnist": {SHIPPED: f"{clothes} --preset long --threads 1 --seed 0"}
        | {f"fashion_mnist-seed{seed}": f"{clothes} --threads 2 --seed {seed}" for seed in range(5)},
        "cifar10": {"cifar10-long-seed0": "--dataset cifar10 --preset long --threads 1 --seed 0"},
        "best": {
            f"best-{dataset}-seed{seed}": f"--dataset {dataset} --preset best --threads 1 --seed {seed}"
            for dataset in ("cifar10", "fashion_mnist")
            for seed in range(5)
        },
        "published": {
            f"published-{name}-seed0": f"--dataset cifar10 --preset long --threads 1 {options} {COMMON} --seed 0"
            for name, options in PUBLISHED.items()
        },
        "ablation": {
            f"{change}, seed {seed}": f"{clothes} --threads 1 --epochs {epochs(options):g} {options} --seed {seed}"
            for seed in range(3)  # seeds outside, so that a slow hour of the machine hits all changes alike
            for change, options in ABLATION.items()
        },
        "best_ablation": {
            f"best, {change}, seed {seed}": f"--dataset cifar10 --preset best --threads 1 {options} --seed {seed}"
            for seed in range(3)
            for change, options in ABLATION_OF_BEST.items()
        },
        "full_ablation": {
            f"best, {change}, 20 epochs, seed {seed}": f"--dataset cifar10 --preset best --threads 1 "
            f"{ABLATION_OF_BEST[change].replace('--epochs 4', '').strip()} --seed {seed}"
            for change in FULL_LENGTH
            for seed in range(3)
        },
    }


def epochs(options: str) -> float:
    """Return how many epochs of a run of the ablation its budget buys: longer sequences cost more."""
    return next((EPOCHS[size] for size in EPOCHS if f"--patch-size {size}" in options), EPOCHS[14])


def folder_name(name: str) -> str:
    """Return a run's folder: its name without spaces."""
    return name.replace(", ", "-").replace(" ", "_")


def command_line(name: str, options: str) -> str:
    """Return the command of a run, as one types it."""
    launcher = "torchrun --nproc_per_node=2" if name.startswith(TWO_PROCESSES) else "python"
    return f"{launcher} -m vit_course.train {options}"


def record(name: str, options: str) -> dict:
    """Train, or read again what was trained, and return its line."""
    folder = FOLDERS / folder_name(name)
    load_before = os.getloadavg()[0]
    launcher, *words = shlex.split(command_line(name, options))
    launch = {"python": [], "torchrun": ["-m", "torch.distributed.run"]}[launcher]
    subprocess.run([sys.executable, *launch, *words, "--resume", "--out", str(folder)], check=True)
    if name == SHIPPED:
        shutil.copyfile(folder / "weights.safetensors", RUNS.parent / "fashion_mnist_patch4.safetensors")
    part = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.json*")}
    return dict(
        name=name,
        command=command_line(name, options),
        config=json.loads(part["config"]),
        sessions=json.loads(part["environment"]),
        load_before=load_before,
        log=[json.loads(line) for line in part["log"].splitlines()],
        times=[json.loads(line) for line in part["times"].splitlines()],
        result=json.loads(part["result"]),
    )


def record_unless_known(name: str, options: str, old: dict[str, dict]) -> dict:
    """Return the line of a run that is finished and recorded, or record it."""
    finished = (FOLDERS / folder_name(name) / "result.json").exists()
    line = old[name] if finished and name in old else record(name, options)
    print(f"{name}: test accuracy {line['result']['test_accuracy']:.2%}", flush=True)
    return line


def main() -> None:
    """Make the groups named on the command line, or all of them."""
    groups = recorded_runs()
    for group in sys.argv[1:] or groups:
        path = RUNS / f"{group}_runs.jsonl"
        stored = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
        old = {line["name"]: line for line in stored}
        with ThreadPoolExecutor(AT_ONCE if group.endswith("ablation") else 1) as pool:
            for line in pool.map(record_unless_known, groups[group], groups[group].values(), repeat(dict(old))):
                old[line["name"]] = line
                lines = [old[name] for name in groups[group] if name in old]
                with replacing(path) as partial:
                    partial.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    write_pages()


if __name__ == "__main__":
    main()
