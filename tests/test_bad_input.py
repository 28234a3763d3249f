"""Bad input, one table: every case raises a ``ValueError`` with the argument's name in front, and says what came."""

import inspect
import math
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from support import SMALL, assert_equal, parameters_of
from torch import nn
from torch.utils.data import TensorDataset

from vit_course import VisionTransformer, arguments, create_vit, inside, patchify, training, unpatchify
from vit_course.attention import MultiHeadSelfAttention, attention_weights, scaled_dot_product_attention
from vit_course.augmentation import random_crop, random_flip, random_shift
from vit_course.data import LabeledImages, load_dataset, load_sample, load_test_images
from vit_course.embedding import ImageEmbedding, PatchEmbedding
from vit_course.encoder import Encoder, EncoderBlock, MLPBlock

pytestmark = pytest.mark.usefixtures("as_readers_run_it")

IMAGES, LABELS = torch.rand(4, 3, 8, 12), torch.tensor([0, 4, 2, 1])
TOKENS, HEADS = torch.rand(4, 7, 16), torch.rand(2, 3, 5, 4)
MAPS = [torch.rand(2, 3, 7, 7).softmax(dim=-1) for _ in range(2)]
NUMBERS = (IMAGES * 255).to(torch.uint8)
IMAGE_SET = TensorDataset(IMAGES, LABELS)
RESOURCES = Path(__file__).resolve().parents[1] / "resources"
FIXTURE = np.load(RESOURCES / "test_images.npy")

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
BUILT = {cls.__name__: cls(**options) for cls, options in BUILD.items() if cls is not create_vit}
MODEL = BUILT["VisionTransformer"]

WHOLE, COUNT = "must be a whole number of at least 1", "must be a whole number of at least 0"
FINITE, CHANCE = "must be a finite number of at least 0", "must be at least 0 and less than 1"
POSITIVE = "must be a finite number above 0"
AXES, FLOATS = "images must have 4 axes, (b, c, h, w)", "images must be floating point"
SHAPE = "images must have shape (b, c=3, h=8, w=12)"
RANGE, VECTOR = "labels must lie in 0 .. 4 for 5 classes", "labels must be int64 of shape (4,), one an image"
SETS = "must be a TensorDataset of images and labels with at least one image"
SQUARE = "maps must be square and all of one shape, (b, heads, s, s)"


# What the checks of arguments say, value by value. Below, each argument of each function has one wrong value.

WRONG_VALUES = [
    (arguments.whole_number, (0, -4, 2.5, 4.0, "4", True, None, math.nan), WHOLE),
    (arguments.real_number, (-0.1, math.inf, math.nan, "1", True, None), FINITE),
    (arguments.positive_number, (0, -1.0, math.inf, "1", False), POSITIVE),
    (arguments.probability, (-0.1, 1.0, 1, math.nan, "0.1", True, None), CHANCE),
    (arguments.size_pair, (0, -8, 8.5, "8", None, (8, 0), (2.5, 8)), WHOLE),
    (arguments.size_pair, ((8,), (3, 8, 8)), "must be one number or a pair (height, width)"),
]


@pytest.mark.parametrize(("check", "values", "says"), WRONG_VALUES)
def test_checks_refuse_wrong_values(check, values, says):
    for value in values:
        with pytest.raises(ValueError, match=f"^name {re.escape(says)}; got ") as caught:
            check("name", value)
        assert isinstance(value, tuple) or str(caught.value).endswith(f"; got {value!r}")


# Calls that are good as they stand; every case changes something


def evaluate(images=IMAGES, labels=LABELS, dataset=None, **options):
    return training.evaluate(MODEL, TensorDataset(images, labels) if dataset is None else dataset, **options)


LABELLED = dict(images=IMAGES, labels=LABELS, class_names="abcde", mean=torch.zeros(3), std=torch.ones(3))
STEP = dict(model=MODEL, optimizer=torch.optim.SGD(MODEL.parameters(), lr=0.1), images=IMAGES, labels=LABELS)
CALLS = BUILD | {
    patchify: dict(images=IMAGES, patch_size=4),
    unpatchify: dict(patches=torch.rand(2, 6, 48), patch_size=4, image_size=(8, 12)),
    attention_weights: dict(query=HEADS, key=HEADS),
    scaled_dot_product_attention: dict(query=HEADS, key=HEADS, value=HEADS),
    load_dataset: dict(name="digits"),
    LabeledImages: LABELLED,
    LabeledImages(**LABELLED).split: dict(fraction=0.5),
    training.learning_rate_schedule: dict(step=0, total_steps=10, warmup_steps=2, peak=1.0),
    training.parameter_groups: dict(model=MODEL, weight_decay=0.1),
    random_shift: dict(images=IMAGES, generator=torch.Generator()),
    random_flip: dict(images=IMAGES, generator=torch.Generator()),
    random_crop: dict(images=IMAGES, padding=1, generator=torch.Generator()),
    training.train_step: STEP,
    training.regularized_train_step: STEP,
    evaluate: {},
    training.fit: dict(model=MODEL, train_set=IMAGE_SET, valid_set=IMAGE_SET, epochs=2, batch_size=4, peak_lr=1e-3),
    inside.attention_rollout: dict(maps=MAPS),
    inside.attention_distance: dict(maps=MAPS, grid_size=(2, 3)),
    inside.projection_components: dict(model=MODEL, count=3),
    inside.layer_tokens: dict(model=MODEL, images=IMAGES),
    inside.silence_heads: dict(model=MODEL, heads=((0, 1), (1, 0))),
    inside.head_ablation: dict(model=MODEL, images=IMAGES, labels=LABELS),
    inside.nearest: dict(features=TOKENS[0], queries=TOKENS[1, :3], count=2),
}
GOOD = {call.__name__: partial(call, **good) for call, good in CALLS.items()}


def sizes_and_probabilities():
    """Yield a case for every argument with which something is built."""
    for build, good in BUILD.items():
        who, p = build.__name__, good.get("patch_size", 16)
        for name in inspect.signature(build).parameters:
            value, says = (1.0, CHANCE) if name.endswith("dropout") else (0, WHOLE)
            if name.endswith(("_size", "_dim", "_channels", "dropout")) or name.startswith("num_"):
                yield who, {name: value}, f"{name} {says}; got {value}"
        if "image_size" in good:
            yield who, dict(image_size=(p, p - 1)), f"image_size must be divisible by patch_size={p}; got {p} x {p - 1}"
        if "num_heads" in good:
            yield who, dict(num_heads=3), "hidden_dim must be divisible by num_heads=3; got 16"


def images_and_tokens():
    """Yield the cases of everything that takes images of the small model's size, or tokens of its width."""
    images = [
        (IMAGES[0], f"{AXES}; got 3: shape (3, 8, 12)"),
        (IMAGES.mT, f"{SHAPE}; got (4, 3, 12, 8)"),
        (NUMBERS, f"{FLOATS}; got torch.uint8: convert with .float(), scale with / 255"),
        (IMAGES.numpy(), "images must be a torch.Tensor (b, c, h, w); got ndarray"),
    ]
    axes = (TOKENS[0], "x must have 3 axes, (b, s, d); got 2: shape (7, 16)")
    width = (TOKENS[..., :8], "x must have shape (b, s, d=16); got (4, 7, 8)")
    for name, module in BUILT.items():
        # a block reads like the figure: its LayerNorm comes first, and complains of the width
        tokens = [axes] if name.startswith("Encoder") else [axes, width]
        for value, says in images if hasattr(module, "forward_features") or "Emb" in name else tokens:
            yield name, partial(module, value), says


HIGH, NEGATIVE = dict(labels=LABELS + 1), dict(labels=LABELS - 1)
NOTHING = dict(images=IMAGES[:0], labels=LABELS[:0])
EMPTY = TensorDataset(*NOTHING.values())
OF_IMAGES = [(dict(images=IMAGES[0]), AXES, "got 3"), (dict(images=NUMBERS), FLOATS, "got torch.uint8")]
OF_OUR_IMAGES = [*OF_IMAGES, (dict(images=IMAGES[..., 4:]), SHAPE, "got (4, 3, 8, 8)")]
OF_LABELS = [
    (HIGH, RANGE, "got values from 1 to 5"),
    (NEGATIVE, RANGE, "got values from -1 to 3"),
    (dict(labels=LABELS.int()), VECTOR, "got torch.int32 of shape (4,)"),
    (dict(labels=nn.functional.one_hot(LABELS)), VECTOR, "got torch.int64 of shape (4, 5)"),
    (dict(labels=[0, 1, 2, 3]), VECTOR, "got list"),
    (NOTHING, "images must hold at least one image", "got an empty"),
]
OF_QUERY_AND_KEY = [
    (dict(query=HEADS[:, 0]), "query must have 4 axes, (b, heads, i, e)", "got 3"),
    (dict(query=HEADS.long()), "query must be floating point", "got torch.int64"),
    (dict(key=[1.0]), "key must be a torch.Tensor (b, heads, j, e)", "got list"),
    (dict(key=HEADS[..., :3]), "key must have shape (b=2, heads=3, j, e=4)", "got (2, 3, 5, 3)"),
]
OF_MAPS = [
    (dict(maps=[]), "maps must be a list with one tensor a layer", "got an empty one"),
    (dict(maps=torch.stack(MAPS)), "maps must be a list with one tensor a layer", "got Tensor"),
    (dict(maps=[*MAPS, MAPS[0][:1], [1.0]]), "maps must be a torch.Tensor (b, heads, s, s)", "got list"),
    (dict(maps=[layer[..., 1:] for layer in MAPS]), SQUARE, "got [(2, 3, 7, 6), (2, 3, 7, 6)]"),
    (dict(maps=[MAPS[0], MAPS[1][:1]]), SQUARE, "got [(2, 3, 7, 7), (1, 3, 7, 7)]"),
]

# what several calls have in common
SHARED = [
    (OF_IMAGES, "patchify LabeledImages random_shift random_flip random_crop"),
    (OF_OUR_IMAGES, "train_step regularized_train_step layer_tokens head_ablation"),
    (OF_LABELS, "train_step regularized_train_step head_ablation LabeledImages"),
    ([*OF_OUR_IMAGES[1:], *OF_LABELS[:2]], "evaluate"),
    (OF_QUERY_AND_KEY, "attention_weights scaled_dot_product_attention"),
    (OF_MAPS, "attention_rollout attention_distance"),
]
# one wrong number for every argument that is one
NUMBERS_OF = {
    "patchify": dict(patch_size=(0, WHOLE)),
    "unpatchify": dict(channels=(0, WHOLE), patch_size=(0, WHOLE)),
    "split": dict(fraction=(1.0, CHANCE)),
    "learning_rate_schedule": dict(step=(-1, COUNT), total_steps=(0, WHOLE), peak=(math.inf, FINITE)),
    "parameter_groups": dict(weight_decay=(-0.1, FINITE)),
    "regularized_train_step": dict(max_grad_norm=(0, POSITIVE), label_smoothing=(1.0, CHANCE)),
    "random_crop": dict(padding=(-1, COUNT)),
    "evaluate": dict(batch_size=(0, WHOLE)),
    "fit": dict(epochs=(0, WHOLE), batch_size=(0, WHOLE), peak_lr=(-1.0, FINITE), weight_decay=(-1.0, FINITE)),
    "projection_components": dict(count=(0, WHOLE)),
}
# what is called, what is changed, and what the message says: its beginning and, in this order, the rest
ROWS = [
    ("patchify", dict(images=IMAGES[:, :, 1:]), "images must have", "patch_size=4", "got 7 x 12"),
    ("patchify", dict(images=IMAGES[..., :0]), "images must have", "patch_size=4", "got 8 x 0"),
    ("unpatchify", dict(patches=torch.rand(6, 48)), "patches must have 3 axes", "got 2: shape (6, 48)"),
    ("unpatchify", dict(patches=torch.rand(2, 5, 48)), "patches must have shape", "n=6", "got (2, 5, 48)"),
    ("unpatchify", dict(patches=torch.rand(2, 6, 47)), "patches must have shape", "=48", "got (2, 6, 47)"),
    ("unpatchify", dict(image_size=(8, 13)), "image_size must be divisible by patch_size=4", "got 8 x 13"),
    ("scaled_dot_product_attention", dict(value=HEADS[:, :, :4]), "value must have shape", "j=5", "got (2, 3, 4, 4)"),
    ("VisionTransformer", dict(pool="max"), "pool must be one of 'token', 'mean'", "got 'max'"),
    ("create_vit", dict(variant="vit_b_16"), "variant must be one of 'Ti/16'", "'H/14'", "got 'vit_b_16'"),
    ("load_dataset", dict(name="mnist"), "name must be one of 'digits'", "got 'mnist'"),
    ("split", dict(fraction=0.0), "fraction must leave at least one on both sides", "got 0.0: 0 of 4"),
    ("learning_rate_schedule", dict(warmup_steps=11), "warmup_steps must be at most total_steps=10", "got 11"),
    ("learning_rate_schedule", dict(final=2.0), "final must be at most peak=1.0", "got 2.0"),
    ("evaluate", dict(dataset=EMPTY), f"dataset {SETS}", "got 0 images"),
    ("evaluate", dict(dataset=[IMAGES, LABELS]), f"dataset {SETS}", "got list"),
    ("fit", dict(train_set=EMPTY), f"train_set {SETS}", "got 0 images"),
    ("fit", dict(train_set=TensorDataset(IMAGES, LABELS + 1)), RANGE, "from 1 to 5"),
    ("fit", dict(warmup_epochs=3), "warmup_epochs must be", "2", "got 3"),
    ("attention_distance", dict(grid_size=(1, 7)), "grid_size must have n = 6 patches", "got 1 x 7 = 7"),
    ("projection_components", dict(count=17), "count must be at most min(d, c * p * p)=16", "got 17"),
    ("silence_heads", dict(heads=(0, 1)), "heads must hold pairs (layer, head)", "such as [(0, 1)]", "got 0"),
    ("silence_heads", dict(heads=[(0, 1), (0, 1, 1)]), "heads must hold pairs (layer, head)", "got (0, 1, 1)"),
    ("silence_heads", dict(heads=[(2, 0)]), "layer must be at most num_layers - 1=1", "got 2"),
    ("silence_heads", dict(heads=[(0, 1), (0, 2)]), "head must be at most num_heads - 1=1", "got 2"),
    ("silence_heads", dict(heads=[(0, 0.5)]), f"head {COUNT}", "got 0.5"),
    ("nearest", dict(features=TOKENS), "features must have 2 axes, (n, d)", "got 3"),
    ("nearest", dict(queries=TOKENS[0, :, :8]), "queries must have shape (m, d=16)", "got (7, 8)"),
    ("nearest", dict(count=8), "count must be at most n=7", "got 8"),
    *sizes_and_probabilities(),
    *((who, *row) for rows, names in SHARED for who in names.split() for row in rows),
    *(
        (who, {name: value}, f"{name} {says}; got {value}")
        for who, numbers in NUMBERS_OF.items()
        for name, (value, says) in numbers.items()
    ),
]
CASES = [*images_and_tokens(), *((who, partial(GOOD[who], **wrong), *says) for who, wrong, *says in ROWS)]


@pytest.mark.parametrize(
    ("call", "says"), [pytest.param(call, says, id=f"{who}: {' … '.join(says)}") for who, call, *says in CASES]
)
def test_bad_input(call, says):
    with pytest.raises(ValueError, match="(?s)^" + ".*".join(map(re.escape, says))) as caught:
        call()
    assert caught.type is ValueError


IMAGES_FILE, SAMPLE = "test_images.npy", "fashion_mnist_sample.npz"
FILES = [  # the loader, the file's name, the bytes or the array in it or None for no file, and what is said
    (load_test_images, IMAGES_FILE, None, "a readable .npy file without pickles: .*No such file"),
    (load_test_images, IMAGES_FILE, (RESOURCES / IMAGES_FILE).read_bytes()[:-1], "a readable .npy file"),
    (load_test_images, IMAGES_FILE, np.array([FIXTURE, None], dtype=object), "a readable .npy file .*pickle"),
    (load_test_images, IMAGES_FILE, np.moveaxis(FIXTURE, 3, 1), r"got float32 \(6, 3, 96, 96\)"),
    (load_test_images, IMAGES_FILE, FIXTURE * 255, r"values in \[0, 1\]; got 0.* to 255.0"),
    (load_test_images, IMAGES_FILE, FIXTURE * np.nan, r"values in \[0, 1\]; got nan"),
    (load_sample, SAMPLE, None, "the 1,000 images that come with the course: .*No such file"),
    (load_sample, SAMPLE, b"", "the 1,000 images that come with the course"),
]


@pytest.mark.parametrize(("loader", "name", "content", "says"), FILES)
def test_a_bad_file_is_named_with_what_brings_it_back(loader, name, content, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        Path(name).write_bytes(content)
    elif content is not None:
        np.save(name, content, allow_pickle=True)
    with pytest.raises(ValueError, match=f"^{name} must .*{says}.*git restore resources brings it back$"):
        loader(Path(name))


def test_a_step_that_fails_changes_no_weight():
    before = parameters_of(MODEL)
    for wrong in (HIGH, dict(label_smoothing=1.0), dict(max_grad_norm=-1.0)):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            GOOD["regularized_train_step"](**wrong)
    assert_equal(parameters_of(MODEL), before, atol=0)
