"""What lesson 08 says about its numbers; its blocks for a network run word for word on local files."""

import io
import json
import re
import urllib.request

import matplotlib.pyplot as plt
import pytest
import torch
import torch.nn.functional as F
from lessons.running import notebook, stored_text
from support import assert_equal
from torch import nn
from torch.utils.data import TensorDataset

from tools import draw_figures, train_few_labels
from tools.site_links import ROOT
from vit_course import VARIANTS, create_vit, transfer
from vit_course.checks import twins
from vit_course.data import load_dataset
from vit_course.weights import load_trained, to_torchvision

RECORD = json.loads((ROOT / "resources" / "runs" / "few_labels.json").read_text(encoding="utf-8"))
RUNS = {(run["method"], run["per_class"], run["seed"]): run for run in RECORD["runs"]}
CELLS = notebook("08").cells
TEXT = "\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")
STORED = "".join(stored_text(cell) for cell in CELLS if cell.cell_type == "code")
DIGITS = [train_few_labels.enlarged(part, load_trained("fashion_mnist")[1]) for part in load_dataset("digits")]
TRAIN_SET, VALID_SET, TEST_SET = *DIGITS[0].split(0.15), DIGITS[1]
SHORTER = {"dict(steps=steps,": "dict(steps=2,", "steps=20,": "steps=1,"}  # the results of all steps are stored


def test_the_record_is_complete_and_made_by_the_script():
    assert len(RUNS) == len(RECORD["runs"]) == 8 * 3 * 5
    for (method, per_class, seed), run in RUNS.items():
        assert (run["steps"], run["peak"]) == train_few_labels.METHODS[method]
        assert per_class in train_few_labels.PER_CLASS
        assert seed in train_few_labels.SEEDS
        right = 360 * run["test_accuracy"]
        assert right == pytest.approx(round(right), abs=1e-6)
    assert RECORD["images"] == dict(train=1221, valid=216, test=360)
    assert {"command", "machine", "versions", "date", "seconds", "recipe"} <= set(RECORD)


@pytest.mark.parametrize("method", ["linear probe", "CNN from scratch"])
def test_a_recorded_run_can_be_repeated(method):
    few = transfer.few_labels(TRAIN_SET, 10, seed=1)
    model, line = train_few_labels.run(method, few, 1)
    stored = RUNS[method, 10, 1]
    assert line["trained"] == stored["trained"]
    assert line["train_loss"] == pytest.approx(stored["train_loss"], abs=0.03)
    accuracy = train_few_labels.evaluate(model, TEST_SET)[1]
    assert accuracy == pytest.approx(stored["test_accuracy"], abs=0.03)


def test_the_lesson_trains_on_the_images_and_in_the_way_of_the_record(lesson, monkeypatch):
    few = transfer.few_labels(TRAIN_SET, 10, seed=0)
    torch.testing.assert_close(few.images, lesson.few_images)
    assert lesson.methods == {name: train_few_labels.METHODS[name] for name in lesson.methods}
    for method, (_, peak) in lesson.methods.items():
        monkeypatch.setitem(train_few_labels.METHODS, method, (2, peak))
        models = lesson.adapted[method], train_few_labels.run(method, few, 0)[0]
        assert_equal(*(model.eval()(few.images) for model in models), atol=1e-4)


def test_the_stored_accuracies_are_those_of_the_record_and_too_high_a_rate_destroys_what_the_body_has_learned(lesson):
    *runs, (_, loss, accuracy) = re.findall(r"^(.+?) +loss (.+), validation accuracy (.+)$", STORED, re.MULTILINE)
    found = {method: float(accuracy) for method, _, accuracy in runs}
    assert found == pytest.approx({name: RUNS[name, 10, 0]["valid_accuracy"] for name in lesson.methods}, abs=0.05)
    assert float(accuracy) < found["linear probe"] - 0.1
    assert float(loss) > 0.5


@pytest.mark.parametrize(("seed", "counts"), [(0, (0, 1, 2, 4)), (1, (0, 1, 2, 3))])
def test_two_blocks_are_the_smallest_number_that_is_clearly_better_than_the_probe(seed, counts):
    """What "Our results" say of partial fine-tuning, with 10 labels per digit and trained as the lesson's ``adapt``.

    The blocks that stay frozen see every image only once.
    """
    few, found = transfer.few_labels(TRAIN_SET, 10, seed=seed), []
    for count in counts:
        model = twins.unfreeze_last(train_few_labels.new_model("linear probe", seed), count)
        layers = model.encoder.layers
        frozen = nn.Sequential(model.embedding, *layers[: 4 - count], nn.Unflatten(0, (-1, 1)))
        model.embedding, model.encoder.layers = nn.Flatten(1, 2), layers[4 - count :]
        with torch.no_grad():
            tokens, valid_tokens = frozen(few.images), frozen(VALID_SET.images)
        transfer.fine_tune(model, tokens, few.labels, steps=100, peak=2e-3, seed=seed)
        found.append(100 * train_few_labels.evaluate(model, TensorDataset(valid_tokens, VALID_SET.labels))[1])
    assert found[0] == pytest.approx((55, 64)[seed], abs=4)
    assert found[1:] == pytest.approx([81, 88, 90], abs=2.5)
    probe = (80, 70)[seed]
    assert found[2] - probe > 6
    assert (found[1] - probe > 6) == (seed == 1)
    assert found[3] - found[2] < 6


def test_a_list_of_positions_keeps_the_row_and_mixes_the_columns():
    """Each number is the place in the old grid, between two others: 7 rows of 7 columns, stretched to 14 of 14."""
    stretched = F.interpolate(torch.arange(49.0)[None, None], size=196, mode="linear")[0, 0].reshape(14, 14)
    found = (stretched + 0.5).floor()  # the nearest place
    right = torch.arange(14) // 2
    assert torch.equal(found // 7, right[:, None].expand(14, 14).float())
    assert (found % 7 == right).float().mean() < 0.5


def test_20_steps_at_the_new_resolution_restore_the_accuracy_of_the_grid_alone():
    normalized, on_list, on_grid = map(float, re.findall(r"pixels.*: accuracy (\S+)", STORED)[3:])
    assert normalized == pytest.approx(0.905, abs=0.02)
    assert on_grid == pytest.approx(0.9, abs=0.02)
    assert 0.5 < on_list < 0.65


def test_the_position_of_the_cross_resembles_its_mirror_image(lesson):
    grid = lesson.before[0, 1:].reshape(7, 7, -1)
    cosines = F.cosine_similarity(grid, grid[1, 2], dim=-1)
    cosines[1, 2] = -1
    assert divmod(cosines.argmax().item(), 7) == (1, 4)


def test_the_figure_counts_the_trained_parameters():
    for method, (_, _, trained) in draw_figures.TRANSFER.items():
        found = {run["trained"] for run in RECORD["runs"] if run["method"].startswith(method)}
        assert found == {trained}


def test_freezing_does_not_stop_running_averages(lesson):
    cnn = lesson.small_cnn()
    for parameter in cnn[:-1].parameters():
        parameter.requires_grad = False
    before = {name: value.clone() for name, value in cnn[:-1].state_dict().items()}
    transfer.fine_tune(cnn, lesson.few_images, lesson.few.labels, steps=2, peak=1e-3)
    moved = {name for name, value in cnn[:-1].state_dict().items() if not torch.equal(value, before[name])}
    assert {name.rsplit(".", 1)[-1] for name in moved} == {"running_mean", "running_var", "num_batches_tracked"}


def test_a_lead_of_one_image_the_spread_of_360_images_and_the_losses_after_600_steps(lesson):
    tuned, scratch = (lesson.accuracies(method, 600) for method in ("fine-tuning", "ViT from scratch"))
    assert (tuned.amin(1) - scratch.amax(1))[2].item() == pytest.approx(100 / 360, abs=1e-3)
    errors = [100 - values.median(1).values for values in (tuned, scratch)]
    assert all(0.4 < ratio < 0.55 for ratio in (errors[0] / errors[1]).tolist())  # about half
    shares = torch.tensor([run["test_accuracy"] for run in RECORD["runs"]])
    spread = 100 * (shares * (1 - shares) / 360).sqrt()
    assert (round(spread.min().item(), 1), round(spread.max().item(), 1)) == (0.4, 2.6)
    both = "ViT from scratch, 600 steps", "fine-tuning, 600 steps"
    losses = [run["train_loss"] for run in RECORD["runs"] if run["method"] in both]
    assert max(losses) < 0.04


# The blocks for a network

BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
(PREPARE,) = [block for block in BLOCKS if "def prepare_for_imagenet" in block]
(CLASSIFY,) = [block for block in BLOCKS if "urlopen" in block]
(ADAPT,) = [block for block in BLOCKS if 'Path("photos")' in block]
(CONTINUE,) = [block for block in BLOCKS if "vit.requires_grad_()" in block]


def picture(place, brightness, size=(60, 40)):
    """Return a photo of noise, ``(h, w, 3)``, values 0 to 255."""
    generator = torch.Generator().manual_seed(place)
    noise = 0.3 * torch.rand(*size, 3, generator=generator)
    return (255 * (brightness + noise)).to(torch.uint8)


@pytest.mark.usefixtures("as_readers_run_it")
def test_the_blocks_for_a_network_run_as_printed_on_local_files(lesson, tmp_path, monkeypatch, capsys):
    smaller = VARIANTS["B/16"] | dict(num_layers=1, hidden_dim=48, mlp_dim=48)  # seconds, not minutes
    monkeypatch.setitem(VARIANTS, "B/16", smaller)
    ours = create_vit("B/16").eval()
    nn.init.normal_(ours.head.weight)
    names = ["tench", *(f"thing {k}" for k in range(1, 1000))]
    torch.save(to_torchvision(ours), tmp_path / "vit_b_16-c867db91.pth")
    plt.imsave(tmp_path / "photo.jpg", picture(0, 0.3, (300, 500)).numpy())
    for name, brightness in (("light", 0.7), ("dark", 0.0)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for place, suffix in enumerate(5 * (".JPG", ".png")):
            plt.imsave(tmp_path / "photos" / name / f"{place}{suffix}", picture(place, brightness).numpy())
        (tmp_path / "photos" / name / ".DS_Store").touch()

    def local_weights(address, *, check_hash, weights_only):
        assert check_hash
        return torch.load(tmp_path / address.rsplit("/", 1)[-1], weights_only=weights_only)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", local_weights)
    monkeypatch.setattr(urllib.request, "urlopen", lambda address: io.BytesIO("\n".join(names).encode()))
    namespace = dict(vars(lesson))
    exec(PREPARE, namespace)
    exec(CLASSIFY, namespace)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 5
    assert all(text.split("  ")[-1] in names for text in printed)
    exec(ADAPT, namespace)
    assert [folder.name for folder in namespace["folders"]] == ["dark", "light"]
    found, right = capsys.readouterr().out.splitlines()
    assert (found, right) == ("20 photos of ['dark', 'light']", "100% of 4 validation photos are right")
    body = {name: value for name, value in namespace["vit"].state_dict().items() if not name.startswith("head.")}
    for name, value in body.items():
        assert torch.equal(value, ours.state_dict()[name])
    assert namespace["vit"].head.out_features == 2
    exec(CONTINUE, namespace)
    assert "of 4 validation photos" in capsys.readouterr().out
    assert not any(torch.equal(value, ours.state_dict()[name]) for name, value in body.items() if "weight" in name)
