"""Type an einops pattern and see the picture that comes out, or einops' own message."""

import re
import warnings

import einops as library
import torch
from jaxtyping import Float
from torch import Tensor
from traitlets import Enum, Unicode

from vit_course import arguments
from vit_course.explore import model_input
from vit_course.explore.figure import Explorer, GridExplorer, number, packed

OPERATIONS = ("rearrange", "reduce", "repeat")
REDUCTIONS = ("mean", "max", "min", "sum")
MOST_VALUES = 4_000_000
PARTS = 6  # rows and columns of parts that can be marked


def einops(
    image: Float[Tensor, "c h w"] | Float[Tensor, "b c h w"],
    pattern: str | None = None,
    *,
    operation: str = "rearrange",
    reduction: str = "mean",
    **sizes: int,
) -> Explorer:
    """Type a pattern and see what einops makes of the image, or its message, at every letter.

    Attributes: ``operation``, ``pattern``, ``sizes`` (typed as ``p1=16, p2=16``), ``reduction`` (of ``reduce``), and
    ``selected``, a part of the image, of 6 × 6, that is marked to be found again in the result; None for none.
    ``values`` is the result, without the mark, or None where there is none; ``message`` is einops' message.
    A result is drawn if it has two axes, or three with 1 or 3 channels last or first.

    Args:
        image: ``(c, h, w)`` or a batch ``(b, c, h, w)`` in [0, 1], with 1 or 3 channels.
        pattern: to begin with.
        operation: ``"rearrange"``, ``"reduce"`` or ``"repeat"``.
        reduction: ``"mean"``, ``"max"``, ``"min"`` or ``"sum"``.
        **sizes: of axes, as einops takes them.

    Raises:
        ValueError: no such image, operation or reduction. A wrong pattern raises nothing: the explorer shows why.
    """
    batch = isinstance(image, Tensor) and image.ndim == 4
    shape = arguments.float_tensor("image", image, "b c h w" if batch else "c h w").shape
    if shape[-3] not in (1, 3):
        raise ValueError(f"image must have 1 or 3 channels, (c, h, w) or (b, c, h, w); got shape {tuple(shape)}")
    model_input.check_range("image", image)
    arguments.one_of("operation", operation, OPERATIONS)
    arguments.one_of("reduction", reduction, REDUCTIONS)
    pattern = pattern or ("b c h w -> c h (b w)" if batch else "c h w -> h w c")
    written = ", ".join(f"{name}={size}" for name, size in sizes.items())
    state = dict(operation=operation, pattern=pattern, sizes=written, reduction=reduction, selected=None)
    data = {"image": packed(image), "most_values": MOST_VALUES}
    return PatternExplorer(data, state, image=image.detach().cpu())


class PatternExplorer(GridExplorer, kind="einops"):
    """The image and what the pattern makes of it."""

    operation = Enum(OPERATIONS).tag(sync=True)
    pattern = Unicode().tag(sync=True)
    sizes = Unicode().tag(sync=True)
    reduction = Enum(REDUCTIONS).tag(sync=True)

    def grid(self) -> tuple[int, int]:
        """Return the rows and columns of parts."""
        return tuple(min(PARTS, side) for side in self.image.shape[-2:])

    @property
    def message(self) -> str | None:
        """What einops says about a wrong pattern."""
        return self._apply()[1]

    def compute(self) -> tuple[Tensor | None, str]:
        """Return the result and how it is read, or None and why there is none."""
        values, message = self._apply()
        call = f'{self.operation}(image, "{self.pattern}")'
        if values is None:
            return None, self.words["stops"].format(call=call, message=in_order(message.splitlines()[-1].strip()))
        shape, reading = tuple(values.shape), reading_of(tuple(values.shape))
        if reading is None:
            return values, self.words["shape"].format(call=call, shape=shape)
        if values.max() > 1:
            reading = self.words["range"].format(reading=reading, most=number(values.max(), 2))
        return values, self.words["picture"].format(call=call, shape=shape, reading=reading)

    def _apply(self) -> tuple[Tensor | None, str | None]:
        """Return the result and None, or None and the message."""
        options = (self.reduction,) if self.operation == "reduce" else ()
        try:
            sizes = self._sizes()
            if self.pattern.count("->") != 1:  # einops' own message is only that there is nothing to unpack
                raise ValueError(self.words["arrow"])
            with warnings.catch_warnings(action="ignore"):
                apply = getattr(library, self.operation)
                # on the meta device a tensor has a shape and no memory
                shape = tuple(apply(self.image.to("meta"), self.pattern, *options, **sizes).shape)
                count = torch.Size(shape).numel()
                if count > MOST_VALUES:
                    facts = dict(shape=shape, count=f"{count:,}", most=f"{MOST_VALUES:,}")
                    raise ValueError(self.words["large"].format(**facts))
                return apply(self.image, self.pattern, *options, **sizes), None
        except Exception as error:  # whatever is typed, the figure shows what is wrong with it
            return None, str(error).strip()

    def _sizes(self) -> dict[str, int]:
        """Read ``p1=16, p2=16``."""
        sizes = {}
        for part in filter(None, map(str.strip, self.sizes.split(","))):
            found = re.fullmatch(r"(\w+)\s*=\s*([1-9]\d{0,8})", part)
            if not found:
                raise ValueError(self.words["sizes"].format(written=part))
            sizes[found[1]] = int(found[2])
        return sizes


def in_order(message: str) -> str:
    """Sort the names of a set, whose order in einops' message differs from run to run."""
    return re.sub(r"\{(.*)\}$", lambda found: f"{{{', '.join(sorted(found[1].split(', ')))}}}", message)


def reading_of(shape: tuple[int, ...]) -> str | None:
    """Return how a result of this shape is read as a picture, if it can be."""
    if len(shape) == 2:
        return "h w"
    if len(shape) != 3 or not {shape[0], shape[2]} & {1, 3}:
        return None
    return "h w c" if shape[2] in (1, 3) else "c h w"
