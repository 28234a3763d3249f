"""Checks of lesson 04's parts: LayerNorm, the MLP, the encoder block and the encoder."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vit_course
from vit_course.checks import twins
from vit_course.checks.attention import BIAS, HEADS, LAYER, marked_tokens, reveal_weights, tokens
from vit_course.checks.compare import formula, set_parameters
from vit_course.checks.dropout import RATE, draws
from vit_course.checks.embedding import modes
from vit_course.checks.engine import Case, declare
from vit_course.checks.learner import forbids
from vit_course.checks.modules import Mapping, build
from vit_course.checks.verdict import fail

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
layer_norm = declare(
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


def _mlp_shows(mlp: nn.Module) -> None:
    """Make an input of 1 become 1 before GELU, and the output show each dropout."""
    mlp.linear_1.weight.copy_(0.5 * torch.eye(*mlp.linear_1.weight.shape))
    mlp.linear_1.bias.fill_(0.5)
    mlp.linear_2.weight.copy_(torch.eye(*mlp.linear_2.weight.shape))
    mlp.linear_2.bias.fill_(BIAS)


def drawn(label: str, x: Tensor, options: dict, weights: Callable[[nn.Module], object], **rest: object) -> Case:
    """Return a case in train mode, whose output takes few values."""
    rest = {"shows": draws, "fault": "dropout.elsewhere"} | rest
    return Case(label, (x,), options=options, training=True, weights=weights, **rest)


MLP_SIZES, DRAWN = dict(hidden_dim=WIDE, mlp_dim=WIDE + 8), dict(dropout=RATE)
NOTHING, ONES = torch.zeros(100, 4, WIDE), torch.ones(100, 4, WIDE)
mlp_block = declare(
    "mlp_block",
    vit_course.MLPBlock,
    [
        MLPS,
        modes(MLPS[0].options, MLPS[0].args[0], "dropout"),
        [drawn("train mode, dropout=0.25", ONES, MLP_SIZES | DRAWN, _mlp_shows)],
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


def silent(module: nn.Module) -> None:
    """Set every parameter to zero, so that no branch writes anything."""
    for parameter in module.parameters():
        parameter.zero_()


def _attention_writes(block: nn.Module) -> None:
    """Make attention write one constant, and nothing else."""
    silent(block)
    block.ln_1.bias.fill_(1.0)
    reveal_weights(block.self_attention)


def _attention_shows(block: nn.Module) -> None:
    """Make attention show its weights, for marked tokens, and the MLP write nothing."""
    _attention_writes(block)
    token = marked_tokens(1)[0, 0]
    block.ln_1.weight.fill_((token.var(correction=0) + 1e-6).sqrt())  # the normalized tokens are the tokens
    block.ln_1.bias.fill_(token.mean())


def _mlp_writes(block: nn.Module) -> None:
    """Make the MLP write what :func:`_mlp_shows` makes it show, and nothing else."""
    silent(block)
    block.ln_2.bias.fill_(1.0)
    _mlp_shows(block.mlp)


def quiet(module: nn.Module) -> None:
    """Let the branches write so little that small tokens stay small."""
    set_parameters(module)
    for name, parameter in module.named_parameters():
        if any(part in name for part in ("out_proj", "linear_2", "embedding.")):
            parameter *= 1e-3


def _small_tokens(case: Case) -> Case:
    x = 2e-3 * formula(2, 5, case.options["hidden_dim"])
    label = "small tokens, whose variance is near 1e-6"
    return Case(label, (x,), options=case.options, weights=quiet, fault="engine.eps")


def _two_norms(cls: type[nn.Module], mapping: Mapping) -> None:
    block = build(cls, BLOCKS[0].options)
    if getattr(block, "ln_1", None) is getattr(block, "ln_2", block):
        raise fail("sizes.one_norm")


PARTS = f"drop encoder_block multi_head_attention mlp_block {HEADS}"
BLOCK_SIZES = MLP_SIZES | DRAWN | dict(num_heads=3)
MARKED = dict(hidden_dim=48, num_heads=3, mlp_dim=4, attention_dropout=RATE)
encoder_block = declare(
    "encoder_block",
    vit_course.EncoderBlock,
    [
        BLOCKS,
        [_small_tokens(BLOCKS[0])],
        modes(BLOCKS[0].options, BLOCKS[0].args[0], "dropout", "attention_dropout"),
        [
            drawn("both branches silent, dropout=0.25", ONES, BLOCK_SIZES, silent, fault="dropout.on_stream"),
            drawn("attention alone, dropout=0.25", NOTHING, BLOCK_SIZES, _attention_writes),
            drawn("the MLP alone, dropout=0.25", NOTHING, BLOCK_SIZES, _mlp_writes),
        ],
        [
            drawn(
                "attention alone, attention_dropout=0.25",
                marked_tokens(),
                MARKED,
                _attention_shows,
                shows=lambda x: draws(x - marked_tokens(1)),
                fault="dropout.attention_elsewhere",
            )
        ],
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


def _one_layer_writes(layer: int) -> Callable[[nn.Module], None]:
    """Return weights with which a single layer writes, or none, before a final LayerNorm that is off by nothing."""

    def weights(encoder: nn.Module) -> None:
        set_parameters(encoder)
        for name, parameter in encoder.named_parameters():
            if ("out_proj" in name or "linear_2" in name) and not name.startswith(f"layers.{layer}."):
                parameter.zero_()

    return weights


def _branches_write_constants(encoder: nn.Module) -> None:
    set_parameters(encoder)
    for name, parameter in encoder.named_parameters():
        if name.endswith(("out_proj.weight", "linear_2.weight")):
            parameter.zero_()


def _changes(x: Tensor) -> Tensor:
    """Show whether dropout changes some of many copies of one input."""
    return torch.tensor(float((x - x[:1]).abs().max() > 1e-4))


def _reaches_blocks(argument: str, case: Case) -> list[Case]:
    """Return cases that show that a rate reaches every block, and leaves the stream between them alone."""
    x, options = case.args[0][:1].repeat(50, 1, 1), case.options | {argument: RATE}
    on_stream = dict(shows=lambda x: x, fault=f"dropout.{argument}_on_stream")
    lost = dict(shows=_changes, fault=f"dropout.{argument}_lost")
    return [
        drawn(f"all branches silent, {argument}={RATE}", x, options, _one_layer_writes(-1), **on_stream),
        *(
            drawn(f"layer {k} alone, {argument}={RATE}", x, options, _one_layer_writes(k), **lost)
            for k in range(case.options["num_layers"])
        ),
    ]


encoder = declare(
    "encoder",
    vit_course.Encoder,
    [
        ENCODERS,
        [_small_tokens(ENCODERS[0])],
        modes(ENCODERS[0].options, ENCODERS[0].args[0], "dropout", "attention_dropout"),
        _reaches_blocks("dropout", ENCODERS[0]),
        _reaches_blocks("attention_dropout", ENCODERS[0]),
        [
            drawn(
                f"branches that write one constant, attention_dropout={RATE}",
                ENCODERS[0].args[0],
                ENCODERS[0].options | dict(attention_dropout=RATE),
                _branches_write_constants,
                shows=lambda x: x,
                fault="dropout.encoder_swapped",
            )
        ],
    ],
    mistakes=f"encoder drop_lost {PARTS}",
    stages=[
        "encoder_block.read",
        *LAYER,
        *(f"encoder_block.{name}" for name in ("attended", "middle", "result")),
        "stream",
    ],
)
