"""Checks of lesson 04's parts: LayerNorm, the MLP, the encoder block and the encoder."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

import vit_course
from vit_course.checks import twins
from vit_course.checks.attention import BIAS, HEADS, LAYER, marked_tokens, reveal_weights, tokens
from vit_course.checks.compare import formula, set_parameters
from vit_course.checks.declare import Case, declare
from vit_course.checks.dropout import RATE, draws
from vit_course.checks.embedding import drawn, modes
from vit_course.checks.modules import Mapping, build
from vit_course.checks.trace import forbids
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


def _mlp_shows(mlp: nn.Module) -> None:
    """Make an input of 1 become 1 before GELU, and the output show each dropout."""
    mlp.linear_1.weight.copy_(0.5 * torch.eye(*mlp.linear_1.weight.shape))
    mlp.linear_1.bias.fill_(0.5)
    mlp.linear_2.weight.copy_(torch.eye(*mlp.linear_2.weight.shape))
    mlp.linear_2.bias.fill_(BIAS)


MLP_SIZES, DRAWN = dict(hidden_dim=WIDE, mlp_dim=WIDE + 8), dict(dropout=RATE)
NOTHING, ONES = torch.zeros(100, 4, WIDE), torch.ones(100, 4, WIDE)
declare(
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
    return replace(case, label=label, args=(x,), weights=quiet, fault="declare.eps")


def _two_norms(cls: type[nn.Module], mapping: Mapping) -> None:
    block = build(cls, BLOCKS[0].options)
    if getattr(block, "ln_1", None) is getattr(block, "ln_2", block):
        raise fail("sizes.one_norm")


PARTS = f"drop encoder_block multi_head_attention mlp_block {HEADS}"
BLOCK_SIZES = MLP_SIZES | DRAWN | dict(num_heads=3)
MARKED = dict(hidden_dim=48, num_heads=3, mlp_dim=4, attention_dropout=RATE)
BLOCK = ["encoder_block.read", *LAYER, *(f"encoder_block.{name}" for name in ("attended", "middle", "result"))]
declare(
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


WIDTH = 48  # features; all of them are shown, because what comes after the blocks changes nothing
RATES = dict(dropout=RATE, attention_dropout=RATE)
TWO_BLOCKS = dict(hidden_dim=WIDTH, num_heads=3, mlp_dim=WIDTH, num_layers=2)
LAST = ("ln.weight", "encoder.ln.weight", "head.weight")


IDENTITY = torch.eye(WIDTH)
TO_VALUES = torch.cat([torch.zeros(2 * WIDTH, WIDTH), IDENTITY])  # the weight of qkv
# What is dropped before GELU is told from what is dropped after it by two sizes of values.
SOME_LARGER = torch.arange(WIDTH) % 2 * 2.0
# In the place of the first head there is a constant, by which the others are measured.
OTHER_HEADS = (torch.arange(WIDTH) >= WIDTH // 3).float()


def _showing(**values: float | Tensor) -> Callable[[nn.Module], None]:
    """Return weights that are zero but for these: tensors, or multiples of ones or the identity; _ stands for a dot.

    The output of an encoder, or of a model, is then the normalized stream.
    """

    def weights(module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            value = values.get(name.replace(".", "_"), float(name in LAST))
            parameter.copy_(value * (IDENTITY if parameter.shape == (WIDTH, WIDTH) else 1.0))

    return weights


def _kept(out: Tensor) -> object:
    """Show which features dropout has kept, as 1, and which it has dropped, as 0."""
    low, high = out.amin(dim=-1, keepdim=True), out.amax(dim=-1, keepdim=True)
    return draws(torch.where(high - low > 1e-2, (out - low) / (high - low), torch.ones(())))


def _heads(out: Tensor) -> object:
    """Show what each head has kept, and whether its features have come out differently."""
    features = out.unflatten(-1, (TWO_BLOCKS["num_heads"], -1))
    apart = (features - features[..., :1]).abs().amax(dim=-1) > 1e-2
    return draws(features[..., 0] + 100 * apart, copies=3)


def alone(where: str, fault: str, x: Tensor, options: dict, shows: Callable = _kept, **values: float | Tensor) -> Case:
    """Return a case in which a single place writes into a stream of zeros."""
    argument = "attention_dropout" if shows is _heads else "dropout"
    x = x.repeat(3, *[1] * (x.ndim - 1)) if shows is _heads else x
    label, fault = f"{where} alone, {argument}={RATE}", f"dropout.{fault}"
    return drawn(label, x, options | {argument: RATE}, _showing(**values), shows=shows, fault=fault)


def places(layers: str, few: tuple[Tensor, dict], more: tuple[Tensor, dict]) -> list[Case]:
    """Return cases for every place in two blocks where dropout acts.

    Args:
        layers: the name of the list of blocks.
        few, more: inputs and options: two tokens show best what is dropped before attention, five which weights are.
    """
    cases = []
    for layer in range(2):
        block, where = f"{layers}_{layer}_", f"in layer {layer}"
        attends = dict(ln_1_bias=1.0, self_attention_qkv_weight=TO_VALUES, self_attention_qkv_bias=1.0)
        attends |= dict(self_attention_out_proj_weight=OTHER_HEADS / 2, self_attention_out_proj_bias=1 - OTHER_HEADS)
        attends = {f"{block}{name}": value for name, value in attends.items()}
        hidden = dict(ln_2_bias=1.0, mlp_linear_1_weight=1.0, mlp_linear_1_bias=SOME_LARGER, mlp_linear_2_weight=1.0)
        hidden = {f"{block}{name}": value for name, value in hidden.items()}
        attended, out = {f"{block}self_attention_out_proj_bias": 1.0}, {f"{block}mlp_linear_2_bias": 1.0}
        cases += [
            alone(f"attention {where}", "attention", *more, _heads, **attends),
            alone(f"attention's output {where}", "branch", *few, **attended),
            alone(f"attention {where}", "weights", *few, **attends),
            alone(f"the MLP's output {where}", "branch", *few, **out),
            alone(f"the MLP {where}", "branch", *few, **hidden),
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
            drawn(
                f"all branches silent, dropout={RATE}, attention_dropout={RATE}",
                formula(2, 5, WIDTH),
                TWO_BLOCKS | RATES,
                _showing(),
                shows=lambda x: x,
                fault="dropout.on_stream_of_blocks",
            ),
            *places("layers", (torch.zeros(60, 2, WIDTH), TWO_BLOCKS), (torch.zeros(24, 5, WIDTH), TWO_BLOCKS)),
        ],
    ],
    mistakes=f"encoder drop_lost {PARTS}",
    stages=[*BLOCK, "stream"],
)
