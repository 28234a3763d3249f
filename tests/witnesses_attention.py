"""Attention: mistakes as they were published, and right code in other styles."""

import math

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn
from witness_registry import alternative, mutant


@mutant(
    "scaled_dot_product_attention",
    source="lucidrains/vit-pytorch#65; karpathy/ng-video-lecture PR 6; omihub777/ViT-CIFAR PR 11 and 12",
    names="attention_weights.root_of_width",
)
def attention_root_of_hidden_dim(query, key, value):
    hidden_dim = query.shape[1] * query.shape[-1]
    weights = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(hidden_dim), dim=-1)
    return weights @ value


@mutant("scaled_dot_product_attention", source="tenstorrent/tt-metal PR 56789", names="attention_weights.root_of_heads")
def attention_root_of_heads(query, key, value):
    heads = query.shape[1]
    scores = torch.einsum("bhie,bhje->bhij", query, key) / heads**0.5
    return torch.einsum("bhij,bhje->bhie", scores.softmax(-1), value)


@mutant(
    "scaled_dot_product_attention",
    source="FrancescoSaverioZuppichini/ViT#1, the wrong dimension under the root",
    names="attention_weights.root_of_tokens",
)
def attention_root_of_tokens(query, key, value):
    scores = query @ key.transpose(-2, -1)
    return F.softmax(scores / math.sqrt(query.size(2)), dim=-1) @ value


@mutant(
    "scaled_dot_product_attention",
    source="ERRATA, source 004, version 1; FrancescoSaverioZuppichini/ViT#2, #5, #6",
    names="attention_weights.softmax_then_scale",
)
def attention_softmax_then_scale(query, key, value):
    energy = torch.einsum("bhqd, bhkd -> bhqk", query, key)
    scaling = query.shape[-1] ** -0.5
    att = F.softmax(energy, dim=-1) * scaling
    return torch.einsum("bhal, bhlv -> bhav", att, value)


@mutant(
    "scaled_dot_product_attention", source="ERRATA, source 004, version 2", names="attention_weights.softmax_then_width"
)
def attention_softmax_then_root_of_hidden_dim(query, key, value):
    energy = torch.einsum("bhqd, bhkd -> bhqk", query, key)
    emb_size = query.shape[1] * query.shape[3]
    att = F.softmax(energy, dim=-1) / (emb_size ** (1 / 2))
    return torch.einsum("bhal, bhlv -> bhav", att, value)


@mutant("scaled_dot_product_attention", source="learners: copied from a GPT tutorial", names="attention_weights.causal")
def attention_with_causal_mask(query, key, value):
    s = query.shape[2]
    scores = query @ key.mT / query.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(s, s).triu(1).bool(), float("-inf"))
    return scores.softmax(dim=-1) @ value


@alternative("scaled_dot_product_attention")
def attention_by_einsum(query, key, value):
    weights = torch.einsum("bhie,bhje->bhij", query, key).div(query.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bhij,bhje->bhie", weights, value)


@alternative("scaled_dot_product_attention")
def attention_by_torch(query, key, value, mask=None):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


class LearnersAttention(nn.Module):
    """What a learner has right; the mistakes below override a part of it."""

    def __init__(self, *, hidden_dim, num_heads, attention_dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_dim // num_heads
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim)
        self.out_proj = nn.Linear(hidden_dim, hidden_dim)
        self.dropout = nn.Dropout(attention_dropout)

    def forward(self, x):
        query, key, value = self.split(x)
        return self.out_proj(self.merge(self.attend(query, key, value)))

    def split(self, x):
        b, s, _ = x.shape
        return self.qkv(x).reshape(b, s, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)

    def attend(self, query, key, value):
        scores = query @ key.transpose(-2, -1) * self.head_dim**-0.5
        return self.dropout(scores.softmax(dim=-1)) @ value

    def merge(self, out):
        b, heads, s, e = out.shape
        return out.transpose(1, 2).reshape(b, s, heads * e)


alternative("multi_head_attention")(LearnersAttention)


@mutant(
    "multi_head_attention",
    source="lucidrains/vit-pytorch#65; sibling notebooks of source 000",
    names="attention_weights.root_of_width",
)
class HeadsRootOfHiddenDim(LearnersAttention):
    def __init__(self, **options):
        super().__init__(**options)
        self.scale = options["hidden_dim"] ** -0.5

    def attend(self, query, key, value):
        return self.dropout((query @ key.mT * self.scale).softmax(dim=-1)) @ value


@mutant("multi_head_attention", source="tenstorrent/tt-metal PR 56789", names="attention_weights.root_of_heads")
class HeadsRootOfHeads(LearnersAttention):
    def attend(self, query, key, value):
        return (query @ key.mT / math.sqrt(self.num_heads)).softmax(dim=-1) @ value


@mutant("multi_head_attention", source="ERRATA, source 004, version 1", names="attention_weights.softmax_then_scale")
class HeadsSoftmaxThenScale(LearnersAttention):
    def attend(self, query, key, value):
        return F.softmax(query @ key.mT, dim=-1) * self.head_dim**-0.5 @ value


@mutant("multi_head_attention", source="ERRATA, source 004, version 2", names="attention_weights.softmax_then_width")
class HeadsSoftmaxThenRootOfHiddenDim(LearnersAttention):
    def attend(self, query, key, value):
        return F.softmax(query @ key.mT, dim=-1) / (self.out_proj.in_features ** (1 / 2)) @ value


@mutant("multi_head_attention", source="ERRATA, source 004, (h d qkv)", names="split_heads.heads_e_three")
class HeadsInterleaved(LearnersAttention):
    def split(self, x):
        return rearrange(self.qkv(x), "b n (h d qkv) -> (qkv) b h n d", h=self.num_heads, qkv=3)


@mutant("multi_head_attention", source="learners: bias=False, as in lucidrains/vit-pytorch", names="missing: qkv.bias")
class HeadsWithoutBias(LearnersAttention):
    def __init__(self, *, hidden_dim, num_heads, attention_dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, num_heads=num_heads, attention_dropout=attention_dropout)
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim, bias=False)


@mutant(
    "multi_head_attention", source="ERRATA, source 001, layout (s, b, d)", names="multi_head_attention.across_batch"
)
class HeadsAcrossTheBatch(LearnersAttention):
    def forward(self, x):
        return super().forward(x.permute(1, 0, 2)).permute(1, 0, 2)


@mutant("multi_head_attention", source="learners: copied from a GPT tutorial", names="attention_weights.causal")
class HeadsCausal(LearnersAttention):
    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


@mutant("multi_head_attention", source="ERRATA, source 000, made inside the function", names="is made inside forward")
class HeadsNewAtEveryCall(nn.Module):
    def __init__(self, *, hidden_dim, num_heads, attention_dropout=0.0):
        super().__init__()
        self.hidden_dim, self.num_heads = hidden_dim, num_heads

    def forward(self, x):
        layer = nn.MultiheadAttention(self.hidden_dim, self.num_heads, batch_first=True)
        return layer(x, x, x)[0]


@mutant("multi_head_attention", source="ERRATA, source 000, made inside the function", names="is made inside forward")
class HeadsNewOutputAtEveryCall(LearnersAttention):
    def forward(self, x):
        out = self.merge(self.attend(*self.split(x)))
        return nn.Linear(x.shape[-1], x.shape[-1])(out)


@mutant(
    "multi_head_attention",
    source="sibling notebooks of source 000",
    names="attention_dropout.weights_not_dropped",
)
class HeadsDropoutNeverUsed(LearnersAttention):
    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value)


@mutant("multi_head_attention", source="ERRATA, other names for the width", names="must take the arguments")
class HeadsOtherArguments(LearnersAttention):
    def __init__(self, emb_size=768, num_heads=8, dropout=0.0):
        super().__init__(hidden_dim=emb_size, num_heads=num_heads, attention_dropout=dropout)


@alternative("multi_head_attention")
class HeadsFused(LearnersAttention):
    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout.p if self.training else 0.0)


@alternative(
    "multi_head_attention",
    mapping=lambda state: {f"layer.{name.replace('qkv.', 'in_proj_')}": value for name, value in state.items()},
)
class HeadsByTorch(nn.Module):
    def __init__(self, *, hidden_dim, num_heads, attention_dropout=0.0):
        super().__init__()
        self.layer = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)

    def forward(self, x):
        return self.layer(x, x, x, need_weights=False)[0]
