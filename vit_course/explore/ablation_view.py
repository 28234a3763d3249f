"""Switch heads off and see what the model still gets right."""

from collections.abc import Mapping

import ipywidgets
import numpy as np
from jaxtyping import Float, Int64
from torch import Tensor

from vit_course import VisionTransformer, arguments, inside, plots
from vit_course.explore import drawing, model_input
from vit_course.explore.drawing import percent
from vit_course.explore.explorer import Explorer
from vit_course.explore.picture import GridPicture

MOST_CLASSES = 12  # that get a bar
MOST_WRITTEN = 36  # heads whose numbers are written into their cells


@drawing.in_course_look
def head_ablation(
    model: VisionTransformer,
    images: Float[Tensor, "b c h w"],
    labels: Int64[Tensor, "b"],
    *,
    about: Mapping | None = None,
    count: int = 100,
) -> Explorer:
    """Click heads to switch them off, and see what accuracy is left, class by class.

    ``picture.pressed`` is the list of heads that are off, ``(layer, head)`` each, counted from 0; set it from Python.
    ``values`` holds one number per image: 1 where the answer is right; ``values.mean()`` is the accuracy that is shown.
    ``alone`` is what :func:`vit_course.inside.head_ablation` returns for the same images: each head off by itself.

    Args:
        model: any :class:`vit_course.VisionTransformer`; it is used in eval mode and left as it was.
        images, labels: ``(b, c, h, w)`` and ``(b,)``. Without ``about``, what the model reads.
        about: what :func:`vit_course.weights.load_trained` returns with the model: the images are then in [0, 1] and
            normalized here, and classes have names.
        count: how many of the images are used, the first ones, so that the answer comes at once.

    Raises:
        ValueError: a model, images or labels of another kind or size.
    """
    arguments.vision_transformer(model)
    model_input.check_size("images", images, model, "b c h w")
    arguments.one_label_an_image(images, labels)
    arguments.label_range(labels, model.head.out_features)
    count = arguments.whole_number("count", count)
    names = model_input.class_names(about, model.head.out_features)
    return AblationExplorer(model, model_input.as_read("images", images, about)[:count], labels[:count], names)


class AblationExplorer(Explorer):
    """What each head is worth alone, and what the model gets right without those that are off."""

    name = "head_ablation"
    hint = "Click a head to switch it off or on; by keys: Tab to the picture, arrows, then Space or Enter."

    def __init__(self, model: VisionTransformer, images: Tensor, labels: Tensor, names: list[str]) -> None:
        self.model, self.labels = model, labels.cpu()
        with model_input.eval_mode(model) as device:
            self._images = images.to(device)
            self.alone = inside.head_ablation(model, self._images, labels.to(device)).cpu()
        self._with_every_head = self._right([])
        figure = drawing.new_figure(4.5)
        self._draw_heads(figure)
        self._draw_classes(figure, names)
        layers, heads = self.alone.shape
        by_layer = {f"layer {n} off": {(n, head) for head in range(heads)} for n in range(layers)}
        self._presets = {"as clicked": None, "all on": set(), **by_layer, "all off": set().union(*by_layer.values())}
        self._was: set = set()
        menu = ipywidgets.Dropdown(options=list(self._presets), value="all on", description="heads")
        places = [drawing.place(self._cells.axes)]
        picture = GridPicture(shape=(layers, heads), places=places, toggles=True)
        super().__init__(figure, dict(heads=menu), picture, [self._veil, self._off_signs, *self._bars])

    def _right(self, off: list[tuple[int, int]]) -> Tensor:
        """Return for every image whether the answer is right without these heads: 1 or 0."""
        silenced = inside.silence_heads(self.model, off)
        with model_input.eval_mode(silenced):
            return (silenced(self._images).argmax(dim=-1).cpu() == self.labels).float()

    def _draw_heads(self, figure) -> None:
        layers, heads = self.alone.shape
        axes = drawing.add_axes(figure, 0.75, 1.0, 3.0, 2.75, ticks=True)
        words = dict(title="right with one head off, in %", xlabel="head", ylabel="layer")
        self._cells = plots.show_matrix(axes, self.alone, **words, aspect="auto", alpha=0.75)
        axes.set(xticks=range(heads), yticks=range(layers))
        axes.tick_params(length=0)
        if self.alone.numel() <= MOST_WRITTEN:
            plots.write_numbers(self._cells, 100 * self.alone, ".1f")
        self._veil = axes.imshow(np.zeros((layers, heads, 4)), aspect="auto", interpolation="nearest")
        style = dict(marker=r"$\mathrm{off}$", markersize=17, linestyle="", color=plots.COLORS["wrong"])
        (self._off_signs,) = axes.plot([], **style)

    def _draw_classes(self, figure, names: list[str]) -> None:
        self._classes = self.labels.unique().tolist()[:MOST_CLASSES]
        axes = drawing.add_axes(figure, 5.4, 1.0, 2.75, 2.75, ticks=True)
        places, shares = range(len(self._classes)), self._by_class(self._with_every_head)
        axes.barh(places, shares, height=0.8, color=plots.FAINT)
        self._bars = axes.barh(places, shares, height=0.45, color=plots.COLORS["head"])
        names = [f"{names[index]} ({(self.labels == index).sum()})" for index in self._classes]
        axes.set(title="right in each class (images)", xlim=(0, 1), ylim=(len(places) - 0.4, -0.6))
        axes.set_yticks(places, names, size=9)
        axes.set_xticks([0, 0.5, 1], ["0 %", "50 %", "100 %"], size=9)
        axes.grid(axis="y", visible=False)
        axes.tick_params(length=0)

    def _by_class(self, right: Tensor) -> list[float]:
        return [right[self.labels == index].mean().item() for index in self._classes]

    def show(self) -> str:
        """Draw what is left without the heads that are off."""
        off = self._off()
        self.values = self._right(off)
        self._off_signs.set_data([head for _, head in off], [layer + 0.27 for layer, _ in off])
        veil = np.ones((*self.alone.shape, 4))
        veil[..., 3] = 0
        for layer, head in off:
            veil[layer, head, 3] = 0.6
        self._veil.set_data(veil)
        for bar, share in zip(self._bars, self._by_class(self.values), strict=True):
            bar.set_width(share)
        number = len(off)
        off_now = f"{number} of {self.alone.numel()} heads {'is' if number == 1 else 'are'}" if off else "No head is"
        return (
            f"{off_now} off: {percent(self.values.mean(), 1)} of {len(self.labels)} images are right; "
            f"with every head on, {percent(self._with_every_head.mean(), 1)}. Naming only the most frequent class: "
            f"{percent(self.labels.bincount().max() / len(self.labels))}."
        )

    def _off(self) -> list[tuple[int, int]]:
        """Return the heads that are off, after bringing the menu and the picture into step."""
        menu = self.controls["heads"]
        if set(self.picture.pressed) != self._was:
            menu.value = "as clicked"
        elif self._presets[menu.value] is not None:
            self.picture.pressed = sorted(self._presets[menu.value])
        self._was = set(self.picture.pressed)
        return sorted(self._was)
