"""The lessons' small exercises: what each answer is compared with, so that no solution is printed next to its stub."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

import vit_course
import vit_course.checks as checks
from vit_course.checks.compare import formula, set_parameters
from vit_course.checks.learner import shown
from vit_course.checks.values import same_values
from vit_course.checks.verdict import Verdict
from vit_course.data import load_test_images

LETTERS = load_test_images()


def _embed_images(
    images: Tensor, conv_weight: Tensor, conv_bias: Tensor, class_token: Tensor, pos_embedding: Tensor
) -> Tensor:
    patches = F.unfold(images, conv_weight.shape[-1], stride=conv_weight.shape[-1]).mT
    patch_tokens = patches @ conv_weight.flatten(1).T + conv_bias + pos_embedding[:, 1:]
    class_tokens = (class_token + pos_embedding[:, :1]).repeat(len(images), 1, 1)
    return torch.hstack([class_tokens, patch_tokens])


def _to_embed(b: int, c: int, h: int, w: int, p: int, d: int) -> tuple[Tensor, ...]:
    n = (h // p) * (w // p)
    return formula(b, c, h, w), formula(d, c, p, p), formula(d), formula(1, 1, d), formula(1, n + 1, d)


def _in_blocks(b: int, heads: int, i: int, j: int, e: int, v: int, block_size: int) -> tuple[Tensor | int, ...]:
    key, value = 2 * formula(b, heads, j, e, start=307), formula(b, heads, j, v, start=611)
    return 2 * formula(b, heads, i, e), key, value, block_size


def _count_parameters(*sizes: int) -> int:
    names = ("image_size", "patch_size", "num_layers", "num_heads", "hidden_dim", "mlp_dim", "num_classes")
    with torch.device("meta"):
        model = vit_course.VisionTransformer(**dict(zip(names, sizes, strict=True)))
    return sum(parameter.numel() for parameter in model.parameters())


def _count_tokens(image_size: int, num_patch_row: int) -> int:
    p = image_size // num_patch_row
    return F.conv2d(torch.zeros(1, 1, image_size, image_size), torch.ones(1, 1, p, p), stride=p).numel() + 1


def _batch_of_step(step: int, images: int, batch_size: int, seed: int) -> Tensor:
    epochs = [torch.randperm(images, generator=torch.Generator().manual_seed(seed + k)) for k in range(step + 1)]
    return torch.cat([epoch[: images - images % batch_size] for epoch in epochs]).split(batch_size)[step]


def _landscape(height: int, width: int) -> Tensor:
    values = torch.arange(height * width * 3, dtype=torch.float32)
    return (0.5 + 0.5 * torch.sin(0.37 * values + 1e-5 * values**2)).reshape(height, width, 3)


def _photo_as_input(photo: Tensor) -> Tensor:
    square = min(photo.shape[:2])
    for axis in (0, 1):
        photo = photo.narrow(axis, (photo.shape[axis] - square) // 2, square)
    red, green, blue = (1 - photo).unbind(dim=-1)
    return F.adaptive_avg_pool2d(((red + green + blue) / 3).reshape(1, 1, square, square), 28)


def _changed_tokens(before: Tensor, after: Tensor) -> Tensor:
    tokens = [
        [torch.allclose(*pair, rtol=0, atol=1e-4) for pair in zip(*images, strict=True)]
        for images in zip(before, after, strict=True)
    ]
    return torch.tensor(tokens).logical_not().sum(dim=1)


CHANGES = torch.zeros(3, 5, 4)  # some tokens differ in one feature, one by too little
CHANGES[0, 2, 1], CHANGES[0, 4], CHANGES[1], CHANGES[2, 0] = -3e-4, 0.5, 0.01, 1e-6

with torch.random.fork_rng(devices=[]):  # initial values are drawn before they are set
    BLOCK = set_parameters(vit_course.EncoderBlock(hidden_dim=32, num_heads=4, mlp_dim=128)).double()

EXERCISES: dict[str, tuple[Callable, Sequence]] = {  # the answer by other means, and inputs, a tuple for each call
    "attention_in_blocks": (  # the last block may be smaller, and one may hold all keys
        lambda query, key, value, block_size: F.scaled_dot_product_attention(query, key, value),
        [_in_blocks(2, 3, 7, 7, 4, 4, 3), _in_blocks(1, 2, 5, 12, 9, 2, 4), _in_blocks(1, 1, 3, 4, 6, 6, 9)],
    ),
    "negative": (lambda images: images.mul(-1).add(1), [LETTERS]),
    "linear_weight": (
        lambda conv_weight: conv_weight.permute(0, 2, 3, 1).flatten(1),
        [formula(7, 3, 4, 4), formula(5, 2, 2, 2)],
    ),
    "prepend_class_token": (
        lambda class_token, tokens: torch.stack([torch.vstack([class_token[0], image]) for image in tokens]),
        [(formula(1, 1, 8), formula(6, 9, 8)), (formula(1, 1, 5), formula(2, 4, 5))],
    ),
    "embed_images": (_embed_images, [_to_embed(2, 3, 12, 12, 4, 7), _to_embed(1, 2, 4, 6, 2, 5)]),
    "changed_tokens": (
        _changed_tokens,
        [(formula(3, 5, 4), formula(3, 5, 4) + CHANGES), (formula(2, 5, 4), formula(2, 5, 4))],
    ),
    "copied_block": (  # one class's weights in another
        lambda block, x: block(x),
        [(BLOCK, formula(2, 5, 32).double())],
    ),
    "count_tokens": (_count_tokens, [(32, 2), (32, 7), (32, 5), (32, 10), (224, 16), (100, 9)]),
    "reorder_qkv": (
        lambda weight, num_heads: torch.cat([weight[0::3], weight[1::3], weight[2::3]]),
        [(formula(24, 8), 4), (formula(18, 6), 2), (formula(36), 2)],
    ),
    "even_then_odd": (
        lambda image: torch.cat([image[..., 0::2], image[..., 1::2]], dim=-1),
        [LETTERS[0], LETTERS[1, :, :, :50]],
    ),
    "center_channels": (lambda images: images - images.mean((0, 2, 3), keepdim=True), [LETTERS, LETTERS[2:, :2]]),
    "patch_similarity": (
        lambda patches: F.cosine_similarity(patches[:, :, None], patches[:, None], dim=-1),
        [vit_course.patchify(LETTERS, 16), vit_course.patchify(LETTERS[:1], 32)],
    ),
    "gelu": (F.gelu, [torch.tensor([-1.0, 0.0, 1.0, 2.0]), torch.linspace(-4, 4, 24).view(2, 3, 4)]),
    "mean_patch": (  # the first class tokens are full of 100s
        lambda tokens: torch.stack([sum(image[1:]) / (len(image) - 1) for image in tokens]),
        [
            F.pad(torch.arange(24.0).reshape(2, 3, 4), (0, 0, 1, 0), value=100.0),
            torch.arange(1.0, 31.0).reshape(1, 5, 6) ** 2,
        ],
    ),
    "count_parameters": (
        _count_parameters,
        [(32, 8, 2, 3, 24, 40, 10), (32, 16, 3, 2, 8, 20, 5), (224, 16, 12, 3, 192, 768, 1000)],
    ),
    "mean_cross_entropy": (
        F.cross_entropy,
        [
            (torch.tensor([[2.0, 1.0, -1.0], [0.5, -0.5, 3.0]]), torch.tensor([0, 1])),
            (3 * formula(8, 10), torch.arange(8) % 3),
            (torch.tensor([[100.0, 1.0, -1.0]]), torch.tensor([1])),
        ],
    ),
    "average_gradient": (
        lambda gradients, sizes: torch.repeat_interleave(gradients, sizes, dim=0).mean(dim=0),
        [
            (torch.arange(12.0).reshape(4, 3) ** 2, torch.tensor([5, 5, 5, 5])),
            (torch.arange(12.0).reshape(4, 3) ** 2, torch.tensor([10, 10, 5, 1])),
            (torch.tensor([[1.0, -2.0], [4.0, 0.5]]), torch.tensor([3, 1])),
        ],
    ),
    "errors_apart": (
        lambda first, second, images: (
            (first - second) * images**0.5 * (first - first.square() + second - second.square()).rsqrt()
        ),
        [
            (torch.tensor([0.9137, 0.6]), torch.tensor([0.8892, 0.7]), 10_000),
            (torch.tensor([0.5]), torch.tensor([0.4]), 360),
        ],
    ),
    "batch_of_step": (_batch_of_step, [(0, 10, 4, 0), (9, 10, 4, 3), (7, 12, 4, 1)]),
    "removal_and_control": (
        lambda rolled, black, chance: torch.stack([rolled, torch.where(black, chance - 1, chance)]),
        [
            (formula(2, 9) / 2 + 0.5, formula(2, 9, start=40) < 0, formula(2, 9, start=80) / 2 + 0.5),
            (formula(3, 49) / 2 + 0.5, formula(3, 49, start=40) < 0, formula(3, 49, start=80) / 2 + 0.5),
        ],
    ),
    "prepare_photo": (_photo_as_input, [_landscape(56, 90), _landscape(91, 60), _landscape(30, 30)]),
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
        oracle, inputs = EXERCISES[name]
        return shown(lambda: same_values(function, oracle, *inputs))
    check = getattr(checks, name, None)
    if name.startswith("_") or not callable(check):
        known = ", ".join(sorted(EXERCISES))
        raise ValueError(
            f"exercise needs a function under the name that the lesson gives it; got {name!r}, not {known}"
        )
    return shown(lambda: check(function))
