"""Lesson 09: measurements inside a trained model.

Attention rollout follows Abnar and Zuidema (arXiv 2005.00928); filters, positions and distances are the three panels of
Figure 7 in arXiv 2010.11929. Nothing here changes a model or needs its gradients. A model is any Vision
Transformer whose modules have the course's names, such as the reader's own.
"""

import copy
from collections.abc import Collection, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from vit_course import arguments
from vit_course.attention import attention_weights

PORTION = 128  # images at a time: faster on a processor than a thousand at once


def attention_maps(model: nn.Module, images: Float[Tensor, "b c h w"]) -> list[Float[Tensor, "b heads s s"]]:
    """Return the attention weights of every layer, before any dropout; every row sums to 1.

    Args:
        model: runs once, in its present mode.
        images: images of the model's size.
    """
    maps = []

    def record(attention: nn.Module, inputs: tuple[Tensor]) -> None:
        pattern = "b s (three heads e) -> three b heads s e"
        query, key, _ = rearrange(attention.qkv(inputs[0]), pattern, three=3, heads=attention.num_heads)
        maps.append(attention_weights(query, key))

    hooks = [layer.self_attention.register_forward_pre_hook(record) for layer in model.encoder.layers]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return maps


def attention_rollout(maps: Sequence[Float[Tensor, "b heads s s"]]) -> Float[Tensor, "b s s"]:
    """Follow attention through all layers: the product of ½ A + ½ I, the last layer on the left.

    Args:
        maps: the result of :func:`attention_maps`, each ``(b, heads, s, s)``, first layer first. A is the mean over
            heads; the identity is for the residual connection.

    Returns:
        ``(b, s, s)``: row ``i``, whose sum is 1, distributes token ``i`` of the last layer over the embedded tokens.

    Raises:
        ValueError: there are no maps, or they are not square or have different shapes.
    """
    arguments.maps_of_layers(maps)
    identity = torch.eye(maps[0].shape[-1]).to(maps[0])
    rollout = identity.expand(len(maps[0]), -1, -1)
    for layer in maps:
        rollout = (0.5 * layer.mean(dim=1) + 0.5 * identity) @ rollout
    return rollout


def attention_distance(
    maps: Sequence[Float[Tensor, "b heads s s"]], grid_size: tuple[int, int]
) -> Float[Tensor, "layers heads"]:
    """Figure 7, right: the mean distance between a patch and the patches that it attends to.

    Args:
        maps: the result of :func:`attention_maps`, each ``(b, heads, n + 1, n + 1)``, the class token first.
        grid_size: patches ``(gh, gw)``, ``gh * gw = n``.

    Returns:
        ``(layers, heads)``: the distance between the centers of the query and key patches, weighted by attention and
        averaged over images and query patches. Without the class token, the weights of each row are normalized again.

    Raises:
        ValueError: there are no maps, their shapes differ, or the grid does not fit them.
    """
    arguments.maps_of_layers(maps)
    arguments.grid_of("grid_size", grid_size, maps[0].shape[-1] - 1)
    gh, gw = grid_size
    centers = torch.cartesian_prod(torch.arange(gh), torch.arange(gw)).to(maps[0])
    distances = torch.cdist(centers, centers)
    layers = []
    for layer in maps:
        weights = layer[..., 1:, 1:]
        weights = weights / weights.sum(dim=-1, keepdim=True)
        layers.append((weights * distances).sum(dim=-1).mean(dim=(0, 2)))
    return torch.stack(layers)


def projection_components(model: nn.Module, count: int) -> tuple[Float[Tensor, "count c p p"], Float[Tensor, "count"]]:
    """Figure 7, left: the strongest principal components of the ``d`` filters, ``c p p``, of the patch projection.

    Returns:
        Components ``(count, c, p, p)`` of length 1, their largest weight positive, and the share of the filters'
        variance that each of them explains, ``(count,)``.

    Raises:
        ValueError: ``count`` is larger than ``d`` or ``c p p``.
    """
    embedding = model.embedding.patch_embedding
    filters = embedding.projection.weight.detach()
    arguments.at_most("count", arguments.whole_number("count", count), "min(d, c * p * p)", min(filters.shape))
    _, strengths, components = torch.linalg.svd(filters - filters.mean(dim=0), full_matrices=False)
    largest = components.gather(1, components.abs().argmax(dim=1, keepdim=True))
    pictures = rearrange(
        components * largest.sign(), "n (c p1 p2) -> n c p1 p2", c=embedding.in_channels, p1=embedding.patch_size
    )
    return pictures[:count], (strengths**2 / (strengths**2).sum())[:count]


@torch.no_grad()
def layer_tokens(model: nn.Module, images: Float[Tensor, "b c h w"]) -> list[Float[Tensor, "b s d"]]:
    """Return the tokens after the embedding and after every block: ``num_layers + 1`` of ``(b, n + 1, d)``.

    The final LayerNorm, ``model.encoder.ln``, is not applied.
    """
    tokens = [model.embedding(images)]
    for layer in model.encoder.layers:
        tokens.append(layer(tokens[-1]))
    return tokens


def silence_heads(model: nn.Module, heads: Collection[tuple[int, int]]) -> nn.Module:
    """Return a copy of the model in which each of these heads adds nothing to its layer's output.

    Heads are pairs ``(layer, head)``, counted from 0. Their columns of ``out_proj.weight`` become zero.

    Raises:
        ValueError: ``heads`` are not pairs, or the model does not have such a layer or head.
    """
    arguments.heads_of(model, heads)
    changed = copy.deepcopy(model)
    with torch.no_grad():
        for layer, head in heads:
            attention = changed.encoder.layers[layer].self_attention
            e = attention.out_proj.in_features // attention.num_heads
            attention.out_proj.weight[:, head * e : (head + 1) * e] = 0
    return changed


@torch.no_grad()
def head_ablation(
    model: nn.Module, images: Float[Tensor, "b c h w"], labels: Int[Tensor, "b"]
) -> Float[Tensor, "layers heads"]:
    """Return the accuracy in [0, 1] with one head silenced, for each head separately, as ``(layers, heads)``.

    The model is evaluated in eval mode.

    Raises:
        ValueError: there is not one valid label per image, or the images have another shape.
    """
    arguments.one_label_an_image(images, labels)
    arguments.label_range(labels, model.head.out_features)

    def accuracy(layer: int, head: int) -> float:
        silenced = silence_heads(model, [(layer, head)]).eval()
        answers = [silenced(portion).argmax(dim=-1) for portion in images.split(PORTION)]
        return (torch.cat(answers) == labels).float().mean().item()

    heads = [range(layer.self_attention.num_heads) for layer in model.encoder.layers]
    return torch.tensor([[accuracy(layer, head) for head in of_layer] for layer, of_layer in enumerate(heads)])


def nearest(
    features: Float[Tensor, "n d"], queries: Float[Tensor, "m d"], count: int
) -> tuple[Float[Tensor, "m count"], Int[Tensor, "m count"]]:
    """Find the ``count`` features with the highest cosine similarity to each query, a row.

    Returns:
        Cosine similarities and indices into ``features``, ``(m, count)`` each, the most similar first.

    Raises:
        ValueError: the vectors have different lengths, or ``count`` is larger than ``n``.
    """
    arguments.float_tensor("features", features, "n d")
    arguments.shaped("queries", queries, "m d", (None, features.shape[1]))
    arguments.at_most("count", arguments.whole_number("count", count), "n", len(features))
    cosines = F.normalize(queries, dim=-1) @ F.normalize(features, dim=-1).T
    values, indices = cosines.topk(count, dim=-1)
    return values, indices
