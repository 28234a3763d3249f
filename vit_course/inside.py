"""Lesson 09: measurements inside a trained model.

Attention rollout follows Abnar and Zuidema (arXiv 2005.00928); filters, positions and distances are the three panels of
Figure 7 in arXiv 2010.11929. Nothing here changes a model or needs its gradients.
"""

import copy
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor, nn

from vit_course import VisionTransformer, arguments
from vit_course.attention import attention_weights

PORTION = 128  # images at a time: faster on a processor than a thousand at once


def attention_maps(model: nn.Module, images: Float[Tensor, "b c h w"]) -> list[Float[Tensor, "b heads s s"]]:
    """Return the attention weights of every layer, before any dropout; every row sums to 1.

    Args:
        model: any Vision Transformer whose modules have the course's names, such as the reader's own. It runs once,
            in its present mode.
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
    _one_shape(maps)
    identity = torch.eye(maps[0].shape[-1], dtype=maps[0].dtype, device=maps[0].device)
    rollout = identity.expand(len(maps[0]), -1, -1)
    for layer in maps:
        rollout = (reduce(layer, "b heads i j -> b i j", "mean") + identity) / 2 @ rollout
    return rollout


def attention_distance(
    maps: Sequence[Float[Tensor, "b heads s s"]], *, grid_size: tuple[int, int], patch_size: int = 1
) -> Float[Tensor, "layers heads"]:
    """Figure 7, right: the mean distance between a patch and the patches that it attends to.

    Args:
        maps: the result of :func:`attention_maps`, each ``(b, heads, n + 1, n + 1)``, the class token first.
        grid_size: patches ``(gh, gw)``, ``gh * gw = n``.
        patch_size: side of a patch in pixels, for distances in pixels; use 1 for distances in patches.

    Returns:
        ``(layers, heads)``: the distance between the centers of the query and key patches, weighted by attention and
        averaged over images and query patches. Without the class token, the weights of each row are normalized again.

    Raises:
        ValueError: there are no maps, their shapes differ, or the grid does not fit them.
    """
    _one_shape(maps)
    gh, gw = arguments.size_pair("grid_size", grid_size)
    if gh * gw + 1 != maps[0].shape[-1]:
        raise ValueError(f"grid_size must have n = {maps[0].shape[-1] - 1} patches; got {gh} x {gw} = {gh * gw}")
    side = arguments.whole_number("patch_size", patch_size)
    centres = torch.cartesian_prod(torch.arange(gh), torch.arange(gw)).to(maps[0]) * side
    distances = torch.linalg.vector_norm(centres[:, None] - centres, dim=-1)
    patches = torch.stack(list(maps))[..., 1:, 1:]
    weights = patches / patches.sum(dim=-1, keepdim=True)
    return reduce(weights * distances, "layers b heads i j -> layers heads i", "sum").mean(dim=-1) / len(maps[0])


def position_similarity(model: VisionTransformer) -> Float[Tensor, "gh gw gh gw"]:
    """Figure 7, center: cosine similarities between all pairs of the patches' position embeddings.

    Returns:
        ``(gh, gw, gh, gw)`` in [-1, 1]: ``[row, column]`` contains the similarities of that position with all others.
    """
    gh, _ = model.embedding.patch_embedding.grid_size
    directions = F.normalize(model.embedding.pos_embedding[0, 1:].detach(), dim=-1)
    return rearrange(directions @ directions.T, "(gh gw) (to_h to_w) -> gh gw to_h to_w", gh=gh, to_h=gh)


def projection_components(
    model: VisionTransformer, count: int
) -> tuple[Float[Tensor, "count c p p"], Float[Tensor, "count"]]:
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
def layer_tokens(model: VisionTransformer, images: Float[Tensor, "b c h w"]) -> list[Float[Tensor, "b s d"]]:
    """Return the tokens after the embedding and after every block: ``num_layers + 1`` of ``(b, n + 1, d)``.

    The final LayerNorm, ``model.encoder.ln``, is not applied.
    """
    tokens = [model.embedding(images)]
    for layer in model.encoder.layers:
        tokens.append(layer(tokens[-1]))
    return tokens


def silence_heads(model: VisionTransformer, heads: Iterable[tuple[int, int]]) -> VisionTransformer:
    """Return a copy of the model in which each of these heads adds nothing to its layer's output.

    Heads are pairs ``(layer, head)``, counted from 0. Their columns of ``out_proj.weight`` become zero.

    Raises:
        ValueError: ``heads`` are not pairs, or the model does not have such a layer or head.
    """
    model = copy.deepcopy(model)
    layers = model.encoder.layers
    pairs = list(heads) if isinstance(heads, Iterable) else [heads]
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"heads must hold pairs (layer, head), such as [(0, 1)]; got {pair!r}")
        layer, head = pair
        arguments.at_most("layer", arguments.whole_number("layer", layer, minimum=0), "num_layers - 1", len(layers) - 1)
        attention = layers[layer].self_attention
        last = attention.num_heads - 1
        arguments.at_most("head", arguments.whole_number("head", head, minimum=0), "num_heads - 1", last)
        width = attention.qkv.in_features // attention.num_heads
        attention.out_proj.weight.detach()[:, head * width : (head + 1) * width] = 0
    return model


@torch.no_grad()
def head_ablation(
    model: VisionTransformer, images: Float[Tensor, "b c h w"], labels: Int[Tensor, "b"]
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
    similarity = einsum(F.normalize(queries, dim=-1), F.normalize(features, dim=-1), "m d, n d -> m n")
    return tuple(similarity.topk(count, dim=-1))


def _one_shape(maps: Sequence[Tensor]) -> None:
    if not isinstance(maps, Sequence) or not maps:
        came = "an empty one" if isinstance(maps, Sequence) else type(maps).__name__
        raise ValueError(f"maps must be a list with one tensor a layer; got {came}")
    for layer in maps:
        arguments.float_tensor("maps", layer, "b heads s s")
    for layer in maps:
        if layer.shape != maps[0].shape or layer.shape[-1] != layer.shape[-2]:
            shapes = [tuple(each.shape) for each in maps]
            raise ValueError(f"maps must be square and all of one shape, (b, heads, s, s); got {shapes}")
