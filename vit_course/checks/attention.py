"""Checks of lesson 03's parts: attention as a function, its weights, splitting and merging heads, and the class."""

from collections.abc import Sequence

import torch
from einops import repeat
from torch import Tensor

import vit_course
from vit_course import attention
from vit_course.checks import twins
from vit_course.checks.compare import formula
from vit_course.checks.declare import Case, declare
from vit_course.checks.embedding import drawn, modes
from vit_course.checks.trace import forbids

# --- attention as a function -----------------------------------------------------------------------------------------


def tensors(label: str, b: int, heads: int, i: int, j: int, e: int, v: int = 0, *, size: float = 2.0) -> Case:
    """Return queries, keys and values without symmetry, of widths e and v; ``size`` is the largest query and key."""
    query, key = size * formula(b, heads, i, e), size * formula(b, heads, j, e, start=307)
    return Case(label, (query, key, formula(b, heads, j, v or e, start=611)))


def queries_and_keys(cases: Sequence[Case]) -> list[Case]:
    """Return the cases without their values."""
    return [Case(case.label, case.args[:2]) for case in cases]


ATTENTION = [
    [
        tensors("three heads", 2, 3, 7, 7, 5),
        tensors("one head and a batch of one", 1, 1, 4, 4, 6),
        tensors("narrow heads", 3, 4, 5, 5, 2),
    ],
    [tensors("more keys than queries", 2, 3, 4, 9, 5), tensors("fewer keys than queries", 1, 2, 6, 3, 4)],
    [tensors("values that are wider than keys", 1, 2, 3, 3, 4, 6)],
    [tensors("scores above 88, whose exp alone overflows", 2, 2, 5, 5, 8, size=30.0)],
]
STAGES = ["attention_weights.scores", "attention_weights.scaled", "attention_weights.weights"]
OUT = "scaled_dot_product_attention.out"

declare("attention_weights", attention.attention_weights, list(map(queries_and_keys, ATTENTION)), stages=STAGES)
declare(
    "scaled_dot_product_attention",
    attention.scaled_dot_product_attention,
    ATTENTION,
    mistakes="attention_weights scaled_dot_product_attention",
    stages=[*STAGES, OUT],
    behaviors=[forbids("scaled_dot_product_attention", *ATTENTION[0][0].args)],
)

# --- splitting and merging -------------------------------------------------------------------------------------------

SIZES = [("four heads", 2, 7, 4, 5), ("two heads and a batch of one", 1, 4, 2, 5), ("three heads", 2, 3, 3, 4)]
TO_SPLIT = [Case(label, (formula(b, s, 3 * heads * e), heads)) for label, b, s, heads, e in SIZES]
TO_MERGE = [Case(label, (formula(b, heads, s, e),)) for label, b, s, heads, e in SIZES]
declare("split_heads", twins.split_heads, [TO_SPLIT], mistakes="split_heads split_alone")
declare("merge_heads", twins.merge_heads, [TO_MERGE])

# --- the class -------------------------------------------------------------------------------------------------------


def tokens(label: str, b: int, s: int, hidden_dim: int, **options: int) -> Case:
    """Return tokens without symmetry, so large that eps plays no part, for a layer of these sizes."""
    return Case(label, (4 * formula(b, s, hidden_dim),), options=dict(hidden_dim=hidden_dim, **options))


TOKENS = [
    tokens("three heads", 2, 7, 12, num_heads=3),
    tokens("one head and a batch of one", 1, 4, 5, num_heads=1),
    tokens("narrow heads with a token of zeros", 3, 5, 8, num_heads=4),
]
TOKENS[-1].args[0][:, 0] = 0.0
KEYS = 8  # tokens; each head is twice as wide, so that two features of the output show one weight
BIAS = 0.5  # of out_proj: what is dropped before it is told from what is dropped after it


def marked_tokens(images: int = 100) -> Tensor:
    """Return tokens ``(100, 8, 48)``: token j holds 1 where a feature's number modulo 8 is j."""
    return repeat(torch.eye(KEYS), "j key -> b j (six key)", b=images, six=6).contiguous()


def revealing(d: int) -> dict[str, float | Tensor]:
    """Return parameters with which every score is one number, and attention's output shows the weights, plus ``BIAS``.

    Token j adds 1 to a feature of its key and takes 1 from the next one: only a query that is dropped tells keys apart.
    """
    keys = torch.zeros(d, d)
    keys[: 2 * KEYS, :KEYS] = torch.kron(torch.eye(KEYS), torch.tensor([[1.0], [-1.0]]))
    weight, bias = torch.cat([torch.zeros(d, d), keys, torch.eye(d)]), torch.cat([torch.ones(2 * d), torch.zeros(d)])
    return {"qkv.weight": weight, "qkv.bias": bias, "out_proj.weight": 1.0, "out_proj.bias": BIAS}


MARKED = dict(hidden_dim=48, num_heads=3)
HEADS = "split_heads merge_heads attention_weights scaled_dot_product_attention attention_dropout"
LAYER = ["split_heads.parts", *STAGES, OUT, "merge_heads.merged"]
declare(
    "multi_head_attention",
    vit_course.MultiHeadSelfAttention,
    [
        TOKENS,
        modes(TOKENS[0].options, TOKENS[0].args[0], "attention_dropout"),
        [drawn("train mode", "attention_dropout", marked_tokens(), MARKED, revealing(48), fault="attention_elsewhere")],
    ],
    mistakes=f"multi_head_attention {HEADS}",
    stages=LAYER,
)
