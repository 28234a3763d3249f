"""Checks of lesson 04's parts: LayerNorm, the MLP, the encoder block and the encoder."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vit_course
from vit_course.checks.attention import BIAS, HEADS, LAYER, marked_tokens, reveal_weights
from vit_course.checks.compare import formula, set_parameters
from vit_course.checks.dropout import RATE, draws
from vit_course.checks.embedding import modes
from vit_course.checks.engine import Case, declare

# --- LayerNorm -------------------------------------------------------------------------------------------------------


def norm_case(label: str, b: int, s: int, d: int, eps: float, *, size: float = 1.0, offset: float = 0.0) -> Case:
    """Return tokens of a size around an offset, with a weight and a bias."""
    x = offset + size * formula(b, s, d)
    return Case(label, (x, 1 + 0.5 * formula(d, start=401), formula(d, start=701), eps))


NORMS = [
    norm_case("large tokens", 2, 5, 6, 1e-6, size=4.0),
    norm_case("two tokens of two features", 1, 2, 2, 1e-6, size=4.0),
    norm_case("tokens far from zero", 2, 3, 7, 1e-6, size=4.0, offset=9.0),
    norm_case("small tokens, whose variance is near eps", 3, 4, 5, 1e-6, size=1e-3),
    norm_case("small tokens and eps=1e-5", 2, 3, 8, 1e-5, size=3e-3),
    norm_case("a large eps, 0.1", 2, 4, 6, 0.1),
]


def reference_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return torch's own LayerNorm over the features."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


layer_norm = declare(
    "layer_norm",
    "layer_norm",
    reference_norm,
    [NORMS],
    "layer_norm",
    stages=["layer_norm.mean", "layer_norm.centered", "layer_norm.variance", "layer_norm.deviation",
            "layer_norm.normalized"],
)  # fmt: skip

# --- the MLP ---------------------------------------------------------------------------------------------------------

MLPS = [
    Case("a hidden layer of 20", (4 * formula(2, 5, 6),), options={"hidden_dim": 6, "mlp_dim": 20}),
    Case("a batch of one", (4 * formula(1, 3, 8),), options={"hidden_dim": 8, "mlp_dim": 32}),
    Case("a hidden layer that is narrower", (4 * formula(3, 2, 7),), options={"hidden_dim": 7, "mlp_dim": 5}),
]
WIDE = 96  # features; with 100 images of 4 tokens 38,400 values


def mlp_shows(mlp: nn.Module) -> None:
    """Make an input of 1 become 1 before GELU, and the output show each dropout."""
    mlp.linear_1.weight.copy_(0.5 * torch.eye(*mlp.linear_1.weight.shape))
    mlp.linear_1.bias.fill_(0.5)
    mlp.linear_2.weight.copy_(torch.eye(*mlp.linear_2.weight.shape))
    mlp.linear_2.bias.fill_(BIAS)


def drawn(label: str, x: Tensor, options: dict, weights: Callable[[nn.Module], object], **rest: object) -> Case:
    """Return a case in train mode, whose output takes few values."""
    rest = {"shows": draws, "fault": "dropout.elsewhere"} | rest
    return Case(label, (x,), options=options, training=True, weights=weights, **rest)


MLP_SIZES = dict(hidden_dim=WIDE, mlp_dim=WIDE + 8)
mlp_block = declare(
    "mlp_block",
    "mlp_block",
    vit_course.MLPBlock,
    [
        MLPS,
        modes(MLPS[0].options, MLPS[0].args[0], "dropout"),
        [drawn("train mode, dropout=0.25", torch.ones(100, 4, WIDE), MLP_SIZES | dict(dropout=RATE), mlp_shows)],
    ],
    "mlp_block drop",
    stages=["mlp_block.hidden", "mlp_block.active", "mlp_block.out"],
)

# --- the encoder block -----------------------------------------------------------------------------------------------


def block_case(label: str, b: int, s: int, hidden_dim: int, num_heads: int, mlp_dim: int, **options: int) -> Case:
    """Return tokens without symmetry, so large that eps plays no part, for a block of these sizes."""
    options = {**options, "hidden_dim": hidden_dim, "num_heads": num_heads, "mlp_dim": mlp_dim}
    return Case(label, (4 * formula(b, s, hidden_dim),), options=options)


BLOCKS = [
    block_case("three heads", 2, 7, 12, 3, 20),
    block_case("one head and a batch of one", 1, 4, 5, 1, 20),
    block_case("narrow heads", 3, 5, 8, 4, 6),
]


def silent(module: nn.Module) -> None:
    """Set every parameter to zero, so that no branch writes anything."""
    for parameter in module.parameters():
        parameter.zero_()


def attention_writes(block: nn.Module) -> None:
    """Make attention write one constant, and nothing else."""
    silent(block)
    block.ln_1.bias.fill_(1.0)
    reveal_weights(block.self_attention)


def attention_shows(block: nn.Module) -> None:
    """Make attention show its weights, for marked tokens, and the MLP write nothing."""
    silent(block)
    token = marked_tokens(1)[0, 0]
    reveal_weights(block.self_attention)
    block.ln_1.weight.fill_((token.var(correction=0) + 1e-6).sqrt())  # the normalized tokens are the tokens
    block.ln_1.bias.fill_(token.mean())


def mlp_writes(block: nn.Module) -> None:
    """Make the MLP write what :func:`mlp_shows` makes it show, and nothing else."""
    silent(block)
    block.ln_2.bias.fill_(1.0)
    mlp_shows(block.mlp)


def quiet(module: nn.Module) -> None:
    """Let the branches write so little that small tokens stay small."""
    set_parameters(module)
    for name, parameter in module.named_parameters():
        if any(part in name for part in ("out_proj", "linear_2", "embedding.")):
            parameter *= 1e-3


def small_tokens(case: Case) -> Case:
    """Return the case with tokens whose variance is near the eps of a LayerNorm."""
    x = 2e-3 * formula(2, 5, case.options["hidden_dim"])
    return Case(
        "small tokens, whose variance is near 1e-6", (x,), options=case.options, weights=quiet, fault="engine.eps"
    )


PARTS = f"drop encoder_block multi_head_attention mlp_block {HEADS}"
AFTER_ATTENTION = [f"encoder_block.{name}" for name in ("attended", "middle", "read_again", "second")]
BLOCK_SIZES, DRAWN = MLP_SIZES | dict(num_heads=3), dict(dropout=RATE)
FIRST_MODES = modes(BLOCKS[0].options, BLOCKS[0].args[0], "dropout", "attention_dropout")
NOTHING, ONES = torch.zeros(100, 4, WIDE), torch.ones(100, 4, WIDE)
MARKED = dict(hidden_dim=48, num_heads=3, mlp_dim=4, attention_dropout=RATE)
encoder_block = declare(
    "encoder_block",
    "encoder_block",
    vit_course.EncoderBlock,
    [
        BLOCKS,
        [small_tokens(BLOCKS[0])],
        FIRST_MODES,
        [
            drawn("both branches silent, dropout=0.25", ONES, BLOCK_SIZES | DRAWN, silent, fault="dropout.on_stream"),
            drawn("attention alone, dropout=0.25", NOTHING, BLOCK_SIZES | DRAWN, attention_writes),
            drawn("the MLP alone, dropout=0.25", NOTHING, BLOCK_SIZES | DRAWN, mlp_writes),
        ],
        [
            drawn(
                "attention alone, attention_dropout=0.25",
                marked_tokens(),
                MARKED,
                attention_shows,
                shows=lambda x: draws(x - marked_tokens(1)),
                fault="dropout.attention_elsewhere",
            )
        ],
    ],
    PARTS,
    stages=["encoder_block.read", *LAYER, *AFTER_ATTENTION],
)  # fmt: skip

# --- the encoder -----------------------------------------------------------------------------------------------------

ENCODERS = [
    block_case("two layers", 2, 5, 12, 3, 10, num_layers=2),
    block_case("one layer and a batch of one", 1, 4, 4, 1, 10, num_layers=1),
    block_case("three layers", 2, 3, 8, 2, 10, num_layers=3),
]


def one_layer_writes(layer: int) -> Callable[[nn.Module], None]:
    """Return weights with which a single layer writes, before a final LayerNorm that is off by nothing."""

    def weights(encoder: nn.Module) -> None:
        set_parameters(encoder)
        for name, parameter in encoder.named_parameters():
            if ("out_proj" in name or "linear_2" in name) and not name.startswith(f"layers.{layer}."):
                parameter.zero_()

    return weights


def branches_silent(encoder: nn.Module) -> None:
    """Let no branch write."""
    one_layer_writes(-1)(encoder)


def changes(x: Tensor) -> Tensor:
    """Show which of many copies of one input are changed by dropout: none, or some."""
    return torch.tensor(float((x - x[:1]).abs().max() > 1e-4))


def reaches_blocks(argument: str, case: Case) -> list[Case]:
    """Return cases that show that a rate reaches every block, and leaves the stream between them alone."""
    x, options = case.args[0][:1].repeat(50, 1, 1), case.options | {argument: RATE}
    on_stream, lost = f"dropout.{argument}_on_stream", f"dropout.{argument}_lost"
    return [
        drawn(
            f"all branches silent, {argument}={RATE}", x, options, branches_silent, shows=lambda x: x, fault=on_stream
        ),
        *(
            drawn(f"layer {k} alone, {argument}={RATE}", x, options, one_layer_writes(k), shows=changes, fault=lost)
            for k in range(case.options["num_layers"])
        ),
    ]


encoder = declare(
    "encoder",
    "encoder",
    vit_course.Encoder,
    [
        ENCODERS,
        [small_tokens(ENCODERS[0])],
        modes(ENCODERS[0].options, ENCODERS[0].args[0], "dropout", "attention_dropout"),
        reaches_blocks("dropout", ENCODERS[0]),
        reaches_blocks("attention_dropout", ENCODERS[0]),
    ],
    f"encoder drop_lost {PARTS}",
    stages=[
        "encoder_block.read",
        "encoder_block.attended",
        "encoder_block.middle",
        "encoder_block.result",
        "encoder.stream",
    ],
)
