"""Comparing what dropout leaves, exactly in the values and never by luck in how often they come.

Weights are chosen so that the output takes few values, its levels: which they are tells where dropout acts, and how
often each comes, its rate. A pair is a value with the value eight features on, which tells a dropped attention weight,
that shows in both, from dropped features. Ten thousands of values are drawn on both sides, and counts may differ by 8
standard deviations: a right module is refused once in 10^14 runs.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from vit_course.checks.verdict import sentence

RATE = 0.25  # not 0.5, where the rate of dropping and that of keeping are one
APART = 8  # features between the two values of a pair
MOST_LEVELS = 120


@dataclass(frozen=True)
class Draws:
    """What dropout has left of an output: how often each pair of values comes, and the axes with one draw for all."""

    pairs: Counter
    shared: tuple[int, ...]
    total: int
    copies: int

    def matches(self, other: object) -> bool:
        """Whether two outputs may come from the same computation."""
        if not isinstance(other, Draws) or self.total != other.total or self.shared != other.shared:
            return False
        if not self.pairs or not other.pairs:
            return False
        counts = [(self.pairs[pair], other.pairs[pair]) for pair in self.pairs | other.pairs]
        counts += [(one.strays(two), 0) for one, two in ((self, other), (other, self))]
        return all(abs(a - b) <= 8 * (self.copies * (a + b)) ** 0.5 + 8 for a, b in counts)

    def strays(self, other: "Draws") -> int:
        """Return how many values are of a level that the other has not: each of many may be rare."""
        levels = {value for value, _ in other.pairs}
        return sum(count for (value, _), count in self.pairs.items() if value not in levels)

    def levels(self) -> dict[float, float]:
        """Return the values, and the share of each."""
        found = Counter()
        for (value, _), count in self.pairs.items():
            found[value] += count / self.total
        return dict(sorted(found.items()))

    def __str__(self) -> str:
        levels = [
            sentence("dropout.level", value=f"{value:.4g}", share=share) for value, share in self.levels().items()
        ]
        return ", ".join(levels) or sentence("dropout.no_levels")


def draws(values: Tensor, copies: int = 2) -> Draws:
    """Return what is to be compared of an output in train mode; it has no pairs if the values are not a few levels.

    Args:
        values: the output.
        copies: in how many values one draw may show; they are not independent.
    """
    values = values.detach().nan_to_num(nan=1e6)
    changing = (values - values.flatten()[0]).abs().max() > 1e-4
    axes = [k for k in range(values.ndim) if (values - values.narrow(k, 0, 1)).abs().max() < 1e-4] if changing else []
    levels, which = values.round(decimals=3).unique(return_inverse=True)
    if len(levels) > MOST_LEVELS:
        return Draws(Counter(), tuple(axes), values.numel(), copies)
    counts = torch.bincount((which * len(levels) + which.roll(APART, -1)).flatten(), minlength=len(levels) ** 2)
    names = [round(level, 3) + 0.0 for level in levels.tolist()]
    pairs = {(names[k // len(names)], names[k % len(names)]): n for k, n in enumerate(counts.tolist()) if n}
    return Draws(Counter(pairs), tuple(axes), values.numel(), copies)
