"""Rollout, distance, neighbours and silenced heads: wrong implementations, and right ones in other styles."""

import copy
import math
import operator
from collections import defaultdict
from functools import reduce

import numpy as np
import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from mutant_registry import alternative, mutant
from torch import nn

from vit_course import VisionTransformer

# --- attention_rollout -----------------------------------------------------------------------------------------------


@mutant("attention_rollout", source="learners: rollout @ layer", names="multiplied in the wrong order. The last one")
def rollout_first_layer_left(maps):
    rollout = torch.eye(maps[0].shape[-1])
    for layer in maps:
        rollout = rollout @ (0.5 * layer.mean(dim=1) + 0.5 * torch.eye(layer.shape[-1]))
    return rollout


@mutant("attention_rollout", source="learners: the paper's first formula alone", names="the skip path is missing")
def rollout_without_identity(maps):
    rollout = maps[0].mean(dim=1)
    for layer in maps[1:]:
        rollout = layer.mean(dim=1) @ rollout
    return rollout


@mutant("attention_rollout", source="learners: A + I", names="the first row adds up to 8.000, not 1")
def rollout_identity_not_halved(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (layer.mean(dim=1) + eye) @ rollout, maps, eye)


@mutant("attention_rollout", source="learners: parentheses", names="half the identity is added to the whole attention")
def rollout_half_of_identity_alone(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (layer.mean(dim=1) + 0.5 * eye) @ rollout, maps, eye)


@mutant("attention_rollout", source="learners; jacobgil/vit-explain offers it", names="largest weight among the heads")
def rollout_of_largest_heads(maps):
    eye = torch.eye(maps[0].shape[-1])
    rollout = eye
    for layer in maps:
        rollout = (layer.max(dim=1).values + eye) / 2 @ rollout
    return rollout


@mutant("attention_rollout", source="jacobgil/vit-explain#16, with its keepdim", names="largest weight among the heads")
def rollout_of_largest_heads_normalised(maps):
    eye = torch.eye(maps[0].shape[-1])
    rollout = eye
    for layer in maps:
        both = (layer.amax(dim=1) + eye) / 2
        rollout = both / both.sum(dim=-1, keepdim=True) @ rollout
    return rollout


@mutant("attention_rollout", source="learners: one head by its index", names="only the first head is used")
def rollout_of_first_head(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (layer[:, 0] + eye) / 2 @ rollout, maps, eye)


@mutant("attention_rollout", source="jacobgil/vit-explain offers it; learners", names="the smallest weight among the")
def rollout_of_smallest_heads(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (layer.amin(dim=1) + eye) / 2 @ rollout, maps, eye)


@mutant("attention_rollout", source="learners: overwritten in a loop over heads", names="only the last head is used")
def rollout_of_last_head(maps):
    rollout = eye = torch.eye(maps[0].shape[-1])
    for layer in maps:
        for head in layer.unbind(dim=1):
            matrix = (head + eye) / 2
        rollout = matrix @ rollout
    return rollout


@mutant("attention_rollout", source="learners: sum over heads", names="the heads are added up")
def rollout_of_summed_heads(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (layer.sum(dim=1) + eye) / 2 @ rollout, maps, eye)


@mutant("attention_rollout", source="learners: a mean over layers", names="the layers are averaged")
def rollout_averaged(maps):
    return torch.stack(maps).mean(dim=(0, 2)) / 2 + torch.eye(maps[0].shape[-1]) / 2


@mutant("attention_rollout", source="learners: += for @", names="the layers are added up")
def rollout_added_up(maps):
    rollout = 0
    for layer in maps:
        rollout = rollout + (layer.mean(dim=1) + torch.eye(layer.shape[-1])) / 2
    return rollout


@mutant("attention_rollout", source="learners: overwritten in the loop", names="only the last layer is used")
def rollout_of_last_layer(maps):
    eye = torch.eye(maps[0].shape[-1])
    for layer in maps:
        rollout = (layer.mean(dim=1) + eye) / 2 @ eye
    return rollout


@mutant("attention_rollout", source="learners: return in the loop", names="only the first layer is used")
def rollout_of_first_layer(maps):
    eye = torch.eye(maps[0].shape[-1])
    for layer in maps:
        return (layer.mean(dim=1) + eye) / 2 @ eye


@mutant("attention_rollout", source="learners: * for @", names="entry by entry, with *")
def rollout_entry_by_entry(maps):
    eye = torch.eye(maps[0].shape[-1])
    matrices = [0.5 * layer.mean(dim=1) + 0.5 * eye for layer in maps]
    return reduce(operator.mul, matrices)


@mutant("attention_rollout", source="learners: * for @, rows mended", names="entry by entry, with *")
def rollout_entry_by_entry_normalised(maps):
    rollout = torch.ones(())
    for layer in maps:
        rollout = rollout * (layer.mean(dim=1) + torch.eye(layer.shape[-1]))
    return rollout / rollout.sum(dim=-1, keepdim=True)


@mutant(
    "attention_rollout",
    source="learners: rows made to sum to 1 by softmax",
    names="0.5 A + 0.5 I. The layers are multiplied",
)
def rollout_softmax_of_each_layer_and_wrong_order(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: rollout @ (layer.mean(dim=1) + eye).softmax(-1), maps, eye)


@mutant("attention_rollout", source="learners: rows made to sum to 1 by softmax", names="a softmax runs over the sum")
def rollout_softmax_of_each_layer(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (layer.mean(dim=1) + eye).softmax(-1) @ rollout, maps, eye)


@mutant(
    "attention_rollout", source="learners: softmax of what sums to 1", names="a softmax runs over 0.5 A + 0.5 I. Its"
)
def rollout_softmax_of_each_half(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: F.softmax((layer.mean(dim=1) + eye) / 2, dim=-1) @ rollout, maps, eye)


@mutant("attention_rollout", source="learners: mean over dim=0 as well", names="the images of the batch are averaged")
def rollout_of_mean_image(maps):
    return rollout_by_einsum(maps).mean(dim=0)


@mutant("attention_rollout", source="learners: softmax once more", names="a softmax runs over the result")
def rollout_softmax_of_result(maps):
    return F.softmax(rollout_by_einsum(maps), dim=-1)


@mutant("attention_rollout", source="learners: columns for rows", names="the result is transposed")
def rollout_transposed(maps):
    return rollout_by_einsum(maps).mT


@mutant("attention_rollout", source="learners: columns for rows, a layer at a time", names="matrix is transposed")
def rollout_of_transposed_layers(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (layer.mean(dim=1).transpose(1, 2) + eye) / 2 @ rollout, maps, eye)


@mutant("attention_rollout", source="jacobgil/vit-explain, result[0, 0, 1:]; learners", names="only the first image is")
def rollout_of_first_image(maps):
    return rollout_by_einsum([layer[0][None] for layer in maps])[0]


@mutant("attention_rollout", source="jacobgil/vit-explain; learners", names="only the class token's row")
def rollout_of_class_token(maps):
    return rollout_by_einsum(maps)[:, 0, 1:]


@mutant("attention_rollout", source="learners: identity added at the end", names="the identity is added once")
def rollout_with_identity_at_the_end(maps):
    product = maps[0].mean(dim=1)
    for layer in maps[1:]:
        product = layer.mean(dim=1) @ product
    return 0.5 * product + 0.5 * torch.eye(product.shape[-1])


@mutant("attention_rollout", source="learners: heads kept", names="the heads are still there")
def rollout_of_each_head(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (layer + eye) / 2 @ rollout, maps, eye)


@mutant("attention_rollout", source="learners: ones_like for eye", names="ones are added in all places")
def rollout_with_ones(maps):
    matrices = [0.5 * layer.mean(dim=1) + 0.5 * torch.ones_like(layer[:, 0]) for layer in maps]
    return reduce(lambda rollout, matrix: matrix @ rollout, matrices)


@mutant("attention_rollout", source="learners: a list of all steps", names="the rollout after every layer is returned")
def rollout_of_every_layer(maps):
    return torch.stack([rollout_by_einsum(maps[:end]) for end in range(1, len(maps) + 1)])


@mutant("attention_rollout", source="learners: += on a map", names="it changes the list that it is given, or a tensor")
def rollout_in_place(maps):
    rollout = torch.eye(maps[0].shape[-1])
    for layer in maps:
        layer *= 0.5
        layer += 0.5 * torch.eye(layer.shape[-1])
        rollout = layer.mean(dim=1) @ rollout
    return rollout


@mutant("attention_rollout", source="learners: maps.pop(0)", names="it changes the list that it is given, or a tensor")
def rollout_pops_the_first(maps):
    eye = torch.eye(maps[0].shape[-1])
    rollout = (maps.pop(0).mean(dim=1) + eye) / 2
    for layer in maps:
        rollout = (layer.mean(dim=1) + eye) / 2 @ rollout
    return rollout


@mutant("attention_rollout", source="learners: maps.reverse()", names="it changes the list that it is given, or a")
def rollout_reverses_the_list(maps):
    maps.reverse()
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: rollout @ ((layer.mean(dim=1) + eye) / 2), maps, eye)


@mutant("attention_rollout", source="unknown: other shares", names="the values are wrong")
def rollout_with_other_shares(maps):
    eye = torch.eye(maps[0].shape[-1])
    return reduce(lambda rollout, layer: (0.9 * layer.mean(dim=1) + 0.1 * eye) @ rollout, maps, eye)


@mutant("attention_rollout", source="learners: one layer's maps", names="must take the arguments (maps); yours takes")
def rollout_of_two_arguments(rollout, layer):
    return layer.mean(dim=1) @ rollout


@alternative("attention_rollout")
def rollout_by_einsum(maps):
    rollout = torch.eye(maps[0].shape[-1]).expand(len(maps[0]), -1, -1)
    for layer in maps:
        mixed = einsum(layer.mean(dim=1), rollout, "b i k, b k j -> b i j")
        rollout = (mixed + rollout) / 2
    return rollout


@alternative("attention_rollout")
def rollout_by_loops(maps):
    b, heads, s, _ = maps[0].shape
    out = torch.zeros(b, s, s)
    for image in range(b):
        rollout = [[float(i == j) for j in range(s)] for i in range(s)]
        for layer in maps:
            matrix = [
                [sum(layer[image, h, i, j].item() for h in range(heads)) / heads / 2 + (i == j) / 2 for j in range(s)]
                for i in range(s)
            ]
            rollout = [[sum(matrix[i][k] * rollout[k][j] for k in range(s)) for j in range(s)] for i in range(s)]
        out[image] = torch.tensor(rollout)
    return out


@alternative("attention_rollout")
def rollout_from_the_last_layer(maps):
    matrices = torch.stack(maps).mean(dim=2) + torch.eye(maps[0].shape[-1])
    matrices = matrices / matrices.sum(dim=-1, keepdim=True)
    return reduce(torch.bmm, matrices.flip(0))


@alternative("attention_rollout")
def rollout_through_numpy(maps):
    means = np.stack([layer.numpy().astype(np.float64).mean(axis=1) for layer in maps])
    rollout = np.eye(means.shape[-1])
    for matrix in 0.5 * means + 0.5 * np.eye(means.shape[-1]):
        rollout = matrix @ rollout
    return torch.from_numpy(rollout)


# --- attention_distance ----------------------------------------------------------------------------------------------


def centres_of(grid_size):
    """Return row and column of every patch, ``(n, 2)``."""
    gh, gw = grid_size
    return torch.tensor([[row, column] for row in range(gh) for column in range(gw)]).float()


@mutant(
    "attention_distance", source="learners: [:-1] for [1:]", names="the last patch is left out instead of the class"
)
def distance_last_token_left_out(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    weights = torch.stack(maps)[..., :-1, :-1]
    return (weights / weights.sum(-1, keepdim=True) * d).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: class token kept as query", names="left out as key and the last patch")
def distance_queries_shifted(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    weights = torch.stack(maps)[..., 1:]
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights[..., : len(d), :] * d).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: class token kept as key", names="as query and the last patch as key")
def distance_keys_shifted(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    weights = torch.stack(maps)[..., 1:, : len(d)]
    weights = weights / weights.sum(-1, keepdim=True)
    return (weights * d).sum(-1).mean(dim=(1, 3))


@mutant(
    "attention_distance",
    source="google-research/vision_transformer#162: code whose weights sum to 1 with the class token; learners",
    names="do not sum to 1 once the class token is left out",
)
def distance_not_renormalised(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    return torch.stack([(layer[:, :, 1:, 1:] * d).sum(-1).mean(dim=(0, 2)) for layer in maps])


@mutant("attention_distance", source="learners: padded with zeros", names="still there as a query, at distance 0")
def distance_of_class_token_zero(maps, grid_size):
    d = F.pad(torch.cdist(centres_of(grid_size), centres_of(grid_size)), (1, 0, 1, 0))
    return torch.stack([(layer * d).sum(-1).mean(dim=(0, 2)) for layer in maps])


@mutant("attention_distance", source="learners: (width, height)", names="rows and columns of the grid are exchanged")
def distance_grid_exchanged(maps, grid_size):
    gh, gw = grid_size
    return distance_by_cdist(maps, (gw, gh))


@mutant("attention_distance", source="learners: i // gh", names="rows and columns of the grid are exchanged. Patch i")
def distance_divided_by_height(maps, grid_size):
    gh, gw = grid_size
    place = torch.arange(gh * gw)
    rows, columns = place // gh, place % gh
    d = ((rows[:, None] - rows) ** 2 + (columns[:, None] - columns) ** 2).float().sqrt()
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * d).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: root forgotten", names="the distances are squared")
def distance_squared(maps, grid_size):
    steps = centres_of(grid_size)[:, None] - centres_of(grid_size)
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * (steps**2).sum(-1)).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: root at the end", names="the root of the mean squared distance")
def distance_root_at_the_end(maps, grid_size):
    return distance_squared(maps, grid_size) ** 0.5


@mutant("attention_distance", source="learners: abs for norm", names="the steps down and along are added up")
def distance_of_a_taxi(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size), p=1)
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * d).sum(-1).mean(dim=(1, 3))


@mutant(
    "attention_distance", source="learners: the larger of both steps", names="the larger of the steps down and along"
)
def distance_of_a_king(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size), p=math.inf)
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * d).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: one coordinate", names="only rows count: columns are missing")
def distance_down(maps, grid_size):
    rows = torch.arange(grid_size[0] * grid_size[1]) // grid_size[1]
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * (rows[:, None] - rows).abs()).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: one coordinate", names="only columns count: rows are missing")
def distance_along(maps, grid_size):
    columns = torch.arange(grid_size[0] * grid_size[1]) % grid_size[1]
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * (columns[:, None] - columns).abs()).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: |i - j|", names="between the numbers of the patches")
def distance_of_numbers(maps, grid_size):
    place = torch.arange(grid_size[0] * grid_size[1])
    d = (place[:, None] - place).abs()
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * d).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: argmax", names="only the key with the largest weight counts")
def distance_of_strongest_key(maps, grid_size):
    centres = centres_of(grid_size)
    strongest = torch.stack(maps)[..., 1:, 1:].argmax(dim=-1)
    return (centres[strongest] - centres).norm(dim=-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: weights forgotten", names="all keys count the same")
def distance_without_weights(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    return d.mean().expand(len(maps), maps[0].shape[1])


@mutant("attention_distance", source="learners: dim=-2", names="from how far away a patch is looked at")
def distance_attended_by(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    weights = torch.stack(maps)[..., 1:, 1:]
    weights = weights / weights.sum(dim=-2, keepdim=True)
    return (weights * d).sum(dim=-2).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: divided by the total", names="all weights of an image are divided by")
def distance_by_one_total(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    weights = torch.stack(maps)[..., 1:, 1:]
    return ((weights * d).sum(dim=(-2, -1)) / weights.sum(dim=(-2, -1))).mean(dim=1)


@mutant("attention_distance", source="learners: softmax once more", names="a softmax runs over the attention weights")
def distance_of_softmax(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    return (torch.stack(maps)[..., 1:, 1:].softmax(dim=-1) * d).sum(-1).mean(dim=(1, 3))


@mutant(
    "attention_distance",
    source="learners: two at once",
    names="left out: divide each row by its sum. The distances are squared",
)
def distance_squared_and_not_renormalised(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size)) ** 2
    return (torch.stack(maps)[..., 1:, 1:] * d).sum(-1).mean(dim=(1, 3))


@mutant("attention_distance", source="learners: .mean() over all", names="the mean over the keys is taken")
def distance_mean_over_keys(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * d).mean(dim=(1, 3, 4))


@mutant("attention_distance", source="learners: sum over queries", names="the query patches are added up")
def distance_summed_over_queries(maps, grid_size):
    return distance_by_cdist(maps, grid_size) * (maps[0].shape[-1] - 1)


@mutant("attention_distance", source="learners: sum over images", names="the images are added up")
def distance_summed_over_images(maps, grid_size):
    return distance_by_cdist(maps, grid_size) * len(maps[0])


@mutant("attention_distance", source="learners: one row of the map", names="only the first query patch is measured")
def distance_of_first_query(maps, grid_size):
    weights, d = torch.stack(maps)[..., 1, 1:], centres_of(grid_size).norm(dim=1)
    return (weights / weights.sum(-1, keepdim=True) * d).sum(-1).mean(dim=1)


@mutant("attention_distance", source="learners: mean over dim=2", names="one number an image and layer, (layers, b)")
def distance_of_every_image_and_layer(maps, grid_size):
    return distance_of_every_image(maps, grid_size).mean(dim=2)


@mutant("attention_distance", source="learners: mean over images alone", names="the query patches are still there")
def distance_of_every_query(maps, grid_size):
    d = torch.cdist(centres_of(grid_size), centres_of(grid_size))
    weights = torch.stack(maps)[..., 1:, 1:]
    return (weights / weights.sum(-1, keepdim=True) * d).sum(-1).mean(dim=1)


@mutant("attention_distance", source="learners: maps[0][0]", names="only the first image is measured")
def distance_of_first_image(maps, grid_size):
    return distance_by_cdist([layer[:1] for layer in maps], grid_size)


@mutant("attention_distance", source="learners: stacked along dim=1", names="layers and heads are exchanged")
def distance_heads_first(maps, grid_size):
    return torch.stack(list(distance_by_cdist(maps, grid_size)), dim=1)


@mutant("attention_distance", source="learners: batch kept", names="the images are still there")
def distance_of_every_image(maps, grid_size):
    images = range(len(maps[0]))
    return torch.stack([distance_by_cdist([layer[[i]] for layer in maps], grid_size) for i in images], dim=1)


@mutant("attention_distance", source="learners: heads averaged first", names="the heads are averaged")
def distance_of_layers(maps, grid_size):
    return distance_by_cdist(maps, grid_size).mean(dim=1)


@mutant("attention_distance", source="learners: maps.reverse()", names="it changes the list that it is given")
def distance_reverses_the_list(maps, grid_size):
    maps.reverse()
    return distance_by_cdist(maps, grid_size).flip(0)


@mutant("attention_distance", source="learners: a square grid taken for granted", names="shape")
def distance_on_a_square(maps, grid_size):
    side = math.isqrt(maps[0].shape[-1] - 1)
    return distance_by_cdist([layer[..., : side**2 + 1, : side**2 + 1] for layer in maps], (side, side))[:, :, None]


@mutant("attention_distance", source="learners: another name", names="it must take the arguments (maps, grid_size); y")
def distance_of_another_argument(maps, side):
    return distance_by_cdist(maps, (side, side))


@mutant("attention_distance", source="unknown: patches of 16 pixels", names="the values are wrong")
def distance_in_pixels(maps, grid_size):
    return 16 * distance_by_cdist(maps, grid_size)


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
def distance_by_loops(maps, grid_size):
    gh, gw = grid_size
    b, heads = maps[0].shape[:2]
    out = torch.empty(len(maps), heads)
    for number, layer in enumerate(maps):
        for head in range(heads):
            total = 0.0
            for image in range(b):
                for i in range(gh * gw):
                    weights = layer[image, head, i + 1, 1:].tolist()
                    far = [math.hypot(i // gw - j // gw, i % gw - j % gw) for j in range(gh * gw)]
                    total += sum(w * x for w, x in zip(weights, far, strict=True)) / sum(weights)
            out[number, head] = total / b / (gh * gw)
    return out


@alternative("attention_distance")
def distance_by_einsum(maps, *, grid_size):
    down, along = torch.meshgrid(*map(torch.arange, grid_size), indexing="ij")
    where = torch.complex(down.flatten().double(), along.flatten().double())
    d = (where[:, None] - where[None, :]).abs()
    weights = torch.stack(maps).double()[..., 1:, 1:]
    sums = einsum(weights, d, "l b h i j, i j -> l b h i") / (1 - torch.stack(maps).double()[..., 1:, 0])
    return sums.mean(dim=(1, 3))


# --- nearest ---------------------------------------------------------------------------------------------------------


@mutant("nearest", source="facebookresearch/fastText#791; learners", names="the dot product is used, so long vectors")
def nearest_by_dot_product(features, queries, count):
    return (queries @ features.T).topk(count)


@mutant(
    "nearest",
    source="Reza-Safdari/SimSiam-91.9-top1-acc-on-CIFAR10#2; nmslib/hnswlib#592",
    names="only the features are normalised, so that the order is right",
)
def nearest_of_long_queries(features, queries, count):
    return (queries @ F.normalize(features, dim=-1).T).topk(count, dim=-1)


@mutant("nearest", source="learners: one side forgotten", names="only the queries are normalised, so long features win")
def nearest_of_long_features(features, queries, count):
    return (F.normalize(queries) @ features.T).topk(count)


@mutant("nearest", source="learners: cdist", names="the Euclidean distance is used")
def nearest_by_distance(features, queries, count):
    return torch.cdist(queries, features).topk(count, largest=False)


@mutant("nearest", source="learners: negative distance", names="the Euclidean distance is used")
def nearest_by_negative_distance(features, queries, count):
    return (-torch.cdist(queries, features)).topk(count)


@mutant("nearest", source="learners: squares", names="the Euclidean distance is used")
def nearest_by_squared_distance(features, queries, count):
    squares = ((queries[:, None] - features[None]) ** 2).sum(dim=-1)
    values, indices = squares.sort(dim=-1)
    return values[:, :count], indices[:, :count]


@mutant("nearest", source="learners: cdist of unit vectors", names="the values are distances between the normalised")
def nearest_by_distance_of_directions(features, queries, count):
    return torch.cdist(F.normalize(queries), F.normalize(features)).topk(count, largest=False)


@mutant("nearest", source="learners: scipy's cosine distance", names="the values are 1 - cosine, a distance")
def nearest_by_cosine_distance(features, queries, count):
    return (1 - F.cosine_similarity(queries[:, None], features[None], dim=-1)).topk(count, largest=False)


@mutant("nearest", source="learners: topk of a distance", names="The least similar are picked")
def nearest_by_largest_cosine_distance(features, queries, count):
    return (1 - F.cosine_similarity(queries[:, None], features[None], dim=-1)).topk(count)


@mutant("nearest", source="learners: argsort ascending", names="the least similar are picked")
def nearest_ascending(features, queries, count):
    similarity = F.normalize(queries) @ F.normalize(features).T
    order = similarity.argsort(dim=-1)[:, :count]
    return similarity.gather(1, order), order


@mutant("nearest", source="learners: numpy's argsort()[-k:]", names="the worst of them comes first")
def nearest_worst_first(features, queries, count):
    similarity = F.normalize(queries) @ F.normalize(features).T
    order = similarity.argsort(dim=-1)[:, -count:]
    return similarity.gather(1, order), order


@mutant("nearest", source="learners: normalised over dim=0", names="over the wrong axis: each column has length 1")
def nearest_normalised_over_columns(features, queries, count):
    return (F.normalize(queries, dim=0) @ F.normalize(features, dim=0).T).topk(count)


@mutant("nearest", source="learners: x / x.norm()", names="divided by one norm, that of the whole matrix")
def nearest_by_one_norm(features, queries, count):
    return ((queries / queries.norm()) @ (features / features.norm()).T).topk(count)


@mutant("nearest", source="learners: x / (x * x).sum()", names="divided by the squares of the norms")
def nearest_by_squared_norms(features, queries, count):
    norms = (queries**2).sum(-1)[:, None] * (features**2).sum(-1)
    return (queries @ features.T / norms).topk(count)


@mutant("nearest", source="learners: x / x.sum()", names="divided by the sums of their values")
def nearest_by_sums(features, queries, count):
    return (queries / queries.sum(1, True) @ (features / features.sum(1, True)).T).topk(count)


@mutant("nearest", source="learners: np.corrcoef", names="which makes it a correlation")
def nearest_by_correlation(features, queries, count):
    both = torch.corrcoef(torch.cat([queries, features]))
    return both[: len(queries), len(queries) :].topk(count)


@mutant("nearest", source="learners: abs", names="the sign is dropped")
def nearest_of_both_signs(features, queries, count):
    return (F.normalize(queries) @ F.normalize(features).T).abs().topk(count)


@mutant("nearest", source="learners: softmax", names="a softmax runs over the similarities")
def nearest_with_softmax(features, queries, count):
    return (F.normalize(queries) @ F.normalize(features).T).softmax(dim=-1).topk(count)


@mutant("nearest", source="learners: itself left out", names="the most similar one is left out")
def nearest_but_one(features, queries, count):
    values, indices = (F.normalize(queries) @ F.normalize(features).T).sort(dim=-1, descending=True)
    return values[:, 1 : count + 1], indices[:, 1 : count + 1]


@mutant("nearest", source="learners: sort without a cut", names="all features are returned")
def nearest_of_all(features, queries, count):
    return (F.normalize(queries) @ F.normalize(features).T).sort(dim=-1, descending=True)


@mutant("nearest", source="learners: arguments exchanged", names="for every feature, among the queries")
def nearest_queries(features, queries, count):
    return (F.normalize(features) @ F.normalize(queries).T).topk(count)


@mutant("nearest", source="learners: one column a query", names="the axes are exchanged, (count, m)")
def nearest_by_columns(features, queries, count):
    return (F.normalize(features) @ F.normalize(queries).T).topk(count, dim=0)


@mutant("nearest", source="learners: dim=0", names="picked along the queries' axis")
def nearest_along_queries(features, queries, count):
    return (F.normalize(queries) @ F.normalize(features).T).topk(count, dim=0)


@mutant("nearest", source="learners: order of the results", names="values and indices are exchanged")
def nearest_indices_first(features, queries, count):
    values, indices = (F.normalize(queries) @ F.normalize(features).T).topk(count)
    return indices, values


@mutant("nearest", source="learners: indices alone", names="two results are wanted, the values and the indices; got a")
def nearest_indices_alone(features, queries, count):
    return (F.normalize(queries) @ F.normalize(features).T).topk(count).indices


@mutant("nearest", source="learners: a float tensor filled", names="whole numbers are wanted")
def nearest_with_float_indices(features, queries, count):
    values, indices = (F.normalize(queries) @ F.normalize(features).T).topk(count)
    return values, indices.float()


@mutant("nearest", source="learners: .tolist()", names="values and indices must be tensors; got list and list")
def nearest_as_lists(features, queries, count):
    return tuple(part.tolist() for part in (F.normalize(queries) @ F.normalize(features).T).topk(count))


@mutant("nearest", source="learners: features /= norm", names="it changes its input in place")
def nearest_in_place(features, queries, count):
    features /= features.norm(dim=-1, keepdim=True)
    queries /= queries.norm(dim=-1, keepdim=True)
    return (queries @ features.T).topk(count)


@mutant("nearest", source="learners: one query", names="expected shape (4, 3), got (1, 3)")
def nearest_to_first_query(features, queries, count):
    similarity = F.cosine_similarity(queries[:1], features)
    return tuple(part[None] for part in similarity.topk(count))


@mutant("nearest", source="learners: return forgotten", names="is a return missing?")
def nearest_without_return(features, queries, count):
    (F.normalize(queries) @ F.normalize(features).T).topk(count)


@alternative("nearest")
def nearest_by_cosine_similarity(features, queries, count):
    return F.cosine_similarity(queries[:, None], features[None], dim=-1).topk(count)


@alternative("nearest")
def nearest_by_loops(features, queries, count):
    values, indices = [], []
    for query in queries:
        likeness = [(query @ f / (query.norm() * f.norm())).item() for f in features]
        best = sorted(range(len(likeness)), key=lambda place: -likeness[place])[:count]
        values.append([likeness[place] for place in best])
        indices.append(best)
    return [torch.tensor(values), torch.tensor(indices)]


@alternative("nearest")
def nearest_by_sorting(features, queries, count):
    norms = torch.linalg.vector_norm(queries, dim=1)[:, None] * torch.linalg.vector_norm(features, dim=1)
    values, indices = torch.sort(torch.einsum("md,nd->mn", queries, features) / norms, dim=1, descending=True)
    return values[:, :count], indices[:, :count].int()


@alternative("nearest")
def nearest_through_cdist(features, queries, count):
    d = torch.cdist(F.normalize(queries.double()), F.normalize(features.double()))
    values, indices = (1 - d**2 / 2).topk(count)
    return values.float(), indices


@alternative("nearest")
def nearest_as_a_new_tensor_of_whole_numbers(features, queries, count):
    similarity = F.normalize(queries) @ F.normalize(features).T
    indices = torch.zeros(len(queries), count, dtype=torch.long)
    left = similarity.clone()
    for place in range(count):
        indices[:, place] = left.argmax(dim=1)
        left[torch.arange(len(left)), indices[:, place]] = -math.inf
    return similarity.gather(1, indices), indices


# --- silence_heads ---------------------------------------------------------------------------------------------------


def attention_of(model, layer):
    """Return a layer's attention and the width of its heads."""
    attention = model.encoder.layers[layer].self_attention
    return attention, attention.hidden_dim // attention.num_heads


@mutant("silence_heads", source="microsoft/nni#5187: dim 0 of the output layer", names="rows of out_proj.weight are")
def silence_rows(model, heads):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in heads:
            attention, e = attention_of(model, layer)
            attention.out_proj.weight[head * e : (head + 1) * e] = 0
    return model


@mutant("silence_heads", source="learners: copy forgotten", names="it returns the model that it was given")
@torch.no_grad()
def silence_in_place(model, heads):
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight[:, head * e : (head + 1) * e] = 0
    return model


@mutant("silence_heads", source="learners: copy.copy", names="shares its layers with the model: copy.deepcopy(model)")
@torch.no_grad()
def silence_a_shallow_copy(model, heads):
    model = copy.copy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight[:, head * e : (head + 1) * e] = 0
    return model


@mutant("silence_heads", source="learners: the copy made too late", names="layers.2.self_attention.out_proj.weight of")
@torch.no_grad()
def silence_before_the_copy(model, heads):
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight[:, head * e : (head + 1) * e] = 0
    return copy.deepcopy(model)


@mutant("silence_heads", source="learners: the original edited, the copy returned", names="model that it was given")
@torch.no_grad()
def silence_the_other(model, heads):
    changed = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight[:, head * e : (head + 1) * e] = 0
    return changed


@mutant("silence_heads", source="learners: (e heads) for (heads e)", names="every num_heads-th column is zeroed")
def silence_every_nth_column(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, _ = attention_of(model, layer)
        attention.out_proj.weight.data[:, head :: attention.num_heads] = 0
    return model


@mutant("silence_heads", source="learners: head : head + e", names="the columns head to head + e are zeroed")
def silence_from_head(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight.data[:, head : head + e] = 0
    return model


@mutant("silence_heads", source="learners: [:, head]", names="a single column is zeroed")
def silence_one_column(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        model.encoder.layers[layer].self_attention.out_proj.weight.data[:, head] = 0
    return model


@mutant("silence_heads", source="learners: num_heads for e", names="a head is taken to be num_heads wide")
def silence_num_heads_wide(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, _ = attention_of(model, layer)
        width = attention.num_heads
        attention.out_proj.weight.data[:, head * width : (head + 1) * width] = 0
    return model


@mutant("silence_heads", source="learners: [head * e :]", names="from the head's first to the last of all")
def silence_all_behind(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight.data[:, head * e :] = 0
    return model


@mutant("silence_heads", source="learners: [: (head + 1) * e]", names="the columns of the heads before it")
def silence_all_before(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight.data[:, : (head + 1) * e] = 0
    return model


@mutant("silence_heads", source="learners: not in for in", names="and all others silenced. The other way round")
def silence_all_but(model, heads):
    layers = model.encoder.layers
    every = [(layer, head) for layer in range(len(layers)) for head in range(layers[layer].self_attention.num_heads)]
    return silence_by_zeroed_columns(model, [pair for pair in every if pair not in heads])


@mutant("silence_heads", source="learners: the layer's whole output", names="all heads of the layer are silenced")
def silence_layers(model, heads):
    model = copy.deepcopy(model)
    for layer, _ in heads:
        model.encoder.layers[layer].self_attention.out_proj.weight.data.zero_()
    return model


@mutant("silence_heads", source="learners: for head, layer in heads", names="layer and head are exchanged")
def silence_head_layer(model, heads):
    model = copy.deepcopy(model)
    for head, layer in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight.data[:, head * e : (head + 1) * e] = 0
    return model


@mutant("silence_heads", source="learners: layers from 1", names="layers are counted from 1")
def silence_layers_from_one(model, heads):
    return silence_by_zeroed_columns(model, [(layer - 1, head) for layer, head in heads])


@mutant("silence_heads", source="learners: heads from 1", names="heads are counted from 1")
def silence_heads_from_one(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight.data[:, (head - 1) * e : head * e] = 0
    return model


@mutant("silence_heads", source="learners: the whole layer's bias", names="the bias of out_proj becomes zero too")
def silence_bias_too(model, heads):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in heads:
            attention, e = attention_of(model, layer)
            attention.out_proj.weight[:, head * e : (head + 1) * e] = 0
            attention.out_proj.bias.zero_()
    return model


@mutant("silence_heads", source="learners: the bias sliced as well", names="a slice of out_proj's bias")
def silence_slice_of_bias(model, heads):
    model = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in heads:
            attention, e = attention_of(model, layer)
            attention.out_proj.weight[:, head * e : (head + 1) * e] = 0
            attention.out_proj.bias[head * e : (head + 1) * e] = 0
    return model


def silence_thirds(model, heads, thirds, *, bias=True):
    """Zero rows of ``qkv`` in a copy."""
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        for third in thirds:
            start = third * attention.hidden_dim + head * e
            attention.qkv.weight.data[start : start + e] = 0
            if bias:
                attention.qkv.bias.data[start : start + e] = 0
    return model


@mutant("silence_heads", source="nightdessert/Retrieval_Head#9: scores instead of output", names="it now averages the")
def silence_scores(model, heads):
    return silence_thirds(model, heads, (0, 1))


@mutant("silence_heads", source="learners: weights of the query alone", names="all tokens look the same way")
def silence_queries(model, heads):
    return silence_thirds(model, heads, (0,), bias=False)


@mutant("silence_heads", source="learners: the first third taken for the values", names="it now averages the values")
def silence_query_for_value(model, heads):
    return silence_thirds(model, heads, (0,))


@mutant("silence_heads", source="learners: the second third taken for the values", names="it now averages the values")
def silence_key_for_value(model, heads):
    return silence_thirds(model, heads, (1,))


@mutant("silence_heads", source="learners: the values' bias forgotten", names="the head still adds a constant")
def silence_value_weights_alone(model, heads):
    return silence_thirds(model, heads, (2,), bias=False)


@mutant("silence_heads", source="learners: (heads three e)", names="the rows of qkv are taken head by head")
def silence_values_head_by_head(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, _ = attention_of(model, layer)
        for values in (attention.qkv.weight.data, attention.qkv.bias.data):
            values.unflatten(0, (attention.num_heads, 3, -1))[head, 2] = 0
    return model


@mutant("silence_heads", source="learners: the copy made in the loop", names="only the last of the pairs is silenced")
def silence_with_a_copy_each(model, heads):
    for layer, head in heads:
        changed = copy.deepcopy(model)
        attention, e = attention_of(changed, layer)
        attention.out_proj.weight.data[:, head * e : (head + 1) * e] = 0
    return changed


@mutant("silence_heads", source="learners: return in the loop", names="only the first of the pairs is silenced")
def silence_and_return_at_once(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight.data[:, head * e : (head + 1) * e] = 0
        return model
    return model


@mutant("silence_heads", source="learners: dict(heads)", names="a dict keeps one for each layer")
def silence_by_dict(model, heads):
    return silence_by_zeroed_columns(model, list(dict(heads).items()))


@mutant("silence_heads", source="learners: a mask the wrong way round", names="the others of their layers silenced")
def silence_the_others(model, heads):
    model = copy.deepcopy(model)
    for layer in {layer for layer, _ in heads}:
        attention, e = attention_of(model, layer)
        mask = torch.zeros(attention.hidden_dim)
        for head in [head for other, head in heads if other == layer]:
            mask[head * e : (head + 1) * e] = 1
        attention.out_proj.weight.data *= mask
    return model


@mutant("silence_heads", source="learners: clone() edited", names="the copy is unchanged: every head still adds")
def silence_a_clone_of_the_weights(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        weight = attention.out_proj.weight.detach().clone()
        weight[:, head * e : (head + 1) * e] = 0
    return model


@mutant("silence_heads", source="learners: a new model without its weights", names="the copy answers 0 for every class")
def silence_a_new_model(model, heads):
    return silence_by_zeroed_columns(built_like(model).train(model.training), heads)


@mutant("silence_heads", source="learners: a new model is in train mode", names="was in eval mode, and the copy has")
def silence_a_new_model_in_train_mode(model, heads):
    changed = built_like(model)
    changed.load_state_dict(model.state_dict())
    return silence_by_zeroed_columns(changed, heads)


@mutant("silence_heads", source="learners: .eval() for good measure", names="was in train mode, and the copy has parts")
def silence_in_eval_mode(model, heads):
    return silence_by_zeroed_columns(model, heads).eval()


@mutant("silence_heads", source="learners: model.eval() on the way", names="switches the model that it was given")
def silence_and_switch(model, heads):
    model.eval()
    return silence_by_zeroed_columns(model, heads)


@mutant("silence_heads", source="learners: requires_grad_(False) for in-place writing", names="could never train again")
def silence_and_freeze(model, heads):
    model.requires_grad_(False)
    return silence_by_zeroed_columns(model, heads)


@mutant("silence_heads", source="learners: a hook left on the model", names="a hook or another forward is left on it")
def silence_by_a_hook_on_the_original(model, heads):
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.register_forward_pre_hook(without_head(head, e))
    return copy.deepcopy(model)


@mutant(
    "silence_heads", source="learners: no_grad forgotten", names="Put that line into a block `with torch.no_grad():`"
)
def silence_with_gradients(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight[:, head * e : (head + 1) * e] = 0
    return model


@mutant("silence_heads", source="learners: the state dict returned", names="a model is wanted; got OrderedDict")
def silence_to_a_state_dict(model, heads):
    return silence_by_zeroed_columns(model, heads).state_dict()


@mutant("silence_heads", source="learners: heads.pop()", names="it changes the list that it is given")
def silence_and_empty_the_list(model, heads):
    pairs = [heads.pop() for _ in range(len(heads))]
    return silence_by_zeroed_columns(model, pairs)


@mutant("silence_heads", source="learners: return forgotten", names="is a return missing?")
def silence_without_return(model, heads):
    silence_by_zeroed_columns(model, heads)


@mutant("silence_heads", source="unknown: a head made quiet, not silent", names="wrong for one head")
def silence_by_halves(model, heads):
    model = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(model, layer)
        attention.out_proj.weight.data[:, head * e : (head + 1) * e] *= 0.5
    return model


def built_like(model):
    """Build a model of the same sizes, with fresh weights."""
    embedding, layers = model.embedding.patch_embedding, model.encoder.layers
    return VisionTransformer(
        image_size=embedding.image_size,
        patch_size=embedding.patch_size,
        in_channels=embedding.in_channels,
        num_layers=len(layers),
        num_heads=layers[0].self_attention.num_heads,
        hidden_dim=layers[0].self_attention.hidden_dim,
        mlp_dim=layers[0].mlp.linear_1.out_features,
        num_classes=model.head.out_features,
        pool=model.pool,
    )


def without_head(head, e):
    """Return a hook that blanks one head in what ``out_proj`` reads."""

    def hook(module, given):
        x = given[0].clone()
        x[..., head * e : (head + 1) * e] = 0
        return (x,)

    return hook


@alternative("silence_heads")
def silence_by_zeroed_columns(model, heads):
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in heads:
            weight = rearrange(
                changed.encoder.layers[layer].self_attention.out_proj.weight,
                "d (heads e) -> d heads e",
                heads=changed.encoder.layers[layer].self_attention.num_heads,
            )
            weight[:, head] = 0
    return changed


@alternative("silence_heads")
def silence_by_values(model, heads):
    return silence_thirds(model, heads, (2,))


@alternative("silence_heads")
def silence_by_state_dict(model, heads):
    changed = built_like(model)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    for layer, head in heads:
        _, e = attention_of(model, layer)
        state[f"encoder.layers.{layer}.self_attention.out_proj.weight"][:, head * e : (head + 1) * e] = 0
    changed.load_state_dict(state)
    return changed.train(model.training)


@alternative("silence_heads")
def silence_by_hooks_on_the_copy(model, heads):
    changed = copy.deepcopy(model)
    for layer, head in heads:
        attention, e = attention_of(changed, layer)
        attention.out_proj.register_forward_pre_hook(without_head(head, e))
    return changed


@alternative("silence_heads")
def silence_by_a_mask(model, heads):
    changed, by_layer = copy.deepcopy(model), defaultdict(list)
    for layer, head in heads:
        by_layer[layer].append(head)
    for layer, silent in by_layer.items():
        attention, e = attention_of(changed, layer)
        keep = torch.ones(attention.num_heads)
        keep[silent] = 0
        weight = attention.out_proj.weight
        attention.out_proj.weight = nn.Parameter(weight.detach() * keep.repeat_interleave(e))
    return changed


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
