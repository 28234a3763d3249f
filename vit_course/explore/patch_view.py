"""Click a patch of an image and see its vector."""

from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from traitlets import Enum, Int, Tuple, validate

from vit_course import arguments, patchify
from vit_course.explore import model_input
from vit_course.explore.figure import Explorer, GridExplorer, packed

MOST_PATCHES = 1024  # finer grids cannot be clicked
ORDERS = ("(c p1 p2)", "(p1 p2 c)")


def patches(image: Float[Tensor, "c h w"], *, patch_size: int | None = None) -> Explorer:
    """Click a patch of the image and see its vector: for each patch size that fits, in both orders of flattening.

    Attributes: ``patch_size``, ``order`` (``"(c p1 p2)"``, the order of :func:`vit_course.patchify`, or
    ``"(p1 p2 c)"``), and ``selected``, the patch ``(row, column)``. ``values`` is its vector, ``(c·p·p,)``.

    Args:
        image: ``(c, h, w)`` in [0, 1], with 1 or 3 channels.
        patch_size: to begin with, in pixels; by default the one with a grid nearest to 6 rows.

    Raises:
        ValueError: no such image, or a patch size that does not divide its sides or leaves more than 1,024 patches.
    """
    c, height, width = arguments.float_tensor("image", image, "c h w").shape
    if c not in (1, 3):
        raise ValueError(f"image must have 1 or 3 channels in front, (c, h, w); got shape {tuple(image.shape)}")
    model_input.check_range("image", image)
    common = [p for p in range(1, min(height, width) + 1) if height % p == width % p == 0]
    sizes = [p for p in common if height * width // p**2 <= MOST_PATCHES]
    if not sizes:
        raise ValueError(f"image must have sides with a common patch size; got {height} x {width}")
    if patch_size is None:
        patch_size = min(sizes, key=lambda p: abs(height // p - 6))
    arguments.one_of("patch_size", patch_size, sizes)
    state = dict(patch_size=patch_size, order=ORDERS[0], selected=(height // patch_size // 2, width // patch_size // 2))
    return PatchExplorer({"image": packed(image), "sizes": sizes}, state, image=image.detach().cpu(), sizes=sizes)


class PatchExplorer(GridExplorer, kind="patches"):
    """The image cut into patches, one of them enlarged, its channels, and its vector."""

    patch_size = Int().tag(sync=True)
    order = Enum(ORDERS).tag(sync=True)
    selected = Tuple(Int(), Int()).tag(sync=True)  # one always is

    def grid(self) -> tuple[int, int]:
        """Return the rows and columns of patches."""
        return tuple(side // self.patch_size for side in self.image.shape[1:])

    @validate("patch_size")
    def _fits(self, proposal: dict) -> int:
        arguments.one_of("patch_size", proposal["value"], self.sizes)
        return proposal["value"]

    def compute(self) -> tuple[Tensor, str]:
        """Return the vector of the selected patch and its description."""
        (rows, columns), p, c = self.grid(), self.patch_size, len(self.image)
        row, column = (min(at, size - 1) for at, size in zip(self.selected, self.grid(), strict=True))
        flat = patchify(self.image[None], p)[0, row * columns + column]
        values = rearrange(flat, f"(c p1 p2) -> {self.order}", c=c, p1=p)
        order = self.words["gray" if c == 1 else self.order].format(area=f"{p * p:,}")
        facts = dict(query=(row, column), number=row * columns + column, last=rows * columns - 1)
        return values, self.words["patch"].format(**facts, c=c, p=p, length=f"{len(flat):,}", order=order)
