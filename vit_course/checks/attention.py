"""Checks of lesson 03's parts: attention as a function, and the class with its heads."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from einops import rearrange, reduce, repeat
from torch import Tensor, nn

import vit_course
from vit_course.checks.dropout import RATE, drop, in_train_mode, slips, verify_levels, verify_modes
from vit_course.checks.evidence import (
    Case,
    CheckFailed,
    Suspect,
    Verdict,
    check,
    formula,
    verify_function,
    verify_module,
)


def scores(query: Tensor, key: Tensor) -> Tensor:
    """Return the scores before scaling: ``(b, heads, i, j)``."""
    return query @ key.mT


def scaled(query: Tensor, key: Tensor) -> Tensor:
    """Return the scores after scaling."""
    return scores(query, key) * query.shape[-1] ** -0.5


def divided_by(root: Callable[[Tensor, Tensor], float]) -> Callable:
    """Return attention whose scores are divided by something else."""
    return lambda q, k, v: (scores(q, k) / root(q, k)).softmax(dim=-1) @ v


def normalised_over(dim: int | tuple[int, int]) -> Callable:
    """Return attention whose softmax runs over other axes."""
    return lambda q, k, v: (scaled(q, k) - scaled(q, k).logsumexp(dim, keepdim=True)).exp() @ v


def attention_case(label: str, b: int, heads: int, i: int, j: int, e: int, *, size: float = 2.0) -> Case:
    """Return queries, keys and values without symmetry; ``size`` is the largest query and key."""
    query, key = size * formula(b, heads, i, e), size * formula(b, heads, j, e, start=307)
    return Case(label, (query, key, formula(b, heads, j, e, start=611)))


AS_MANY_KEYS = [
    attention_case("three heads", 2, 3, 7, 7, 5),
    attention_case("one head and a batch of one", 1, 1, 4, 4, 6),
    attention_case("narrow heads", 3, 4, 5, 5, 2),
]
OTHER_KEYS = [
    attention_case("more keys than queries", 2, 3, 4, 9, 5),
    attention_case("fewer keys than queries", 1, 2, 6, 3, 4),
    attention_case("scores above 88, whose exp alone overflows", 2, 2, 5, 5, 8, size=30.0),
]

ATTENTION_MISTAKES = [
    Suspect(
        "the scores are not divided by the root of the head width e: with e = {e} they spread {times:.1f} times too "
        "wide. Multiply them by e ** -0.5 before the softmax.",
        divided_by(lambda q, k: 1.0),
        lambda q, k, v: {"e": q.shape[-1], "times": q.shape[-1] ** 0.5},
    ),
    Suspect(
        "the scores are divided by √{d}, the root of the whole token's width d. Divide by that of one head, √e = √{e}.",
        divided_by(lambda q, k: (q.shape[1] * q.shape[3]) ** 0.5),
        lambda q, k, v: {"d": q.shape[1] * q.shape[3], "e": q.shape[3]},
    ),
    Suspect(
        "the scores are divided by √{heads}, the root of the number of heads. Divide by that of their width, "
        "√e = √{e}.",
        divided_by(lambda q, k: q.shape[1] ** 0.5),
        lambda q, k, v: {"heads": q.shape[1], "e": q.shape[3]},
    ),
    Suspect(
        "the scores are divided by √{s}, the root of the number of tokens. Divide by that of the head width, "
        "√e = √{e}.",
        divided_by(lambda q, k: q.shape[2] ** 0.5),
        lambda q, k, v: {"s": q.shape[2], "e": q.shape[3]},
    ),
    *(
        Suspect(
            f"the scores are divided by √{width}, a fixed number. Read the width e of a head off the tensors: "
            "query.shape[-1].",
            divided_by(lambda q, k, width=width: width**0.5),
        )
        for width in (64, 96, 768)
    ),
    Suspect(
        "the scores are divided by e = {e} instead of its root, {root:.3f}.",
        divided_by(lambda q, k: q.shape[3]),
        lambda q, k, v: {"e": q.shape[3], "root": q.shape[3] ** 0.5},
    ),
    Suspect(
        "the scores are multiplied by √e = {root:.3f} instead of divided.",
        divided_by(lambda q, k: q.shape[3] ** -0.5),
        lambda q, k, v: {"root": q.shape[3] ** 0.5},
    ),
    Suspect(
        "the scores are divided after the softmax, so rows sum to {total:.3f}, not 1. Scale before softmax.",
        lambda q, k, v: scores(q, k).softmax(dim=-1) * q.shape[-1] ** -0.5 @ v,
        lambda q, k, v: {"total": q.shape[-1] ** -0.5},
    ),
    Suspect(
        "the weights are divided after the softmax, and by √{d}, the root of the whole token's width, so rows sum to "
        "{total:.3f}, not 1. Divide the scores by √e, before the softmax.",
        lambda q, k, v: scores(q, k).softmax(dim=-1) * (q.shape[1] * q.shape[3]) ** -0.5 @ v,
        lambda q, k, v: {"d": q.shape[1] * q.shape[3], "total": (q.shape[1] * q.shape[3]) ** -0.5},
    ),
    Suspect(
        "the scores are divided before the softmax and the weights once more after it, so rows sum to {total:.3f}, not "
        "1. Scale once, before softmax.",
        lambda q, k, v: scaled(q, k).softmax(dim=-1) * q.shape[-1] ** -0.5 @ v,
        lambda q, k, v: {"total": q.shape[-1] ** -0.5},
    ),
    Suspect(
        "the softmax runs over the query tokens, so the first row sums to {total:.3f}, not 1. Use dim=-1, the key "
        "tokens; with a heads axis, dim=2 is the queries.",
        normalised_over(-2),
        lambda q, k, v: {"total": scaled(q, k).softmax(dim=-2)[0, 0, 0].sum()},
    ),
    Suspect(
        "the softmax runs over the heads, so the first row sums to {total:.3f}, not 1. Use dim=-1, the key tokens.",
        normalised_over(1),
        lambda q, k, v: {"total": scaled(q, k).softmax(dim=1)[0, 0, 0].sum()},
    ),
    Suspect(
        "the softmax runs over the batch, so images mix, and the first row sums to {total:.3f}, not 1. Use dim=-1, the "
        "key tokens.",
        normalised_over(0),
        lambda q, k, v: {"total": scaled(q, k).softmax(dim=0)[0, 0, 0].sum()},
    ),
    Suspect(
        "one softmax runs over queries and keys together, so the first row sums to {total:.3f}, not 1. Use dim=-1: the "
        "shares of each query sum to 1.",
        normalised_over((-2, -1)),
        lambda q, k, v: {"total": scaled(q, k)[0, 0].flatten().softmax(dim=0)[: k.shape[2]].sum()},
    ),
    Suspect(
        "the scores are transposed: row i holds how token i is looked at, not how it looks. Query and key are swapped, "
        "or the result of their product is (j, i) instead of (i, j).",
        lambda q, k, v: scaled(k, q).softmax(dim=-1) @ v,
    ),
    Suspect(
        "the weights are transposed after the softmax: the sum with the values runs over the queries i, and must run "
        "over the keys j.",
        lambda q, k, v: scaled(q, k).softmax(dim=-1).mT @ v,
    ),
    Suspect(
        "keys are used as values: the weights must mix the values.",
        lambda q, k, v: scaled(q, k).softmax(dim=-1) @ k,
    ),
    Suspect(
        "queries are used as values: the weights must mix the values.",
        lambda q, k, v: scaled(q, k).softmax(dim=-1) @ q,
    ),
    Suspect(
        "queries are used as keys: the scores must compare each query with the keys.",
        lambda q, k, v: scaled(q, q).softmax(dim=-1) @ v,
    ),
    Suspect(
        "keys are used as queries: the scores must compare each query with the keys.",
        lambda q, k, v: scaled(k, k).softmax(dim=-1) @ v,
    ),
    Suspect(
        "key and value are swapped: the scores are made with the values, and the weights mix the keys.",
        lambda q, k, v: scaled(q, v).softmax(dim=-1) @ k,
    ),
    Suspect(
        "query and value are swapped: the scores are made with the values, and the weights mix the queries.",
        lambda q, k, v: scaled(v, k).softmax(dim=-1) @ q,
    ),
    Suspect(
        "every query gets the plain mean of all values: the weights have no effect. Weigh the values by "
        "softmax(q kᵀ / √e).",
        lambda q, k, v: v.mean(dim=2, keepdim=True).expand(v.shape),
    ),
    Suspect(
        "each token gets its own value back: the values of other tokens are not mixed in. Sum over the key tokens j: "
        "weights (i, j) times values (j, e).",
        lambda q, k, v: v,
    ),
    Suspect(
        "the values are added up without weights. Multiply the weights (i, j) with the values (j, e).",
        lambda q, k, v: v.sum(dim=2, keepdim=True).expand(v.shape),
    ),
    Suspect(
        "the softmax is missing: the scores themselves weigh the values, so the first row sums to {total:.3f}, not 1.",
        lambda q, k, v: scaled(q, k) @ v,
        lambda q, k, v: {"total": scaled(q, k)[0, 0, 0].sum()},
    ),
    Suspect(
        "a causal mask is on: each token sees only itself and the tokens before it. A ViT's tokens see all.",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
]
RETURNED_WEIGHTS = Suspect(
    "it returns the weights. Mix the values with them: weights @ value.",
    lambda q, k, v: scaled(q, k).softmax(dim=-1),
)


def scaled_dot_product_attention(function: Callable) -> Verdict:
    """Check a ``scaled_dot_product_attention(query, key, value)``: softmax(q kᵀ / √e) v for every head.

    Verified: the values for several numbers of heads, head widths, queries and keys, also for large scores; the
    gradients of all three; that none of them is written into.

    Args:
        function: takes query, key and value, ``(b, heads, i, e)`` and twice ``(b, heads, j, e)``, and returns
            ``(b, heads, i, e)``.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: values, gradients or the treatment of the inputs are wrong.
    """
    name = "scaled_dot_product_attention"

    def verify() -> str:
        mistakes = [*ATTENTION_MISTAKES, RETURNED_WEIGHTS]
        for cases in (AS_MANY_KEYS, AS_MANY_KEYS + OTHER_KEYS):  # transposed scores raise an error on other keys
            verify_function(name, function, vit_course.scaled_dot_product_attention, cases, mistakes)
        return "right for one and more heads, as many keys as queries or not, and large scores; gradients flow."

    return check(name, function, verify)


# --- the class -------------------------------------------------------------------------------------------------------

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def heads_of(module: nn.Module, x: Tensor, layout: str = "(three heads e)", *, bias: bool = True) -> Tensor:
    """Return query, key and value, ``(three, b, heads, s, e)``, with the features of ``qkv`` in another layout."""
    projected = module.qkv(x) if bias else F.linear(x, module.qkv.weight)
    return rearrange(projected, f"b s {layout} -> three b heads s e", three=3, heads=module.num_heads)


def attend(
    module: nn.Module,
    x: Tensor,
    *,
    layout: str = "(three heads e)",
    bias: bool = True,
    attention: Attention = F.scaled_dot_product_attention,
    merge: str = "b heads s e -> b s (heads e)",
) -> Tensor:
    """Return what goes into ``out_proj``, with one step replaced."""
    return rearrange(attention(*heads_of(module, x, layout, bias=bias)), merge)


def never_transposed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention where ``(b, s, heads e)`` is reshaped to ``(b, heads, s, e)``, and nothing moves."""
    flat = [rearrange(part, "b heads s e -> b (s heads e)").reshape(q.shape) for part in (q, k, v)]
    return F.scaled_dot_product_attention(*flat)


def among_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention where the heads of one token look at each other."""
    return F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)


def one_head(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of one head, as wide as the token."""
    heads = q.shape[1]
    wide = [rearrange(part, "b heads s e -> b 1 s (heads e)") for part in (q, k, v)]
    return rearrange(F.scaled_dot_product_attention(*wide), "b 1 s (heads e) -> b heads s e", heads=heads)


FLAT = "b heads s e -> b (heads s e)"  # to be reshaped, and nothing moves
MULTI_HEAD_MISTAKES = [
    *(
        Suspect(
            suspect.sentence,
            lambda module, x, suspect=suspect: module.out_proj(attend(module, x, attention=suspect.result)),
            suspect.numbers and (lambda module, x, suspect=suspect: suspect.numbers(*heads_of(module, x).detach())),
        )
        for suspect in ATTENTION_MISTAKES
    ),
    Suspect(
        "the heads are merged as (e heads): merge them as (heads e), the way in which they were split.",
        lambda module, x: module.out_proj(attend(module, x, merge="b heads s e -> b s (e heads)")),
    ),
    Suspect(
        "the heads are merged by a reshape alone, which puts numbers of other tokens into each token. Bring the heads "
        "behind the tokens first: transpose(1, 2), or 'b heads s e -> b s (heads e)'.",
        lambda module, x: module.out_proj(attend(module, x, merge=FLAT).reshape(x.shape)),
    ),
    Suspect(
        "the heads are split off by a reshape alone, so that a head gets numbers of other heads and tokens. Split to "
        "(b, s, heads, e), then transpose(1, 2).",
        lambda module, x: module.out_proj(attend(module, x, attention=never_transposed)),
    ),
    Suspect(
        "the heads are split and merged by a reshape alone, so that a head gets numbers of other heads and tokens. "
        "Split to (b, s, heads, e), then transpose(1, 2); transpose back before the merge.",
        lambda module, x: module.out_proj(attend(module, x, attention=never_transposed, merge=FLAT).reshape(x.shape)),
    ),
    Suspect(
        "the heads of one token attend to each other, and no token sees another: the axes are (b, s, heads, e). "
        "Transpose to (b, heads, s, e) before attention.",
        lambda module, x: module.out_proj(attend(module, x, attention=among_heads)),
    ),
    Suspect(
        "it computes a single head as wide as the token: num_heads has no effect. Split q, k and v into heads.",
        lambda module, x: module.out_proj(attend(module, x, attention=one_head)),
    ),
    Suspect(
        "qkv is split as (heads e three), so q, k and v come from every third feature. Split it as (three heads e), or "
        "no published checkpoint fits.",
        lambda module, x: module.out_proj(attend(module, x, layout="(heads e three)")),
    ),
    Suspect(
        "qkv is split as (heads three e): each head's q, k and v stand side by side. Split it as (three heads e): all "
        "queries, then all keys, then all values.",
        lambda module, x: module.out_proj(attend(module, x, layout="(heads three e)")),
    ),
    Suspect(
        "qkv is split as (three e heads), so a head gets every num_heads-th feature. Split it as (three heads e).",
        lambda module, x: module.out_proj(attend(module, x, layout="(three e heads)")),
    ),
    Suspect(
        "features are split as (e heads) and merged as (e heads). Split qkv as (three heads e), merge as (heads e).",
        lambda module, x: module.out_proj(
            attend(module, x, layout="(three e heads)", merge="b heads s e -> b s (e heads)")
        ),
    ),
    Suspect(
        "the output projection is missing: end with out_proj, which mixes the heads (Eq. 8).",
        lambda module, x: attend(module, x),
    ),
    Suspect(
        "the output projection is applied twice.",
        lambda module, x: module.out_proj(module.out_proj(attend(module, x))),
    ),
    Suspect(
        "it adds its input to the result. The residual connection belongs to the encoder block, outside attention.",
        lambda module, x: x + module(x),
    ),
    Suspect(
        "the bias of qkv is not added.",
        lambda module, x: module.out_proj(attend(module, x, bias=False)),
    ),
    Suspect(
        "the bias of out_proj is not added.",
        lambda module, x: attend(module, x) @ module.out_proj.weight.mT,
    ),
    Suspect(
        "tokens attend to the same place in other images: the layer takes the batch for the sequence. "
        "nn.MultiheadAttention needs batch_first=True.",
        lambda module, x: module(x.transpose(0, 1)).transpose(0, 1),
    ),
]


def tokens_case(label: str, b: int, s: int, hidden_dim: int, num_heads: int) -> Case:
    """Return tokens without symmetry for a layer of these sizes."""
    options = {"hidden_dim": hidden_dim, "num_heads": num_heads}
    return Case(label, (4 * formula(b, s, hidden_dim),), options=options)


SELF_ATTENTION_CASES = [
    tokens_case("three heads", 2, 7, 12, 3),
    tokens_case("one head and a batch of one", 1, 4, 5, 1),
    tokens_case("narrow heads", 3, 5, 8, 4),
]


def multi_head_attention(cls: Callable, *, mapping: Callable[[dict], dict] | None = None) -> Verdict:
    """Check a class like ``MultiHeadSelfAttention(hidden_dim=, num_heads=, attention_dropout=)``.

    Verified: the values in eval mode for several widths and heads; that dropout acts on the attention weights, at the
    rate given and in train mode only; that the input is left alone, gradients reach every parameter (save the bias of
    the keys, which has none) and two instances are independent.

    Args:
        cls: the class; called with keywords, then with tokens ``(b, s, d)``.
        mapping: from the course's parameters (``qkv.weight``, ``qkv.bias``, ``out_proj.weight``, ``out_proj.bias``) to
            yours, where the names differ. For separate projections::

                def mapping(state):
                    names = ["query", "key", "value"]
                    weights = dict(zip([f"{name}.weight" for name in names], state["qkv.weight"].chunk(3)))
                    biases = dict(zip([f"{name}.bias" for name in names], state["qkv.bias"].chunk(3)))
                    out = {f"out.{kind}": state[f"out_proj.{kind}"] for kind in ("weight", "bias")}
                    return weights | biases | out

    Returns:
        One line that says what was verified, or that the class is not written yet.

    Raises:
        CheckFailed: names of parameters, values, dropout, gradients or the treatment of the input are wrong.
    """
    name, reference = "multi_head_attention", vit_course.MultiHeadSelfAttention

    def verify() -> str:
        biases = key_biases(mapping, reference(hidden_dim=2, num_heads=1)) if mapping else set()
        verify_module(
            name,
            cls,
            reference,
            SELF_ATTENTION_CASES,
            MULTI_HEAD_MISTAKES,
            mapping=mapping,
            no_gradient=lambda parameter: parameter in biases,
        )
        case = SELF_ATTENTION_CASES[0]
        verify_modes(name, cls, reference, case.options, case.args[0], mapping, "attention_dropout")
        options = {"hidden_dim": 48, "num_heads": 3}
        state = {key: torch.zeros_like(value) for key, value in reference(**options).state_dict().items()}
        state |= revealing_weights("", 48)
        given = options | {"attention_dropout": RATE}
        verify_dropped_weights(in_train_mode(name, cls, given, state, mapping, marked_tokens()))
        return "right for one and more heads; dropout acts on the weights, in train mode only; gradients flow."

    return check(name, cls, verify)


def key_biases(mapping: Callable, module: nn.Module) -> set[str]:
    """Return the learner's parameters that hold key biases and nothing else: they rightly have no gradient.

    Args:
        mapping: from the course's state dict to the learner's.
        module: the course's, with attention in it; its size does not matter.
    """
    state = {key: torch.zeros_like(value) for key, value in module.state_dict().items()}
    for key, value in state.items():
        if key.endswith("qkv.bias"):
            value.chunk(3)[1].fill_(1.0)
    return {key for key, value in mapping(state).items() if value.ndim == 1 and bool((value != 0).all())}


# --- dropout of the attention weights --------------------------------------------------------------------------------

KEYS = 8  # tokens; each head is twice as wide, so that two features of the output show one weight
BIAS = 0.5  # of out_proj: what stands before it is told from what stands behind it


def marked_tokens() -> Tensor:
    """Return tokens ``(200, 8, 48)``: token j holds 1 where a feature's number modulo 8 is j."""
    return repeat(torch.eye(KEYS), "j key -> 200 j (six key)", six=6).contiguous()


def revealing_weights(prefix: str, hidden_dim: int) -> dict[str, Tensor]:
    """Return parameters under which every score is one number and the output shows the weights, plus ``BIAS``."""
    still, pass_on = torch.zeros(2 * hidden_dim, hidden_dim), torch.eye(hidden_dim)
    return {
        f"{prefix}qkv.weight": torch.cat([still, pass_on]),
        f"{prefix}qkv.bias": torch.cat([torch.ones(2 * hidden_dim), torch.zeros(hidden_dim)]),
        f"{prefix}out_proj.weight": pass_on,
        f"{prefix}out_proj.bias": torch.full((hidden_dim,), BIAS),
    }


def verify_dropped_weights(out: Tensor) -> None:
    """Check the attention weights in train mode, from the output for marked tokens under revealing weights."""
    twice = rearrange(out, "b i (heads two j) -> two b heads i j", heads=3, two=2)
    if not torch.allclose(twice[0], twice[1], atol=1e-5, equal_nan=True):
        raise CheckFailed(
            "attention_dropout acts on features, not on attention weights: one weight has come out differently in "
            "two features of the same value. Drop the weights, between the softmax and the product with the values."
        )
    weights = twice[0] - BIAS
    even = 1 / KEYS
    sums = reduce(weights, "b heads i j -> b heads i", "sum")
    whole_or_empty = ((sums - 1).abs() < 1e-4) | sums.isnan() | (sums == 0)
    if whole_or_empty.all() and not ((weights - even).abs() < 1e-4).all():
        raise CheckFailed(
            "in train mode the weights vary and their rows still sum to 1: dropout acts before the softmax, or the "
            "rows are divided by their sum after it. Drop weights after the softmax, and leave the rows as they come."
        )
    mistakes = [
        (
            "attention_dropout has no effect in train mode: no attention weight is dropped. Pass it on to the "
            "attention layer, and there to the weights after the softmax.",
            {even: 1.0},
        ),
        *slips(even),
    ]
    verify_levels(weights, drop({even: 1.0}), mistakes, "attention_dropout")
