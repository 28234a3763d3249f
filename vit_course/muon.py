"""Muon, an optimizer for the weight matrices of a network (Jordan et al., 2024, kellerjordan.github.io/posts/muon)."""

from collections import defaultdict

import torch
from jaxtyping import Float
from torch import Tensor

from vit_course import VisionTransformer
from vit_course.training import parameter_groups

MOMENTUM = 0.95


def orthogonalized(matrices: Float[Tensor, "... m n"]) -> Float[Tensor, "... m n"]:
    """Return matrices with the same singular vectors, whose singular values lie near 1, most between 0.7 and 1.2.

    Five steps of a Newton-Schulz iteration, which needs products only. PyTorch's own ``torch.optim.Muon`` computes
    them in bfloat16, which takes seconds per step on a CPU without instructions for it.
    """
    rows, columns = matrices.shape[-2:]
    x = matrices.mT if rows > columns else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if rows > columns else x


class Muon(torch.optim.AdamW):
    """AdamW, but in groups with ``parts`` a step follows the orthogonalized momentum of each matrix.

    A weight of ``parts=3`` is three matrices of equal size, one above the other. A step has the length that AdamW's
    typically has, so that both can use the same learning rate (Liu et al., 2025, arXiv 2502.16982).
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Change all parameters that have a gradient; the matrices' gradients are cleared."""
        for group in self.param_groups:
            same_shape = defaultdict(list)
            for weight in group["params"] if group.get("parts") else []:
                same_shape[weight.shape].append(weight)
            for weights in same_shape.values():  # together, which is faster
                updates = torch.stack([self._update(weight) for weight in weights]).unflatten(1, (group["parts"], -1))
                length = 0.2 * max(updates.shape[2:]) ** 0.5
                for weight, update in zip(weights, orthogonalized(updates).flatten(1, 2), strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(update, alpha=-group["lr"] * length)
                    weight.grad = None  # AdamW passes over parameters without a gradient
        super().step()

    def _update(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if not state:  # AdamW expects a count of steps in every state that it loads
            state.update(step=torch.tensor(0.0), momentum=torch.zeros_like(weight))
        state["step"] += 1
        return weight.grad.lerp(state["momentum"].lerp_(weight.grad, 1 - MOMENTUM), MOMENTUM)


def muon_groups(model: VisionTransformer, weight_decay: float) -> list[dict]:
    """Return the parameter groups of a model for :class:`Muon`: AdamW keeps the embedding, the norms and the head."""
    decayed, rest = parameter_groups(model, weight_decay)
    stacked = [layer.self_attention.qkv.weight for layer in model.encoder.layers]
    inside = set(model.encoder.parameters()).difference(stacked)
    others = [weight for weight in decayed["params"] if weight in inside]
    matrices = {*stacked, *others}
    decayed["params"] = [weight for weight in decayed["params"] if weight not in matrices]
    return [decayed, rest, decayed | dict(params=stacked, parts=3), decayed | dict(params=others, parts=1)]
