"""Checks of lesson 04's parts: LayerNorm, the MLP, the encoder block and the encoder."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import vit_course
from vit_course.checks.attention import (
    ATTENTION,
    ATTENTION_DROPOUT,
    BIAS,
    HEADS,
    LAYER,
    MULTI_HEAD,
    MULTI_HEAD_DROPOUT,
    WEIGHTS,
    marked_tokens,
    reveal_weights,
)
from vit_course.checks.compare import formula, set_parameters
from vit_course.checks.dropout import RATE, draws
from vit_course.checks.embedding import DROPOUT, modes
from vit_course.checks.engine import Case, declare
from vit_course.checks.variants import table

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
VARIANCE, ROOT = "x.var(dim=-1, correction=0, keepdim=True)", "(variance + eps).sqrt()"
AXES = {"tokens": "1", "token_features": "(1, 2)", "batch": "0", "batch_tokens": "(0, 1)", "everything": "(0, 1, 2)"}
LAYER_NORM = table(
    "layer_norm",
    *(
        (f"over_{name}", {"mean(dim=-1": f"mean(dim={axes}", "var(dim=-1": f"var(dim={axes}"})
        for name, axes in AXES.items()
    ),
    ("eps_outside", {ROOT: "variance.sqrt() + eps"}),
    ("sample_variance", {"correction=0": "correction=1"}, "", {"d": "x.shape[-1]", "less": "x.shape[-1] - 1"}),
    ("root_twice", {ROOT: "(variance.sqrt() + eps).sqrt()"}),
    ("squares_added_up", {VARIANCE: "centered.square().sum(dim=-1, keepdim=True)"}, "", {"d": "x.shape[-1]"}),
    ("no_root", {ROOT: "variance + eps"}),
    ("no_eps", {ROOT: "variance.sqrt()"}),
    ("fixed_eps/1e-5", {ROOT: "(variance + 1e-5).sqrt()"}, "", {"eps": '"1e-5, torch\'s default"'}),
    ("fixed_eps/1e-6", {ROOT: "(variance + 1e-6).sqrt()"}, "", {"eps": '"1e-6"'}),
    ("not_centered", {"= x - mean": "= x"}),
    ("rms", {"= x - mean": "= x", VARIANCE: "x.square().mean(dim=-1, keepdim=True)"}),
    ("second_moment", {VARIANCE: "x.square().mean(dim=-1, keepdim=True)"}),
    ("not_divided", {"centered / deviation": "centered"}),
    ("multiplied", {"centered / deviation": "centered * deviation"}),
    ("no_weight", {" * weight": ""}),
    ("no_bias", {" + bias": ""}),
    ("bias_first", {"normalized * weight + bias": "(normalized + bias) * weight"}),
    ("swapped", {"normalized * weight + bias": "normalized * bias + weight"}),
    ("divided_by_weight", {"normalized * weight": "normalized / weight"}),
)


def reference_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return torch's own LayerNorm over the features."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


layer_norm = declare(
    "layer_norm",
    "layer_norm",
    reference_norm,
    [NORMS],
    LAYER_NORM,
    stages=["layer_norm.mean", "layer_norm.centered", "layer_norm.variance", "layer_norm.deviation",
            "layer_norm.normalized"],
)  # fmt: skip

# --- the MLP ---------------------------------------------------------------------------------------------------------

MLPS = [
    Case("a hidden layer of 20", (4 * formula(2, 5, 6),), options={"hidden_dim": 6, "mlp_dim": 20}),
    Case("a batch of one", (4 * formula(1, 3, 8),), options={"hidden_dim": 8, "mlp_dim": 32}),
    Case("a hidden layer that is narrower", (4 * formula(3, 2, 7),), options={"hidden_dim": 7, "mlp_dim": 5}),
]
GELU, HIDDEN, OUT = "F.gelu(hidden)", "drop(self, active)", "drop(self, out)"
LINEAR_1, LINEAR_2 = "x @ self.linear_1.weight.T + self.linear_1.bias", "kept @ self.linear_2.weight.T + self.linear_2.bias"
MLP = table(
    "mlp_block",
    ("relu", {GELU: "F.relu(hidden)"}),
    ("tanh_form", {GELU: 'F.gelu(hidden, approximate="tanh")'}),
    ("sigmoid_form", {GELU: "hidden * torch.sigmoid(1.702 * hidden)"}),
    ("silu", {GELU: "F.silu(hidden)"}),
    ("other/tanh", {GELU: "hidden.tanh()"}, "", {"activation": '"tanh"'}),
    ("other/sigmoid", {GELU: "hidden.sigmoid()"}, "", {"activation": '"the sigmoid"'}),
    ("other/leaky", {GELU: "F.leaky_relu(hidden)"}, "", {"activation": '"leaky ReLU"'}),
    ("other/elu", {GELU: "F.elu(hidden)"}, "", {"activation": '"ELU"'}),
    ("other/softmax", {GELU: "hidden.softmax(dim=-1)"}, "", {"activation": '"a softmax"'}),
    ("phi", {GELU: "torch.special.ndtr(hidden)"}),
    ("no_gelu", {GELU: "hidden"}),
    ("gelu_last", {GELU: "hidden", OUT: "F.gelu(drop(self, out))"}),
    ("gelu_last_too", {OUT: "F.gelu(drop(self, out))"}),
    ("gelu_first", {GELU: "hidden", LINEAR_1: LINEAR_1.replace("x", "F.gelu(x)")}),
    ("gelu_twice", {GELU: "F.gelu(F.gelu(hidden))"}),
    ("residual", {OUT: "x + drop(self, out)"}),
    ("normalized", {LINEAR_1: LINEAR_1.replace("x", "F.layer_norm(x, x.shape[-1:], eps=1e-6)")}),
    ("no_bias_1", {" + self.linear_1.bias": ""}),
    ("no_bias_2", {" + self.linear_2.bias": ""}),
)
MLP_DROPOUT = table(
    "mlp_block",
    ("hidden_not_dropped", {HIDDEN: "active"}),
    ("out_not_dropped", {OUT: "out"}),
    ("not_dropped", {HIDDEN: "active", OUT: "out"}),
    ("dropped_before_gelu", {GELU: "F.gelu(drop(self, hidden))", HIDDEN: "active"}),
    ("only_before_gelu", {GELU: "F.gelu(drop(self, hidden))", HIDDEN: "active", OUT: "out"}),
    ("input_dropped_too", {LINEAR_1: LINEAR_1.replace("x", "drop(self, x)")}),
    ("input_dropped", {LINEAR_1: LINEAR_1.replace("x", "drop(self, x)"), HIDDEN: "active"}),
    ("out_dropped_twice", {OUT: "drop(self, drop(self, out))"}),
    ("hidden_dropped_twice", {HIDDEN: "drop(self, drop(self, active))"}),
)  # fmt: skip
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
    MLP,
    MLP_DROPOUT + DROPOUT,
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
LN_1 = "layer_norm(x, self.ln_1.weight, self.ln_1.bias, eps=1e-6)"
LN_2 = "layer_norm(middle, self.ln_2.weight, self.ln_2.bias, eps=1e-6)"
READ, READ_2, MIDDLE, END = f"read = {LN_1}", f"read_again = {LN_2}", "middle = x + first", "return middle + second"
ATTENDED, FIRST, SECOND = "self.self_attention, read", "drop(self, attended)", "mlp_block(self.mlp, read_again)"
SWAPPED = "F.dropout(attended, self.self_attention.attention_dropout, self.training)"
NORM_1, NORM_2 = LN_1.replace("(x,", "({},"), LN_2.replace("(middle,", "({},")
BLOCK = table(
    "encoder_block",
    ("post_norm", {READ: "read = x", MIDDLE: f"middle = {NORM_1.format('x + first')}", READ_2: "read_again = middle", END: f"return {NORM_2.format('middle + second')}"}),
    ("output_normed", {READ: "read = x", FIRST: NORM_1.format(FIRST), READ_2: "read_again = middle", SECOND: NORM_2.format(SECOND)}),
    ("no_first_residual", {MIDDLE: "middle = first"}),
    ("no_second_residual", {END: "return second"}),
    ("input_added_again", {END: "return x + second"}),
    ("input_added_too", {END: "return x + middle + second"}),
    ("first_norm_again", {READ_2: f"read_again = {NORM_1.format('middle')}"}),
    ("second_norm_first", {READ: f"read = {NORM_2.format('x')}"}),
    ("norms_swapped", {READ: f"read = {NORM_2.format('x')}", READ_2: f"read_again = {NORM_1.format('middle')}"}),
    ("no_second_norm", {READ_2: "read_again = middle"}),
    ("no_first_norm", {READ: "read = x"}),
    ("first_skip_normed", {MIDDLE: "middle = read + first"}),
    ("second_skip_normed", {END: "return read_again + second"}),
    ("parallel", {READ_2: f"read_again = {NORM_2.format('x')}"}),
    ("mlp_reads_first", {SECOND: "mlp_block(self.mlp, read)"}),
    ("mlp_first", {"    read = ": f"    x = x + mlp_block(self.mlp, {NORM_2.format('x')})\n    read = ", END: "return middle"}),
    ("no_mlp", {END: "return middle"}),
    ("no_attention", {MIDDLE: "middle = x"}),
    ("first_doubled", {MIDDLE: "middle = x + first + first"}),
    ("subtracted", {MIDDLE: "middle = x - first"}),
    ("multiplied", {MIDDLE: "middle = x * first"}),
    ("across_batch", {"    read = ": "    x = x.transpose(0, 1)\n    read = ", END: "return (middle + second).transpose(0, 1)"}),
    ("eps/ln_1", {"ln_1.bias, eps=1e-6": "ln_1.bias, eps=1e-5"}, "", {"place": '"ln_1"'}),
    ("eps/ln_2", {"ln_2.bias, eps=1e-6": "ln_2.bias, eps=1e-5"}, "", {"place": '"ln_2"'}),
    ("eps/both", {"ln_1.bias, eps=1e-6": "ln_1.bias, eps=1e-5", "ln_2.bias, eps=1e-6": "ln_2.bias, eps=1e-5"}, "", {"place": '"ln_1 and ln_2"'}),
    ("small_eps/ln_1", {"ln_1.bias, eps=1e-6": "ln_1.bias, eps=1e-12"}, "", {"place": '"ln_1"'}),
    ("small_eps/ln_2", {"ln_2.bias, eps=1e-6": "ln_2.bias, eps=1e-12"}, "", {"place": '"ln_2"'}),
    ("small_eps/both", {"ln_1.bias, eps=1e-6": "ln_1.bias, eps=1e-12", "ln_2.bias, eps=1e-6": "ln_2.bias, eps=1e-12"}, "", {"place": '"ln_1 and ln_2"'}),
)
BLOCK_DROPOUT = table(
    "encoder_block",
    ("first_not_dropped", {FIRST: "attended"}),
    ("second_dropped", {END: "return middle + drop(self, second)"}),
    ("stream_dropped", {MIDDLE: "middle = drop(self, x) + first"}),
    ("sum_dropped", {FIRST: "attended", MIDDLE: "middle = drop(self, x + first)"}),
    ("second_stream_dropped", {END: "return drop(self, middle) + second"}),
    ("second_sum_dropped", {END: "return drop(self, middle + second)"}),
    ("first_dropped_twice", {FIRST: "drop(self, drop(self, attended))"}),
    ("dropout_for_both", {ATTENDED: "self.self_attention, read, self.dropout.p"}),
    ("rates_swapped", {ATTENDED: "self.self_attention, read, self.dropout.p", FIRST: SWAPPED}),
    ("read_dropped", {ATTENDED: "self.self_attention, drop(self, read)", FIRST: "attended"}),
)  # fmt: skip

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
    return Case("small tokens, whose variance is near 1e-6", (x,), options=case.options, weights=quiet, fault="engine.eps")


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
        [drawn("attention alone, attention_dropout=0.25", marked_tokens(), MARKED, attention_shows, shows=lambda x: draws(x - marked_tokens(1)), fault="dropout.attention_elsewhere")],
    ],
    BLOCK + MLP + MULTI_HEAD + HEADS + ATTENTION + WEIGHTS,
    BLOCK_DROPOUT + MLP_DROPOUT + MULTI_HEAD_DROPOUT + ATTENTION_DROPOUT + DROPOUT,
    stages=["encoder_block.read", *LAYER, *AFTER_ATTENTION],
)  # fmt: skip

# --- the encoder -----------------------------------------------------------------------------------------------------

ENCODERS = [
    block_case("two layers", 2, 5, 12, 3, 10, num_layers=2),
    block_case("one layer and a batch of one", 1, 4, 4, 1, 10, num_layers=1),
    block_case("three layers", 2, 3, 8, 2, 10, num_layers=3),
]
LOOP, STEP, LN = "for layer in self.layers:", "x = encoder_block(layer, x)", "layer_norm(stream, self.ln.weight, self.ln.bias, eps=1e-6)"
ATTENDS, THINKS = "x + multi_head_attention(layer.self_attention, x)", "x + mlp_block(layer.mlp, x)"
POST_NORM = f"x = {NORM_1.format(ATTENDS)}\n        x = {NORM_2.format(THINKS)}".replace("self.ln", "layer.ln")
ENCODER = table(
    "encoder",
    ("no_norm", {LN: "stream"}),
    ("last_repeated", {LOOP: "for layer in [self.layers[-1]] * len(self.layers):"}),
    ("first_repeated", {LOOP: "for layer in [self.layers[0]] * len(self.layers):"}),
    ("backwards", {LOOP: "for layer in reversed(self.layers):"}),
    ("last_only", {LOOP: "for layer in self.layers[-1:]:"}),
    ("first_only", {LOOP: "for layer in self.layers[:1]:"}),
    ("without_last", {LOOP: "for layer in self.layers[:-1]:"}),
    ("without_first", {LOOP: "for layer in self.layers[1:]:"}),
    ("no_block", {LOOP: "for layer in []:"}),
    ("norm_first", {LOOP: f"x = {LN.replace('stream', 'x')}\n    {LOOP}", LN: "stream"}),
    ("norm_first_too", {LOOP: f"x = {LN.replace('stream', 'x')}\n    {LOOP}"}),
    ("norm_after_each", {STEP: f"x = {LN.replace('stream', 'encoder_block(layer, x)')}", LN: "stream"}),
    ("norm_twice", {LN: LN.replace("stream", LN)}),
    ("residual", {STEP: "x = x + encoder_block(layer, x)"}),
    ("post_norm", {STEP: POST_NORM, LN: "stream"}),
    ("eps/ln", {"eps=1e-6": "eps=1e-5"}, "", {"place": '"ln"'}),
    ("small_eps/ln", {"eps=1e-6": "eps=1e-12"}, "", {"place": '"ln"'}),
)  # fmt: skip


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
    silent_case = drawn(f"all branches silent, {argument}={RATE}", x, options, branches_silent, shows=lambda x: x)
    return [
        Case(**vars(silent_case) | {"fault": f"dropout.{argument}_on_stream"}),
        *(
            drawn(f"layer {layer} alone, {argument}={RATE}", x, options, one_layer_writes(layer), shows=changes, fault=f"dropout.{argument}_lost")
            for layer in range(case.options["num_layers"])
        ),
    ]  # fmt: skip


PARTS = BLOCK + MULTI_HEAD + MLP + HEADS + WEIGHTS + ATTENTION
PARTS_DROPOUT = DROPOUT + BLOCK_DROPOUT + MLP_DROPOUT + MULTI_HEAD_DROPOUT + ATTENTION_DROPOUT
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
    ENCODER + PARTS,
    PARTS_DROPOUT,
    stages=["encoder_block.read", "encoder_block.attended", "encoder_block.middle", "encoder_block.result", "encoder.stream"],
)
