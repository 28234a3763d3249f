"""Checks of lesson 04's parts: LayerNorm, the MLP, the encoder block and the encoder."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vit_course
from vit_course.checks.attention import (
    BIAS,
    key_biases,
    marked_tokens,
    revealing_weights,
    verify_dropped_weights,
)
from vit_course.checks.dropout import (
    RATE,
    Levels,
    drop,
    in_train_mode,
    slips,
    through,
    verify_levels,
    verify_modes,
)
from vit_course.checks.evidence import (
    Case,
    CheckFailed,
    Suspect,
    Verdict,
    check,
    describe,
    formula,
    judge,
    learners,
    loaded,
    results_of,
    same,
    set_parameters,
    verify_function,
    verify_module,
)

Mapping = Callable[[dict], dict] | None

# --- LayerNorm -------------------------------------------------------------------------------------------------------


def norm_case(label: str, b: int, s: int, d: int, eps: float, *, size: float = 1.0, offset: float = 0.0) -> Case:
    """Return tokens of a size around an offset, with a weight and a bias."""
    x = offset + size * formula(b, s, d)
    return Case(label, (x, 1 + 0.5 * formula(d, start=401), formula(d, start=701), eps))


NORM_CASES = [
    norm_case("loud tokens", 2, 5, 6, 1e-6, size=4.0),
    norm_case("two tokens of two features", 1, 2, 2, 1e-6, size=4.0),
    norm_case("tokens far from zero", 2, 3, 7, 1e-6, size=4.0, offset=9.0),
    norm_case("quiet tokens, whose variance is near eps", 3, 4, 5, 1e-6, size=1e-3),
    norm_case("quiet tokens and eps=1e-5", 2, 3, 8, 1e-5, size=3e-3),
    norm_case("a large eps, 0.1", 2, 4, 6, 0.1),
]


def reference_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Return torch's own LayerNorm over the features."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def norm(
    *,
    over: int | tuple[int, ...] = -1,
    correction: int = 0,
    root: Callable[[Tensor, float], Tensor] = lambda variance, eps: (variance + eps).sqrt(),
    centre: bool = True,
) -> Callable:
    """Return LayerNorm with one step replaced."""

    def normalise(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        variance, mean = torch.var_mean(x, dim=over, correction=correction, keepdim=True)
        return (x - mean if centre else x) / root(variance, eps) * weight + bias

    return normalise


WRONG_AXES = {
    "the tokens, so tokens mix": 1,
    "tokens and features together, so one loud token changes all others": (1, 2),
    "the batch, so images mix": 0,
    "batch and tokens, as in BatchNorm": (0, 1),
    "everything": (0, 1, 2),
}

NORM_MISTAKES = [
    *(
        Suspect(
            f"mean and variance run over {axes}. Take them over the features of one token: dim=-1.", norm(over=over)
        )
        for axes, over in WRONG_AXES.items()
    ),
    *(
        Suspect(
            f"mean and variance run over {axes}. Take them over the features of one token, dim=-1, and let the "
            "variance divide by their number: correction=0.",
            norm(over=over, correction=1),
        )
        for axes, over in WRONG_AXES.items()
        if over != 0  # a batch of one has no such variance
    ),
    Suspect(
        "eps stands outside the root: write (variance + eps).sqrt(), not variance.sqrt() + eps. Quiet tokens come out "
        "too loud otherwise.",
        norm(root=lambda variance, eps: variance.sqrt() + eps),
    ),
    Suspect(
        "the standard deviation divides by d - 1, which is torch's default, and eps stands outside the root. Write "
        "(x.var(dim=-1, correction=0, keepdim=True) + eps).sqrt().",
        norm(correction=1, root=lambda variance, eps: variance.sqrt() + eps),
    ),
    Suspect(
        "the variance divides by d - 1 = {less}, which is torch's default, instead of d = {d}. Write correction=0.",
        norm(correction=1),
        lambda x, weight, bias, eps: {"d": x.shape[-1], "less": x.shape[-1] - 1},
    ),
    Suspect(
        "eps is added to the standard deviation under a second root: sqrt(std + eps). Take the root of the variance.",
        norm(root=lambda variance, eps: (variance.sqrt() + eps).sqrt()),
    ),
    Suspect(
        "eps is added to the standard deviation under a second root, and that deviation divides by d - 1. Take "
        "(x.var(dim=-1, correction=0, keepdim=True) + eps).sqrt().",
        norm(correction=1, root=lambda variance, eps: (variance.sqrt() + eps).sqrt()),
    ),
    Suspect(
        "the squares are added up and not divided by d = {d}: the variance is their mean.",
        lambda x, weight, bias, eps: reference_norm(x, weight / x.shape[-1] ** 0.5, bias, eps / x.shape[-1]),
        lambda x, weight, bias, eps: {"d": x.shape[-1]},
    ),
    Suspect(
        "it divides by the variance: the root is missing.",
        norm(root=lambda variance, eps: variance + eps),
    ),
    Suspect(
        "eps is not used: add it to the variance, under the root.", norm(root=lambda variance, eps: variance.sqrt())
    ),
    Suspect(
        "eps is always 1e-5, torch's default. Use the argument.",
        norm(root=lambda variance, eps: (variance + 1e-5).sqrt()),
    ),
    Suspect(
        "eps is always 1e-6. Use the argument.",
        norm(root=lambda variance, eps: (variance + 1e-6).sqrt()),
    ),
    Suspect("the mean is not subtracted: divide x - mean by the root.", norm(centre=False)),
    Suspect(
        "the mean is not subtracted, and the mean of the squares takes the variance's place: this is RMSNorm. Subtract "
        "the mean first.",
        lambda x, weight, bias, eps: x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight + bias,
    ),
    Suspect(
        "the mean is subtracted, and nothing is divided: tokens keep their own scale. Divide by "
        "(variance + eps).sqrt().",
        lambda x, weight, bias, eps: (x - x.mean(dim=-1, keepdim=True)) * weight + bias,
    ),
    Suspect(
        "weight is not used: multiply the normalised token by it.",
        lambda x, weight, bias, eps: reference_norm(x, torch.ones_like(weight), bias, eps),
    ),
    Suspect(
        "bias is not used: add it at the end.",
        lambda x, weight, bias, eps: reference_norm(x, weight, torch.zeros_like(bias), eps),
    ),
    Suspect(
        "weight and bias are not used: multiply by weight, then add bias.",
        lambda x, weight, bias, eps: F.layer_norm(x, x.shape[-1:], eps=eps),
    ),
    Suspect(
        "bias is added before weight is multiplied. Multiply first: normalised * weight + bias.",
        lambda x, weight, bias, eps: (F.layer_norm(x, x.shape[-1:], eps=eps) + bias) * weight,
    ),
    Suspect(
        "weight and bias are swapped: normalised * weight + bias.",
        lambda x, weight, bias, eps: reference_norm(x, bias, weight, eps),
    ),
]


def layer_norm(function: Callable) -> Verdict:
    """Check a ``layer_norm(x, weight, bias, eps)`` over the features of every token.

    Verified: the values, also for quiet tokens, at which the place and the size of eps show; the gradients of input,
    weight and bias; that none of them is written into.

    Args:
        function: takes tokens ``(b, s, d)``, weight and bias ``(d)`` and a number, and returns ``(b, s, d)``.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: values, gradients or the treatment of the inputs are wrong.
    """

    def verify() -> str:
        verify_function("layer_norm", function, reference_norm, NORM_CASES, NORM_MISTAKES)
        return "right for loud and quiet tokens, any mean and eps; gradients flow."

    return check("layer_norm", function, verify)


# --- the MLP ---------------------------------------------------------------------------------------------------------


def mlp_with(activation: Callable[[Tensor], Tensor]) -> Callable:
    """Return an MLP with another activation."""
    return lambda module, x: module.linear_2(activation(module.linear_1(x)))


MLP_CASES = [
    Case("a hidden layer of 20", (4 * formula(2, 5, 6),), options={"hidden_dim": 6, "mlp_dim": 20}),
    Case("a batch of one", (4 * formula(1, 3, 8),), options={"hidden_dim": 8, "mlp_dim": 32}),
    Case("a hidden layer that is narrower", (4 * formula(3, 2, 7),), options={"hidden_dim": 7, "mlp_dim": 5}),
]

MLP_MISTAKES = [
    Suspect("the activation is ReLU. ViT uses GELU: F.gelu.", mlp_with(F.relu)),
    Suspect(
        "GELU is the tanh form, up to 0.0005 off. Use the exact one: F.gelu(x) without approximate.",
        mlp_with(lambda hidden: F.gelu(hidden, approximate="tanh")),
    ),
    Suspect(
        "GELU is the form x · sigmoid(1.702 x), up to 0.02 off. Use the exact one: F.gelu.",
        mlp_with(lambda hidden: hidden * torch.sigmoid(1.702 * hidden)),
    ),
    Suspect("the activation is SiLU, x · sigmoid(x). ViT uses GELU: F.gelu.", mlp_with(F.silu)),
    Suspect("the activation is tanh. ViT uses GELU: F.gelu.", mlp_with(torch.tanh)),
    Suspect("the activation is the sigmoid. ViT uses GELU: F.gelu.", mlp_with(torch.sigmoid)),
    Suspect(
        "the activation is Φ(x), the factor of GELU alone. Multiply by x: GELU(x) = x · Φ(x).",
        mlp_with(torch.special.ndtr),
    ),
    Suspect(
        "there is no GELU between the two linear layers, so together they are one linear layer.",
        mlp_with(lambda hidden: hidden),
    ),
    Suspect(
        "GELU stands behind linear_2. It belongs between the two linear layers.",
        lambda module, x: F.gelu(module.linear_2(module.linear_1(x))),
    ),
    Suspect(
        "GELU stands behind linear_2 as well. Only one, between the two linear layers.",
        lambda module, x: F.gelu(module(x)),
    ),
    Suspect(
        "GELU stands before linear_1. It belongs between the two linear layers.",
        lambda module, x: module.linear_2(module.linear_1(F.gelu(x))),
    ),
    Suspect(
        "it adds its input to the result. The residual connection belongs to the encoder block, outside the MLP.",
        lambda module, x: x + module(x),
    ),
    Suspect(
        "it normalises its input. The LayerNorm belongs to the encoder block, outside the MLP.",
        lambda module, x: module(F.layer_norm(x, x.shape[-1:], eps=1e-6)),
    ),
    Suspect(
        "the bias of linear_1 is not added.",
        lambda module, x: module.linear_2(F.gelu(F.linear(x, module.linear_1.weight))),
    ),
    Suspect("the bias of linear_2 is not added.", lambda module, x: module(x) - module.linear_2.bias),
]


def mlp_block(cls: Callable, *, mapping: Mapping = None) -> Verdict:
    """Check a class like ``MLPBlock(hidden_dim=, mlp_dim=, dropout=)``.

    Verified: the values in eval mode for several widths, to the exact GELU; dropout behind GELU and behind the second
    linear layer, at the rate given and in train mode only; that the input is left alone, gradients reach every
    parameter and two instances are independent.

    Args:
        cls: the class; called with keywords, then with tokens ``(b, s, d)``.
        mapping: from the course's parameters (``linear_1.weight`` and ``.bias``, ``linear_2.weight`` and ``.bias``) to
            yours, where the names differ. For ``self.net = nn.Sequential(Linear, GELU, Dropout, Linear, Dropout)``::

                def mapping(state):
                    places = {"linear_1": "net.0", "linear_2": "net.3"}
                    return {places[name[:8]] + name[8:]: value for name, value in state.items()}

    Returns:
        One line that says what was verified, or that the class is not written yet.

    Raises:
        CheckFailed: names of parameters, values, dropout, gradients or the treatment of the input are wrong.
    """
    name, reference = "mlp_block", vit_course.MLPBlock

    def verify() -> str:
        verify_module(name, cls, reference, MLP_CASES, MLP_MISTAKES, mapping=mapping)
        verify_modes(name, cls, reference, MLP_CASES[0].options, MLP_CASES[0].args[0], mapping)
        options = {"hidden_dim": WIDTH, "mlp_dim": WIDTH + 8, "dropout": RATE}
        state = zeros(reference(**options)) | mlp_weights("", options["mlp_dim"])
        out = in_train_mode(name, cls, options, state, mapping, torch.ones(100, 4, WIDTH))
        verify_levels(out, MLP_LEVELS, MLP_SLIPS)
        return "right for several widths, GELU exact; both dropouts act, in train mode only; gradients flow."

    return check(name, cls, verify)


def zeros(module: nn.Module) -> dict[str, Tensor]:
    """Return the module's parameters, all zero."""
    return {key: torch.zeros_like(value) for key, value in module.state_dict().items()}


# --- dropout of the MLP ----------------------------------------------------------------------------------------------

WIDTH = 96  # features; with 100 images of 4 tokens 38,400 values


def mlp_weights(prefix: str, mlp_dim: int) -> dict[str, Tensor]:
    """Return parameters under which an input of 1 becomes 1 before GELU, and the output shows each dropout."""
    return {
        f"{prefix}linear_1.weight": 0.5 * torch.eye(mlp_dim, WIDTH),
        f"{prefix}linear_1.bias": torch.full((mlp_dim,), 0.5),
        f"{prefix}linear_2.weight": torch.eye(WIDTH, mlp_dim),
        f"{prefix}linear_2.bias": torch.full((WIDTH,), BIAS),
    }


def gelu(value: float) -> float:
    """Return GELU of a number."""
    return value * (1 + math.erf(value / math.sqrt(2))) / 2


def behind(hidden: Levels) -> Levels:
    """Return the levels behind ``linear_2``."""
    return through(hidden, lambda value: value + BIAS)


def mlp_levels(start: Levels) -> Levels:
    """Return the levels behind GELU for levels of the input."""
    return through(start, lambda value: gelu(0.5 * value + 0.5))


HIDDEN = {gelu(1.0): 1.0}
MLP_LEVELS = drop(behind(drop(HIDDEN)))
BEFORE_GELU = through(drop({1.0: 1.0}), gelu)
MLP_SLIPS = [
    ("no dropout acts in the MLP: put it behind GELU and behind linear_2.", behind(HIDDEN)),
    ("only the dropout behind GELU acts. Put one behind linear_2 as well.", behind(drop(HIDDEN))),
    ("only the dropout behind linear_2 acts. Put one behind GELU as well.", drop(behind(HIDDEN))),
    (
        "dropout stands before GELU. Put it behind: GELU of a rescaled value is not the rescaled GELU.",
        drop(behind(BEFORE_GELU)),
    ),
    ("dropout stands before GELU, and none behind linear_2. Put one behind each.", behind(BEFORE_GELU)),
    (
        "dropout acts on the input of the MLP as well. Put it behind GELU and behind linear_2 only.",
        drop(behind(drop(mlp_levels(drop({1.0: 1.0}))))),
    ),
    (
        "dropout acts on the input of the MLP instead of behind GELU. Put it behind GELU and behind linear_2.",
        drop(behind(mlp_levels(drop({1.0: 1.0})))),
    ),
    (
        "the MLP's output is dropped twice. MLPBlock has its own dropout at the end: one is enough.",
        drop(drop(behind(drop(HIDDEN)))),
    ),
    (
        "the hidden layer is dropped twice, and once is enough.",
        drop(behind(drop(drop(HIDDEN)))),
    ),
    (
        "dropout keeps what it should drop: its rate is the probability of a zero, not of staying.",
        drop(behind(drop(HIDDEN, 1 - RATE)), 1 - RATE),
    ),
    (
        "dropout does not rescale: divide what is kept by 1 - p, so that the mean stays the same. nn.Dropout does.",
        drop(behind(drop(HIDDEN, scale=False)), scale=False),
    ),
]

# --- the encoder block -----------------------------------------------------------------------------------------------


def block_case(label: str, b: int, s: int, hidden_dim: int, num_heads: int, mlp_dim: int) -> Case:
    """Return tokens without symmetry, loud enough that eps plays no part, for a block of these sizes."""
    options = {"hidden_dim": hidden_dim, "num_heads": num_heads, "mlp_dim": mlp_dim}
    return Case(label, (4 * formula(b, s, hidden_dim),), options=options)


BLOCK_CASES = [
    block_case("three heads", 2, 7, 12, 3, 20),
    block_case("one head and a batch of one", 1, 4, 5, 1, 20),
    block_case("narrow heads", 3, 5, 8, 4, 6),
]


def first_half(block: nn.Module, x: Tensor) -> Tensor:
    """Return Eq. 2."""
    return x + block.self_attention(block.ln_1(x))


def post_norm_half(block: nn.Module, x: Tensor) -> Tensor:
    """Return the first line of a post-norm block."""
    return block.ln_1(x + block.self_attention(x))


def residual_from_normalised(block: nn.Module, x: Tensor) -> Tensor:
    """Return Eq. 2 with the normalised tokens on the skip path."""
    return block.ln_1(x) + block.self_attention(block.ln_1(x))


def second_from_normalised(block: nn.Module, x: Tensor) -> Tensor:
    """Return Eq. 3 with the normalised tokens on the skip path."""
    return block.ln_2(x) + block.mlp(block.ln_2(x))


def second_half(block: nn.Module, x: Tensor) -> Tensor:
    """Return Eq. 3."""
    return x + block.mlp(block.ln_2(x))


def relu_mlp(block: nn.Module, x: Tensor) -> Tensor:
    """Return the MLP with ReLU."""
    return mlp_with(F.relu)(block.mlp, x)


BLOCK_MISTAKES = [
    Suspect(
        "this is post-norm: LayerNorm stands on the stream, behind each addition. Put it at the entrance of each "
        "branch: x + self_attention(ln_1(x)).",
        lambda m, x: m.ln_2(post_norm_half(m, x) + m.mlp(post_norm_half(m, x))),
    ),
    Suspect(
        "each branch's output is normalised instead of its input: x + self_attention(ln_1(x)), and not "
        "x + ln_1(self_attention(x)).",
        lambda m, x: (x + m.ln_1(m.self_attention(x))) + m.ln_2(m.mlp(x + m.ln_1(m.self_attention(x)))),
    ),
    Suspect(
        "the first residual connection is missing: add x to what attention returns (Eq. 2).",
        lambda m, x: second_half(m, m.self_attention(m.ln_1(x))),
    ),
    Suspect(
        "the second residual connection is missing: add x to what the MLP returns (Eq. 3).",
        lambda m, x: m.mlp(m.ln_2(first_half(m, x))),
    ),
    Suspect(
        "both residual connections are missing: add its input to each branch (Eq. 2 and 3).",
        lambda m, x: m.mlp(m.ln_2(m.self_attention(m.ln_1(x)))),
    ),
    Suspect(
        "the second residual connection adds the block's input. Add what has left the first line, attention included.",
        lambda m, x: x + m.mlp(m.ln_2(first_half(m, x))),
    ),
    Suspect(
        "the second residual connection adds the block's input once more, besides what has left the first line.",
        lambda m, x: x + second_half(m, first_half(m, x)),
    ),
    Suspect(
        "ln_1 is used before the MLP as well. The MLP has a LayerNorm of its own, ln_2.",
        lambda m, x: first_half(m, x) + m.mlp(m.ln_1(first_half(m, x))),
    ),
    Suspect(
        "ln_2 is used before attention as well. Attention has a LayerNorm of its own, ln_1.",
        lambda m, x: second_half(m, x + m.self_attention(m.ln_2(x))),
    ),
    Suspect(
        "ln_1 and ln_2 are swapped: ln_1 stands before attention, ln_2 before the MLP.",
        lambda m, x: (x + m.self_attention(m.ln_2(x))) + m.mlp(m.ln_1(x + m.self_attention(m.ln_2(x)))),
    ),
    Suspect(
        "the second LayerNorm is missing: the MLP reads ln_2(x).",
        lambda m, x: first_half(m, x) + m.mlp(first_half(m, x)),
    ),
    Suspect(
        "the second LayerNorm and the second residual connection are missing: x + mlp(ln_2(x)), Eq. 3.",
        lambda m, x: m.mlp(first_half(m, x)),
    ),
    Suspect(
        "the first LayerNorm is missing: attention reads ln_1(x).",
        lambda m, x: second_half(m, x + m.self_attention(x)),
    ),
    Suspect(
        "both LayerNorms are missing: attention reads ln_1(x), the MLP ln_2(x).",
        lambda m, x: (x + m.self_attention(x)) + m.mlp(x + m.self_attention(x)),
    ),
    Suspect(
        "the skip path starts behind the LayerNorm, in both lines, so the stream itself is normalised. Add x, not "
        "ln_1(x).",
        lambda m, x: second_from_normalised(m, residual_from_normalised(m, x)),
    ),
    Suspect(
        "the first skip path starts behind the LayerNorm, so the stream itself is normalised. Add x, not ln_1(x).",
        lambda m, x: second_half(m, residual_from_normalised(m, x)),
    ),
    Suspect(
        "the second skip path starts behind the LayerNorm, so the stream itself is normalised. Add x, not ln_2(x).",
        lambda m, x: second_from_normalised(m, first_half(m, x)),
    ),
    Suspect(
        "attention and MLP run side by side on the same input. The MLP reads what has left the first line.",
        lambda m, x: x + m.self_attention(m.ln_1(x)) + m.mlp(m.ln_2(x)),
    ),
    Suspect(
        "the MLP comes before attention. Attention is first (Eq. 2), then the MLP (Eq. 3).",
        lambda m, x: first_half(m, second_half(m, x)),
    ),
    Suspect(
        "the MLP is missing: the block ends after Eq. 2.",
        lambda m, x: first_half(m, x),
    ),
    Suspect(
        "attention is missing: the block is Eq. 3 alone.",
        lambda m, x: second_half(m, x),
    ),
    Suspect(
        "the activation is ReLU, the default of nn.TransformerEncoderLayer. ViT uses GELU.",
        lambda m, x: first_half(m, x) + relu_mlp(m, m.ln_2(first_half(m, x))),
    ),
    Suspect(
        "tokens attend to the same place in other images: the layer takes the batch for the sequence. torch's own "
        "layers need batch_first=True.",
        lambda m, x: m(x.transpose(0, 1)).transpose(0, 1),
    ),
]


def encoder_block(cls: Callable, *, mapping: Mapping = None) -> Verdict:
    """Check a class like ``EncoderBlock(hidden_dim=, num_heads=, mlp_dim=, dropout=, attention_dropout=)``.

    Verified: the values in eval mode for several widths and heads, and for quiet tokens, at which the eps of 1e-6
    shows; dropout on both branches and inside the MLP, never on the skip path, and ``attention_dropout`` on the
    attention weights, in train mode only; that the input is left alone, gradients reach every parameter (save the bias
    of the keys) and two instances are independent.

    Args:
        cls: the class; called with keywords, then with tokens ``(b, s, d)``.
        mapping: from the course's parameters (``ln_1.*``, ``self_attention.qkv.*``, ``self_attention.out_proj.*``,
            ``ln_2.*``, ``mlp.linear_1.*``, ``mlp.linear_2.*``, each ``weight`` and ``bias``) to yours, where the names
            differ::

                def mapping(state):
                    return {name.replace("self_attention", "attn"): value for name, value in state.items()}

    Returns:
        One line that says what was verified, or that the class is not written yet.

    Raises:
        CheckFailed: names of parameters, values, dropout, gradients or the treatment of the input are wrong.
    """
    name = "encoder_block"

    def verify() -> str:
        small = vit_course.EncoderBlock(hidden_dim=2, num_heads=1, mlp_dim=2)
        biases = key_biases(mapping, small) if mapping else set()
        verify_module(
            name,
            cls,
            vit_course.EncoderBlock,
            BLOCK_CASES,
            BLOCK_MISTAKES,
            mapping=mapping,
            no_gradient=lambda parameter: parameter in biases,
        )
        verify_eps(name, cls, vit_course.EncoderBlock, BLOCK_CASES[0].options, BLOCK_EPS, mapping)
        verify_block_dropout(name, cls, mapping)
        return "right for one and more heads, eps 1e-6; dropout on the branches alone, in train mode; gradients flow."

    return check(name, cls, verify)


# --- eps of the LayerNorms -------------------------------------------------------------------------------------------


def with_eps(module: nn.Module, x: Tensor, eps: dict[str, float]) -> Tensor:
    """Return the module's output with another eps in some of its LayerNorms, by the ends of their names."""
    norms = {key: part for key, part in module.named_modules() if isinstance(part, nn.LayerNorm)}
    before = {key: part.eps for key, part in norms.items()}
    for key, part in norms.items():
        part.eps = eps.get(key.rpartition(".")[2], part.eps)
    out = module(x)
    for key, part in norms.items():
        part.eps = before[key]
    return out


def eps_suspect(places: list[str], eps: float, cause: str) -> Suspect:
    """Return the suspect of a wrong eps in some LayerNorms."""
    where = " and ".join([", ".join(places[:-1]), places[-1]] if len(places) > 1 else places)
    return Suspect(
        f"the eps of {where} is {cause}. Quiet tokens come out too {'quiet' if eps > 1e-6 else 'loud'}: write "
        "nn.LayerNorm(hidden_dim, eps=1e-6).",
        lambda module, x: with_eps(module, x, dict.fromkeys(places, eps)),
    )


def eps_suspects(*groups: list[str]) -> list[Suspect]:
    """Return the suspects for LayerNorms that share a wrong eps."""
    causes = [(1e-5, "1e-5, torch's default, and not 1e-6"), (1e-12, "1e-12, as in Hugging Face, and not 1e-6")]
    return [eps_suspect(places, eps, cause) for eps, cause in causes for places in groups]


BLOCK_EPS = eps_suspects(["ln_1"], ["ln_2"], ["ln_1", "ln_2"])


def verify_eps(
    name: str, cls: Callable, reference: type[nn.Module], options: dict, suspects: list[Suspect], mapping: Mapping
) -> None:
    """Check the eps of every LayerNorm: tokens are quiet, and the branches write so little that they stay quiet."""
    right = set_parameters(reference(**options))
    with torch.no_grad():
        for key, parameter in right.named_parameters():
            if "out_proj" in key or "linear_2" in key:
                parameter *= 1e-3
    case = Case("quiet tokens, whose variance is near 1e-6", (2e-3 * formula(2, 5, options["hidden_dim"]),))
    mine = loaded(name, cls, options, right.state_dict(), mapping).eval()
    with learners(name, cls, f"on {case.label}"), torch.no_grad():
        actual = mine(case.args[0].clone())
        expected = right(case.args[0])
    call = (right, case.args[0])
    judge([case], [actual], [expected], [(s, results_of(s, [call]), call) for s in suspects])


# --- dropout of the block --------------------------------------------------------------------------------------------

CONSTANT = 1.0 + BIAS  # what attention writes everywhere, before dropout
ATTENTION_SLIPS = [
    (
        "no dropout acts on what attention returns: write x + self.dropout(self.self_attention(self.ln_1(x))).",
        {CONSTANT: 1.0},
    ),
    *slips(CONSTANT),
]


def block_state(hidden_dim: int, num_heads: int, mlp_dim: int) -> dict[str, Tensor]:
    """Return an encoder block's parameters, all zero: no branch writes anything."""
    return zeros(vit_course.EncoderBlock(hidden_dim=hidden_dim, num_heads=num_heads, mlp_dim=mlp_dim))


def verify_block_dropout(name: str, cls: Callable, mapping: Mapping) -> None:
    """Check each place of dropout on its own, the rest of the block silent."""
    case = BLOCK_CASES[0]
    for argument in ("dropout", "attention_dropout"):
        verify_modes(name, cls, vit_course.EncoderBlock, case.options, case.args[0], mapping, argument)

    options = {"hidden_dim": WIDTH, "num_heads": 3, "mlp_dim": WIDTH + 8}
    silent, dropping = block_state(**options), options | {"dropout": RATE}
    x = 2 + formula(100, 4, WIDTH)  # no zeros
    out = in_train_mode(name, cls, dropping | {"attention_dropout": RATE}, silent, mapping, x)
    if not same(out, x):
        raise CheckFailed(
            "dropout acts on the skip path: with both branches silent, train mode must return x as it came, and "
            f"{(out - x).abs().gt(1e-4).float().mean():.0%} of it has changed. Write x + dropout(branch), never "
            f"dropout(x) + branch.\n  {describe(out, x)}"
        )

    marked = marked_tokens()
    d = marked.shape[-1]
    sizes = {"hidden_dim": d, "num_heads": 3, "mlp_dim": 4}
    state = block_state(**sizes) | revealing_weights("self_attention.", d)
    state["ln_1.weight"] = (marked[0, 0].var(correction=0) + 1e-6).sqrt().expand(d)  # ln_1(marked) is marked
    state["ln_1.bias"] = marked[0, 0].mean().expand(d)
    out = in_train_mode(name, cls, sizes | {"attention_dropout": RATE}, state, mapping, marked)
    verify_dropped_weights(out - marked)

    nothing = torch.zeros(100, 4, WIDTH)
    state = silent | {"ln_1.bias": torch.ones(WIDTH)} | revealing_weights("self_attention.", WIDTH)
    verify_levels(in_train_mode(name, cls, dropping, state, mapping, nothing), drop({CONSTANT: 1.0}), ATTENTION_SLIPS)

    state = silent | {"ln_2.bias": torch.ones(WIDTH)} | mlp_weights("mlp.", options["mlp_dim"])
    verify_levels(in_train_mode(name, cls, dropping, state, mapping, nothing), MLP_LEVELS, MLP_SLIPS)


# --- the encoder -----------------------------------------------------------------------------------------------------


def encoder_case(label: str, b: int, s: int, num_layers: int, num_heads: int) -> Case:
    """Return tokens without symmetry for an encoder of this depth."""
    case = block_case(label, b, s, 4 * num_heads, num_heads, 10)
    return Case(label, case.args, options={"num_layers": num_layers, **case.options})


ENCODER_CASES = [
    encoder_case("two layers", 2, 5, 2, 3),
    encoder_case("one layer and a batch of one", 1, 4, 1, 1),
    encoder_case("three layers", 2, 3, 3, 2),
]


def run_layers(layers: nn.ModuleList, x: Tensor) -> Tensor:
    """Run blocks one after the other."""
    for layer in layers:
        x = layer(x)
    return x


def normed_after_each(encoder: nn.Module, x: Tensor) -> Tensor:
    """Return the encoder's output with its LayerNorm behind every block."""
    for layer in encoder.layers:
        x = encoder.ln(layer(x))
    return x


ENCODER_MISTAKES = [
    Suspect(
        "the final LayerNorm is missing: return ln(x) (Eq. 4).",
        lambda m, x: run_layers(m.layers, x),
    ),
    Suspect(
        "all layers are one block, repeated: [block] * n holds the same block n times, and they share their weights. "
        "Make a new one in each turn of a loop.",
        lambda m, x: m.ln(run_layers([m.layers[-1]] * len(m.layers), x)),
    ),
    Suspect(
        "only the first block runs, num_layers times. Run each of the layers once.",
        lambda m, x: m.ln(run_layers([m.layers[0]] * len(m.layers), x)),
    ),
    Suspect(
        "the blocks run from last to first.",
        lambda m, x: m.ln(run_layers(m.layers[::-1], x)),
    ),
    Suspect(
        "only the last block has an effect: every block reads the encoder's input. Hand each block's output to the "
        "next: x = layer(x).",
        lambda m, x: m.ln(m.layers[-1](x)),
    ),
    Suspect(
        "no block has an effect: it returns ln(x). Hand each block's output to the next: x = layer(x).",
        lambda m, x: m.ln(x),
    ),
    Suspect("only the first block runs. Run all of them.", lambda m, x: m.ln(m.layers[0](x))),
    Suspect("the last block does not run.", lambda m, x: m.ln(run_layers(m.layers[:-1], x))),
    Suspect("the first block does not run.", lambda m, x: m.ln(run_layers(m.layers[1:], x))),
    Suspect(
        "the LayerNorm comes before the blocks. It comes last.",
        lambda m, x: run_layers(m.layers, m.ln(x)),
    ),
    Suspect(
        "the final LayerNorm runs behind every block, on the stream. It runs once, at the end: take it out of "
        "the loop.",
        normed_after_each,
    ),
    Suspect(
        "each block's output is added to its input once more. The residual connections are inside the block: "
        "x = layer(x).",
        lambda m, x: m.ln(run_layers([lambda y, layer=layer: y + layer(y) for layer in m.layers], x)),
    ),
]
ENCODER_EPS = eps_suspects(["ln"], ["ln_1", "ln_2"], ["ln_1", "ln_2", "ln"])


def encoder(cls: Callable, *, mapping: Mapping = None) -> Verdict:
    """Check a class like ``Encoder(num_layers=, hidden_dim=, num_heads=, mlp_dim=, dropout=, attention_dropout=)``.

    Verified: the values of ``forward`` in eval mode for one to three layers, with the final LayerNorm and its eps; that
    both dropouts reach the blocks, in train mode only, and leave the stream alone; that the input is left alone,
    gradients reach every parameter (save the bias of the keys) and two instances are independent.

    Args:
        cls: the class; called with keywords, then with tokens ``(b, s, d)``.
        mapping: from the course's parameters (``layers.0.ln_1.weight`` ..., ``ln.weight``, ``ln.bias``) to yours, where
            the names differ::

                def mapping(state):
                    return {name.replace("layers.", "blocks."): value for name, value in state.items()}

    Returns:
        One line that says what was verified, or that the class is not written yet.

    Raises:
        CheckFailed: names of parameters, values, dropout, gradients or the treatment of the input are wrong.
    """
    name, reference = "encoder", vit_course.Encoder

    def verify() -> str:
        small = reference(num_layers=3, hidden_dim=2, num_heads=1, mlp_dim=2)
        biases = key_biases(mapping, small) if mapping else set()
        verify_module(
            name,
            cls,
            reference,
            ENCODER_CASES,
            ENCODER_MISTAKES,
            mapping=mapping,
            no_gradient=lambda parameter: parameter in biases,
        )
        case = ENCODER_CASES[0]
        verify_eps(name, cls, reference, case.options, ENCODER_EPS, mapping)
        for argument in ("dropout", "attention_dropout"):
            verify_modes(name, cls, reference, case.options, case.args[0], mapping, argument)
            verify_passed_on(name, cls, case, argument, mapping)
        return "right for one to three layers, with the final LayerNorm; dropout reaches the blocks; gradients flow."

    return check(name, cls, verify)


def verify_passed_on(name: str, cls: Callable, case: Case, argument: str, mapping: Mapping) -> None:
    """Check that a rate reaches every block, and that dropout leaves the stream between them alone."""
    options = {**case.options, argument: RATE}
    full = set_parameters(vit_course.Encoder(**case.options)).state_dict()
    writing = ("out_proj.weight", "out_proj.bias", "linear_2.weight", "linear_2.bias")
    silent = {key: torch.zeros_like(value) if key.endswith(writing) else value for key, value in full.items()}
    x = case.args[0].repeat(100, 1, 1)
    expected = F.layer_norm(x, x.shape[-1:], full["ln.weight"], full["ln.bias"], eps=1e-6)
    out = in_train_mode(name, cls, options, silent, mapping, x)
    if not same(out, expected):
        raise CheckFailed(
            f"{argument} acts on the stream itself, outside the blocks' branches: with all branches silent, train mode "
            f"must return ln(x). Leave dropout to the blocks.\n  {describe(out, expected)}"
        )
    for number in range(options["num_layers"]):
        own = {key: full[key] if key.startswith(f"layers.{number}.") else value for key, value in silent.items()}
        still = in_train_mode(name, cls, case.options, own, mapping, x)
        if same(in_train_mode(name, cls, options, own, mapping, x), still):
            raise CheckFailed(f"{argument} has no effect in layer {number}: pass it on to every block.")
