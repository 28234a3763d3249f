"""Checks of dropout: exact in what they find, and never a matter of luck.

The weights are chosen so that the output is one constant without dropout. In train mode it then holds a few values,
its levels: which ones tells where dropout stands, and how often they come tells its rate. Ten thousands of values are
drawn, and a share may stray by 8 standard deviations: a right module is refused once in 10^14 runs.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vit_course.checks.evidence import TOLERANCE, CheckFailed, describe, learners, loaded, same, set_parameters

RATE = 0.25  # not 0.5, where the rate of dropping and that of keeping are one

Levels = dict[float, float]  # from a value to the share of the output that has it


def drop(levels: Levels, rate: float = RATE, *, scale: bool = True) -> Levels:
    """Return the levels behind dropout."""
    kept = {value / (1 - rate) if scale else value: share * (1 - rate) for value, share in levels.items()}
    return {**kept, 0.0: kept.get(0.0, 0.0) + rate}


def through(levels: Levels, function: Callable[[float], float]) -> Levels:
    """Return the levels behind a function of each value."""
    return {function(value): share for value, share in levels.items()}


def slips(value: float, after: Callable[[float], float] = lambda value: value) -> list[tuple[str, Levels]]:
    """Return the mistakes that every dropout of a constant can have: the rate, the scale, and twice over."""
    return [
        (
            "dropout keeps what it should drop: its rate is the probability of a zero, not of staying.",
            through(drop({value: 1.0}, 1 - RATE), after),
        ),
        (
            "dropout does not rescale: divide what is kept by 1 - p, so that the mean stays the same. nn.Dropout does.",
            through(drop({value: 1.0}, scale=False), after),
        ),
        ("dropout acts twice in one place. Once is enough.", through(drop(drop({value: 1.0})), after)),
    ]


def verify_modes(
    name: str,
    cls: Callable,
    reference: type[nn.Module],
    options: dict,
    x: Tensor,
    mapping: Callable | None,
    argument: str = "dropout",
) -> None:
    """Check that dropout changes nothing in eval mode, and nothing in train mode at rate 0.

    To be called when the values are known to be right without dropout.
    """
    right = set_parameters(reference(**options))
    with torch.no_grad():
        expected = right(x)
    fused = "F.scaled_dot_product_attention dropout_p=p if self.training else 0.0, "
    for rate, training, cause in [
        (
            RATE,
            False,
            f"in eval mode the output changes with {argument}: it acts, though it is for train mode only. F.dropout "
            f"needs training=self.training, {fused if argument == 'attention_dropout' else ''}and nn.Dropout must be "
            "made in __init__.",
        ),
        (
            0.0,
            True,
            f"train mode changes the output though {argument}=0: use the rate that __init__ is given, not one of your "
            "own.",
        ),
    ]:
        mine = loaded(name, cls, {**options, argument: rate}, right.state_dict(), mapping).train(training)
        with learners(name, cls, f"with {argument}={rate}"), torch.no_grad():
            result = mine(x.clone())
        if not same(result, expected):
            raise CheckFailed(f"{cause}\n  {describe(result, expected)}")


def in_train_mode(name: str, cls: Callable, options: dict, state: dict, mapping: Callable | None, x: Tensor) -> Tensor:
    """Return the output of the learner's module in train mode."""
    mine = loaded(name, cls, options, state, mapping).train()
    with learners(name, cls, "in train mode"), torch.no_grad():
        return mine(x.clone())


def verify_levels(
    values: Tensor, expected: Levels, mistakes: Sequence[tuple[str, Levels]], argument: str = "dropout"
) -> None:
    """Check what dropout has left of a constant: its levels, their shares, and that every value is drawn on its own.

    Args:
        values: the output in train mode, any shape.
        expected: the levels that it must have.
        mistakes: sentences, each with the levels that it would give; the first that fits is named.
        argument: what the rate is called.
    """
    if fits(values, expected):
        return
    axis = shared_axis(values) if on_levels(values, expected) else None
    if axis is not None:
        cause = f"one draw serves all of axis {axis}: every value must be dropped or kept on its own."
    else:
        found = [sentence for sentence, levels in mistakes if fits(values, levels)]
        cause = found[0] if found else f"train mode does not give what {argument}={RATE} gives in the right places."
    share = ", ".join(f"{value:.4g} in {share:.0%}" for value, share in sorted(expected.items()))
    raise CheckFailed(f"{cause}\n  train mode, {argument}={RATE}: expected {share}; got {shares_in(values)}")


def near(values: Tensor, level: float) -> Tensor:
    """Return where the values are at a level, to rounding."""
    return (values - level).abs() <= TOLERANCE * max(1.0, abs(level))


def on_levels(values: Tensor, levels: Levels) -> bool:
    """Whether all values are at the levels."""
    return bool(torch.stack([near(values, level) for level in levels]).any(dim=0).all())


def shared_axis(values: Tensor) -> int | None:
    """Return an axis along which nothing changes, though the values differ elsewhere."""
    if near(values, values.flatten()[0].item()).all():
        return None
    still = [axis for axis in range(values.ndim) if (values - values.narrow(axis, 0, 1)).abs().max() < TOLERANCE]
    return still[0] if still else None


def fits(values: Tensor, levels: Levels) -> bool:
    """Whether the values have these levels, in these shares, and differ along every axis if they differ at all."""
    if not on_levels(values, levels) or shared_axis(values) is not None:
        return False
    for level, share in levels.items():
        deviation = (share * (1 - share) / values.numel()) ** 0.5
        if (near(values, level).float().mean() - share).abs() > 8 * deviation + 1e-6:
            return False
    return True


def shares_in(values: Tensor) -> str:
    """Name the most frequent values and their shares."""
    found, counts = values.round(decimals=4).unique(return_counts=True)
    order = counts.argsort(descending=True)[:3].sort().values
    named = ", ".join(f"{found[k].item():.4g} in {counts[k] / values.numel():.0%}" for k in order)
    others = len(found) - 3
    return named + (f" and {others} other {'value' if others == 1 else 'values'}" if others > 0 else "")
