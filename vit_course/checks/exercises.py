"""The lessons' small exercises: what each answer is compared with, so that no solution is printed next to its stub."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

import vit_course
import vit_course.checks as checks
from vit_course.checks.compare import formula
from vit_course.checks.learner import shown
from vit_course.checks.values import same_values
from vit_course.checks.verdict import Verdict
from vit_course.data import load_test_images


@dataclass(frozen=True)
class Exercise:
    """An oracle, which computes the answer by other means than the worked solution, and the inputs it is tried on.

    Attributes:
        oracle: a function of the same arguments as the reader's.
        inputs: each is one call; a tuple is taken as several arguments.
    """

    oracle: Callable
    inputs: Sequence


def images() -> torch.Tensor:
    """Return the six letters."""
    return load_test_images()


def attention_in_blocks() -> Exercise:
    """Return attention over the keys block by block: the last block may be smaller, and one may hold all keys."""

    def oracle(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, block_size: int) -> torch.Tensor:
        return F.scaled_dot_product_attention(query, key, value)

    generator = torch.Generator().manual_seed(0)
    inputs = []
    for b, heads, i, j, e, v, block_size in [(2, 3, 7, 7, 4, 4, 3), (1, 2, 5, 12, 9, 2, 4), (1, 1, 3, 4, 6, 6, 9)]:
        query = torch.randn(b, heads, i, e, generator=generator)
        key = torch.randn(b, heads, j, e, generator=generator)
        value = torch.randn(b, heads, j, v, generator=generator)
        inputs.append((query, key, value, block_size))
    return Exercise(oracle, inputs)


def embed_images() -> Exercise:
    """Return Equation 1 from four tensors; the oracle cuts the patches with ``unfold``."""

    def oracle(images, conv_weight, conv_bias, class_token, pos_embedding):
        patch_size = conv_weight.shape[-1]
        patches = F.unfold(images, patch_size, stride=patch_size).mT
        patch_tokens = patches @ conv_weight.flatten(1).T + conv_bias + pos_embedding[:, 1:]
        class_tokens = (class_token + pos_embedding[:, :1]).repeat(len(images), 1, 1)
        return torch.hstack([class_tokens, patch_tokens])

    inputs = []
    for b, c, h, w, p, d in [(2, 3, 12, 12, 4, 7), (1, 2, 4, 6, 2, 5)]:
        n = (h // p) * (w // p)
        inputs.append((formula(b, c, h, w), formula(d, c, p, p), formula(d), formula(1, 1, d), formula(1, n + 1, d)))
    return Exercise(oracle, inputs)


def mean_patch() -> Exercise:
    """Return the mean over the patch tokens, added up one by one; the first class tokens are full of 100s."""

    def oracle(tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack([sum(image[1:]) / (len(image) - 1) for image in tokens])

    marked = F.pad(torch.arange(24.0).reshape(2, 3, 4), (0, 0, 1, 0), value=100.0)
    return Exercise(oracle, [marked, torch.arange(1.0, 31.0).reshape(1, 5, 6) ** 2])


def count_parameters() -> Exercise:
    """Return the number of parameters, counted on models that are built without values."""
    names = ("image_size", "patch_size", "num_layers", "num_heads", "hidden_dim", "mlp_dim", "num_classes")

    def oracle(*sizes: int) -> int:
        with torch.device("meta"):
            model = vit_course.VisionTransformer(**dict(zip(names, sizes, strict=True)))
        return sum(parameter.numel() for parameter in model.parameters())

    return Exercise(oracle, [(32, 8, 2, 3, 24, 40, 10), (32, 16, 3, 2, 8, 20, 5), (224, 16, 12, 3, 192, 768, 1000)])


def landscape(height: int, width: int) -> torch.Tensor:
    """Return a colorful photo ``(h, w, 3)`` without any symmetry."""
    values = torch.arange(height * width * 3, dtype=torch.float32)
    return (0.5 + 0.5 * torch.sin(0.37 * values + 1e-5 * values**2)).reshape(height, width, 3)


def photo_as_input(photo: torch.Tensor) -> torch.Tensor:
    """Return the middle square of a photo, inverted, gray and 28 x 28 pixels large."""
    square = min(photo.shape[:2])
    for axis in (0, 1):
        photo = photo.narrow(axis, (photo.shape[axis] - square) // 2, square)
    red, green, blue = (1 - photo).unbind(dim=-1)
    return F.adaptive_avg_pool2d(((red + green + blue) / 3).reshape(1, 1, square, square), 28)


def changed_tokens() -> Exercise:
    """Return how many tokens of each image differ, counted one by one; some differ in one feature, or by too little."""

    def oracle(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        counts = torch.zeros(len(before), dtype=torch.int64)
        for image, token in itertools.product(*map(range, before.shape[:2])):
            counts[image] += not torch.allclose(before[image, token], after[image, token], rtol=0, atol=1e-4)
        return counts

    tokens = formula(3, 5, 4)
    changes = torch.zeros(3, 5, 4)
    changes[0, 2, 1], changes[0, 4], changes[1], changes[2, 0] = -3e-4, 0.5, 0.01, 1e-6
    return Exercise(oracle, [(tokens, tokens + changes), (tokens[:2], tokens[:2])])


def count_tokens() -> Exercise:
    """Return the tokens of the patches that a convolution cuts from a square image; the oracle runs the convolution."""

    def oracle(image_size: int, num_patch_row: int) -> int:
        patch_size = image_size // num_patch_row
        image = torch.zeros(1, 1, image_size, image_size)
        return F.conv2d(image, torch.ones(1, 1, patch_size, patch_size), stride=patch_size).numel() + 1

    return Exercise(oracle, [(32, 2), (32, 7), (32, 5), (32, 10), (224, 16), (100, 9)])


EXERCISES: dict[str, Callable[[], Exercise]] = {
    "attention_in_blocks": attention_in_blocks,
    "negative": lambda: Exercise(lambda images: images.mul(-1).add(1), [images()]),
    "linear_weight": lambda: Exercise(
        lambda conv_weight: conv_weight.permute(0, 2, 3, 1).flatten(1),
        [formula(7, 3, 4, 4), formula(5, 2, 2, 2)],
    ),
    "prepend_class_token": lambda: Exercise(
        lambda class_token, tokens: torch.stack([torch.vstack([class_token[0], image]) for image in tokens]),
        [(formula(1, 1, 8), formula(6, 9, 8)), (formula(1, 1, 5), formula(2, 4, 5))],
    ),
    "embed_images": embed_images,
    "changed_tokens": changed_tokens,
    "count_tokens": count_tokens,
    "reorder_qkv": lambda: Exercise(
        lambda weight, num_heads: torch.cat([weight[0::3], weight[1::3], weight[2::3]]),
        [(formula(24, 8), 4), (formula(18, 6), 2), (formula(36), 2)],
    ),
    "even_then_odd": lambda: Exercise(
        lambda image: torch.cat([image[..., 0::2], image[..., 1::2]], dim=-1),
        [images()[0], images()[1, :, :, :50]],
    ),
    "center_channels": lambda: Exercise(
        lambda images: images - images.mean((0, 2, 3), keepdim=True),
        [images(), images()[2:, :2]],
    ),
    "patch_similarity": lambda: Exercise(
        lambda patches: F.cosine_similarity(patches[:, :, None], patches[:, None], dim=-1),
        [vit_course.patchify(images(), 16), vit_course.patchify(images()[:1], 32)],
    ),
    "gelu": lambda: Exercise(F.gelu, [torch.tensor([-1.0, 0.0, 1.0, 2.0]), torch.linspace(-4, 4, 24).view(2, 3, 4)]),
    "mean_patch": mean_patch,
    "count_parameters": count_parameters,
    "mean_cross_entropy": lambda: Exercise(
        F.cross_entropy,
        [
            (torch.tensor([[2.0, 1.0, -1.0], [0.5, -0.5, 3.0]]), torch.tensor([0, 1])),
            (3 * torch.randn(8, 10, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3),
            (torch.tensor([[100.0, 1.0, -1.0]]), torch.tensor([1])),
        ],
    ),
    "average_gradient": lambda: Exercise(
        lambda gradients, sizes: torch.repeat_interleave(gradients, sizes, dim=0).mean(dim=0),
        [
            (torch.arange(12.0).reshape(4, 3) ** 2, torch.tensor([5, 5, 5, 5])),
            (torch.arange(12.0).reshape(4, 3) ** 2, torch.tensor([10, 10, 5, 1])),
            (torch.tensor([[1.0, -2.0], [4.0, 0.5]]), torch.tensor([3, 1])),
        ],
    ),
    "errors_apart": lambda: Exercise(
        lambda first, second, images: (
            (first - second) * images**0.5 * (first - first.square() + second - second.square()).rsqrt()
        ),
        [
            (torch.tensor([0.9137, 0.6]), torch.tensor([0.8892, 0.7]), 10_000),
            (torch.tensor([0.5]), torch.tensor([0.4]), 360),
        ],
    ),
    "batch_of_step": lambda: Exercise(  # all epochs in a row, cut into batches
        lambda step, images, batch_size, seed: torch.cat(
            [
                torch.randperm(images, generator=torch.Generator().manual_seed(seed + epoch))[
                    : images - images % batch_size
                ]
                for epoch in range(step + 1)
            ]
        ).split(batch_size)[step],
        [(0, 10, 4, 0), (9, 10, 4, 3), (7, 12, 4, 1)],
    ),
    "removal_and_control": lambda: Exercise(
        lambda rolled, black, chance: torch.stack([rolled, torch.where(black, chance - 1, chance)]),
        [
            (formula(2, 9) / 2 + 0.5, formula(2, 9, start=40) < 0, formula(2, 9, start=80) / 2 + 0.5),
            (formula(3, 49) / 2 + 0.5, formula(3, 49, start=40) < 0, formula(3, 49, start=80) / 2 + 0.5),
        ],
    ),
    "prepare_photo": lambda: Exercise(photo_as_input, [landscape(56, 90), landscape(91, 60), landscape(30, 30)]),
}


def exercise(function: Callable) -> Verdict:
    """Check the answer to an exercise of a lesson; the function's name says which exercise it is.

    In a notebook a failure is shown and not raised, so that the cells after it can run.

    Raises:
        ValueError: no exercise has this name.
        CheckFailed: outside of notebooks, when the answer is wrong.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if name in EXERCISES:
        found = EXERCISES[name]()
        return shown(lambda: same_values(function, found.oracle, *found.inputs))
    check = getattr(checks, name, None)
    if name.startswith("_") or not callable(check):
        known = ", ".join(sorted(EXERCISES))
        raise ValueError(
            f"exercise needs a function under the name that the lesson gives it; got {name!r}, not {known}"
        )
    return shown(lambda: check(function))
