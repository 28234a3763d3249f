"""Checks of lesson 04's parts, LayerNorm, the MLP, the encoder block and the encoder, and of lesson 05's, the model."""

from dataclasses import replace

import torch
from torch import Tensor, nn

import vit_course
from vit_course.checks import twins
from vit_course.checks.attention import BIAS, HEADS, LAYER, marked_tokens, revealing, tokens
from vit_course.checks.compare import formula, set_parameters
from vit_course.checks.declare import Case, declare
from vit_course.checks.dropout import draws
from vit_course.checks.embedding import drawn, modes, of, starts_small
from vit_course.checks.modules import Mapping, build
from vit_course.checks.trace import forbids
from vit_course.checks.verdict import CheckFailed, fail, refuse

# --- LayerNorm -------------------------------------------------------------------------------------------------------


def _norm(label: str, b: int, s: int, d: int, eps: float, *, size: float = 1.0, offset: float = 0.0) -> Case:
    x = offset + size * formula(b, s, d)
    return Case(label, (x, 1 + 0.5 * formula(d, start=401), formula(d, start=701), eps))


NORMS = [
    _norm("large tokens", 2, 5, 6, 1e-6, size=4.0),
    _norm("two tokens of two features", 1, 2, 2, 1e-6, size=4.0),
    _norm("tokens far from zero", 2, 3, 7, 1e-6, size=4.0, offset=9.0),
    _norm("small tokens, whose variance is near eps", 3, 4, 5, 1e-6, size=1e-3),
    _norm("small tokens and eps=1e-5", 2, 3, 8, 1e-5, size=3e-3),
    _norm("a large eps, 0.1", 2, 4, 6, 0.1),
]
declare(
    "layer_norm",
    twins.layer_norm,
    [NORMS],
    stages=["mean", "centered", "variance", "deviation", "normalized"],
    behaviors=[forbids("layer_norm", *NORMS[0].args)],
)

# --- the MLP ---------------------------------------------------------------------------------------------------------

MLPS = [
    tokens("a hidden layer of 20", 2, 5, 6, mlp_dim=20),
    tokens("a batch of one", 1, 3, 8, mlp_dim=32),
    tokens("a hidden layer that is narrower", 3, 2, 7, mlp_dim=5),
]
WIDE = 96  # features; with 100 images of 4 tokens 38,400 values

# An input of 1 becomes 1 before GELU, and the output shows each dropout.
MLP_SHOWS = {"linear_1.weight": 0.5, "linear_1.bias": 0.5, "linear_2.weight": 1.0, "linear_2.bias": BIAS}
MLP_SIZES = dict(hidden_dim=WIDE, mlp_dim=WIDE + 8)
NOTHING, ONES = torch.zeros(100, 4, WIDE), torch.ones(100, 4, WIDE)
declare(
    "mlp_block",
    vit_course.MLPBlock,
    [
        MLPS,
        modes(MLPS[0].options, MLPS[0].args[0], "dropout"),
        [drawn("train mode", "dropout", ONES, MLP_SIZES, MLP_SHOWS)],
    ],
    mistakes="mlp_block drop",
    stages=["hidden", "active", "out"],
)

# --- the encoder block -----------------------------------------------------------------------------------------------

BLOCKS = [
    tokens("three heads", 2, 7, 12, num_heads=3, mlp_dim=20),
    tokens("one head and a batch of one", 1, 4, 5, num_heads=1, mlp_dim=20),
    tokens("narrow heads", 3, 5, 8, num_heads=4, mlp_dim=6),
]


def quiet(module: nn.Module) -> None:
    """Let the branches write so little that small tokens stay small."""
    set_parameters(module)
    for name, parameter in module.named_parameters():
        if any(part in name for part in ("out_proj", "linear_2", "embedding.")):
            parameter *= 1e-3


def _small_tokens(case: Case) -> Case:
    x = 2e-3 * formula(2, 5, case.options["hidden_dim"])
    label = "small tokens, whose variance is near 1e-6"
    return replace(case, label=label, args=(x,), weights=quiet, fault="declare.eps")


def _two_norms(cls: type[nn.Module], mapping: Mapping) -> None:
    block = build(cls, BLOCKS[0].options)
    refuse(getattr(block, "ln_1", None) is getattr(block, "ln_2", block), "modules.one_norm")


PARTS = f"drop encoder_block multi_head_attention mlp_block {HEADS}"
BLOCK_SIZES = MLP_SIZES | dict(num_heads=3)
MARKED = dict(hidden_dim=48, num_heads=3, mlp_dim=4)
ATTENTION_WRITES = {"ln_1.bias": 1.0} | of("self_attention", revealing(WIDE))
MLP_WRITES = {"ln_2.bias": 1.0} | of("mlp", MLP_SHOWS)
# A marked token has the mean 1 / 8 and the variance 7 / 64: what attention reads are the tokens.
SHOWS_WEIGHTS = {"ln_1.weight": (7 / 64 + 1e-6) ** 0.5, "ln_1.bias": 1 / 8} | of("self_attention", revealing(48))
WEIGHTS = dict(fault="attention_elsewhere", shows=lambda x: draws(x - marked_tokens(1)))
BLOCK = ["encoder_block.read", *LAYER, *(f"encoder_block.{name}" for name in ("attended", "middle", "result"))]
declare(
    "encoder_block",
    vit_course.EncoderBlock,
    [
        BLOCKS,
        [_small_tokens(BLOCKS[0])],
        modes(BLOCKS[0].options, BLOCKS[0].args[0], "dropout", "attention_dropout"),
        [
            drawn("both branches silent", "dropout", ONES, BLOCK_SIZES, {}, fault="on_stream"),
            drawn("attention alone", "dropout", NOTHING, BLOCK_SIZES, ATTENTION_WRITES),
            drawn("the MLP alone", "dropout", NOTHING, BLOCK_SIZES, MLP_WRITES),
        ],
        [drawn("attention alone", "attention_dropout", marked_tokens(), MARKED, SHOWS_WEIGHTS, **WEIGHTS)],
    ],
    mistakes=PARTS,
    before=[_two_norms],
    stages=["read", *LAYER, "attended", "middle", "read_again", "second"],
)

# --- the encoder -----------------------------------------------------------------------------------------------------

ENCODERS = [
    tokens("two layers", 2, 5, 12, num_heads=3, mlp_dim=10, num_layers=2),
    tokens("one layer and a batch of one", 1, 4, 6, num_heads=2, mlp_dim=10, num_layers=1),
    tokens("three layers", 2, 3, 8, num_heads=2, mlp_dim=10, num_layers=3),
]

WIDTH = 48  # features; all of them are shown, because what comes after the blocks changes nothing
TWO_BLOCKS = dict(hidden_dim=WIDTH, num_heads=3, mlp_dim=WIDTH, num_layers=2)
BOTH, STREAM = "dropout attention_dropout", formula(2, 5, WIDTH)
TO_VALUES = torch.cat([torch.zeros(2 * WIDTH, WIDTH), torch.eye(WIDTH)])  # the weight of qkv
# What is dropped before GELU is told from what is dropped after it by two sizes of values.
SOME_LARGER = torch.arange(WIDTH) % 2 * 2.0
# In the place of the first head there is a constant, by which the others are measured.
OTHER = (torch.arange(WIDTH) >= WIDTH // 3).float()
ATTENTION = {"qkv.weight": TO_VALUES, "qkv.bias": 1.0, "out_proj.weight": OTHER / 2, "out_proj.bias": 1 - OTHER}
MLP = {"linear_1.weight": 1.0, "linear_1.bias": SOME_LARGER, "linear_2.weight": 1.0}


def kept(out: Tensor) -> object:
    """Show which features dropout has kept, as 1, and which it has dropped, as 0."""
    low, high = out.amin(dim=-1, keepdim=True), out.amax(dim=-1, keepdim=True)
    return draws(torch.where(high - low > 1e-2, (out - low) / (high - low), torch.ones(())))


def shown_heads(out: Tensor) -> object:
    """Show what each head has kept, and whether its features have come out differently."""
    features = out.unflatten(-1, (TWO_BLOCKS["num_heads"], -1))
    apart = (features - features[..., :1]).abs().amax(dim=-1) > 1e-2
    return draws(features[..., 0] + 100 * apart, copies=3)


def places(layers: str, few: tuple[Tensor, dict], more: tuple[Tensor, dict]) -> list[Case]:
    """Return cases in which a single place in two blocks writes into a stream of zeros, for each where dropout acts.

    The output of an encoder, or of a model, is then the normalized stream.

    Args:
        layers: the name of the list of blocks.
        few, more: inputs and options: two tokens show best what is dropped before attention, five which weights are.
    """
    cases = []
    for layer in range(2):
        block, where = f"{layers}.{layer}", f"in layer {layer} alone"
        attends = of(block, {"ln_1.bias": 1.0} | of("self_attention", ATTENTION))
        attended = {f"{block}.self_attention.out_proj.bias": 1.0}
        hidden, out = of(block, {"ln_2.bias": 1.0} | of("mlp", MLP)), {f"{block}.mlp.linear_2.bias": 1.0}
        cases += [
            drawn(f"attention {where}", "attention_dropout", *more, attends, shown_heads, "attention"),
            drawn(f"attention's output {where}", "dropout", *few, attended, kept, "branch"),
            drawn(f"attention {where}", "dropout", *few, attends, kept, "weights"),
            drawn(f"the MLP's output {where}", "dropout", *few, out, kept, "branch"),
            drawn(f"the MLP {where}", "dropout", *few, hidden, kept, "branch"),
        ]
    return cases


declare(
    "encoder",
    vit_course.Encoder,
    [
        ENCODERS,
        [_small_tokens(ENCODERS[0]), replace(ENCODERS[0], label="blocks that change little", weights=quiet)],
        modes(ENCODERS[0].options, ENCODERS[0].args[0], "dropout", "attention_dropout"),
        [
            drawn("all branches silent", BOTH, STREAM, TWO_BLOCKS, {}, Case.shows, "on_stream_of_blocks"),
            *places("layers", (torch.zeros(60, 2, WIDTH), TWO_BLOCKS), (torch.zeros(72, 5, WIDTH), TWO_BLOCKS)),
        ],
    ],
    mistakes=f"encoder drop_lost {PARTS}",
    stages=[*BLOCK, "stream"],
)

# --- the model --------------------------------------------------------------------------------------------------------


def _images(label: str, b: int, c: int, h: int, w: int, **options: object) -> Case:
    return Case(label, (2 * formula(b, c, h, w),), options=dict(image_size=(h, w), in_channels=c) | options)


DEEP_SIZES = dict(patch_size=4, num_layers=2, num_heads=3, hidden_dim=12, mlp_dim=20)
NARROW_SIZES = dict(patch_size=2, num_layers=3, num_heads=2, hidden_dim=8, mlp_dim=7)
IMAGES = [
    Case("the class token of square images", (2 * formula(3, 3, 8, 8),), options=DEEP_SIZES | dict(image_size=8)),
    _images("7 classes and one channel", 2, 1, 8, 8, num_classes=7, **DEEP_SIZES),
    _images("rectangular images and a batch of one", 1, 3, 6, 4, num_classes=6, **NARROW_SIZES),
    _images("a single class and a single layer", 2, 1, 8, 4, num_classes=1, **DEEP_SIZES | dict(num_layers=1)),
    _images("pool='mean'", 2, 3, 4, 6, num_classes=5, pool="mean", **NARROW_SIZES),
    _images("pool='mean' and one channel", 3, 1, 8, 4, num_classes=4, pool="mean", **DEEP_SIZES),
]

PIXELS = dict(image_size=2, patch_size=2, in_channels=1, num_classes=WIDTH) | TWO_BLOCKS
BLANK = torch.zeros(120, 1, 2, 2)


def _head_on_all_tokens(cls: type[nn.Module], mapping: Mapping) -> None:
    case = IMAGES[1]
    try:
        head = getattr(build(cls, case.options), "head", None)
    except CheckFailed:  # reported with its case by what follows
        return
    s, d = 1 + (8 // case.options["patch_size"]) ** 2, case.options["hidden_dim"]
    if isinstance(head, nn.Linear) and head.in_features in (s * d, (s - 1) * d):
        raise fail("modules.head", count=head.in_features // d, came=head.in_features, wanted=d)


declare(
    "vision_transformer",
    vit_course.VisionTransformer,
    [
        IMAGES,
        [replace(IMAGES[0], label="tokens of tiny variance", weights=quiet, fault="declare.eps")],
        modes(IMAGES[0].options, IMAGES[0].args[0], "dropout", "attention_dropout"),
        [
            drawn("the encoder's output alone", "dropout", BLANK, PIXELS, {"encoder.ln.bias": 1.0}, Case.shows, "head"),
            drawn("the positions alone", "dropout", BLANK, PIXELS, {"embedding.pos_embedding": 1.0}, kept, "positions"),
            *places("encoder.layers", (BLANK, PIXELS), (torch.zeros(360, 1, 4, 4), PIXELS | dict(image_size=4))),
        ],
    ],
    mistakes=f"vision_transformer image_embedding encoder drop_lost {PARTS} patch_embedding patchify",
    stages=["image_embedding.result", *BLOCK, "encoder.stream", "encoder.result", "pooled"],
    before=[_head_on_all_tokens],
    behaviors=[starts_small(vit_course.VisionTransformer, IMAGES[1].options, dict(head=0.0))],
)
