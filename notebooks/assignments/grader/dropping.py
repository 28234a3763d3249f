"""Comparing what dropout does, without trusting to luck.

Weights are set, not drawn, so that the result in train mode takes few values, known exactly; how often each of them
comes up is held to eight standard deviations, which a right implementation leaves less than once in 10^14 runs.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from grader.comparing import Wrong, ask, shown

RATE = 0.25
KEPT = 1 / (1 - RATE)
HIDDEN, BIAS = 1.5, 0.7  # constants set in an MLP
GELU = float(F.gelu(torch.tensor(HIDDEN, dtype=torch.float64)))
ONE_DROPOUT = {0.0: RATE, KEPT: 1 - RATE}  # of ones
MLP_DROPOUT = {  # of HIDDEN, through an identity, GELU, dropout, an identity with BIAS, and dropout again
    0.0: RATE,
    KEPT * BIAS: (1 - RATE) * RATE,
    KEPT * (KEPT * GELU + BIAS): (1 - RATE) ** 2,
}


def in_train_mode(subject: object, options: dict, state: dict[str, Tensor], x: Tensor) -> Tensor:
    """Return the result in train mode."""
    result = ask(subject, "module", options=options, state=state, inputs=[x], training=True)["results"][0]
    if not isinstance(result, Tensor) or not result.is_floating_point():
        raise Wrong(f"in train mode: expected a tensor, got {shown(result)}")
    return result.double()


def constant(model: nn.Module, **values: float | Tensor) -> dict[str, Tensor]:
    """Return a state of zeros, the norms' weights ones, and the parameters that end in these names (_ for .) set."""
    state = {}
    for name, parameter in model.named_parameters():
        own = [value for ending, value in values.items() if name.replace(".", "_").endswith(ending)]
        norm = parameter.ndim == 1 and name.endswith("weight")
        state[name] = torch.zeros_like(parameter.detach()) + (own[0] if own else float(norm))
    return state


def identity_mlp(d: int, *, bias: float = BIAS) -> dict[str, float | Tensor]:
    """Return values for :func:`constant` with which an MLP gives GELU(x) + bias."""
    return dict(linear_1_weight=torch.eye(d), linear_2_weight=torch.eye(d), linear_2_bias=bias)


def even_attention(d: int) -> dict[str, Tensor]:
    """Return values for :func:`constant` with which attention gives the mean of its input over all tokens."""
    only_values = torch.cat([torch.zeros(2 * d, d), torch.eye(d)])
    return dict(qkv_weight=only_values, out_proj_weight=torch.eye(d))


def values_and_shares(result: Tensor, shares: dict[float, float], place: str) -> None:
    """Check that a result takes only these values, each as often as it should, and that no two tokens are alike."""
    counted = 0
    for value, share in shares.items():
        hits = int(((result - value).abs() < 1e-4).sum())
        counted += hits
        if abs(hits - share * result.numel()) > 8 * math.sqrt(share * (1 - share) * result.numel()):
            raise Wrong(
                f"in train mode, dropout {place}: {share:.0%} of the values should be {value:.2f}, "
                f"{hits / result.numel():.0%} are"
            )
    if counted != result.numel():
        raise Wrong(f"in train mode, dropout {place}: values other than {', '.join(f'{v:.2f}' for v in shares)}")
    _no_shared_mask(result, place)


def _no_shared_mask(result: Tensor, place: str) -> None:
    rows = result.round(decimals=4).flatten(0, -2)
    if len(rows.unique(dim=0)) != len(rows):
        raise Wrong(f"in train mode, dropout {place}: tokens share one mask")


def attention_shares(result: Tensor, heads: int) -> None:
    """Check what is left of values that are all one when each of the weights 1/s may be dropped: so many KEPT/s."""
    b, s, d = result.shape
    counts = (result * s / KEPT).reshape(b, s, heads, d // heads)
    if float((counts - counts.round()).abs().max()) > 1e-3 or float((counts - counts[..., :1]).abs().max()) > 1e-3:
        raise Wrong("in train mode, attention_dropout: it must drop weights after the softmax, and scale the rest")
    counts = counts[..., 0].round()
    for axis, name in enumerate(["images", "tokens", "heads"]):
        if bool((counts == counts.narrow(axis, 0, 1)).all()):
            raise Wrong(f"in train mode, attention_dropout: all {name} share one mask, or nothing is dropped")
    mean, variance = s * (1 - RATE), s * RATE * (1 - RATE)
    if abs(float(counts.mean()) - mean) > 8 * math.sqrt(variance / counts.numel()):
        raise Wrong(f"in train mode, attention_dropout: of {s} weights {float(counts.mean()):.2f} are kept, not {mean}")
    fourth = variance * (1 + 3 * (s - 2) * RATE * (1 - RATE))  # central moment of the binomial distribution
    spread = float(((counts - mean) ** 2).mean())
    if abs(spread - variance) > 12 * math.sqrt((fourth - variance**2) / counts.numel()):
        raise Wrong("in train mode, attention_dropout: the weights must be dropped one by one")


def two_values(result: Tensor, share: float, place: str) -> None:
    """Check tokens that are normalised behind a dropout of constants: two values in each, the upper one so often."""
    low, high = result.amin(dim=-1, keepdim=True), result.amax(dim=-1, keepdim=True)
    if not bool((high - low > 0.1).all()):
        raise Wrong(f"in train mode, dropout {place}: nothing is dropped")
    is_high = (result - high).abs() < 1e-3
    if not bool((is_high | ((result - low).abs() < 1e-3)).all()):
        raise Wrong(f"in train mode, dropout {place}: something else is dropped too")
    if abs(float(is_high.double().mean()) - share) > 8 * math.sqrt(share * (1 - share) / result.numel()):
        raise Wrong(f"in train mode, dropout {place}: {float(is_high.double().mean()):.0%} are kept, not {share:.0%}")
    _no_shared_mask(is_high.double(), place)
