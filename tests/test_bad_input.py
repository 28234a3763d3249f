"""Bad input, one table: every case raises a ``ValueError`` with the argument's name in front, and says what came."""

import copy
import importlib
import inspect
import math
import re
import tempfile
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from support import SMALL, assert_equal, parameters_of, small_model
from torch import nn
from torch.utils.data import TensorDataset

from vit_course import (
    Encoder,
    EncoderBlock,
    ImageEmbedding,
    MLPBlock,
    MultiHeadSelfAttention,
    PatchEmbedding,
    VisionTransformer,
    create_vit,
    data,
    inside,
    patchify,
    scaled_dot_product_attention,
    unpatchify,
)
from vit_course.attention import attention_weights
from vit_course.data import LabelledImages, load_dataset, load_test_images
from vit_course.training import evaluate, fit, learning_rate_schedule, parameter_groups, random_shift, train_step

pytestmark = pytest.mark.usefixtures("as_readers_run_it")

IMAGES, LABELS = torch.rand(4, 3, 8, 12), torch.tensor([0, 4, 2, 1])
TOKENS = torch.rand(4, 7, 16)
HEADS = torch.rand(2, 3, 5, 4)
MAPS = [torch.rand(2, 3, 7, 7).softmax(dim=-1) for _ in range(2)]
NUMBERS = (IMAGES * 255).to(torch.uint8)
FIXTURE = np.load(Path(__file__).resolve().parents[1] / "resources" / "test_images.npy")

WIDTHS = dict(hidden_dim=16, num_heads=2, mlp_dim=24)
BUILD = {
    PatchEmbedding: dict(image_size=(8, 12), patch_size=4, hidden_dim=16),
    ImageEmbedding: dict(image_size=(8, 12), patch_size=4, hidden_dim=16),
    MultiHeadSelfAttention: dict(hidden_dim=16, num_heads=2),
    MLPBlock: dict(hidden_dim=16, mlp_dim=24),
    EncoderBlock: WIDTHS,
    Encoder: dict(WIDTHS, num_layers=2),
    VisionTransformer: SMALL,
    create_vit: dict(variant="Ti/16", image_size=32),
}
BUILT = {cls.__name__: cls(**arguments) for cls, arguments in BUILD.items() if cls is not create_vit}
MODEL = BUILT["VisionTransformer"]

ONE_SIZE = ["patch_size", "hidden_dim", "num_heads", "mlp_dim", "num_layers", "num_classes", "in_channels"]


def wrong_arguments():
    """Yield a case for every wrong value of every argument with which something is built."""
    for build, good in BUILD.items():
        for name in inspect.signature(build).parameters:
            wrong = {}  # value: what the message says of it
            if name in ONE_SIZE:
                wrong = {value: "must be a whole number of at least 1" for value in (0, -4, 2.5, "4", True, None)}
            elif name == "image_size":
                wrong = {value: "must be a whole number of at least 1" for value in (0, -8, 8.5, "8", None)}
                wrong |= {(8, 0): "must be a whole number of at least 1; got 0"}
                wrong |= {(2.5, 8): "must be a whole number of at least 1; got 2.5"}
                wrong |= {(8,): "must be one number or a pair (height, width); got 1 numbers"}
                wrong |= {(3, 8, 8): "must be one number or a pair (height, width); got 3 numbers"}
                p = good.get("patch_size", 16)
                wrong |= {2 * p + 1: f"must be divisible by patch_size={p}; got {2 * p + 1} x {2 * p + 1}"}
                wrong |= {(p, 2 * p - 1): f"must be divisible by patch_size={p}; got {p} x {2 * p - 1}"}
                wrong |= {(p - 1, p): f"must be divisible by patch_size={p}; got {p - 1} x {p}"}
            elif "dropout" in name:
                wrong = {value: "must be at least 0 and less than 1" for value in (-0.1, 1.0, 1, math.nan, "0.1", None)}
            for value, says in wrong.items():
                came = "" if "got" in says else f"got {value!r}"
                yield (
                    build.__name__,
                    f"{name}={value!r}",
                    partial(build, **good | {name: value}),
                    f"{name} {says}",
                    came,
                )
        if {"hidden_dim", "num_heads"} <= good.keys():
            says = "hidden_dim must be divisible by num_heads=3"
            yield build.__name__, "heads that do not divide", partial(build, **good | {"num_heads": 3}), says, "got 16"


def wrong_images():
    """Yield the cases of everything that takes images of the small model's size."""
    for method in [
        "PatchEmbedding.forward",
        "ImageEmbedding.forward",
        "VisionTransformer.forward",
        "VisionTransformer.forward_features",
        "VisionTransformer.attention_maps",
    ]:
        name, _, call = method.partition(".")
        call = getattr(BUILT[name], call)
        yield method, "no batch axis", partial(call, IMAGES[0]), "images must have 4 axes, (b, c, h, w)", "got 3", "12)"
        expected = "images must have shape (b, c=3, h=8, w=12)"
        yield method, "smaller", partial(call, IMAGES[..., :8]), expected, "got (4, 3, 8, 8)"
        yield method, "transposed", partial(call, IMAGES.mT), expected, "got (4, 3, 12, 8)"
        yield method, "grey", partial(call, IMAGES[:, :1]), expected, "got (4, 1, 8, 12)"
        yield method, "channels last", partial(call, IMAGES.movedim(1, 3)), expected, "got (4, 8, 12, 3)"
        yield method, "integers", partial(call, NUMBERS), "images must be floating point", "got torch.uint8", "/ 255"
        yield method, "an array", partial(call, IMAGES.numpy()), "images must be a torch.Tensor", "got ndarray"


def wrong_tokens():
    """Yield the cases of everything that takes tokens."""
    for method in [
        "MLPBlock.forward",
        "MultiHeadSelfAttention.forward",
        "MultiHeadSelfAttention.attention_weights",
        "EncoderBlock.forward",
        "Encoder.forward",
        "Encoder.attention_maps",
    ]:
        name, _, call = method.partition(".")
        call = getattr(BUILT[name], call)
        yield method, "no batch axis", partial(call, TOKENS[0]), "x must have 3 axes, (b, s, d)", "got 2", "(7, 16)"
        if name.startswith("Encoder"):
            continue  # a block reads like the figure: its LayerNorm comes first, and speaks first
        expected = "x must have shape (b, s, d=16)"
        yield method, "narrower", partial(call, TOKENS[..., :8]), expected, "got (4, 7, 8)"
        yield method, "integers", partial(call, TOKENS.long()), "x must be floating point", "got torch.int64"
        yield method, "a list", partial(call, TOKENS.tolist()), "x must be a torch.Tensor (b, s, d)", "got list"


def cases(who, call, *rows):
    """Yield a case for every row: what is wrong, the arguments that make it so, what the message says."""
    for what, wrong, *says in rows:
        yield who, what, partial(call, **wrong), *says


# Calls that are good as they stand; every case changes something


def patch(images=IMAGES, patch_size=4):
    return patchify(images, patch_size)


def unpatch(**changes):
    return unpatchify(**dict(patches=torch.rand(2, 6, 48), patch_size=4, image_size=(8, 12)) | changes)


def attend(query=HEADS, key=HEADS, value=HEADS):
    return scaled_dot_product_attention(query, key, value)


def weigh(query=HEADS, key=HEADS):
    return attention_weights(query, key)


def load(write=lambda path: np.save(path, FIXTURE)):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test_images.npy"
        write(path)
        return load_test_images(path)


def labelled(images=IMAGES, labels=LABELS):
    return LabelledImages(images, labels, class_names="abcde", mean=torch.zeros(3), std=torch.ones(3))


def schedule(step=0, **changes):
    return learning_rate_schedule(step, **dict(total_steps=10, warmup_steps=2, peak=1.0) | changes)


def groups(weight_decay=0.1):
    return parameter_groups(MODEL, weight_decay)


def shift(images=IMAGES):
    return random_shift(images, torch.Generator())


def step(images=IMAGES, labels=LABELS, model=None, **options):
    model = model or copy.deepcopy(MODEL)
    return train_step(model, torch.optim.SGD(model.parameters(), lr=0.1), images, labels, **options)


def rate(images=IMAGES, labels=LABELS, dataset=None, **options):
    return evaluate(MODEL, TensorDataset(images, labels) if dataset is None else dataset, **options)


def train(train_set=None, valid_set=None, **changes):
    sets = [TensorDataset(IMAGES, LABELS) if each is None else each for each in (train_set, valid_set)]
    return fit(copy.deepcopy(MODEL), *sets, **dict(epochs=2, batch_size=4, peak_lr=1e-3, progress=False) | changes)


def roll(maps=MAPS):
    return inside.attention_rollout(maps)


def measure(maps=MAPS, **changes):
    return inside.attention_distance(maps, **dict(grid_size=(2, 3)) | changes)


def filters(count=3):
    return inside.projection_components(MODEL, count)


def stations(images=IMAGES):
    return inside.layer_tokens(MODEL, images)


def silence(heads=((0, 1), (1, 0))):
    return inside.silence_heads(MODEL, heads)


def ablate(images=IMAGES, labels=LABELS):
    return inside.head_ablation(MODEL, images, labels)


def near(features=TOKENS[0], queries=TOKENS[1, :3], count=2):
    return inside.nearest(features, queries, count)


def sample(write=lambda path: path.write_bytes(inside.SAMPLE.read_bytes())):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fashion_mnist_sample.npz"
        write(path)
        with mock.patch.object(inside, "SAMPLE", path):
            return inside.load_sample()


GOOD = [patch, unpatch, attend, weigh, load, labelled, schedule, groups, shift, step, rate, train]
GOOD += [roll, measure, filters, stations, silence, ablate, near, sample]


@pytest.mark.parametrize("call", GOOD)
def test_what_the_table_spoils_is_good_before(call):
    assert call() is not None


# Files


def array(content):
    return dict(write=lambda path: np.save(path, content, allow_pickle=True))


def content(change):
    """Return what writes the fixture's bytes, changed."""

    def write(path):
        np.save(path, FIXTURE)
        path.write_bytes(change(path.read_bytes()))

    return dict(write=write)


def zipped(path):
    with path.open("wb") as file:
        np.savez(file, images=FIXTURE)


# Parts of messages

WHOLE, COUNT = "must be a whole number of at least 1", "must be a whole number of at least 0"
FINITE, CHANCE = "must be a finite number of at least 0", "must be at least 0 and less than 1"
AXES, FLOATS, ARRAY = "images must have 4 axes, (b, c, h, w)", "images must be floating point", "images must be a torch"
FILE, REDRAW = "test_images.npy must be a readable .npy file without pickles", "resources/make_test_images.py"
HOLDS = "test_images.npy must hold floats of shape (6, 96, 96, 3)"
SCALE = "test_images.npy must hold values in [0, 1]"
RANGE = "labels must lie in 0 .. 4 for 5 classes"
VECTOR = "labels must be int64 of shape (4,), one an image"
NO_IMAGE = "images must hold at least one image"
SETS = "must be a TensorDataset of images and labels with at least one image"
BOTH_SIDES = "fraction must leave at least one on both sides"

LAYERS, PAIRS = "maps must be a list with one tensor a layer", "heads must hold pairs (layer, head)"
SQUARE = "maps must be square and all of one shape, (b, heads, s, s)"
FIRST_THOUSAND = "fashion_mnist_sample.npz must hold the 1,000 images that come with the course"

HIGH, NEGATIVE = dict(labels=LABELS + 1), dict(labels=LABELS - 1)
EMPTY = TensorDataset(IMAGES[:0], LABELS[:0])
ONE_HOT = nn.functional.one_hot(LABELS)

# who, what is wrong, the call, then what the message says: its beginning and, in this order, the rest
CASES = [
    *wrong_arguments(),
    *wrong_images(),
    *wrong_tokens(),
    # lesson 02
    *cases(
        "patchify",
        patch,
        ("no batch axis", dict(images=IMAGES[0]), AXES, "got 3: shape (3, 8, 12)"),
        ("integers", dict(images=NUMBERS), FLOATS, "got torch.uint8", ".float()", "/ 255"),
        ("an array", dict(images=IMAGES.numpy()), ARRAY, "got ndarray"),
        ("height", dict(images=IMAGES[:, :, 1:]), "images must have", "patch_size=4", "got 7 x 12"),
        ("width", dict(images=IMAGES[..., 1:]), "images must have", "patch_size=4", "got 8 x 11"),
        ("no pixels", dict(images=IMAGES[..., :0]), "images must have", "patch_size=4", "got 8 x 0"),
        ("larger than the image", dict(patch_size=16), "images must have", "patch_size=16", "got 8 x 12"),
        ("zero", dict(patch_size=0), f"patch_size {WHOLE}", "got 0"),
        ("negative", dict(patch_size=-4), f"patch_size {WHOLE}", "got -4"),
        ("fractional", dict(patch_size=4.0), f"patch_size {WHOLE}", "got 4.0"),
    ),
    *cases(
        "unpatchify",
        unpatch,
        ("no batch axis", dict(patches=torch.rand(6, 48)), "patches must have 3 axes", "got 2: shape (6, 48)"),
        ("integers", dict(patches=torch.ones(2, 6, 48).long()), "patches must be floating point", "torch.int64"),
        ("fewer patches", dict(patches=torch.rand(2, 5, 48)), "patches must have shape", "n=6", "got (2, 5, 48)"),
        ("other values", dict(patches=torch.rand(2, 6, 47)), "patches must have shape", "=48", "got (2, 6, 47)"),
        ("other channels", dict(channels=1), "patches must have shape", "=16", "got (2, 6, 48)"),
        ("channels=0", dict(channels=0), f"channels {WHOLE}", "got 0"),
        ("channels=1.5", dict(channels=1.5), f"channels {WHOLE}", "got 1.5"),
        ("patch_size=0", dict(patch_size=0), f"patch_size {WHOLE}", "got 0"),
        ("patch_size=-4", dict(patch_size=-4), f"patch_size {WHOLE}", "got -4"),
        ("patch_size=4.0", dict(patch_size=4.0), f"patch_size {WHOLE}", "got 4.0"),
        ("image_size=-8", dict(image_size=-8), f"image_size {WHOLE}", "got -8"),
        ("image_size=(8,)", dict(image_size=(8,)), "image_size must be one number or a pair", "got 1 numbers"),
        ("not divisible", dict(image_size=(8, 13)), "image_size must be divisible by patch_size=4", "got 8 x 13"),
    ),
    # lesson 03
    *(
        case
        for who, call in [("attention_weights", weigh), ("scaled_dot_product_attention", attend)]
        for case in cases(
            who,
            call,
            ("no heads axis", dict(query=HEADS[:, 0]), "query must have 4 axes, (b, heads, i, e)", "got 3"),
            ("integers", dict(query=HEADS.long()), "query must be floating point", "got torch.int64"),
            ("a list", dict(key=[1.0]), "key must be a torch.Tensor (b, heads, j, e)", "got list"),
            ("key e", dict(key=HEADS[..., :3]), "key must have shape (b=2, heads=3, j, e=4)", "got (2, 3, 5, 3)"),
            ("key heads", dict(key=HEADS[:, :2]), "key must have shape (b=2, heads=3, j, e=4)", "got (2, 2, 5, 4)"),
        )
    ),
    *cases(
        "scaled_dot_product_attention",
        attend,
        ("value j", dict(value=HEADS[:, :, :4]), "value must have shape (b=2, heads=3, j=5, v)", "got (2, 3, 4, 4)"),
        ("value b", dict(value=HEADS[:1]), "value must have shape (b=2, heads=3, j=5, v)", "got (1, 3, 5, 4)"),
    ),
    # lesson 05
    *cases(
        "VisionTransformer",
        partial(VisionTransformer, **SMALL),
        ("unknown pool", dict(pool="max"), "pool must be one of 'token', 'mean'", "got 'max'"),
        ("no pool", dict(pool=None), "pool must be one of 'token', 'mean'", "got None"),
    ),
    *cases(
        "create_vit",
        partial(create_vit, **BUILD[create_vit]),
        ("unknown variant", dict(variant="B/15"), "variant must be one of 'Ti/16'", "'H/14'", "got 'B/15'"),
        ("another library's name", dict(variant="vit_b_16"), "variant must be one of", "got 'vit_b_16'"),
        ("not a name", dict(variant=16), "variant must be one of", "got 16"),
        ("unknown pool", dict(pool="max"), "pool must be one of 'token', 'mean'", "got 'max'"),
        ("dropout=1.0", dict(dropout=1.0), f"dropout {CHANCE}", "got 1.0"),
    ),
    # data
    *cases(
        "load_test_images",
        load,
        ("missing", dict(write=lambda path: None), FILE, "No such file", REDRAW),
        ("a folder", dict(write=lambda path: path.mkdir()), FILE, REDRAW),
        ("empty", dict(write=lambda path: path.touch()), FILE, REDRAW),
        ("truncated", content(lambda whole: whole[:-1]), FILE, REDRAW),
        ("cut in its header", content(lambda whole: whole[:50]), FILE, REDRAW),
        ("a damaged header", content(lambda whole: whole[:20] + 30 * b"\0(" + whole[80:]), FILE, REDRAW),
        ("pickled", array(np.array([FIXTURE, None], dtype=object)), FILE, "pickle", REDRAW),
        ("a pickle", content(lambda whole: FIXTURE.dumps()), FILE, REDRAW),
        ("an npz", dict(write=zipped), "test_images.npy must ", REDRAW),
        ("a truncated npz", content(lambda whole: b"PK\x03\x04" + whole), FILE, REDRAW),
        ("channels first", array(np.moveaxis(FIXTURE, 3, 1)), HOLDS, "got float32 (6, 3, 96, 96)", REDRAW),
        ("five images", array(FIXTURE[:5]), HOLDS, "got float32 (5, 96, 96, 3)", REDRAW),
        ("integers", array((FIXTURE * 255).astype(np.uint8)), HOLDS, "got uint8 (6, 96, 96, 3)", REDRAW),
        ("up to 255", array(FIXTURE * 255), SCALE, "to 255.0", REDRAW),
        ("negative", array(FIXTURE - 1), SCALE, "got -", REDRAW),
        ("nan", array(FIXTURE * np.nan), SCALE, "got nan", REDRAW),
    ),
    *cases(
        "load_dataset",
        load_dataset,
        ("unknown", dict(name="mnist"), "name must be one of 'digits'", "got 'mnist'"),
        ("not a name", dict(name=None), "name must be one of 'digits'", "got None"),
    ),
    *cases(
        "LabelledImages",
        labelled,
        ("empty", dict(images=IMAGES[:0], labels=LABELS[:0]), NO_IMAGE, "got an empty"),
        ("no batch axis", dict(images=IMAGES[0]), AXES, "got 3"),
        ("integers", dict(images=NUMBERS), FLOATS, "got torch.uint8"),
        ("label 5 of 5", HIGH, RANGE, "got values from 1 to 5"),
        ("label -1", NEGATIVE, RANGE, "got values from -1 to 3"),
        ("fewer labels", dict(labels=LABELS[:3]), VECTOR, "got torch.int64 of shape (3,)"),
        ("fractional labels", dict(labels=LABELS / 2), VECTOR, "got torch.float32"),
        ("a list of labels", dict(labels=[0, 1, 2, 3]), VECTOR, "got list"),
    ),
    *cases(
        "LabelledImages.split",
        labelled().split,
        ("negative", dict(fraction=-0.1), f"fraction {CHANCE}", "got -0.1"),
        ("all", dict(fraction=1.0), f"fraction {CHANCE}", "got 1.0"),
        ("nan", dict(fraction=math.nan), f"fraction {CHANCE}", "got nan"),
        ("none", dict(fraction=0.0), BOTH_SIDES, "got 0.0: 0 of 4"),
        ("rounded to all", dict(fraction=0.99), BOTH_SIDES, "got 0.99: 4 of 4"),
    ),
    # lesson 06
    *cases(
        "learning_rate_schedule",
        schedule,
        ("step=-1", dict(step=-1), f"step {COUNT}", "got -1"),
        ("step=1.5", dict(step=1.5), f"step {COUNT}", "got 1.5"),
        ("total_steps=0", dict(total_steps=0), f"total_steps {WHOLE}", "got 0"),
        ("total_steps=2.5", dict(total_steps=2.5), f"total_steps {WHOLE}", "got 2.5"),
        ("warmup_steps=-1", dict(warmup_steps=-1), f"warmup_steps {COUNT}", "got -1"),
        ("warmup_steps=0.5", dict(warmup_steps=0.5), f"warmup_steps {COUNT}", "got 0.5"),
        ("only warm-up", dict(warmup_steps=11), "warmup_steps must be at most total_steps=10", "got 11"),
        ("peak=-1", dict(peak=-1.0), f"peak {FINITE}", "got -1.0"),
        ("peak=inf", dict(peak=math.inf), f"peak {FINITE}", "got inf"),
        ("final=-0.1", dict(final=-0.1), f"final {FINITE}", "got -0.1"),
        ("final=nan", dict(final=math.nan), f"final {FINITE}", "got nan"),
        ("final above peak", dict(final=2.0), "final must be at most peak=1.0", "got 2.0"),
    ),
    *cases(
        "parameter_groups",
        groups,
        ("negative", dict(weight_decay=-0.1), f"weight_decay {FINITE}", "got -0.1"),
        ("nan", dict(weight_decay=math.nan), f"weight_decay {FINITE}", "got nan"),
    ),
    *cases(
        "random_shift",
        shift,
        ("no batch axis", dict(images=IMAGES[0]), AXES, "got 3"),
        ("integers", dict(images=NUMBERS), FLOATS, "got torch.uint8"),
    ),
    *(
        case
        for who, call in [("train_step", step), ("evaluate", rate)]
        for case in cases(
            who,
            call,
            ("integers", dict(images=NUMBERS), FLOATS, "got torch.uint8"),
            ("smaller images", dict(images=IMAGES[..., 4:]), "images must have shape (b, c=3, h=8, w=12)", "8, 8)"),
            ("label 5 of 5", HIGH, RANGE, "got values from 1 to 5"),
            ("label -1", NEGATIVE, RANGE, "got values from -1 to 3"),
            ("int32 labels", dict(labels=LABELS.int()), VECTOR, "got torch.int32 of shape (4,)"),
            ("one-hot labels", dict(labels=ONE_HOT), VECTOR, "got torch.int64 of shape (4, 5)"),
        )
    ),
    *cases(
        "train_step",
        step,
        ("no batch axis", dict(images=IMAGES[0]), AXES, "got 3"),
        ("fewer labels", dict(labels=LABELS[:3]), VECTOR, "got torch.int64 of shape (3,)"),
        ("an empty batch", dict(images=IMAGES[:0], labels=LABELS[:0]), NO_IMAGE, "got an empty"),
        ("label_smoothing=1", dict(label_smoothing=1.0), f"label_smoothing {CHANCE}", "got 1.0"),
        ("label_smoothing=-0.1", dict(label_smoothing=-0.1), f"label_smoothing {CHANCE}", "got -0.1"),
        ("max_grad_norm=-1", dict(max_grad_norm=-1.0), f"max_grad_norm {FINITE}", "got -1.0"),
        ("max_grad_norm=nan", dict(max_grad_norm=math.nan), f"max_grad_norm {FINITE}", "got nan"),
    ),
    *cases(
        "evaluate",
        rate,
        ("empty", dict(dataset=EMPTY), f"dataset {SETS}", "got 0 images"),
        ("a list", dict(dataset=[IMAGES, LABELS]), f"dataset {SETS}", "got list"),
        ("images alone", dict(dataset=TensorDataset(IMAGES)), f"dataset {SETS}"),
        ("no channel axis", dict(images=IMAGES[:, 0]), AXES, "got 3"),
        ("batch_size=0", dict(batch_size=0), f"batch_size {WHOLE}", "got 0"),
        ("batch_size=-4", dict(batch_size=-4), f"batch_size {WHOLE}", "got -4"),
        ("batch_size=2.5", dict(batch_size=2.5), f"batch_size {WHOLE}", "got 2.5"),
    ),
    *cases(
        "fit",
        train,
        ("nothing to train on", dict(train_set=EMPTY), f"train_set {SETS}", "got 0 images"),
        ("nothing to validate on", dict(valid_set=EMPTY), f"valid_set {SETS}", "got 0 images"),
        ("a list", dict(train_set=[IMAGES, LABELS]), f"train_set {SETS}", "got list"),
        ("integers", dict(train_set=TensorDataset(NUMBERS, LABELS)), FLOATS, "got torch.uint8"),
        ("label 5 of 5", dict(train_set=TensorDataset(IMAGES, LABELS + 1)), RANGE, "from 1 to 5"),
        ("label -1 to validate", dict(valid_set=TensorDataset(IMAGES, LABELS - 1)), RANGE, "from -1 to 3"),
        ("epochs=0", dict(epochs=0), f"epochs {WHOLE}", "got 0"),
        ("epochs=1.5", dict(epochs=1.5), f"epochs {WHOLE}", "got 1.5"),
        ("batch_size=0", dict(batch_size=0), f"batch_size {WHOLE}", "got 0"),
        ("batch_size=2.5", dict(batch_size=2.5), f"batch_size {WHOLE}", "got 2.5"),
        ("peak_lr=-1", dict(peak_lr=-1.0), f"peak_lr {FINITE}", "got -1.0"),
        ("peak_lr=nan", dict(peak_lr=math.nan), f"peak_lr {FINITE}", "got nan"),
        ("warmup_epochs=-1", dict(warmup_epochs=-1), "warmup_epochs must be a whole number", "got -1"),
        ("warmup_epochs=0.5", dict(warmup_epochs=0.5), "warmup_epochs must be a whole number", "got 0.5"),
        ("more warm-up than epochs", dict(warmup_epochs=3), "warmup_epochs must be", "2", "got 3"),
        ("weight_decay=-1", dict(weight_decay=-1.0), f"weight_decay {FINITE}", "got -1.0"),
        ("label_smoothing=1", dict(label_smoothing=1.0), f"label_smoothing {CHANCE}", "got 1.0"),
    ),
    # lesson 07
    *cases(
        "load_sample",
        sample,
        ("missing", dict(write=lambda path: None), FIRST_THOUSAND, "No such file", "git restore"),
        ("empty", dict(write=lambda path: path.touch()), FIRST_THOUSAND, "git restore"),
        ("another array", dict(write=zipped), FIRST_THOUSAND, "labels is not a file", "git restore"),
    ),
    *(
        case
        for who, call in [("attention_rollout", roll), ("attention_distance", measure)]
        for case in cases(
            who,
            call,
            ("no maps", dict(maps=[]), LAYERS, "got an empty one"),
            ("a tensor", dict(maps=torch.stack(MAPS)), LAYERS, "got Tensor"),
            ("a generator", dict(maps=iter(MAPS)), LAYERS, "got list_iterator"),
            ("no heads axis", dict(maps=[layer[:, 0] for layer in MAPS]), "maps must have 4 axes", "got 3"),
            ("integers", dict(maps=[layer.long() for layer in MAPS]), "maps must be floating point", "torch.int64"),
            ("a list", dict(maps=[MAPS[0], [1.0]]), "maps must be a torch.Tensor (b, heads, s, s)", "got list"),
            ("fewer keys", dict(maps=[layer[..., 1:] for layer in MAPS]), SQUARE, "got [(2, 3, 7, 6), (2, 3, 7, 6)]"),
            ("fewer images", dict(maps=[MAPS[0], MAPS[1][:1]]), SQUARE, "got [(2, 3, 7, 7), (1, 3, 7, 7)]"),
            ("and then a list", dict(maps=[*MAPS, MAPS[0][:1], [1.0]]), "maps must be a torch.Tensor", "got list"),
        )
    ),
    *cases(
        "attention_distance",
        measure,
        ("another grid", dict(grid_size=(2, 2)), "grid_size must have n = 6 patches", "got 2 x 2 = 4"),
        ("with the class token", dict(grid_size=(1, 7)), "grid_size must have n = 6 patches", "got 1 x 7 = 7"),
        ("one number", dict(grid_size=3), "grid_size must have n = 6 patches", "got 3 x 3 = 9"),
        ("three numbers", dict(grid_size=(1, 2, 3)), "grid_size must be one number or a pair", "got 3 numbers"),
        ("grid_size=(0, 6)", dict(grid_size=(0, 6)), f"grid_size {WHOLE}", "got 0"),
        ("patch_size=0", dict(patch_size=0), f"patch_size {WHOLE}", "got 0"),
        ("patch_size=2.5", dict(patch_size=2.5), f"patch_size {WHOLE}", "got 2.5"),
    ),
    *cases(
        "projection_components",
        filters,
        ("count=0", dict(count=0), f"count {WHOLE}", "got 0"),
        ("count=1.5", dict(count=1.5), f"count {WHOLE}", "got 1.5"),
        ("more than filters", dict(count=17), "count must be at most min(d, c * p * p)=16", "got 17"),
    ),
    *(
        case
        for who, call in [("layer_tokens", stations), ("head_ablation", ablate)]
        for case in cases(
            who,
            call,
            ("no batch axis", dict(images=IMAGES[0]), AXES, "got 3"),
            ("integers", dict(images=NUMBERS), FLOATS, "got torch.uint8"),
            ("smaller images", dict(images=IMAGES[..., 4:]), "images must have shape (b, c=3, h=8, w=12)", "8, 8)"),
        )
    ),
    *cases(
        "silence_heads",
        silence,
        ("one pair alone", dict(heads=(0, 1)), PAIRS, "such as [(0, 1)]", "got 0"),
        ("a number", dict(heads=1), PAIRS, "got 1"),
        ("three numbers", dict(heads=[(0, 1), (0, 1, 1)]), PAIRS, "got (0, 1, 1)"),
        ("layer 2 of 2", dict(heads=[(2, 0)]), "layer must be at most num_layers - 1=1", "got 2"),
        ("head 2 of 2", dict(heads=[(0, 1), (0, 2)]), "head must be at most num_heads - 1=1", "got 2"),
        ("layer -1", dict(heads=[(-1, 0)]), f"layer {COUNT}", "got -1"),
        ("head -1", dict(heads=[(0, -1)]), f"head {COUNT}", "got -1"),
        ("a fractional head", dict(heads=[(0, 0.5)]), f"head {COUNT}", "got 0.5"),
    ),
    *cases(
        "head_ablation",
        ablate,
        ("no image", dict(images=IMAGES[:0], labels=LABELS[:0]), NO_IMAGE, "got an empty"),
        ("fewer labels", dict(labels=LABELS[:3]), VECTOR, "got torch.int64 of shape (3,)"),
        ("one-hot labels", dict(labels=ONE_HOT), VECTOR, "got torch.int64 of shape (4, 5)"),
        ("label 5 of 5", HIGH, RANGE, "got values from 1 to 5"),
        ("label -1", NEGATIVE, RANGE, "got values from -1 to 3"),
    ),
    *cases(
        "nearest",
        near,
        ("a batch of features", dict(features=TOKENS), "features must have 2 axes, (n, d)", "got 3"),
        ("integers", dict(features=TOKENS[0].long()), "features must be floating point", "got torch.int64"),
        ("a list", dict(features=[[1.0]]), "features must be a torch.Tensor (n, d)", "got list"),
        ("one vector", dict(queries=TOKENS[0, 0]), "queries must have 2 axes, (m, d)", "got 1: shape (16,)"),
        ("shorter vectors", dict(queries=TOKENS[0, :, :8]), "queries must have shape (m, d=16)", "got (7, 8)"),
        ("count=0", dict(count=0), f"count {WHOLE}", "got 0"),
        ("count=2.5", dict(count=2.5), f"count {WHOLE}", "got 2.5"),
        ("more than there are", dict(count=8), "count must be at most n=7", "got 8"),
    ),
]


@pytest.mark.parametrize(
    ("call", "beginning", "rest"),
    [pytest.param(call, beginning, rest, id=f"{who}: {what}") for who, what, call, beginning, *rest in CASES],
)
def test_bad_input(call, beginning, rest):
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert caught.type is ValueError
    # a file is named with its folder
    pattern = r"(.*[\\/])?" + ".*".join(re.escape(part) for part in [beginning, *rest])
    assert re.match(pattern, str(caught.value), flags=re.DOTALL), f"says: {caught.value}"


def test_every_public_callable_is_in_the_table():
    public = set()
    for name in ["embedding", "attention", "encoder", "model", "data", "training", "inside"]:
        module = importlib.import_module(f"vit_course.{name}")
        for each in vars(module).values():
            if getattr(each, "__module__", "") != module.__name__ or each.__name__.startswith("_"):
                continue
            public.add(each.__name__)
            for method in vars(each).values() if inspect.isclass(each) else ():
                if inspect.isfunction(method) and not method.__name__.startswith("_"):
                    public.add(method.__qualname__)
    # nothing can be wrong: sizes that the caller has checked; no argument; a model alone
    assert {who for who, *_ in CASES} == public - {"xavier_linear", "LabelledImages.normalized", "position_similarity"}


def test_what_is_wrong_stands_once_in_the_table():
    names = [(who, what) for who, what, *_ in CASES]
    assert len(names) == len(set(names))


def test_missing_everywhere_the_images_are_looked_for_in_the_clone(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "__file__", str(tmp_path / "clone" / "vit_course" / "data.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"clone.resources.test_images\.npy must be .*make_test_images\.py") as caught:
        load_test_images()
    assert caught.type is ValueError


@pytest.mark.parametrize("wrong", [HIGH, dict(label_smoothing=1.0), dict(max_grad_norm=-1.0)])
def test_a_step_that_fails_changes_no_weight(wrong):
    model = small_model().float()
    before = parameters_of(model)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        step(model=model, **wrong)
    assert_equal(parameters_of(model), before, atol=0)
