"""Move the parameters of the learning-rate schedule and see its curve."""

import torch
from torch import Tensor
from traitlets import Float, Int

from vit_course import arguments
from vit_course.explore.figure import Explorer, percent
from vit_course.training import learning_rate_schedule

MOST_STEPS = 2000


def schedule(*, peak: float = 1e-3, total_steps: int = 1000, warmup_steps: int = 100, final: float = 0.0) -> Explorer:
    """Move sliders and see the learning rate of every step, by :func:`vit_course.training.learning_rate_schedule`.

    Attributes: ``peak``, ``total_steps``, ``warmup_steps``, ``final_share`` (the last rate as a share of the peak), and
    ``step``, which is read. ``values`` are the rates, ``(total_steps,)``.

    Args:
        peak: highest learning rate, 1e-5 to 0.1.
        total_steps: 2 to 2,000.
        warmup_steps: at most ``total_steps``.
        final: last learning rate, at most ``peak``.

    Raises:
        ValueError: a parameter out of range.
    """
    learning_rate_schedule(0, total_steps=total_steps, warmup_steps=warmup_steps, peak=peak, final=final)
    if not 1e-5 <= peak <= 0.1:
        raise ValueError(f"peak must lie in 1e-5 to 0.1; got {peak!r}")
    arguments.whole_number("total_steps", total_steps, minimum=2)
    arguments.at_most("total_steps", total_steps, "MOST_STEPS", MOST_STEPS)
    steps = dict(total_steps=total_steps, warmup_steps=warmup_steps, step=max(warmup_steps - 1, 0))
    return ScheduleExplorer({"most_steps": MOST_STEPS}, peak=peak, final_share=final / peak, **steps)


class ScheduleExplorer(Explorer, kind="schedule"):
    """The learning rate of every step."""

    peak = Float(min=1e-5, max=0.1).tag(sync=True)
    total_steps = Int(min=2, max=MOST_STEPS).tag(sync=True)
    warmup_steps = Int(min=0).tag(sync=True)
    final_share = Float(min=0, max=1).tag(sync=True)
    step = Int(min=0).tag(sync=True)

    def compute(self) -> tuple[Tensor, str]:
        """Return the rates and what they are at the step that is read."""
        total, warmup = self.total_steps, min(self.warmup_steps, self.total_steps)
        options = dict(total_steps=total, warmup_steps=warmup, peak=self.peak, final=self.final_share * self.peak)
        values = torch.tensor([learning_rate_schedule(step, **options) for step in range(total)], dtype=torch.float64)
        step = min(self.step, total - 1)
        rate = values[step].item()
        shares = dict(share=rate / self.peak, warmup=warmup / total, mean=values.mean() / self.peak)
        facts = {name: percent(share) for name, share in shares.items()}
        return values, self.words["step"].format(step=step, last=total - 1, rate=f"{rate:.2e}", **facts)
