"""Move the parameters of the learning-rate schedule and see its curve."""

import ipywidgets
import torch
from matplotlib.patches import Rectangle

from vit_course import arguments, plots
from vit_course.explore import drawing
from vit_course.explore.drawing import percent
from vit_course.explore.explorer import Explorer
from vit_course.explore.picture import GridPicture
from vit_course.training import learning_rate_schedule

MOST_STEPS = 2000


@drawing.in_course_look
def schedule(*, peak: float = 1e-3, total_steps: int = 1000, warmup_steps: int = 100, final: float = 0.0) -> Explorer:
    """Move sliders and see the learning rate of every step, by :func:`vit_course.training.learning_rate_schedule`.

    Controls: ``peak``, ``total_steps``, ``warmup_steps`` and ``final``, the last one as a share of the peak.
    ``picture.selected`` is the step that is read, ``(0, step)``; ``values`` are the rates, ``(total_steps,)``.

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
    return ScheduleExplorer(peak, total_steps, warmup_steps, final / peak)


class ScheduleExplorer(Explorer):
    """The learning rate of every step."""

    name = "schedule"
    hint = "Click the curve to read a step, or reach the picture by Tab: arrow keys, Home and End."

    def __init__(self, peak: float, total_steps: int, warmup_steps: int, final: float) -> None:
        figure = drawing.new_figure(4.3)
        axes = self._axes = drawing.add_axes(figure, 0.95, 1.05, 7.3, 2.3, ticks=True)
        self._warmup = axes.add_patch(Rectangle((-0.5, 0), 0, 1, transform=axes.get_xaxis_transform()))
        self._warmup.set(color=plots.COLORS["norm"], alpha=0.35, linewidth=0)
        (self._curve,) = axes.plot([], color=plots.COLORS["train"])
        (self._point,) = axes.plot([], "o", color=plots.COLORS["query"], markersize=8)
        axes.set(xlabel="step", ylabel="learning rate")
        axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0), useMathText=True)
        log_scale = dict(min=-5, max=-1, step=0.05, readout_format=".1e")  # powers of ten
        share = dict(min=0, max=1, step=0.01, description="final, as a share of the peak")
        controls = dict(
            peak=ipywidgets.FloatLogSlider(peak, description="peak", **log_scale),
            total_steps=ipywidgets.IntSlider(total_steps, 2, MOST_STEPS, description="total steps"),
            warmup_steps=ipywidgets.IntSlider(warmup_steps, 0, total_steps, description="warm-up steps"),
            final=ipywidgets.FloatSlider(final, **share),
        )
        step = max(warmup_steps - 1, 0)
        picture = GridPicture(shape=(1, total_steps), places=[drawing.place(axes)], selected=(0, step))
        super().__init__(figure, controls, picture, [axes])

    def show(self) -> str:
        """Draw the curve and the step that is read."""
        total = self.controls["total_steps"].value
        self.controls["warmup_steps"].max = total  # and its value with it
        warmup = self.controls["warmup_steps"].value
        peak = float(f"{self.controls['peak'].value:.6g}")
        final = min(float(f"{self.controls['final'].value * peak:.6g}"), peak)
        options = dict(total_steps=total, warmup_steps=warmup, peak=peak, final=final)
        rates = [learning_rate_schedule(step, **options) for step in range(total)]
        self.values = torch.tensor(rates, dtype=torch.float64)
        self.picture.set_shape((1, total))
        _, step = self.picture.selected

        rate = self.values[step].item()
        self._curve.set_data(range(total), self.values.numpy())
        self._point.set_data([step], [rate])
        self._warmup.set_width(warmup)
        self._axes.set(xlim=(-0.5, total - 0.5), ylim=(0, 1.1 * peak))
        call = ", ".join(f"{name}={value:g}" for name, value in options.items())
        self._axes.set_title(f"learning_rate_schedule(step, {call})", family="monospace", size=9, loc="left")
        return (
            f"Step {step} of 0 to {total - 1}: a learning rate of {rate:.2e}, {percent(rate / peak)} "
            f"of the peak. Warm-up takes {percent(warmup / total)} of the steps. "
            f"The mean rate of the run is {percent(self.values.mean() / peak)} of the peak."
        )
