"""The published recipes are those of their pages, and time to accuracy is counted and summed up right."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from support import assert_equal, parameter_count
from torch import nn

from tools.benchmarks import machine, report, time_to_accuracy, timed_runs
from tools.benchmarks.published_recipes import RECIPES, flip_and_resized_crop
from vit_course import training
from vit_course.data import LabelledImages

OURS = time_to_accuracy.OURS

# as the pages state them: pixels, patch, dim, layers, mlp, biases of attention (query to value, output), head
SIZES = {
    "uva": (28, 4, 256, 6, 512, (True, True), 2 * 256 + 256 * 10 + 10),
    "d2l": (96, 16, 512, 2, 2048, (False, False), 2 * 512 + 512 * 10 + 10),
    "vit_pytorch": (28, 7, 64, 6, 128, (False, True), 64 * 128 + 128 + 128 * 10 + 10),
}


@pytest.fixture(autouse=True)
def no_measured_peak(monkeypatch):
    """Measuring the machine's peak takes seconds, and is another test's."""
    monkeypatch.setattr(machine, "matmul_peak", lambda: 1e9)


class FakeTime:
    """A clock that goes on only when told."""

    seconds = 1000.0

    def __call__(self):
        return self.seconds

    def passes(self, seconds, function):
        """Return the function, made to take so long."""

        def slow(*args, **options):
            self.seconds += seconds
            return function(*args, **options)

        return slow


def images(count=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    pixels, labels = torch.rand(count, 1, 28, 28, generator=generator), torch.arange(count) % 10
    about = dict(class_names="0123456789", mean=torch.tensor([0.5]), std=torch.tensor([0.25]))
    return LabelledImages(pixels, labels, **about)


def small_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


def small(**changes):
    """A recipe with a model so small that it is instant."""
    return dataclasses.replace(RECIPES["vit_pytorch"], **dict(model=small_model, batch_size=8) | changes)


# The recipes


@pytest.mark.parametrize("name", RECIPES)
def test_a_published_model_is_that_of_its_page_and_computes_what_pytorchs_own_layers_compute(name):
    pixels, patch, d, layers, mlp, biases, head = SIZES[name]
    model = RECIPES[name].model().eval()
    attention = 3 * d * d + 3 * d * biases[0] + d * d + d * biases[1]
    block = attention + 2 * 2 * d + 2 * d * mlp + mlp + d
    tokens = (pixels // patch) ** 2 + 1
    assert parameter_count(model) == patch**2 * d + d + d + tokens * d + layers * block + head
    vit = model[1] if name == "d2l" else model
    with torch.no_grad():
        vit.class_token.add_(torch.randn(d))  # d2l's is zero at first
        batch = torch.rand(2, 1, 28, 28)
        enlarged = F.interpolate(batch, size=pixels, mode="bilinear", align_corners=False)
        kernel = vit.projection.weight.view(d, 1, patch, patch)
        patches = F.conv2d(enlarged, kernel, vit.projection.bias, stride=patch).flatten(2).transpose(1, 2)
        tokens = torch.cat([vit.class_token.expand(2, 1, d), patches], dim=1) + vit.positions
        for block in vit.encoder[1:]:
            tokens = torch_layer(block, d, mlp, scale=64**-0.5 if name == "vit_pytorch" else (d // 8) ** -0.5)(tokens)
        first, *_, last = vit.head
        read = F.gelu(first(tokens[:, 0])) if name == "vit_pytorch" else F.layer_norm(tokens[:, 0], (d,))
        assert_equal(model(batch), last(read), atol=1e-4)


def torch_layer(block, d, mlp, *, scale):
    """The same block as PyTorch has it, whose scores are scaled by 1 / sqrt(head dim): queries make up for it."""
    layer = nn.TransformerEncoderLayer(d, 8, mlp, activation="gelu", batch_first=True, norm_first=True).eval()
    theirs, own = layer.self_attn, block.attention
    factor = torch.ones(3 * d)
    factor[:d] = scale * (d // 8) ** 0.5
    bias = own.qkv.bias if own.qkv.bias is not None else torch.zeros(3 * d)
    theirs.in_proj_weight.copy_(factor[:, None] * own.qkv.weight)
    theirs.in_proj_bias.copy_(factor * bias)
    theirs.out_proj.weight.copy_(own.out.weight)
    theirs.out_proj.bias.copy_(own.out.bias if own.out.bias is not None else torch.zeros(d))
    pairs = (layer.linear1, block.mlp[0]), (layer.linear2, block.mlp[3])
    for target, source in (*pairs, (layer.norm1, block.ln_1), (layer.norm2, block.ln_2)):
        target.load_state_dict(source.state_dict())
    return layer


def test_flips_and_crops_show_a_window_of_each_image():
    across = torch.arange(28.0).expand(400, 1, 28, 28)  # each pixel is the column that it comes from
    cropped = flip_and_resized_crop(across, torch.Generator().manual_seed(0))
    width = (cropped[:, 0, 14, 20] - cropped[:, 0, 14, 8]) / 12  # of an input pixel, negative where mirrored
    assert 0.4 < (width < 0).float().mean() < 0.6
    assert 0.8 < width.abs().min() < 0.95 < width.abs().max() <= 1.001
    assert 0 <= cropped.min() < cropped.max() <= 27


# One run


def test_a_published_recipe_is_tested_at_its_marks_and_testing_takes_no_time(monkeypatch):
    now, looked_at = FakeTime(), []

    def evaluate(model, dataset):
        looked_at.append(dataset)
        return 0.0, len(looked_at) / 10

    monkeypatch.setattr(training, "evaluate", now.passes(1000, evaluate))
    recipe = small(augment=now.passes(4, lambda batch, generator: batch))  # a step takes 4 seconds
    train_set, test_set = images(), images(16, seed=1)
    run = timed_runs.train_published(recipe, train_set, test_set, marks=[30, 10, 31], slice_seconds=10, now=now)
    assert run["tests"] == [
        dict(mark=10, seconds=12, images=24, accuracy=0.1),
        dict(mark=30, seconds=32, images=64, accuracy=0.2),
        dict(mark=31, seconds=32, images=64, accuracy=0.2),  # the same step
    ]
    assert [(part["seconds"], part["images_per_second"]) for part in run["slices"]] == [(12, 2), (24, 2), (32, 2)]
    assert len(looked_at) == 2  # nothing is looked at in between
    assert_equal(looked_at[0].images, test_set.normalized().images, atol=0)


# All of them


def made_up(recipe, *tests):
    """A run that was tested at ``(mark, seconds, accuracy)``."""
    tests = [dict(mark=mark, seconds=seconds, images=1, accuracy=accuracy) for mark, seconds, accuracy in tests]
    slices = [dict(images_per_second=speed, loss=speed / 50) for speed in (100, 80, 110)]
    return dict(recipe=recipe, budget=tests[-1]["mark"], parameters=5, slices=slices, tests=tests, load=[0.5, 2.0])


def test_time_to_accuracy_is_our_shortest_run_that_is_as_good_as_their_best():
    theirs = [
        made_up("uva", (60, 61, 0.30), (300, 301, 0.55)),
        made_up("vit_pytorch", (60, 60, 0.75), (300, 300, 0.85)),
    ]
    ours = [made_up(OURS, run) for run in [(300, 290, 0.90), (30, 29, 0.85), (15, 14, 0.80), (60, 58, 0.84)]]

    def reached(runs):
        rows = time_to_accuracy.summary(runs)["reached"]
        return [(row["budget"], row["recipe"], row["accuracy"], row["seconds"]) for row in rows]

    title = RECIPES["vit_pytorch"].title
    assert reached(theirs + ours) == [(60, title, 0.75, 14), (300, title, 0.85, 29)]
    assert reached([*theirs, ours[2]]) == [(60, title, 0.75, 14), (300, title, 0.85, None)]
    assert reached(theirs) == reached(ours) == []


def test_the_command_runs_in_seconds(tmp_path, capsys):
    path = tmp_path / "log.json"
    time_to_accuracy.main(["--quick", "--recipes", "vit_pytorch", OURS, "--out", str(path)])
    log = report.load(path)
    assert report.time_to_accuracy_section(log) in capsys.readouterr().out
    wanted = [(OURS, 0.25), (OURS, 1.0), ("vit_pytorch", 1.0), (OURS, 0.5)]
    assert [(run["recipe"], run["budget"]) for run in log["runs"]] == wanted
    for run in log["runs"]:
        assert all(0 <= test["accuracy"] <= 1 and test["seconds"] > 0 for test in run["tests"])
