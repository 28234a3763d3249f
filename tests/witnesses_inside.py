"""Inside the model: mistakes as they were published, and right code in other styles."""

import copy
from functools import reduce

import torch
import torch.nn.functional as F
from einops import einsum
from torch import nn
from witness_registry import alternative, mutant


@mutant(
    "attention_rollout", source="jacobgil/vit-explain#16, with its keepdim", names="attention_rollout.largest_head/1"
)
def rollout_of_largest_heads_normalised(maps):
    eye = torch.eye(maps[0].shape[-1])
    rollout = eye
    for layer in maps:
        both = (layer.amax(dim=1) + eye) / 2
        rollout = both / both.sum(dim=-1, keepdim=True) @ rollout
    return rollout


@alternative("attention_rollout")
def rollout_by_einsum(maps):
    rollout = torch.eye(maps[0].shape[-1]).expand(len(maps[0]), -1, -1)
    for layer in maps:
        mixed = einsum(layer.mean(dim=1), rollout, "b i k, b k j -> b i j")
        rollout = (mixed + rollout) / 2
    return rollout


@alternative("attention_rollout")
def rollout_from_the_last_layer(maps):
    matrices = torch.stack(maps).mean(dim=2) + torch.eye(maps[0].shape[-1])
    matrices = matrices / matrices.sum(dim=-1, keepdim=True)
    return reduce(torch.bmm, matrices.flip(0))


def centres_of(grid_size):
    """Return row and column of every patch, ``(n, 2)``."""
    gh, gw = grid_size
    return torch.tensor([[row, column] for row in range(gh) for column in range(gw)]).float()


@mutant(
    "attention_distance",
    source="google-research/vision_transformer#162: code whose weights sum to 1 with the class token; learners",
    names="attention_distance.not_shared",
)
def distance_not_renormalised(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    return torch.stack([(layer[:, :, 1:, 1:] * d).sum(-1).mean(dim=(0, 2)) for layer in maps])


@alternative("attention_distance")
def distance_by_cdist(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    rows = []
    for layer in maps:
        patches = layer[:, :, 1:, 1:]
        share = patches / patches.sum(dim=-1, keepdim=True)
        rows.append((share * d).sum(dim=-1).mean(dim=(0, 2)))
    return torch.stack(rows)


@alternative("attention_distance")
def distance_by_einsum(maps, *, grid_size):
    down, along = torch.meshgrid(*map(torch.arange, grid_size), indexing="ij")
    where = torch.complex(down.flatten().double(), along.flatten().double())
    d = (where[:, None] - where[None, :]).abs()
    weights = torch.stack(maps).double()[..., 1:, 1:]
    sums = einsum(weights, d, "l b h i j, i j -> l b h i") / (1 - torch.stack(maps).double()[..., 1:, 0])
    return sums.mean(dim=(1, 3))


@mutant("nearest", source="facebookresearch/fastText#791; learners", names="nearest.dot_product")
def nearest_by_dot_product(features, queries, count):
    return (queries @ features.T).topk(count)


@mutant(
    "nearest",
    source="Reza-Safdari/SimSiam-91.9-top1-acc-on-CIFAR10#2; nmslib/hnswlib#592",
    names="nearest.features_only",
)
def nearest_of_long_queries(features, queries, count):
    return (queries @ F.normalize(features, dim=-1).T).topk(count, dim=-1)


@alternative("nearest")
def nearest_by_cosine_similarity(features, queries, count):
    return F.cosine_similarity(queries[:, None], features[None], dim=-1).topk(count)


@alternative("nearest")
def nearest_by_sorting(features, queries, count):
    norms = torch.linalg.vector_norm(queries, dim=1)[:, None] * torch.linalg.vector_norm(features, dim=1)
    values, indices = torch.sort(torch.einsum("md,nd->mn", queries, features) / norms, dim=1, descending=True)
    return values[:, :count], indices[:, :count].int()


def attention_of(model, layer):
    """Return a layer's attention and the width of its heads."""
    attention = model.encoder.layers[layer].self_attention
    return attention, attention.qkv.in_features // attention.num_heads


@mutant("silence_heads", source="microsoft/nni#5187: dim 0 of the output layer", names="silence_heads.rows")
def silence_rows(model, heads):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in heads:
            attention, e = attention_of(model, layer)
            attention.out_proj.weight[head * e : (head + 1) * e] = 0
    return model


def silence_thirds(model, heads, thirds, *, bias=True):
    """Zero rows of ``qkv`` in a copy."""
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        for third in thirds:
            start = third * attention.qkv.in_features + head * e
            attention.qkv.weight.data[start : start + e] = 0
            if bias:
                attention.qkv.bias.data[start : start + e] = 0
    return model


@mutant(
    "silence_heads",
    source="nightdessert/Retrieval_Head#9: scores instead of output",
    names="silence_heads.queries_or_keys",
)
def silence_scores(model, heads):
    return silence_thirds(model, heads, (0, 1))


@alternative("silence_heads")
def silence_by_values(model, heads):
    return silence_thirds(model, heads, (2,))


class Silenced(nn.Module):
    """The model itself inside, with the columns put back after every call."""

    def __init__(self, model, heads):
        super().__init__()
        self.model, self.heads = model, heads
        self.train(model.training)

    def forward(self, images):
        state = copy.deepcopy(self.model.state_dict())
        for layer, head in self.heads:
            _, e = attention_of(self.model, layer)
            state[f"encoder.layers.{layer}.self_attention.out_proj.weight"][:, head * e : (head + 1) * e] = 0
        return torch.func.functional_call(self.model, state, images)


@alternative("silence_heads")
def silence_by_a_wrapper(model, heads):
    return Silenced(model, heads)
