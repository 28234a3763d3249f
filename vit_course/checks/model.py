"""Check of lesson 05's part: the whole model."""

from dataclasses import replace

import torch
from torch import nn

import vit_course
from vit_course.checks.compare import formula
from vit_course.checks.declare import Case, declare
from vit_course.checks.embedding import drawn, modes, starts_small
from vit_course.checks.encoder import BLOCK, PARTS, TWO_BLOCKS, WIDTH, kept, places, quiet
from vit_course.checks.modules import Mapping, build
from vit_course.checks.verdict import CheckFailed, fail


def _images(label: str, b: int, c: int, h: int, w: int, **options: object) -> Case:
    return Case(label, (2 * formula(b, c, h, w),), options=dict(image_size=(h, w), in_channels=c) | options)


WIDE = dict(patch_size=4, num_layers=2, num_heads=3, hidden_dim=12, mlp_dim=20)
NARROW = dict(patch_size=2, num_layers=3, num_heads=2, hidden_dim=8, mlp_dim=7)
IMAGES = [
    Case("the class token of square images", (2 * formula(3, 3, 8, 8),), options=WIDE | dict(image_size=8)),
    _images("7 classes and one channel", 2, 1, 8, 8, num_classes=7, **WIDE),
    _images("rectangular images and a batch of one", 1, 3, 6, 4, num_classes=6, **NARROW),
    _images("a single class and a single layer", 2, 1, 8, 4, num_classes=1, **WIDE | dict(num_layers=1)),
    _images("pool='mean'", 2, 3, 4, 6, num_classes=5, pool="mean", **NARROW),
    _images("pool='mean' and one channel", 3, 1, 8, 4, num_classes=4, pool="mean", **WIDE),
]

SIZES = dict(image_size=2, patch_size=2, in_channels=1, num_classes=WIDTH) | TWO_BLOCKS
BLANK = torch.zeros(120, 1, 2, 2)


def _head_on_all_tokens(cls: type[nn.Module], mapping: Mapping) -> None:
    case = IMAGES[1]
    try:
        head = getattr(build(cls, case.options), "head", None)
    except CheckFailed:  # reported with its case by what follows
        return
    s, d = 1 + (8 // case.options["patch_size"]) ** 2, case.options["hidden_dim"]
    if isinstance(head, nn.Linear) and head.in_features in (s * d, (s - 1) * d):
        raise fail("sizes.head", count=head.in_features // d, came=head.in_features, wanted=d)


declare(
    "vision_transformer",
    vit_course.VisionTransformer,
    [
        IMAGES,
        [replace(IMAGES[0], label="tokens of tiny variance", weights=quiet, fault="declare.eps")],
        modes(IMAGES[0].options, IMAGES[0].args[0], "dropout", "attention_dropout"),
        [
            drawn("the encoder's output alone", "dropout", BLANK, SIZES, {"encoder.ln.bias": 1.0}, Case.shows, "head"),
            drawn("the positions alone", "dropout", BLANK, SIZES, {"embedding.pos_embedding": 1.0}, kept, "positions"),
            *places("encoder.layers", (BLANK, SIZES), (torch.zeros(360, 1, 4, 4), SIZES | dict(image_size=4))),
        ],
    ],
    mistakes=f"vision_transformer image_embedding encoder drop_lost {PARTS} patch_embedding patchify",
    stages=["image_embedding.result", *BLOCK, "encoder.stream", "encoder.result", "pooled"],
    before=[_head_on_all_tokens],
    behaviors=[starts_small(vit_course.VisionTransformer, IMAGES[1].options, dict(head=0.0))],
)
