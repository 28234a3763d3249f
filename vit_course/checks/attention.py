"""Checks of lesson 03's parts: attention as a function, its weights, splitting and merging heads, and the class."""

import torch
from einops import repeat
from torch import Tensor, nn

import vit_course
from vit_course import attention
from vit_course.checks.compare import formula
from vit_course.checks.dropout import RATE, draws
from vit_course.checks.embedding import modes
from vit_course.checks.engine import Case, declare
from vit_course.checks.variants import table

# --- attention as a function -----------------------------------------------------------------------------------------


def tensors(label: str, b: int, heads: int, i: int, j: int, e: int, *, size: float = 2.0, count: int = 3) -> Case:
    """Return queries, keys and values without symmetry; ``size`` is the largest query and key."""
    query, key = size * formula(b, heads, i, e), size * formula(b, heads, j, e, start=307)
    return Case(label, (query, key, formula(b, heads, j, e, start=611))[:count])


def attention_cases(count: int) -> list[list[Case]]:
    """Return cases for a function of query and key, or of all three."""
    return [
        [
            tensors("three heads", 2, 3, 7, 7, 5, count=count),
            tensors("one head and a batch of one", 1, 1, 4, 4, 6, count=count),
            tensors("narrow heads", 3, 4, 5, 5, 2, count=count),
        ],
        [
            tensors("more keys than queries", 2, 3, 4, 9, 5, count=count),
            tensors("fewer keys than queries", 1, 2, 6, 3, 4, count=count),
        ],
        [tensors("scores above 88, whose exp alone overflows", 2, 2, 5, 5, 8, size=30.0, count=count)],
    ]


SCALE, SOFTMAX, ROOT = " * e**-0.5", "scaled.softmax(dim=-1)", "scaled = scores"
ROW = {"total": "weights[0, 0, 0].sum().item() if weights.ndim == 4 else weights[0].sum().item()"}
WIDTH = "(query.shape[1] * e if query.ndim == 4 else e * 2)"
TRIANGLE = "torch.ones(scaled.shape[-2:]).triu(1).bool()"
WEIGHTS = table(
    "attention_weights",
    ("unscaled", {SCALE: ""}, "", {"e": "e", "times": "e**0.5"}),
    ("root_of_width", {SCALE: f" * {WIDTH}**-0.5"}, "lucidrains/vit-pytorch#65; karpathy/ng-video-lecture PR 6; omihub777/ViT-CIFAR PR 11 and 12", {"d": WIDTH, "e": "e"}),
    ("root_of_heads", {SCALE: " * query.shape[1]**-0.5"}, "tenstorrent/tt-metal PR 56789", {"heads": "query.shape[1]", "e": "e"}),
    ("root_of_tokens", {SCALE: " * query.shape[-2]**-0.5"}, "FrancescoSaverioZuppichini/ViT#1", {"s": "query.shape[-2]", "e": "e"}),
    ("fixed/64", {SCALE: " / 8"}, "", {"width": "64"}),
    ("fixed/96", {SCALE: " * 96**-0.5"}, "", {"width": "96"}),
    ("fixed/768", {SCALE: " * 768**-0.5"}, "", {"width": "768"}),
    ("divided_by_e", {SCALE: " / e"}, "", {"e": "e", "root": "e**0.5"}),
    ("divided_by_half_e", {SCALE: " / (e**1 / 2)"}, "", {"e": "e"}),
    ("multiplied", {SCALE: " * e**0.5"}, "", {"root": "e**0.5"}),
    ("multiplied_by_e", {SCALE: " * e"}, "", {"e": "e"}),
    ("root_of_scores", {SCALE: " / scores.shape[-1] ** 0.5"}, "", {"j": "scores.shape[-1]", "e": "e"}),
    ("softmax_then_scale", {SCALE: "", SOFTMAX: f"{SOFTMAX} * e**-0.5"}, "ERRATA, source 004; FrancescoSaverioZuppichini/ViT#2, #5, #6", ROW),
    ("softmax_then_width", {SCALE: "", SOFTMAX: f"{SOFTMAX} * {WIDTH}**-0.5"}, "ERRATA, source 004", {"d": WIDTH} | ROW),
    ("scaled_twice", {SOFTMAX: f"{SOFTMAX} * e**-0.5"}, "", ROW),
    ("scaled_both", {SCALE: " / e**0.5 / e**0.5"}, "", {"e": "e"}),
    ("over_queries", {"dim=-1": "dim=-2"}, "", ROW),
    ("over_heads", {"dim=-1": "dim=1"}, "", ROW),
    ("over_batch", {"dim=-1": "dim=0"}, "", ROW),
    ("over_all", {SOFTMAX: "scaled.flatten(-2).softmax(dim=-1).view_as(scaled)"}, "", ROW),
    ("no_softmax", {SOFTMAX: "scaled"}, "", ROW),
    ("sigmoid", {SOFTMAX: "scaled.sigmoid()"}, "", ROW),
    ("log_softmax", {SOFTMAX: "scaled.log_softmax(dim=-1)"}),
    ("divided_by_sum", {SOFTMAX: "scaled / scaled.sum(dim=-1, keepdim=True)"}),
    ("scores_transposed", {"query @ key.mT": "key @ query.mT"}),
    ("weights_transposed", {"return weights": "return weights.mT"}),
    ("queries_as_keys", {"query @ key.mT": "query @ query.mT"}),
    ("keys_as_queries", {"query @ key.mT": "key @ key.mT"}),
    ("causal", {SOFTMAX: f'scaled.masked_fill({TRIANGLE}, float("-inf")).softmax(dim=-1)'}),
    ("self_masked", {SOFTMAX: 'scaled.masked_fill(torch.eye(*scaled.shape[-2:]).bool(), float("-inf")).softmax(dim=-1)'}),
    ("unit_vectors", {"query @ key.mT": "F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT"}),
    ("unit_vectors/unscaled", {"query @ key.mT": "F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT", SCALE: ""}),
    ("distances", {"query @ key.mT": "-torch.cdist(query, key)"}),
    ("distances/unscaled", {"query @ key.mT": "-torch.cdist(query, key)", SCALE: ""}),
)  # fmt: skip
CALL, MIX, KEPT = "attention_weights(query, key)", "kept @ value", "F.dropout(weights, rate)"
ATTENTION = table(
    "scaled_dot_product_attention",
    ("mixes_keys", {MIX: "kept @ key"}),
    ("mixes_queries", {MIX: "kept @ query"}),
    ("key_value_swapped", {CALL: "attention_weights(query, value)", MIX: "kept @ key"}),
    ("query_value_swapped", {CALL: "attention_weights(value, key)", MIX: "kept @ query"}),
    ("plain_mean", {MIX: "value.mean(dim=-2, keepdim=True).expand(query.shape)"}),
    ("own_value", {MIX: "value"}),
    ("plain_sum", {MIX: "value.sum(dim=-2, keepdim=True).expand(query.shape)"}),
    ("returns_weights", {"return out": "return weights"}),
    ("elementwise", {MIX: "kept * value"}),
)
ATTENTION_DROPOUT = table(
    "scaled_dot_product_attention",
    ("weights_not_dropped", {KEPT: "weights"}),
    ("scores_dropped", {CALL: "(F.dropout(query @ key.mT * query.shape[-1] ** -0.5, rate)).softmax(dim=-1)", KEPT: "weights"}),
    ("shared_out", {MIX: "kept / kept.sum(dim=-1, keepdim=True) @ value"}),
    ("shared_out/clamped", {MIX: "kept / kept.sum(dim=-1, keepdim=True).clamp(min=1e-9) @ value"}),
    ("features_dropped", {KEPT: "weights", MIX: "F.dropout(weights @ value, rate)"}),
    ("values_dropped", {KEPT: "weights", MIX: "weights @ F.dropout(value, rate)"}),
    ("rate_kept", {KEPT: "F.dropout(weights, 1 - rate if rate else 0.0)"}),
    ("unscaled_dropout", {KEPT: "F.dropout(weights, rate) * (1 - rate)"}),
    ("dropped_twice", {KEPT: "F.dropout(F.dropout(weights, rate), rate)"}),
)  # fmt: skip
STAGES = ["attention_weights.scores", "attention_weights.scaled", "attention_weights.weights"]
OUT = "scaled_dot_product_attention.out"

attention_weights = declare(
    "attention_weights", "attention_weights", attention.attention_weights, attention_cases(2), WEIGHTS, stages=STAGES
)
scaled_dot_product_attention = declare(
    "scaled_dot_product_attention",
    "scaled_dot_product_attention",
    attention.scaled_dot_product_attention,
    attention_cases(3),
    WEIGHTS + ATTENTION,
    stages=[*STAGES, OUT],
)

# --- the class -------------------------------------------------------------------------------------------------------

PATTERN = "(three heads e) -> three b heads s e"
TAKEN, MERGE = "three=3, heads=num_heads)", 'rearrange(out, "b heads s e -> b s (heads e)")'
NEVER_MOVED = 'rearrange(projected, "b s (three d) -> three b (s d)", three=3).unflatten(-1, (num_heads, projected.shape[1], -1))'
SPLIT_ROW = f'rearrange(projected, "b s {PATTERN}", {TAKEN}'
FLAT = "out.reshape(len(out), out.shape[2], -1)"
HEADS = table(
    "split_heads",
    ("reshaped", {SPLIT_ROW: NEVER_MOVED}),
    ("heads_e_three", {PATTERN: "(heads e three) -> three b heads s e"}, "ERRATA, source 004"),
    ("heads_three_e", {PATTERN: "(heads three e) -> three b heads s e"}),
    ("three_e_heads", {PATTERN: "(three e heads) -> three b heads s e"}),
    ("e_three_heads", {PATTERN: "(e three heads) -> three b heads s e"}),
    ("heads_behind_tokens", {PATTERN: "(three heads e) -> three b s heads e"}),
    ("order_of_parts/k_q_v", {"return parts": "return parts[[1, 0, 2]]"}),
    ("order_of_parts/k_v_q", {"return parts": "return parts[[2, 0, 1]]"}),
    ("order_of_parts/v_k_q", {"return parts": "return parts[[2, 1, 0]]"}),
    ("order_of_parts/q_v_k", {"return parts": "return parts[[0, 2, 1]]"}),
) + table(
    "merge_heads",
    ("e_heads", {"(heads e)": "(e heads)"}),
    ("reshaped", {MERGE: FLAT}),
    ("mean", {MERGE: "out.mean(dim=1)"}),
)  # fmt: skip
ATTEND, PROJECT = "scaled_dot_product_attention(query, key, value, rate)", "merged @ self.out_proj.weight.T + self.out_proj.bias"
AMONG = "scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), rate).transpose(1, 2)"
ONE_HEAD = "scaled_dot_product_attention(*(merge_heads(part)[:, None] for part in (query, key, value)), rate)"
MULTI_HEAD = table(
    "multi_head_attention",
    ("no_projection", {PROJECT: "merged"}),
    ("projected_twice", {PROJECT: f"({PROJECT}) @ self.out_proj.weight.T + self.out_proj.bias"}),
    ("residual", {PROJECT: f"x + {PROJECT}"}),
    ("no_qkv_bias", {" + self.qkv.bias": ""}),
    ("no_out_bias", {" + self.out_proj.bias": ""}),
    ("across_batch", {"projected = x": "x = x.transpose(0, 1)\n    projected = x", PROJECT: f"({PROJECT}).transpose(0, 1)"}, "ERRATA, source 001"),
    ("among_heads", {ATTEND: AMONG}),
    ("one_head", {ATTEND: ONE_HEAD, "merged = merge_heads(out)": "merged = out[:, 0]"}),
    ("keys_of_first_head", {ATTEND: "scaled_dot_product_attention(query, key[:, :1].expand_as(key), value, rate)"}),
    ("normalized", {"projected = x": "x = F.layer_norm(x, x.shape[-1:], eps=1e-6)\n    projected = x"}),
)
MULTI_HEAD_DROPOUT = table(
    "multi_head_attention",
    ("output_dropped", {ATTEND: ATTEND.replace("rate", "0.0"), PROJECT: f"F.dropout({PROJECT}, rate)"}),
    ("in_eval_mode", {" if self.training else 0.0": ""}),
)  # fmt: skip


def tokens(label: str, b: int, s: int, hidden_dim: int, num_heads: int) -> Case:
    """Return tokens without symmetry for a layer of these sizes."""
    options = {"hidden_dim": hidden_dim, "num_heads": num_heads}
    return Case(label, (4 * formula(b, s, hidden_dim),), options=options)


TOKENS = [
    tokens("three heads", 2, 7, 12, 3),
    tokens("one head and a batch of one", 1, 4, 5, 1),
    tokens("narrow heads", 3, 5, 8, 4),
]
KEYS = 8  # tokens; each head is twice as wide, so that two features of the output show one weight
BIAS = 0.5  # of out_proj: what is dropped before it is told from what is dropped after it


def marked_tokens(images: int = 100) -> Tensor:
    """Return tokens ``(100, 8, 48)``: token j holds 1 where a feature's number modulo 8 is j."""
    return repeat(torch.eye(KEYS), "j key -> b j (six key)", b=images, six=6).contiguous()


def reveal_weights(layer: nn.Module) -> None:
    """Make every score one number, and the output of attention show the weights, plus ``BIAS``."""
    d = layer.hidden_dim
    layer.qkv.weight.copy_(torch.cat([torch.zeros(2 * d, d), torch.eye(d)]))
    layer.qkv.bias.copy_(torch.cat([torch.ones(2 * d), torch.zeros(d)]))
    layer.out_proj.weight.copy_(torch.eye(d))
    layer.out_proj.bias.fill_(BIAS)


LAYER = [
    "split_heads.parts", *STAGES, OUT, "merge_heads.merged",
]  # fmt: skip
multi_head_attention = declare(
    "multi_head_attention",
    "multi_head_attention",
    vit_course.MultiHeadSelfAttention,
    [
        TOKENS,
        modes(TOKENS[0].options, TOKENS[0].args[0], "attention_dropout"),
        [
            Case(
                f"train mode, attention_dropout={RATE}",
                (marked_tokens(),),
                options=dict(hidden_dim=48, num_heads=3, attention_dropout=RATE),
                training=True,
                weights=reveal_weights,
                shows=draws,
                fault="dropout.attention_elsewhere",
            )
        ],
    ],
    MULTI_HEAD + HEADS + WEIGHTS + ATTENTION,
    MULTI_HEAD_DROPOUT + ATTENTION_DROPOUT,
    stages=LAYER,
)
