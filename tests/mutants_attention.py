"""Wrong and right implementations of attention, as learners write them."""

import math

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from mutant_registry import alternative, mutant
from torch import nn

# --- scaled_dot_product_attention ------------------------------------------------------------------------------------


@mutant("scaled_dot_product_attention", source="learners: the root forgotten", names="not divided by the root")
def attention_never_scaled(query, key, value):
    return torch.softmax(query @ key.transpose(-2, -1), dim=-1) @ value


@mutant(
    "scaled_dot_product_attention",
    source="lucidrains/vit-pytorch#65; karpathy/ng-video-lecture PR 6; omihub777/ViT-CIFAR PR 11 and 12",
    names="the root of the whole token's width",
)
def attention_root_of_hidden_dim(query, key, value):
    hidden_dim = query.shape[1] * query.shape[-1]
    weights = torch.softmax(query @ key.transpose(-2, -1) / math.sqrt(hidden_dim), dim=-1)
    return weights @ value


@mutant("scaled_dot_product_attention", source="tenstorrent/tt-metal PR 56789", names="the root of the number of heads")
def attention_root_of_heads(query, key, value):
    heads = query.shape[1]
    scores = torch.einsum("bhie,bhje->bhij", query, key) / heads**0.5
    return torch.einsum("bhij,bhje->bhie", scores.softmax(-1), value)


@mutant(
    "scaled_dot_product_attention",
    source="FrancescoSaverioZuppichini/ViT#1, the wrong dimension under the root",
    names="the root of the number of tokens",
)
def attention_root_of_tokens(query, key, value):
    scores = query @ key.transpose(-2, -1)
    return F.softmax(scores / math.sqrt(query.size(2)), dim=-1) @ value


@mutant("scaled_dot_product_attention", source="learners: lesson 3.5's 64 copied", names="by √64, a fixed number")
def attention_divided_by_eight(query, key, value):
    return F.softmax(query @ key.mT / 8, dim=-1) @ value


@mutant("scaled_dot_product_attention", source="learners: the root forgotten", names="instead of its root")
def attention_divided_by_width(query, key, value):
    return F.softmax(query @ key.mT / query.size(-1), dim=-1) @ value


@mutant("scaled_dot_product_attention", source="learners: sign of the exponent", names="instead of divided")
def attention_multiplied_by_root(query, key, value):
    return F.softmax(query @ key.mT * query.size(-1) ** 0.5, dim=-1) @ value


@mutant(
    "scaled_dot_product_attention",
    source="ERRATA, source 004, version 1; FrancescoSaverioZuppichini/ViT#2, #5, #6",
    names="divided after the softmax, so rows sum to 0.447, not 1",
)
def attention_softmax_then_scale(query, key, value):
    energy = torch.einsum("bhqd, bhkd -> bhqk", query, key)
    scaling = query.shape[-1] ** -0.5
    att = F.softmax(energy, dim=-1) * scaling
    return torch.einsum("bhal, bhlv -> bhav", att, value)


@mutant(
    "scaled_dot_product_attention",
    source="ERRATA, source 004, version 2",
    names="so rows sum to 0.258, not 1",
)
def attention_softmax_then_root_of_hidden_dim(query, key, value):
    energy = torch.einsum("bhqd, bhkd -> bhqk", query, key)
    emb_size = query.shape[1] * query.shape[3]
    att = F.softmax(energy, dim=-1) / (emb_size ** (1 / 2))
    return torch.einsum("bhal, bhlv -> bhav", att, value)


@mutant("scaled_dot_product_attention", source="learners: scaled at both places", names="once more after it")
def attention_scaled_twice(query, key, value):
    scale = query.shape[-1] ** -0.5
    return (query * scale @ key.mT).softmax(-1) * scale @ value


@mutant(
    "scaled_dot_product_attention",
    source="learners: dim=2 kept when a heads axis is added, lesson 3.4",
    names="the softmax runs over the query tokens",
)
def attention_softmax_over_queries(query, key, value):
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    return scores.softmax(dim=2) @ value


@mutant(
    "scaled_dot_product_attention", source="learners: dim=1 from a 2-d example", names="softmax runs over the heads"
)
def attention_softmax_over_heads(query, key, value):
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    return scores.softmax(dim=1) @ value


@mutant("scaled_dot_product_attention", source="learners: softmax over dim=0", names="softmax runs over the batch")
def attention_softmax_over_batch(query, key, value):
    scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
    return scores.softmax(dim=0) @ value


@mutant("scaled_dot_product_attention", source="learners: divided by the total", names="over queries and keys together")
def attention_one_softmax_for_all(query, key, value):
    exponentials = torch.exp(query @ key.mT / math.sqrt(query.shape[-1]))
    return exponentials / exponentials.sum(dim=(2, 3), keepdim=True) @ value


@mutant("scaled_dot_product_attention", source="learners: a line copied", names="queries are used as keys")
def attention_of_queries_among_themselves(query, key, value):
    return F.softmax(query @ query.mT * query.shape[-1] ** -0.5, dim=-1) @ value


@mutant("scaled_dot_product_attention", source="learners: a line copied", names="keys are used as queries")
def attention_of_keys_among_themselves(query, key, value):
    return F.softmax(key @ key.mT * key.shape[-1] ** -0.5, dim=-1) @ value


@mutant("scaled_dot_product_attention", source="learners: key times query", names="the scores are transposed")
def attention_key_times_query(query, key, value):
    scores = key @ query.transpose(-2, -1) / key.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ value


@mutant("scaled_dot_product_attention", source="learners: wrong output of einsum", names="the scores are transposed")
def attention_einsum_to_j_i(query, key, value):
    scores = einsum(query, key, "b heads i e, b heads j e -> b heads j i")
    return (scores * query.shape[-1] ** -0.5).softmax(dim=-1) @ value


@mutant("scaled_dot_product_attention", source="learners: weights transposed", names="transposed after the softmax")
def attention_weights_transposed(query, key, value):
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
    return einsum(weights, value, "b heads i j, b heads i e -> b heads j e")


@mutant("scaled_dot_product_attention", source="learners: keys as values", names="keys are used as values")
def attention_mixes_keys(query, key, value):
    return F.scaled_dot_product_attention(query, key, key)


@mutant("scaled_dot_product_attention", source="learners: queries as values", names="queries are used as values")
def attention_mixes_queries(query, key, value):
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
    return weights @ query


@mutant("scaled_dot_product_attention", source="learners: arguments in the order q, v, k", names="value are swapped")
def attention_arguments_q_v_k(query, key, value):
    return F.scaled_dot_product_attention(query, value, key)


@mutant("scaled_dot_product_attention", source="learners: arguments in the order v, k, q", names="query and value are")
def attention_arguments_v_k_q(query, key, value):
    return F.scaled_dot_product_attention(value, key, query)


@mutant("scaled_dot_product_attention", source="learners: a mean instead of weights", names="plain mean of all values")
def attention_mean_of_values(query, key, value):
    weights = torch.full((query.shape[2], key.shape[2]), 1 / key.shape[2])
    return weights @ value


@mutant(
    "scaled_dot_product_attention",
    source="learners: j missing from the values in einsum",
    names="gets its own value back",
)
def attention_own_value_only(query, key, value):
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
    return einsum(weights, value, "b heads i j, b heads i e -> b heads i e")


@mutant("scaled_dot_product_attention", source="learners: weights missing from the sum", names="without weights")
def attention_sum_of_values(query, key, value):
    out = torch.zeros(query.shape)
    for i in range(query.shape[2]):
        for j in range(key.shape[2]):
            out[:, :, i] += value[:, :, j]
    return out


@mutant("scaled_dot_product_attention", source="learners: softmax forgotten", names="the softmax is missing")
def attention_raw_scores(query, key, value):
    return query @ key.mT / query.shape[-1] ** 0.5 @ value


@mutant("scaled_dot_product_attention", source="learners: the wrong variable returned", names="it returns the weights")
def attention_returns_weights(query, key, value):
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
    out = weights @ value  # noqa: F841
    return weights


@mutant("scaled_dot_product_attention", source="learners: copied from a GPT tutorial", names="a causal mask is on")
def attention_with_causal_mask(query, key, value):
    s = query.shape[2]
    scores = query @ key.mT / query.shape[-1] ** 0.5
    scores = scores.masked_fill(torch.ones(s, s).triu(1).bool(), float("-inf"))
    return scores.softmax(dim=-1) @ value


@mutant(
    "scaled_dot_product_attention", source="learners: exp / sum as in lesson 3.2", names="whose exp alone overflows"
)
def attention_exp_overflows(query, key, value):
    exponentials = (query @ key.mT / query.shape[-1] ** 0.5).exp()
    return exponentials / exponentials.sum(dim=-1, keepdim=True) @ value


@mutant("scaled_dot_product_attention", source="learners: query *= scale", names="changes its input in place")
def attention_scales_query_in_place(query, key, value):
    query *= query.shape[-1] ** -0.5
    return (query @ key.mT).softmax(dim=-1) @ value


@mutant(
    "scaled_dot_product_attention", source="learners: .detach() to silence an error", names="the gradient of the input"
)
def attention_weights_detached(query, key, value):
    weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
    return weights.detach() @ value + 0 * (query.sum() + key.sum())


@mutant("scaled_dot_product_attention", source="learners: numpy on the way", names="no gradient reaches the input")
def attention_through_numpy(query, key, value):
    out = F.scaled_dot_product_attention(query, key, value)
    return torch.from_numpy(out.detach().numpy())


@mutant(
    "scaled_dot_product_attention",
    source="learners: as many rows as queries, lesson 3.4",
    names="wrong for more keys than queries",
)
def attention_loops_over_queries_only(query, key, value):
    s = query.shape[2]
    key, value = F.pad(key, (0, 0, 0, max(0, s - key.shape[2])))[:, :, :s], F.pad(value, (0, 0, 0, s))[:, :, :s]
    return F.scaled_dot_product_attention(query, key, value)


@mutant("scaled_dot_product_attention", source="learners: return forgotten", names="is a return missing?")
def attention_without_return(query, key, value):
    F.scaled_dot_product_attention(query, key, value)


@mutant("scaled_dot_product_attention", source="learners: another interface", names="(query, key, value)")
def attention_of_one_tensor(x):
    return F.scaled_dot_product_attention(x, x, x)


@mutant("scaled_dot_product_attention", source="unknown: likeness by distance", names="the values are wrong")
def attention_by_distance(query, key, value):
    return (-torch.cdist(query, key)).softmax(dim=-1) @ value


@mutant("scaled_dot_product_attention", source="unknown: dot products of unit vectors", names="the values are wrong")
def attention_by_cosine(query, key, value):
    scores = F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).mT
    return scores.softmax(dim=-1) @ value


@alternative("scaled_dot_product_attention")
def attention_by_einsum(query, key, value):
    weights = torch.einsum("bhie,bhje->bhij", query, key).div(query.shape[-1] ** 0.5).softmax(-1)
    return torch.einsum("bhij,bhje->bhie", weights, value)


@alternative("scaled_dot_product_attention")
def attention_by_loops(query, key, value):
    b, heads, s, e = query.shape
    out = torch.zeros(b, heads, s, e)
    for image in range(b):
        for h in range(heads):
            for i in range(s):
                scores = torch.stack([query[image, h, i] @ k / math.sqrt(e) for k in key[image, h]])
                weights = torch.exp(scores - scores.max())
                weights = weights / weights.sum()
                out[image, h, i] = sum(w * v for w, v in zip(weights, value[image, h], strict=True))
    return out


@alternative("scaled_dot_product_attention")
def attention_by_torch(query, key, value, mask=None):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


@alternative("scaled_dot_product_attention")
def attention_by_batched_product(query, key, value):
    shape = query.shape
    q, k, v = (part.flatten(0, 1) for part in (query * shape[-1] ** -0.25, key * shape[-1] ** -0.25, value))
    scores = torch.bmm(q, k.transpose(1, 2))
    scores -= scores.amax(dim=-1, keepdim=True).detach()
    weights = scores.exp()
    return (torch.bmm(weights, v) / weights.sum(dim=-1, keepdim=True)).reshape(shape)


# --- multi_head_attention --------------------------------------------------------------------------------------------


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


@mutant("multi_head_attention", source="learners: the root forgotten", names="not divided by the root")
class HeadsNeverScaled(LearnersAttention):
    def attend(self, query, key, value):
        return self.dropout((query @ key.mT).softmax(dim=-1)) @ value


@mutant(
    "multi_head_attention",
    source="lucidrains/vit-pytorch#65; sibling notebooks of source 000",
    names="the root of the whole token's width",
)
class HeadsRootOfHiddenDim(LearnersAttention):
    def __init__(self, **options):
        super().__init__(**options)
        self.scale = options["hidden_dim"] ** -0.5

    def attend(self, query, key, value):
        return self.dropout((query @ key.mT * self.scale).softmax(dim=-1)) @ value


@mutant("multi_head_attention", source="tenstorrent/tt-metal PR 56789", names="the root of the number of heads")
class HeadsRootOfHeads(LearnersAttention):
    def attend(self, query, key, value):
        return (query @ key.mT / math.sqrt(self.num_heads)).softmax(dim=-1) @ value


@mutant("multi_head_attention", source="ERRATA, source 004, version 1", names="so rows sum to 0.500, not 1")
class HeadsSoftmaxThenScale(LearnersAttention):
    def attend(self, query, key, value):
        return F.softmax(query @ key.mT, dim=-1) * self.head_dim**-0.5 @ value


@mutant("multi_head_attention", source="ERRATA, source 004, version 2", names="so rows sum to 0.289, not 1")
class HeadsSoftmaxThenRootOfHiddenDim(LearnersAttention):
    def attend(self, query, key, value):
        return F.softmax(query @ key.mT, dim=-1) / (self.out_proj.in_features ** (1 / 2)) @ value


@mutant("multi_head_attention", source="learners: dim=2 kept", names="the softmax runs over the query tokens")
class HeadsSoftmaxOverQueries(LearnersAttention):
    def attend(self, query, key, value):
        return F.softmax(query @ key.mT / self.head_dim**0.5, dim=2) @ value


@mutant("multi_head_attention", source="learners: softmax over dim=1", names="the softmax runs over the heads")
class HeadsSoftmaxOverHeads(LearnersAttention):
    def attend(self, query, key, value):
        return F.softmax(query @ key.mT / self.head_dim**0.5, dim=1) @ value


@mutant("multi_head_attention", source="learners: k, q, v instead of q, k, v", names="Query and key are swapped")
class HeadsKeyBeforeQuery(LearnersAttention):
    def forward(self, x):
        key, query, value = self.split(x)
        return self.out_proj(self.merge(self.attend(query, key, value)))


@mutant("multi_head_attention", source="learners: keys as values", names="keys are used as values")
class HeadsMixKeys(LearnersAttention):
    def forward(self, x):
        query, key, _ = self.split(x)
        return self.out_proj(self.merge(self.attend(query, key, key)))


@mutant("multi_head_attention", source="learners: (e heads)", names="merged as (e heads)")
class HeadsDealtLikeCards(LearnersAttention):
    def merge(self, out):
        return rearrange(out, "b heads s e -> b s (e heads)")


@mutant("multi_head_attention", source="learners: transpose forgotten", names="merged by a reshape alone")
class HeadsMergedByReshape(LearnersAttention):
    def merge(self, out):
        b, heads, s, e = out.shape
        return out.reshape(b, s, heads * e)


@mutant("multi_head_attention", source="learners: transpose forgotten", names="split off by a reshape alone")
class HeadsSplitByReshape(LearnersAttention):
    def split(self, x):
        b, s, _ = x.shape
        return [part.reshape(b, self.num_heads, s, self.head_dim) for part in self.qkv(x).chunk(3, dim=-1)]


@mutant("multi_head_attention", source="learners: transpose forgotten", names="split and merged by a reshape alone")
class HeadsSplitAndMergedByReshape(HeadsSplitByReshape):
    def merge(self, out):
        return out.reshape(out.shape[0], out.shape[2], -1)


@mutant("multi_head_attention", source="learners: transpose forgotten", names="heads of one token attend to each other")
class HeadsNeverTransposed(LearnersAttention):
    def split(self, x):
        b, s, _ = x.shape
        return [part.reshape(b, s, self.num_heads, self.head_dim) for part in self.qkv(x).chunk(3, dim=-1)]

    def merge(self, out):
        return out.flatten(2)


@mutant("multi_head_attention", source="learners: num_heads unused", names="num_heads has no effect")
class HeadsIgnored(LearnersAttention):
    def forward(self, x):
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=-1)
        return self.out_proj(self.dropout(weights) @ value)


@mutant("multi_head_attention", source="ERRATA, source 004, (h d qkv)", names="split as (heads e three)")
class HeadsInterleaved(LearnersAttention):
    def split(self, x):
        return rearrange(self.qkv(x), "b n (h d qkv) -> (qkv) b h n d", h=self.num_heads, qkv=3)


@mutant("multi_head_attention", source="learners: heads before three", names="split as (heads three e)")
class HeadsBeforeThree(LearnersAttention):
    def split(self, x):
        b, s, _ = x.shape
        return self.qkv(x).view(b, s, self.num_heads, 3 * self.head_dim).transpose(1, 2).chunk(3, dim=-1)


@mutant("multi_head_attention", source="learners: (three e heads)", names="split as (three e heads)")
class HeadsBehindWidth(LearnersAttention):
    def split(self, x):
        return rearrange(self.qkv(x), "b s (three e heads) -> three b heads s e", three=3, heads=self.num_heads)


@mutant("multi_head_attention", source="learners: (three e heads) and back", names="split as (e heads) and merged as")
class HeadsBehindWidthTwice(HeadsBehindWidth):
    def merge(self, out):
        return rearrange(out, "b heads s e -> b s (e heads)")


@mutant("multi_head_attention", source="learners: out_proj unused", names="the output projection is missing")
class HeadsNeverProjected(LearnersAttention):
    def forward(self, x):
        return self.merge(self.attend(*self.split(x)))


@mutant(
    "multi_head_attention", source="learners: projected in merge and in forward", names="projection is applied twice"
)
class HeadsProjectedTwice(LearnersAttention):
    def merge(self, out):
        return self.out_proj(super().merge(out))


@mutant("multi_head_attention", source="learners: out_proj left out altogether", names="missing: out_proj.weight")
class HeadsWithoutOutputLayer(LearnersAttention):
    def __init__(self, **options):
        super().__init__(**options)
        self.out_proj = nn.Identity()


@mutant("multi_head_attention", source="learners: a projection for each head", names="out_proj.weight has shape (4, 4)")
class HeadsProjectedOneByOne(LearnersAttention):
    def __init__(self, **options):
        super().__init__(**options)
        self.out_proj = nn.Linear(self.head_dim, self.head_dim)

    def forward(self, x):
        return self.merge(self.out_proj(self.attend(*self.split(x))))


@mutant("multi_head_attention", source="learners: the residual twice", names="it adds its input to the result")
class HeadsWithResidual(LearnersAttention):
    def forward(self, x):
        return x + super().forward(x)


@mutant("multi_head_attention", source="learners: bias=False, as in lucidrains/vit-pytorch", names="missing: qkv.bias")
class HeadsWithoutBias(LearnersAttention):
    def __init__(self, *, hidden_dim, num_heads, attention_dropout=0.0):
        super().__init__(hidden_dim=hidden_dim, num_heads=num_heads, attention_dropout=attention_dropout)
        self.qkv = nn.Linear(hidden_dim, 3 * hidden_dim, bias=False)


@mutant("multi_head_attention", source="learners: bare matrix product", names="the bias of qkv is not added")
class HeadsBareProduct(LearnersAttention):
    def split(self, x):
        projected = x @ self.qkv.weight.T
        return rearrange(projected, "b s (three heads e) -> three b heads s e", three=3, heads=self.num_heads)


@mutant("multi_head_attention", source="learners: bare matrix product", names="the bias of out_proj is not added")
class HeadsBareOutput(LearnersAttention):
    def forward(self, x):
        return self.merge(self.attend(*self.split(x))) @ self.out_proj.weight.T


@mutant("multi_head_attention", source="ERRATA, source 001, layout (s, b, d)", names="the layer takes the batch for")
class HeadsAcrossTheBatch(LearnersAttention):
    def forward(self, x):
        return super().forward(x.permute(1, 0, 2)).permute(1, 0, 2)


@mutant("multi_head_attention", source="learners: copied from a GPT tutorial", names="a causal mask is on")
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


@mutant("multi_head_attention", source="sibling notebooks of source 000", names="attention_dropout has no effect")
class HeadsDropoutNeverUsed(LearnersAttention):
    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value)


@mutant(
    "multi_head_attention", source="learners: the function knows no mode, lesson 3.10", names="in eval mode the output"
)
class HeadsDropoutInEvalMode(LearnersAttention):
    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=self.dropout.p)


@mutant("multi_head_attention", source="learners: nn.Dropout made in forward", names="in eval mode the output changes")
class HeadsDropoutMadeInForward(LearnersAttention):
    def attend(self, query, key, value):
        weights = (query @ key.mT * self.head_dim**-0.5).softmax(dim=-1)
        return nn.Dropout(self.dropout.p)(weights) @ value


@mutant("multi_head_attention", source="learners: a rate of one's own, F.dropout", names="something random is left")
class HeadsRandomInEvalMode(LearnersAttention):
    def attend(self, query, key, value):
        return F.dropout(super().attend(query, key, value), 0.1)


@mutant("multi_head_attention", source="learners: a rate of one's own", names="though attention_dropout=0")
class HeadsFixedRate(LearnersAttention):
    def __init__(self, **options):
        super().__init__(**options)
        self.dropout = nn.Dropout(0.1)


@mutant("multi_head_attention", source="learners: dropout at the end", names="attention_dropout acts on features")
class HeadsDropoutOnOutput(LearnersAttention):
    def forward(self, x):
        query, key, value = self.split(x)
        return self.dropout(self.out_proj(self.merge(F.scaled_dot_product_attention(query, key, value))))


@mutant("multi_head_attention", source="learners: dropout on the values", names="attention_dropout acts on features")
class HeadsDropoutOnValues(LearnersAttention):
    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, self.dropout(value))


@mutant("multi_head_attention", source="learners: dropout before the softmax", names="dropout acts before the softmax")
class HeadsDropoutBeforeSoftmax(LearnersAttention):
    def attend(self, query, key, value):
        scores = query @ key.mT * self.head_dim**-0.5
        return self.dropout(scores).softmax(dim=-1) @ value


@mutant("multi_head_attention", source="learners: rows made to sum to 1 again", names="divided by their sum after it")
class HeadsDropoutRenormalised(LearnersAttention):
    def attend(self, query, key, value):
        weights = self.dropout((query @ key.mT * self.head_dim**-0.5).softmax(dim=-1))
        return weights / weights.sum(dim=-1, keepdim=True).clamp(min=1e-9) @ value


@mutant(
    "multi_head_attention",
    source="learners: keep_prob, as in old TensorFlow",
    names="dropout keeps what it should drop",
)
class HeadsKeepProbability(LearnersAttention):
    def attend(self, query, key, value):
        p = 1 - self.dropout.p if self.training and self.dropout.p else 0.0
        return F.scaled_dot_product_attention(query, key, value, dropout_p=p)


@mutant("multi_head_attention", source="learners: a mask by hand", names="dropout does not rescale")
class HeadsDropoutUnscaled(LearnersAttention):
    def attend(self, query, key, value):
        weights = (query @ key.mT * self.head_dim**-0.5).softmax(dim=-1)
        if self.training:
            weights = weights * (torch.rand(weights.shape) >= self.dropout.p)
        return weights @ value


@mutant("multi_head_attention", source="learners: one mask for all images", names="one draw serves all of axis 0")
class HeadsOneMaskForAll(LearnersAttention):
    def attend(self, query, key, value):
        weights = (query @ key.mT * self.head_dim**-0.5).softmax(dim=-1)
        return weights * self.dropout(torch.ones(weights.shape[1:])) @ value


@mutant("multi_head_attention", source="learners: x *= in forward", names="changes its input in place")
class HeadsScaleInputInPlace(LearnersAttention):
    def forward(self, x):
        x += 0.5
        return super().forward(x - 0.5)


@mutant("multi_head_attention", source="learners: .data", names="no gradient reaches qkv.weight")
class HeadsWeightsAsData(LearnersAttention):
    def split(self, x):
        projected = F.linear(x, self.qkv.weight.data, self.qkv.bias)
        return rearrange(projected, "b s (three heads e) -> three b heads s e", three=3, heads=self.num_heads)


SHARED_PROJECTION = nn.ModuleDict()


@mutant("multi_head_attention", source="learners: a layer outside the class", names="two instances share")
class HeadsShareALayer(LearnersAttention):
    def __init__(self, **options):
        super().__init__(**options)
        size = str(options["hidden_dim"])
        if size not in SHARED_PROJECTION:
            SHARED_PROJECTION[size] = nn.Linear(options["hidden_dim"], options["hidden_dim"])
        self.out_proj = SHARED_PROJECTION[size]


@mutant("multi_head_attention", source="ERRATA, other names for the width", names="must take the arguments")
class HeadsOtherArguments(LearnersAttention):
    def __init__(self, emb_size=768, num_heads=8, dropout=0.0):
        super().__init__(hidden_dim=emb_size, num_heads=num_heads, attention_dropout=dropout)


@mutant(
    "multi_head_attention", source="unknown: the second head reads the first one's keys", names="wrong for three heads"
)
class HeadsShareKeys(LearnersAttention):
    def attend(self, query, key, value):
        return super().attend(query, key[:, :1].expand_as(key), value)


@mutant(
    "multi_head_attention",
    source="learners: nn.MultiheadAttention returns two things",
    names="got a tuple of 2: return the tensor alone",
    mapping=lambda state: {f"layer.{name.replace('qkv.', 'in_proj_')}": value for name, value in state.items()},
)
class HeadsReturnTuple(nn.Module):
    def __init__(self, *, hidden_dim, num_heads, attention_dropout=0.0):
        super().__init__()
        self.layer = nn.MultiheadAttention(hidden_dim, num_heads, dropout=attention_dropout, batch_first=True)

    def forward(self, x):
        return self.layer(x, x, x)


@mutant("multi_head_attention", source="learners: rows made to sum to 1 again", names="divided by their sum after it")
class HeadsDropoutRenormalisedToNan(LearnersAttention):
    def attend(self, query, key, value):
        weights = self.dropout((query @ key.mT * self.head_dim**-0.5).softmax(dim=-1))
        return weights / weights.sum(dim=-1, keepdim=True) @ value


@mutant("multi_head_attention", source="unknown: queries and keys of unit length", names="the values are wrong")
class HeadsNormalised(LearnersAttention):
    def attend(self, query, key, value):
        return super().attend(F.normalize(query, dim=-1), F.normalize(key, dim=-1), value)


def three_layers(state):
    """Return the fused projection's parameters as those of three layers."""
    mapped = {f"out.{kind}": state[f"out_proj.{kind}"] for kind in ("weight", "bias")}
    for kind in ("weight", "bias"):
        parts = state[f"qkv.{kind}"].chunk(3)
        mapped |= {f"{name}.{kind}": part for name, part in zip(("query", "key", "value"), parts, strict=True)}
    return mapped


@alternative("multi_head_attention", mapping=three_layers)
class HeadsFromThreeLayers(nn.Module):
    def __init__(self, hidden_dim, num_heads, attention_dropout=0.0, name="attention"):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(hidden_dim, hidden_dim) for _ in range(4))
        self.num_heads, self.dropout, self.name = num_heads, nn.Dropout(attention_dropout), name
        self.register_buffer("scale", torch.tensor((hidden_dim // num_heads) ** -0.5))

    def forward(self, x):
        parts = (layer(x).unflatten(-1, (self.num_heads, -1)) for layer in (self.query, self.key, self.value))
        query, key, value = parts
        weights = torch.einsum("bihe,bjhe->bhij", query, key).mul(self.scale).softmax(dim=-1)
        return self.out(torch.einsum("bhij,bjhe->bihe", self.dropout(weights), value).flatten(2))


@alternative("multi_head_attention")
class HeadsOneByOne(LearnersAttention):
    def forward(self, x):
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        out = torch.zeros(x.shape)
        for h in range(self.num_heads):
            columns = slice(h * self.head_dim, (h + 1) * self.head_dim)
            scores = query[..., columns] @ key[..., columns].mT / math.sqrt(self.head_dim)
            out[..., columns] = F.dropout(scores.softmax(-1), self.dropout.p, self.training) @ value[..., columns]
        return self.out_proj(out)


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
