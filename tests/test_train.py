"""The training command, in this process; what kills it and what spreads it is in ``tests/slow``."""

import hashlib
import json
import os
import re
import shutil
import signal
from pathlib import Path
from unittest import mock

import jaxtyping
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import TINY, assert_equal, checkpoints, outcome, records

from vit_course import VisionTransformer, data, machine, muon, training
from vit_course.augmentation import random_crop, random_flip, shrunk
from vit_course.train import loop
from vit_course.train.__main__ import main, new_config, parser
from vit_course.train.loop import Trainer
from vit_course.train.recipes import PRESETS, Config, Recipe
from vit_course.train.run_folder import RunFolder
from vit_course.transfer import AnySize
from vit_course.weights import load_trained

pytestmark = pytest.mark.usefixtures("as_readers_run_it", "threads_and_signals_as_before")
TINY = [*TINY, "--batch-size", "28"]  # of the images below; still 5 steps an epoch, and 10 images left out


@pytest.fixture(scope="module", autouse=True)
def part_of_the_digits():
    """Train on a part of the digits: 150 images, 150 held back, 60 to test."""
    whole = data.load_dataset("digits")
    about = dict(class_names=whole[0].class_names, mean=whole[0].mean, std=whole[0].std)
    part = tuple(data.LabeledImages(*each[:count], **about) for each, count in zip(whole, (300, 60), strict=True))
    with mock.patch.object(data, "load_dataset", return_value=part):
        yield


@pytest.fixture
def threads_and_signals_as_before():
    """Undo what the command does to its process: it sets the number of threads and handlers of signals."""
    threads, handlers = torch.get_num_threads(), {each: signal.getsignal(each) for each in (2, 15)}
    yield
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


def train(folder: Path, *options: str) -> Path:
    """Train the tiny run; raises ``SystemExit`` where the command would end early."""
    main([*TINY, "--out", str(folder), *options])
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the tiny run, trained without a break."""
    return train(tmp_path_factory.mktemp("runs") / "finished")


@pytest.fixture(scope="module")
def after_step_10(tmp_path_factory):
    """Return the tiny run, dead after step 10: its checkpoints are of step 10, an epoch's end, and of step 8."""
    folder, step = tmp_path_factory.mktemp("runs") / "killed", Trainer.step

    def until_step_10(trainer, batch):
        if trainer.progress.step == 10:
            raise RuntimeError("no part of the command catches this, as it would not catch a kill")
        return step(trainer, batch)

    with mock.patch.object(Trainer, "step", until_step_10), pytest.raises(RuntimeError, match="a kill"):
        train(folder)
    assert [path.stem for path in checkpoints(folder)] == ["step_000000010", "step_000000008"]
    return folder


@pytest.fixture
def killed(after_step_10, tmp_path):
    """Return a copy of that run to work on."""
    return Path(shutil.copytree(after_step_10, tmp_path / "copy"))


def refused(folder: Path, *options: str) -> str:
    """Run the command, which must end with status 1, and return what it prints."""
    with pytest.raises(SystemExit) as ended:
        train(folder, *options)
    assert isinstance(ended.value.code, str)  # Python writes it to stderr and exits with status 1
    return ended.value.code


def content(folder: Path, name: str) -> dict | list:
    return json.loads((folder / name).read_text())


def test_a_run_leaves_config_logs_checkpoints_weights_and_result(finished):
    names = ["config.json", "environment.json", "log.jsonl", "result.json", "times.jsonl", "weights.safetensors"]
    assert sorted(path.name for path in finished.glob("[!.]*")) == sorted([*names, "checkpoints"])
    assert [path.stem for path in checkpoints(finished)] == ["step_000000015", "step_000000014"]
    config = content(finished, "config.json")
    recipe = Recipe(**config.pop("recipe"))
    about = dict(dataset="digits", preset="quick", seed=0, device="cpu")
    assert config == about | dict(precision="float32", threads=1, compile=False)
    assert (recipe.batch_size, recipe.flip, recipe.peak_lr) == (28, True, PRESETS["digits"]["quick"].peak_lr)
    (session,) = content(finished, "environment.json")
    assert (session["threads"], session["processes"], session["device"]) == (1, 1, "cpu")
    assert (session["torch"], session["cores"] >= 1, len(session["processor"]) > 2) == (torch.__version__, True, True)
    columns = ["epoch", "step", "learning_rate", "train_loss", "valid_loss", "valid_accuracy"]
    assert [list(record) for record in records(finished)] == [columns] * 3
    assert all(time["images_per_second"] > 0 for time in records(finished, "times.jsonl"))


def test_the_result_is_what_the_saved_model_reaches_and_is_printed(finished, capsys):
    result = content(finished, "result.json")
    model, about = load_trained(finished / "weights.safetensors")
    train_set, test_set = data.load_dataset("digits")
    mean, std = (torch.tensor(about[name])[:, None, None] for name in ("mean", "std"))
    with torch.no_grad():
        logits = model((test_set.images - mean) / std)
    accuracy = (logits.argmax(-1) == test_set.labels).double().mean().item()
    assert result["test_accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert result["test_loss"] == pytest.approx(F.cross_entropy(logits, test_set.labels).item(), rel=1e-5)
    assert (about["dataset"], tuple(about["class_names"])) == ("digits", train_set.class_names)
    assert {name: result[name] for name in ("valid_loss", "valid_accuracy")}.items() <= records(finished)[-1].items()
    assert result["images"] == dict(train=150, valid=150, test=60)
    assert result["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert result["weights_sha256"] == hashlib.sha256((finished / "weights.safetensors").read_bytes()).hexdigest()
    main(["--resume", "--out", str(finished)])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"test accuracy {accuracy:.2%} (validation {result['valid_accuracy']:.2%}), ")
    assert f"{result['parameters']:,} parameters" in first
    assert f"load_trained('{finished / 'weights.safetensors'}')" in second
    assert len(content(finished, "environment.json")) == 1  # nothing was trained


def test_a_clone_that_is_not_installed_trains_and_says_so_by_default_in_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "distributions", lambda name: [])
    monkeypatch.chdir(tmp_path)
    main([*TINY, "--epochs", "0.2", "--seed", "4"])
    (session,) = content(tmp_path / "runs" / "digits-quick-seed4", "environment.json")
    assert session["vit_course"] == "not installed"


def test_the_test_images_are_looked_at_once_at_the_end(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(loop, "evaluate", lambda model, dataset: seen.append(len(dataset)) or (0.0, 0.0))
    train(tmp_path)
    assert seen == [150, 150, 150, 60]


def by_hand(config: Config) -> tuple[VisionTransformer, list[float], tuple[float, float]]:
    """Train as the config says in one plain loop; return the model, every step's loss, validation loss and accuracy."""
    recipe = config.recipe

    def generator(*purpose):
        digest = hashlib.sha256(repr((config.seed, *purpose)).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))

    train_set, valid_set = data.load_dataset(config.dataset)[0].normalized().split(recipe.valid_fraction)
    torch.manual_seed(config.seed)
    sizes = {name: getattr(recipe, name) for name in loop.MODEL_SETTINGS}
    model = VisionTransformer(**sizes, image_size=(8, 8), in_channels=1, num_classes=10)
    if not recipe.positions:
        model.embedding.pos_embedding.requires_grad_(False).zero_()
    optimizer = dict(
        adamw=lambda: torch.optim.AdamW(training.parameter_groups(model, recipe.weight_decay), fused=True),
        muon=lambda: muon.Muon(muon.muon_groups(model, recipe.weight_decay), fused=True),
    )[recipe.optimizer]()
    steps, losses = round(recipe.epochs * 5), []
    for step in range(steps):
        order = torch.randperm(150, generator=generator("order", step // 5))
        images, labels = train_set[order[28 * (step % 5) : 28 * (step % 5 + 1)]]
        draw = generator("augmentation", step)
        images = random_flip(images, draw) if recipe.flip else images
        images = random_crop(images, recipe.crop, draw) if recipe.crop else images
        torch.manual_seed(generator("dropout", step, 0).initial_seed())
        schedule = dict(total_steps=steps, warmup_steps=round(recipe.warmup * steps), peak=recipe.peak_lr)
        rate = training.learning_rate_schedule(step, **schedule)
        if recipe.cooldown and step >= schedule["warmup_steps"]:
            rate = recipe.peak_lr * np.interp(step, [(1 - recipe.cooldown) * steps, steps], [1, 0])
        for group in optimizer.param_groups:
            group["lr"] = rate
        options = dict(label_smoothing=recipe.label_smoothing, max_grad_norm=recipe.max_grad_norm)
        if step < recipe.small_share * steps:
            images = shrunk(images, recipe.small_side)
        losses.append(training.regularized_train_step(AnySize(model), optimizer, images, labels, **options))
    return model, losses, training.evaluate(AnySize(model), valid_set)


RUNS = {
    "everything on": "--flip --crop 2 --dropout 0.2 --label-smoothing 0.2 --max-grad-norm 0.3 --warmup 0.3 "
    "--weight-decay 0.5 --no-positions --pool mean --epochs 2.6 --seed 5",
    "Muon, smaller images and a cooldown": "--optimizer muon --small-share 0.7 --small-side 4 --cooldown 0.5 "
    "--positions --pool mean --max-grad-norm 1000 --warmup 0.2 --epochs 2",
    "everything off": "--no-flip --crop 0 --dropout 0 --label-smoothing 0 --max-grad-norm 1000 --warmup 0 "
    "--weight-decay 0 --positions --pool token --epochs 2",
}


@pytest.mark.parametrize("options", RUNS.values(), ids=RUNS)
def test_training_equals_a_plain_loop(options, tmp_path):
    folder = train(tmp_path, "--resume", *options.split())  # which starts a run where there is none
    stored = content(folder, "config.json")
    expected, losses, validated = by_hand(Config(**stored | dict(recipe=Recipe(**stored["recipe"]))))
    assert_equal(load_trained(folder / "weights.safetensors")[0].state_dict(), expected.state_dict(), atol=0)
    log, parts = records(folder), [losses[start : start + 5] for start in range(0, len(losses), 5)]
    assert [record["train_loss"] for record in log] == pytest.approx([sum(part) / len(part) for part in parts])
    assert (log[-1]["valid_loss"], log[-1]["valid_accuracy"]) == validated
    assert [record["step"] for record in log] == [*range(5, len(losses), 5), len(losses)]
    last_rate = pytest.approx(stored["recipe"]["peak_lr"] / 5) if "cooldown" in options else 0
    assert log[-1]["learning_rate"] == last_rate


def test_mixed_precision_multiplies_in_bfloat16_and_keeps_the_rest(finished, tmp_path):
    plain, mixed = (
        Trainer(new_config(parser().parse_args([*TINY, "--precision", precision])), RunFolder(tmp_path))
        for precision in ("float32", "bfloat16")
    )
    for set_up in (plain, mixed):
        torch.nn.init.normal_(set_up.model.head.weight, generator=torch.Generator().manual_seed(0))
        set_up.model.eval()
    exact, logits = (set_up.any_size(plain.train_set.images[:64]) for set_up in (plain, mixed))
    assert logits.dtype == torch.float32
    assert 1e-4 < (logits - exact).abs().max() / exact.abs().max() < 0.03
    mixed.step(torch.arange(28))
    for parameter in mixed.model.parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
    jaxtyping.config.update("jaxtyping_disable", False)  # a run with its types checked
    ours, theirs = (records(run)[-1] for run in (train(tmp_path, "--precision", "bfloat16"), finished))
    assert ours["train_loss"] != theirs["train_loss"]
    assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=0.01)


def test_a_killed_run_ends_as_if_nothing_had_happened(killed, finished, capsys):
    main(["--resume", "--out", str(killed)])
    assert outcome(killed) == outcome(finished)
    assert capsys.readouterr().err.splitlines()[0].strip() == "continuing after step 10 of 15"
    assert len(content(killed, "environment.json")) == 2
    times = records(killed, "times.jsonl")
    assert [time["epoch"] for time in times] == [1, 2, 3]
    seconds = [time["seconds"] for time in times]
    assert seconds == sorted(seconds)  # the second session goes on counting where the first was
    assert content(killed, "result.json")["seconds"] >= seconds[-1]


def test_a_damaged_checkpoint_is_named_and_the_older_one_leads_to_the_same_result(killed, finished, capsys):
    last, older = checkpoints(killed)
    last.write_bytes(last.read_bytes()[:-1])
    before = older.read_bytes()
    older.write_bytes(before[:-1])
    named = f"error: {last} cannot be read: .*; {older} cannot be read: .*Delete what is damaged to train"
    assert re.match(named, refused(killed, "--resume"))
    older.write_bytes(before)
    train(killed, "--resume")
    line = next(line for line in capsys.readouterr().err.splitlines() if "continuing" in line)
    assert f"continuing after step 8 of 15, because {last} cannot be read: it is not a whole safetensors file" in line
    assert outcome(killed) == outcome(finished)


CHANGED = [  # what is replaced in config.json, what is then said, and the options that lead to it
    ('"crop": 1', '"crop": 2', ".*step_000000010.safetensors is of a run with another config.json: put that one"),
    ('"crop": 1', '"crops": 1', "config.json is not of this version of the course, or was changed: .*'crops'"),
    ('"device": "cpu"', '"device": "gpu"', "--device must be one that this machine has; got 'gpu'"),
    ('"dataset"', "dataset", ".*config.json is damaged .*: put it back, or choose another --out"),
    # an older version did not store it
    ('"cooldown": 0.0,', "", "this run was started with --cooldown 0.0, not 0.5", "--cooldown", "0.5"),
]


@pytest.mark.parametrize(("old", "new", "message", "options"), [(*case[:3], case[3:]) for case in CHANGED])
def test_a_changed_config_is_refused(old, new, message, options, killed):
    config = killed / "config.json"
    config.write_text(config.read_text().replace(old, new))
    with pytest.raises(SystemExit, match=f"error: {message}"):
        main(["--resume", "--out", str(killed), *options])


def test_every_option_that_decides_the_result_must_stay(finished):
    stored = content(finished, "config.json")
    settings = stored | stored.pop("recipe")
    assert set(settings) == {*Config.__dataclass_fields__, *Recipe.__dataclass_fields__} - {"recipe"}
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        other = "another" if isinstance(value, str) else str(value + 1)
        words = [flag.replace("--", "--no-") if value else flag] if isinstance(value, bool) else [flag, other]
        said = refused(finished, "--resume", *words)
        assert re.search(rf"this run was started with {flag} {value}, not .*: omit the option", said)


def test_without_a_run_and_a_data_set_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, message in (("--resume", "nothing to do"), ("--out nowhere", "there is no run in nowhere")):
        with pytest.raises(SystemExit, match=f"error: {message}: use --dataset NAME to start a run"):
            main(words.split())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_a_run_or_is_in_use_is_refused(killed, finished, tmp_path):
    swept = shutil.copytree(finished, tmp_path / "weight_decay")  # a name like an option's
    for folder in (killed, finished, swept):
        before = outcome(finished), (folder / "log.jsonl").read_bytes()
        said = refused(folder)
        assert said == f"error: {folder} already contains a run: continue it with --resume, or choose another --out"
        assert (outcome(finished), (folder / "log.jsonl").read_bytes()) == before
    with RunFolder(killed).locked():
        assert refused(killed, "--resume") == f"error: {killed} is in use: another process is training there"


def test_a_folder_or_a_file_that_cannot_be_written_is_named_and_the_old_file_stays(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.write_json("config.json", dict(seed=3))
    with pytest.raises(ValueError, match=r"--out must be a folder that can be written to; .*config.json is not"):
        RunFolder(tmp_path / "config.json").locked()
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(ValueError, match=r"config.json cannot be written: .*No space left.*; continue with --resume"):
        folder.write_json("config.json", dict(other=1))
    assert folder.read_json("config.json") == dict(seed=3)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


FIGURES = {
    "--dataset mnist": "--dataset must be one of 'digits', 'fashion_mnist', 'cifar10'; got 'mnist'",
    "--precision half": "--precision must be one of 'float32', 'bfloat16'; got 'half'",
    "--epochs 0": "--epochs must be a finite number above 0; got 0.0",
    "--batch-size 151": "--batch-size must be at most 150, the images to train on, .*; got 151",
    "--dropout nan": "--dropout must be at least 0 and less than 1; got nan",
    "--warmup 1": "--warmup must be at least 0 and less than 1; got 1.0",
    "--cooldown 0.95": "--cooldown must be at most 1 - warmup=0.9; got 0.95",
    "--crop -1": "--crop must be a whole number of at least 0; got -1",
    "--valid-fraction 0": "--valid-fraction must be a finite number above 0; got 0.0",
    "--patch-size 3": "image_size must be divisible by --patch-size=3; got 8 x 8",
    "--num-heads 3": "--hidden-dim must be divisible by --num-heads=3; got 16",
    "--optimizer sgd": "--optimizer must be one of 'adamw', 'muon'; got 'sgd'",
    "--small-share 0.5 --patch-size 0": "--patch-size must be a whole number of at least 1; got 0",
    "--small-share 0.5 --small-side 6": "--small-side must be divisible by --patch-size=4; got 6",
    f"--seed {2**63}": r"--seed must be at most 2\*\*63 - 1=9223372036854775807; got 9223372036854775808",
    "--device gpu": "--device must be one that this machine has; got 'gpu': ",
    "--checkpoint-steps 0": "--checkpoint-steps must be a whole number of at least 1; got 0",
}


@pytest.mark.parametrize("words", FIGURES)
def test_a_bad_figure_is_named_as_it_was_typed_and_no_run_is_started(words, tmp_path):
    assert re.match(f"error: {FIGURES[words]}", refused(tmp_path, *words.split()))
    assert not (tmp_path / "config.json").exists()  # the right command may follow without --resume


def test_a_loss_that_is_not_finite_stops_the_run_with_advice(tmp_path):
    said = refused(tmp_path, "--peak-lr", "1e30", "--max-grad-norm", "1e30")
    pattern = r"error: the loss is (nan|inf) at step (\d+) of 15. Train again with --peak-lr below 1e\+30, into .*--out"
    assert 1 < int(re.fullmatch(pattern, said)[2]) <= 15
    assert not (tmp_path / "result.json").exists()


# a second signal does not wait for the seventh step
@pytest.mark.parametrize(("number", "times", "last"), [(signal.SIGTERM, 1, 7), (signal.SIGINT, 2, 6)])
def test_a_signal_stops_the_run_and_loses_nothing(number, times, last, finished, tmp_path, capsys):
    steps, real = [], loop.regularized_train_step

    def stopped_at_step_7(*arguments, **options):
        steps.append(1)
        for _ in range(times if len(steps) == 7 else 0):
            os.kill(os.getpid(), number)
        return real(*arguments, **options)

    with mock.patch.object(loop, "regularized_train_step", stopped_at_step_7), pytest.raises(SystemExit) as ended:
        train(tmp_path)
    assert ended.value.code == 130
    line = f"stopped; no progress is lost. Continue with the same command and --resume --out {tmp_path}"
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert (len(steps), checkpoints(tmp_path)[0].stem) == (7, f"step_00000000{last}")
    assert outcome(train(tmp_path, "--resume")) == outcome(finished)
