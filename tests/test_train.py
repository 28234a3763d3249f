"""The training command, in this process; what kills it and what spreads it is in ``tests/slow``."""

import hashlib
import json
import math
import os
import pickle
import re
import shlex
import shutil
import signal
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from support import assert_equal, parameters_of
from training_runs import TINY, checkpoints, outcome

from vit_course import VisionTransformer, data
from vit_course.data import LabelledImages
from vit_course.train import __main__ as command
from vit_course.train import loop, run_folder
from vit_course.train.__main__ import main, parser
from vit_course.train.loop import Trainer
from vit_course.train.recipes import PRESETS, Config, Recipe
from vit_course.train.run_folder import RunFolder
from vit_course.weights import load_trained

pytestmark = pytest.mark.usefixtures("as_readers_run_it", "threads_and_signals_as_before")
TINY = [*TINY, "--batch-size", "28"]  # of the images below; still 5 steps an epoch, and 10 images left out
CLEAN = "--no-flip --crop 0 --dropout 0"
SHORT = "--epochs 2 --batch-size 64 --checkpoint-steps 1"  # two steps an epoch


@pytest.fixture(scope="module", autouse=True)
def part_of_the_digits():
    """Train on a part of the digits: 150 images, 150 held back, 60 to test."""
    whole = data.load_dataset("digits")
    about = dict(class_names=whole[0].class_names, mean=whole[0].mean, std=whole[0].std)
    part = tuple(LabelledImages(*each[:count], **about) for each, count in zip(whole, (300, 60), strict=True))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(data, "load_dataset", lambda name: part)
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


class Killed(BaseException):
    """What no part of the command catches, as a kill would be."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Return the tiny run, dead after step 10: its checkpoints are of step 10, an epoch's end, and of step 8."""
    folder = tmp_path_factory.mktemp("runs") / "killed"
    whole = Trainer.step

    def until_step_10(trainer, batch):
        if trainer.progress.step == 10:
            raise Killed
        return whole(trainer, batch)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Trainer, "step", until_step_10)
        with pytest.raises(Killed):
            train(folder)
    assert [path.stem for path in checkpoints(folder)] == ["step_000000010", "step_000000008"]
    return folder


def refused(folder: Path, *options: str) -> str:
    """Run the command, which must end with status 1, and return what it prints."""
    with pytest.raises(SystemExit) as ended:
        train(folder, *options)
    assert isinstance(ended.value.code, str)  # Python writes it to stderr and exits with status 1
    return ended.value.code


def records(folder: Path, name: str = "log.jsonl") -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def trainer(folder: Path, *options: str) -> Trainer:
    """Set up a run as the command would."""
    config = command.new_config(parser().parse_args([*TINY, *options]))
    return Trainer(config, RunFolder(folder))


# What a run leaves behind


def test_a_run_leaves_config_log_checkpoints_weights_and_result(finished):
    names = ["config.json", "environment.json", "log.jsonl", "result.json", "times.jsonl", "weights.safetensors"]
    assert sorted(path.name for path in finished.glob("[!.]*")) == sorted([*names, "checkpoints"])
    assert [path.stem for path in checkpoints(finished)] == ["step_000000015", "step_000000014"]
    config = json.loads((finished / "config.json").read_text())
    recipe = Recipe(**config.pop("recipe"))
    assert config == dict(
        dataset="digits", preset="quick", seed=0, device="cpu", precision="float32", threads=1, compile=False
    )
    assert (recipe.epochs, recipe.batch_size, recipe.dropout, recipe.flip, recipe.crop) == (3, 28, 0.1, True, 1)
    assert recipe.peak_lr == PRESETS["digits"]["quick"].peak_lr
    (session,) = json.loads((finished / "environment.json").read_text())
    assert (session["threads"], session["processes"], session["device"]) == (1, 1, "cpu")
    assert (session["torch"], session["cores"] >= 1, len(session["processor"]) > 2) == (torch.__version__, True, True)


def test_one_line_of_the_log_an_epoch_and_the_rate_ends_at_zero(finished):
    log = records(finished)
    names = ["epoch", "step", "learning_rate", "train_loss", "valid_loss", "valid_accuracy"]
    assert [list(record) for record in log] == [names] * 3
    assert [(record["epoch"], record["step"]) for record in log] == [(1, 5), (2, 10), (3, 15)]
    assert log[0]["learning_rate"] > log[1]["learning_rate"] > log[2]["learning_rate"] == 0
    assert log[0]["train_loss"] > log[2]["train_loss"]
    assert [time["epoch"] for time in records(finished, "times.jsonl")] == [1, 2, 3]
    assert all(time["images_per_second"] > 0 for time in records(finished, "times.jsonl"))


def test_the_result_is_what_the_saved_model_reaches(finished):
    result = json.loads((finished / "result.json").read_text())
    model, about = load_trained(finished / "weights.safetensors")
    train_set, test_set = data.load_dataset("digits")
    mean, std = (torch.tensor(about[name])[:, None, None] for name in ("mean", "std"))
    with torch.no_grad():
        logits = model((test_set.images - mean) / std)
    accuracy = (logits.argmax(-1) == test_set.labels).double().mean().item()
    assert result["test_accuracy"] == pytest.approx(accuracy, abs=1e-12)
    assert result["test_loss"] == pytest.approx(F.cross_entropy(logits, test_set.labels).item(), rel=1e-5)
    assert (about["dataset"], tuple(about["class_names"])) == ("digits", train_set.class_names)
    last = records(finished)[-1]
    assert {name: result[name] for name in ("valid_loss", "valid_accuracy")}.items() <= last.items()
    assert result["images"] == dict(train=150, valid=150, test=60)
    assert result["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert result["weights_sha256"] == hashlib.sha256((finished / "weights.safetensors").read_bytes()).hexdigest()


def test_a_finished_run_prints_its_result_in_two_lines(finished, capsys):
    main(["--resume", "--out", str(finished)])
    result = json.loads((finished / "result.json").read_text())
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(
        f"test accuracy {result['test_accuracy']:.2%} (validation {result['valid_accuracy']:.2%}), "
    )
    assert f"{result['parameters']:,} parameters" in first
    assert f"load_trained('{finished / 'weights.safetensors'}')" in second


def test_a_clone_that_is_not_installed_trains_and_says_so(tmp_path, monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(run_folder, "version", missing)
    train(tmp_path, "--epochs", "0.2")
    (session,) = json.loads((tmp_path / "environment.json").read_text())
    assert session["vit_course"] == "not installed"


def test_a_run_that_fails_before_its_first_step_can_be_started_again(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(command, "describe", lambda device: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(tmp_path, "--epochs", "0.2")
    train(tmp_path, "--epochs", "0.2")


# What decides the result


def test_a_seed_gives_the_same_bytes_and_another_seed_others(finished, tmp_path):
    again, other = outcome(train(tmp_path / "again")), outcome(train(tmp_path / "other", "--seed", "1"))
    assert again == outcome(finished)
    assert all(other[name] != again[name] for name in again)


def test_no_validation_image_is_trained_on_and_the_test_images_are_seen_once_at_the_end(tmp_path, monkeypatch):
    seen, events = [], []
    train_step, evaluate = loop.train_step, loop.evaluate

    def watched_step(model, optimizer, images, labels, **options):
        seen.extend(tuple(image) for image in images.flatten(1).tolist())
        events.append("step")
        return train_step(model, optimizer, images, labels, **options)

    def watched_evaluate(model, dataset):
        events.append({150: "validation", 60: "test"}[len(dataset)])
        held.append(dataset.images)
        return evaluate(model, dataset)

    held = []
    monkeypatch.setattr(loop, "train_step", watched_step)
    monkeypatch.setattr(loop, "evaluate", watched_evaluate)
    train(tmp_path, *shlex.split(CLEAN))
    assert events == [*["step"] * 5, "validation"] * 3 + ["test"]
    train_set, test_set = (dataset.normalized() for dataset in data.load_dataset("digits"))
    whole = {tuple(image) for image in train_set.images.flatten(1).tolist()}
    valid, test = ({tuple(image) for image in held[at].flatten(1).tolist()} for at in (0, -1))
    assert test == {tuple(image) for image in test_set.images.flatten(1).tolist()}
    assert len(valid) == 150
    assert valid < whole
    assert set(seen) <= whole - valid
    for epoch in range(3):  # every image at most once; 150 - 5 * 28 wait for another epoch's order
        batch = seen[epoch * 140 : (epoch + 1) * 140]
        assert len(set(batch)) == len(batch) == 140
    assert seen[:140] != seen[140:280]
    assert len(set(seen)) > 145


def by_hand(config: Config) -> tuple[VisionTransformer, list[float]]:
    """Train as the config says in one plain loop; return the model, and the loss of every step."""
    recipe = config.recipe

    def generator(*purpose):
        digest = hashlib.sha256(repr((config.seed, *purpose)).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little"))

    whole = data.load_dataset(config.dataset)[0]
    images, labels = (whole.images - whole.mean.item()) / whole.std.item(), whole.labels
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(0))
    kept = order[round(len(whole) * recipe.valid_fraction) :]
    images, labels = images[kept], labels[kept]
    torch.manual_seed(config.seed)
    sizes = dict(patch_size=recipe.patch_size, num_layers=recipe.num_layers, num_heads=recipe.num_heads)
    widths = dict(hidden_dim=recipe.hidden_dim, mlp_dim=recipe.mlp_dim, dropout=recipe.dropout, pool=recipe.pool)
    model = VisionTransformer(image_size=8, in_channels=1, num_classes=10, **sizes, **widths).train()
    if not recipe.positions:
        torch.nn.init.zeros_(model.embedding.pos_embedding)
    layers = ("projection.weight", "qkv.weight", "out_proj.weight", "linear_1.weight", "linear_2.weight", "head.weight")
    groups = {True: [], False: []}
    for name, parameter in model.named_parameters():
        if recipe.positions or name != "embedding.pos_embedding":
            groups[name.endswith(layers)].append(parameter)
    decayed = dict(params=groups[True], weight_decay=recipe.weight_decay)
    optimizer = torch.optim.AdamW([decayed, dict(params=groups[False], weight_decay=0)], fused=False)
    steps_per_epoch = len(images) // recipe.batch_size
    steps = round(recipe.epochs * steps_per_epoch)
    climbing = round(recipe.warmup * steps)
    losses = []
    for step in range(steps):
        if step < climbing:
            rate = recipe.peak_lr * (step + 1) / climbing
        else:
            top = max(climbing - 1, 0)
            rate = recipe.peak_lr * (1 + math.cos(math.pi * (step - top) / (steps - 1 - top))) / 2
        epoch, place = divmod(step, steps_per_epoch)
        order = torch.randperm(len(images), generator=generator("order", epoch))
        batch = order[place * recipe.batch_size : (place + 1) * recipe.batch_size]
        draw = generator("augmentation", step)
        shown = []
        flips = torch.rand(len(batch), generator=draw) if recipe.flip else torch.ones(len(batch))
        shifts = torch.zeros(2, len(batch), dtype=torch.int64)
        if recipe.crop:
            shifts = torch.randint(2 * recipe.crop + 1, (2, len(batch), 1), generator=draw)[..., 0] - recipe.crop
        for index, flip, down, right in zip(batch, flips, *shifts.tolist(), strict=True):
            image = images[index].flip(2) if flip < 0.5 else images[index]
            rows, columns = ((torch.arange(8) + shift).clamp(0, 7) for shift in (down, right))
            shown.append(image[:, rows][:, :, columns])
        torch.manual_seed(generator("dropout", step, 0).initial_seed())
        logits = model(torch.stack(shown)).log_softmax(-1)
        target = F.one_hot(labels[batch], 10) * (1 - recipe.label_smoothing) + recipe.label_smoothing / 10
        loss = -(target * logits).sum(-1).mean()
        gradients = torch.autograd.grad(loss, [*groups[True], *groups[False]])
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        for parameter, gradient in zip([*groups[True], *groups[False]], gradients, strict=True):
            parameter.grad = gradient * min(1, recipe.max_grad_norm / (norm + 1e-6))
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        losses.append(loss.item())
    return model, losses


LOOPS = {
    "everything on": "--flip --crop 2 --dropout 0.2 --label-smoothing 0.2 --max-grad-norm 0.3 --warmup 0.3 "
    "--weight-decay 0.5 --no-positions --pool mean --epochs 2.6 --seed 5",
    "everything off": "--no-flip --crop 0 --dropout 0 --label-smoothing 0 --max-grad-norm 1000 --warmup 0 "
    "--weight-decay 0 --positions --pool token --epochs 2",
}


@pytest.mark.parametrize("case", LOOPS)
def test_training_equals_a_plain_loop(case, tmp_path):
    folder = train(tmp_path, *shlex.split(LOOPS[case]))
    stored = json.loads((folder / "config.json").read_text())
    expected, losses = by_hand(Config(**stored | dict(recipe=Recipe(**stored["recipe"]))))
    trained = load_trained(folder / "weights.safetensors")[0]
    for model in (trained, expected):  # softmax does not see the bias of the keys: its gradient is rounding alone
        torch.nn.init.zeros_(model.encoder.layers[0].self_attention.qkv.bias[16:32])
    assert_equal(parameters_of(trained), parameters_of(expected), atol=2e-5)
    means = [sum(part) / len(part) for part in (losses[:5], losses[5:10], losses[10:]) if part]
    assert [record["train_loss"] for record in records(folder)] == pytest.approx(means, rel=1e-5)
    assert [record["step"] for record in records(folder)] == [*range(5, len(losses), 5), len(losses)]
    assert records(folder)[-1]["learning_rate"] == 0


def test_mixed_precision_multiplies_in_bfloat16_and_keeps_the_rest(finished, tmp_path):
    plain, mixed = trainer(tmp_path), trainer(tmp_path, "--precision", "bfloat16")
    images = plain.train_set.images[:64]
    for set_up in (plain, mixed):
        torch.nn.init.normal_(set_up.model.head.weight, generator=torch.Generator().manual_seed(0))
        set_up.model.eval()
    exact, logits = plain.model(images), mixed.model(images)
    assert logits.dtype == torch.float32
    assert 1e-4 < (logits - exact).abs().max() / exact.abs().max() < 0.03
    mixed.step(torch.arange(28))
    assert {parameter.dtype for parameter in mixed.model.parameters()} == {torch.float32}
    assert {parameter.grad.dtype for parameter in mixed.model.parameters()} == {torch.float32}
    ours, theirs = (records(run)[-1] for run in (train(tmp_path, "--precision", "bfloat16"), finished))
    assert ours["train_loss"] != theirs["train_loss"]
    assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=0.01)


def test_a_compiled_model_is_the_one_that_is_trained_and_evaluated(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model: compiled.append(model))  # the real one: tests/slow
    set_up, plain = trainer(tmp_path, "--compile"), trainer(tmp_path)
    assert compiled == [set_up.model] == [set_up.trained]
    assert plain.trained is plain.model


# Resuming


def resumed(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of a run to work on."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_a_killed_run_ends_as_if_nothing_had_happened(killed, finished, tmp_path, capsys):
    folder = resumed(killed, tmp_path)
    main(["--resume", "--out", str(folder)])
    assert outcome(folder) == outcome(finished)
    assert "continuing after step 10 of 15" in capsys.readouterr().err
    assert [time["epoch"] for time in records(folder, "times.jsonl")] == [1, 2, 3]
    assert len(json.loads((folder / "environment.json").read_text())) == 2
    times = [time["seconds"] for time in records(folder, "times.jsonl")]
    assert times == sorted(times)  # the second session goes on counting where the first was
    assert json.loads((folder / "result.json").read_text())["seconds"] >= times[-1]


def exploding(path: Path) -> None:
    class Bomb:
        def __reduce__(self):
            return Path.touch, (path.parents[1] / "exploded",)

    path.write_bytes(pickle.dumps(Bomb()))


DAMAGE = {
    "a byte too short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "another library's": lambda path: save_file({"model.head.bias": torch.zeros(10)}, path),
    "a pickle": exploding,
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_without_it_the_older_one_leads_to_the_same_result(
    case, killed, finished, tmp_path
):
    folder = resumed(killed, tmp_path)
    last = checkpoints(folder)[0]
    DAMAGE[case](last)
    said = refused(folder, "--resume")
    assert re.match(f"error: {last} cannot be read: it is not a whole safetensors file of this course", said)
    assert said.endswith("Delete it to continue from the one before it")
    assert not (folder / "exploded").exists()
    last.unlink()
    assert outcome(train(folder, "--resume")) == outcome(finished)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"crop": 1', '"crop": 2', r".*step_000000010.safetensors is of a run with another config.json: put that one"),
        ('"crop": 1', '"crop": -1', "--crop must be a whole number of at least 0; got -1"),
        ('"threads": 1', '"threads": 0', "--threads must be a whole number of at least 1; got 0"),
        ('"device": "cpu"', '"device": "gpu"', "--device must be one that this machine has; got 'gpu'"),
    ],
)
def test_a_changed_config_is_refused(old, new, message, killed, tmp_path):
    folder = resumed(killed, tmp_path)
    edit(folder / "config.json", old, new)
    with pytest.raises(SystemExit) as ended:
        main(["--resume", "--out", str(folder)])
    assert re.match(f"error: {message}", ended.value.code)


OTHERS = {
    "preset": "long", "seed": 1, "device": "cuda", "precision": "bfloat16", "threads": 2, "compile": True,
    "epochs": 4.0, "batch_size": 64, "peak_lr": 0.01, "warmup": 0.2, "weight_decay": 0.1, "label_smoothing": 0.0,
    "max_grad_norm": 2.0, "flip": False, "crop": 0, "dropout": 0.2, "patch_size": 2, "num_layers": 2, "num_heads": 1,
    "hidden_dim": 32, "mlp_dim": 32, "pool": "mean", "positions": False, "valid_fraction": 0.4,
    "dataset": "fashion_mnist",
}  # fmt: skip


def test_every_option_that_decides_the_result_must_stay(finished):
    fields = {*Config.__dataclass_fields__, *Recipe.__dataclass_fields__} - {"recipe"}
    assert set(OTHERS) == fields
    for name, value in OTHERS.items():
        flag = "--" + name.replace("_", "-")
        words = [flag] if value is True else [flag.replace("--", "--no-")] if value is False else [flag, str(value)]
        said = refused(finished, "--resume", *words)
        assert f"and {flag} {value} would make it another one: leave the option out, or train into" in said


def test_resume_starts_a_run_where_there_is_none(finished, tmp_path):
    assert outcome(train(tmp_path / "new", "--resume")) == outcome(finished)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--resume", "error: nothing to do: say --dataset NAME"),
        ("--out nowhere", "error: there is no run in nowhere: say"),
    ],
)
def test_without_a_run_and_a_data_set_nothing_is_started(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message):
        main(words.split())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_a_run_is_not_trained_over(killed, finished):
    for folder in (killed, finished):
        before = (folder / "log.jsonl").read_bytes()
        said = refused(folder)
        assert said == f"error: {folder} holds a run already: continue it with --resume, or name another --out"
        assert (folder / "log.jsonl").read_bytes() == before


def test_a_folder_in_use_is_refused(killed):
    with RunFolder(killed).locked():
        assert refused(killed, "--resume") == f"error: {killed} is in use: another process is training there"


def test_by_default_runs_lie_in_a_folder_named_after_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main([*TINY, "--epochs", "0.2", "--seed", "4"])
    assert (tmp_path / "runs" / "digits-quick-seed4" / "result.json").exists()


# What is said about options that cannot be

FIGURES = {
    "--dataset mnist": "--dataset must be one of 'digits', 'fashion_mnist', 'cifar10'; got 'mnist'",
    "--precision half": "--precision must be one of 'float32', 'bfloat16'; got 'half'",
    "--preset long": "--preset must be one of 'quick'; got 'long'",
    "--epochs 0": "--epochs must be a finite number above 0; got 0.0",
    "--epochs nan": "--epochs must be a finite number above 0; got nan",
    "--batch-size 0": "--batch-size must be a whole number of at least 1; got 0",
    "--batch-size 151": "--batch-size must be at most 150, the images to train on, .*; got 151",
    "--peak-lr 0": "--peak-lr must be a finite number above 0",
    "--warmup 1": "--warmup must be at least 0 and less than 1; got 1.0",
    "--weight-decay -0.1": "--weight-decay must be a finite number of at least 0; got -0.1",
    "--label-smoothing 1": "--label-smoothing must be at least 0 and less than 1; got 1.0",
    "--max-grad-norm 0": "--max-grad-norm must be a finite number above 0",
    "--crop -1": "--crop must be a whole number of at least 0; got -1",
    "--dropout nan": "--dropout must be at least 0 and less than 1; got nan",
    "--valid-fraction 0": "fraction must leave at least one on both sides; got 0.0",
    "--patch-size 3": "image_size must be divisible by --patch-size=3; got 8 x 8",
    "--num-heads 3": "--hidden-dim must be divisible by --num-heads=3; got 16",
    "--pool max": "--pool must be one of 'token', 'mean'; got 'max'",
    "--threads 0": "--threads must be a whole number of at least 1; got 0",
    "--seed -1": "--seed must be a whole number of at least 0; got -1",
    f"--seed {2**63}": r"--seed must be at most 2\*\*63 - 1=9223372036854775807; got 9223372036854775808",
    "--device gpu": "--device must be one that this machine has; got 'gpu': ",
    "--device meta": "--device must be one that this machine has; got 'meta': ",
    "--checkpoint-steps 0": "--checkpoint-steps must be a whole number of at least 1; got 0",
}


@pytest.mark.parametrize("words", FIGURES)
def test_a_bad_figure_is_named_as_it_was_typed_and_no_run_is_started(words, tmp_path):
    said = refused(tmp_path, *words.split())
    assert re.match(f"error: {FIGURES[words]}", said)
    assert not (tmp_path / "config.json").exists()  # the right command may follow without --resume


def test_missing_data_is_said_and_no_run_is_started(tmp_path, monkeypatch):
    def nowhere(name):
        raise FileNotFoundError(f"{name} must be on this machine")

    with monkeypatch.context() as patch:
        patch.setattr(data, "load_dataset", nowhere)
        assert refused(tmp_path) == "error: digits must be on this machine"
    train(tmp_path, "--epochs", "0.2")


def test_a_loss_that_is_not_finite_stops_the_run_with_advice(tmp_path):
    said = refused(tmp_path, "--peak-lr", "1e30", "--max-grad-norm", "1e30")
    pattern = (
        r"error: the loss is (nan|inf) at step (\d+), in epoch (\d+)\. Train again with --peak-lr below 1e\+30, .*"
    )
    step, epoch = map(int, re.fullmatch(pattern, said).groups()[1:])
    assert 1 < step <= 15
    assert epoch == (step - 1) // 5 + 1
    assert not (tmp_path / "result.json").exists()


# Stopping


def send(number: int, times: int, moment: str, monkeypatch) -> list[str]:
    """Send this process signals at a moment of a run; return the list of moments that is filled while it runs."""
    passed = []

    def watched(name, real):
        def call(*arguments, **options):
            passed.append(name)
            if passed.count(name) == 7 if name == "step" else name == moment:
                for _ in range(times if name == moment else 0):
                    os.kill(os.getpid(), number)
            return real(*arguments, **options)

        return call

    monkeypatch.setattr(loop, "train_step", watched("step", loop.train_step))
    monkeypatch.setattr(loop, "evaluate", watched("validation", loop.evaluate))
    monkeypatch.setattr(data, "load_dataset", watched("start-up", data.load_dataset))
    return passed


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "start-up"),
        (signal.SIGINT, "step"),
        (signal.SIGINT, "validation"),
        (signal.SIGTERM, "start-up"),
        (signal.SIGTERM, "step"),
    ],
)
def test_a_signal_stops_the_run_and_loses_nothing(number, moment, finished, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        passed = send(number, 1, moment, patch)
        with pytest.raises(SystemExit) as ended:
            train(tmp_path)
    assert ended.value.code == 130
    line = f"stopped; nothing is lost. Continue with the same command and --resume --out {tmp_path}"
    assert capsys.readouterr().err.splitlines()[-1] == line
    assert passed.count("step") == {"start-up": 0, "step": 7, "validation": 6}[moment]
    steps = [path.stem for path in checkpoints(tmp_path)][:1]
    assert steps == {"start-up": [], "step": ["step_000000007"], "validation": ["step_000000006"]}[moment]
    assert outcome(train(tmp_path, "--resume")) == outcome(finished)


def test_a_second_signal_stops_at_once(finished, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        passed = send(signal.SIGINT, 2, "step", patch)
        with pytest.raises(SystemExit) as ended:
            train(tmp_path)
    assert ended.value.code == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("stopped; nothing is lost")
    assert passed.count("step") == 7
    assert checkpoints(tmp_path)[0].name.startswith("step_000000006")  # the seventh step was not waited for
    assert outcome(train(tmp_path, "--resume")) == outcome(finished)


# What is shown


def test_without_a_terminal_there_is_one_line_an_epoch(tmp_path, capfd):
    train(tmp_path)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3
    for epoch, line in enumerate(lines, 1):
        assert re.fullmatch(
            rf"epoch   {epoch}/3   train loss 2\.\d{{3}}   "
            r"validation loss 2\.\d{3}, accuracy [\d.]+%   [\d,]+ images/s",
            line,
        )


def test_the_examples_of_the_help_are_right(capsys):
    examples = [line.split("   ")[0] for line in parser().epilog.splitlines() if "vit_course.train" in line]
    assert len(examples) == 4
    for example in examples:
        words = shlex.split(example)
        options = parser().parse_args(words[words.index("vit_course.train") + 1 :])
        path = command.folder_path(options)
        assert path.parts[0] == "runs"
        if options.dataset:
            assert command.new_config(options).recipe == PRESETS[options.dataset]["quick"]
    assert examples[2].endswith(str(command.folder_path(parser().parse_args(["--dataset", "fashion_mnist"]))))


def test_a_run_with_its_types_checked(tmp_path):
    jaxtyping.config.update("jaxtyping_disable", False)
    train(tmp_path, "--epochs", "1.4", "--precision", "bfloat16")
    assert len(records(tmp_path)) == 2
