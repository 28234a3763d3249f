"""Checks of lesson 02's parts, and of the cutting and putting back that ends lesson 01."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

import vit_course
from vit_course.checks.dropout import RATE, drop, in_train_mode, slips, through, verify_levels, verify_modes
from vit_course.checks.evidence import (
    Case,
    CheckFailed,
    NotWritten,
    Suspect,
    Verdict,
    build,
    check,
    describe,
    formula,
    same,
    set_parameters,
    verify_function,
    verify_module,
)

# --- cutting ---------------------------------------------------------------------------------------------------------

IMAGES = [
    Case("square images", (formula(2, 3, 6, 6), 2)),
    Case("rectangular images", (formula(2, 3, 6, 9), 3)),
    Case("one channel", (formula(2, 1, 8, 4), 4)),
    Case("a batch of one", (formula(1, 3, 4, 8), 2)),
    Case("patches of one pixel", (formula(2, 3, 2, 3), 1)),
]

# Wrong ways to cut, from (images, patch_size): the same in a function and in a layer.
CUTS: list[tuple[str, Callable[[Tensor, int], Tensor]]] = [
    (
        "images are reshaped, not cut: a patch holds a run of pixels from whole rows instead of a square. Split the "
        "height into (gh p1) and the width into (gw p2) first.",
        lambda images, p: images.reshape(len(images), -1, images.shape[1] * p * p),
    ),
    (
        "each patch is flattened as (p1 p2 c); the course, like Conv2d, flattens it as (c p1 p2).",
        lambda images, p: rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (p1 p2 c)", p1=p, p2=p),
    ),
    (
        "the grid is read column by column. Patches go row by row from the top left: (gh gw), not (gw gh).",
        lambda images, p: rearrange(images, "b c (gh p1) (gw p2) -> b (gw gh) (c p1 p2)", p1=p, p2=p),
    ),
    (
        "a patch is made of pixels from all over the image: in (p1 gh) neighbours go to different patches. The big "
        "unit comes first: (gh p1) (gw p2).",
        lambda images, p: rearrange(images, "b c (p1 gh) (p2 gw) -> b (gh gw) (c p1 p2)", p1=p, p2=p),
    ),
    (
        "rows and columns are exchanged inside each patch: (c p2 p1) instead of (c p1 p2).",
        lambda images, p: rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) (c p2 p1)", p1=p, p2=p),
    ),
    (
        "the squares are cut, but their channels are not brought together: the axes are (b c gh gw p1 p2) when you "
        "reshape. Move c behind gw before that.",
        lambda images, p: rearrange(images, "b c (gh p1) (gw p2) -> b c gh gw p1 p2", p1=p, p2=p).reshape(
            len(images), -1, images.shape[1] * p * p
        ),
    ),
    (
        "the patches are the last axis, as F.unfold returns them, (b, c·p·p, n), and are reshaped to (b, n, c·p·p). "
        "Use transpose(1, 2): a reshape moves no value.",
        lambda images, p: F.unfold(images, p, stride=p).reshape(len(images), -1, images.shape[1] * p * p),
    ),
]

PATCHIFY_MISTAKES = [Suspect(sentence, cut) for sentence, cut in CUTS] + [
    Suspect(
        "the patches are the last axis: (b, c·p·p, n). Finish with transpose(1, 2), to get (b, n, c·p·p).",
        lambda images, p: F.unfold(images, p, stride=p),
    ),
    Suspect(
        "the grid still has two axes, (b, gh, gw, c·p·p). Join them, as (gh gw): the patches become one list.",
        lambda images, p: rearrange(images, "b c (gh p1) (gw p2) -> b gh gw (c p1 p2)", p1=p, p2=p),
    ),
    Suspect(
        "the patches are not flattened. Join the last three axes, as (c p1 p2): each patch becomes one row.",
        lambda images, p: rearrange(images, "b c (gh p1) (gw p2) -> b (gh gw) c p1 p2", p1=p, p2=p),
    ),
    Suspect(
        "each channel gives patches of its own, (b, c·n, p·p). A patch holds all channels: c belongs to (c p1 p2).",
        lambda images, p: rearrange(images, "b c (gh p1) (gw p2) -> b (c gh gw) (p1 p2)", p1=p, p2=p),
    ),
    Suspect(
        "the patches of all images are in one list, (b·n, c·p·p). Keep b as an axis of its own.",
        lambda images, p: rearrange(images, "b c (gh p1) (gw p2) -> (b gh gw) (c p1 p2)", p1=p, p2=p),
    ),
    Suspect(
        "only the first image is cut. All images of the batch are wanted, (b, n, c·p·p).",
        lambda images, p: vit_course.patchify(images, p)[0],
    ),
]


def patchify(function: Callable) -> Verdict:
    """Check a ``patchify(images, patch_size)``.

    Verified: the values for square and rectangular images, one and three channels, a batch of one and patches of one
    pixel; the gradient; that the images are left as they are.

    Args:
        function: the learner's function.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the values, the gradient or the treatment of the input are wrong.
    """

    def verify() -> str:
        verify_function("patchify", function, vit_course.patchify, IMAGES, PATCHIFY_MISTAKES)
        return "right for square and rectangular images, 1 and 3 channels, any batch; gradients flow."

    return check("patchify", function, verify)


# --- putting back ----------------------------------------------------------------------------------------------------

PATCHES = [
    Case("square images", (formula(2, 9, 12),), dict(patch_size=2, image_size=6)),
    Case("rectangular images, image_size=(6, 9)", (formula(2, 6, 27),), dict(patch_size=3, image_size=(6, 9))),
    Case("one channel", (formula(2, 2, 16),), dict(patch_size=4, image_size=(8, 4), channels=1)),
    Case("a batch of one", (formula(1, 8, 20),), dict(patch_size=2, image_size=(4, 8), channels=5)),
    Case("patches of one pixel", (formula(2, 6, 3),), dict(patch_size=1, image_size=(2, 3))),
]


def sides(image_size: int | tuple[int, int]) -> tuple[int, int]:
    """Return height and width."""
    return image_size if isinstance(image_size, tuple) else (image_size, image_size)


def put_back(pattern: str, *, exchanged: bool = False) -> Callable:
    """Return the putting back by a pattern, in which ``exchanged`` takes the width for the height."""

    def result(patches: Tensor, p: int, image_size: int | tuple[int, int], channels: int = 3) -> Tensor:
        h, w = reversed(sides(image_size)) if exchanged else sides(image_size)
        return rearrange(patches, pattern, gh=h // p, gw=w // p, p1=p, p2=p, c=channels)

    return result


UNPATCHIFY_MISTAKES = [
    Suspect(
        "the patches are reshaped, not put back: each one is spread over whole rows instead of a square. Split them "
        "into (gh gw) and (c p1 p2), then bring gh to p1 and gw to p2.",
        lambda patches, p, image_size, channels=3: patches.reshape(len(patches), channels, *sides(image_size)),
    ),
    Suspect(
        "each patch is read as (p1 p2 c); the course, like Conv2d, flattens it as (c p1 p2).",
        put_back("b (gh gw) (p1 p2 c) -> b c (gh p1) (gw p2)"),
    ),
    Suspect(
        "image_size=(height, width) is read as (width, height): the grid has height // patch_size rows.",
        put_back("b (gh gw) (c p1 p2) -> b c (gh p1) (gw p2)", exchanged=True),
    ),
    Suspect(
        "the patches are laid down column by column. They come row by row from the top left: (gh gw), not (gw gh).",
        put_back("b (gw gh) (c p1 p2) -> b c (gh p1) (gw p2)"),
    ),
    Suspect(
        "the pixels of a patch are spread all over the image: (p1 gh) instead of (gh p1). The big unit comes first.",
        put_back("b (gh gw) (c p1 p2) -> b c (p1 gh) (p2 gw)"),
    ),
    Suspect(
        "rows and columns are exchanged inside each patch: it is read as (c p2 p1) instead of (c p1 p2).",
        put_back("b (gh gw) (c p2 p1) -> b c (gh p1) (gw p2)"),
    ),
    Suspect(
        "the axes gh and gw stand beside each other when you reshape. Each goes to its pixels: (gh p1) (gw p2).",
        lambda patches, p, image_size, channels=3: put_back("b (gh gw) (c p1 p2) -> b c gh gw p1 p2")(
            patches, p, image_size, channels
        ).reshape(len(patches), channels, *sides(image_size)),
    ),
    Suspect(
        "the channels come last, (b, h, w, c). The course keeps them in front: (b, c, h, w).",
        put_back("b (gh gw) (c p1 p2) -> b (gh p1) (gw p2) c"),
    ),
    Suspect(
        "F.fold wants the patches as its last axis, (b, c·p·p, n), and they were reshaped to that. Use "
        "transpose(1, 2): a reshape moves no value.",
        lambda patches, p, image_size, channels=3: F.fold(
            patches.reshape(len(patches), patches.shape[2], -1), sides(image_size), p, stride=p
        ),
    ),
]


def unpatchify(function: Callable) -> Verdict:
    """Check an ``unpatchify(patches, *, patch_size, image_size, channels=3)``.

    Verified: the values for square images (``image_size`` a number) and rectangular ones (``image_size`` a pair), one,
    three and five channels, a batch of one and patches of one pixel; the gradient; that the patches are left as they
    are.

    Args:
        function: the learner's function.

    Returns:
        One line that says what was verified, or that the function is not written yet.

    Raises:
        CheckFailed: the arguments, the values, the gradient or the treatment of the input are wrong.
    """

    def verify() -> str:
        verify_function("unpatchify", function, vit_course.unpatchify, PATCHES, UNPATCHIFY_MISTAKES)
        return "puts patches back for square and rectangular images, 1, 3 and 5 channels, any batch; gradients flow."

    return check("unpatchify", function, verify)


# --- projecting ------------------------------------------------------------------------------------------------------

TO_EMBED = [
    Case("square images", (formula(2, 3, 6, 6),), options=dict(image_size=6, patch_size=2, hidden_dim=8)),
    Case(
        "rectangular images, image_size=(6, 9)",
        (formula(2, 3, 6, 9),),
        options=dict(image_size=(6, 9), patch_size=3, hidden_dim=5),
    ),
    Case(
        "one channel",
        (formula(3, 1, 8, 4),),
        options=dict(image_size=(8, 4), patch_size=2, hidden_dim=7, in_channels=1),
    ),
    Case("a batch of one", (formula(1, 3, 4, 8),), options=dict(image_size=(4, 8), patch_size=4, hidden_dim=6)),
]
MANY = dict(image_size=16, patch_size=2, hidden_dim=64)  # with eight images: tens of thousands of values


def in_tokens(cut: Callable) -> Callable:
    """Return what a ``PatchEmbedding`` gives that cuts in another way."""
    return lambda module, images: module.projection(cut(images, module.patch_size))


def map_reshaped(module: vit_course.PatchEmbedding, images: Tensor) -> Tensor:
    """Return what comes of reshaping the convolution's map ``(b, d, gh, gw)`` to the tokens' shape."""
    tokens = module(images)
    return tokens.transpose(1, 2).reshape(tokens.shape)


def normalised(x: Tensor, eps: float) -> Tensor:
    """Return a LayerNorm over the last axis, without weights."""
    return F.layer_norm(x, x.shape[-1:], eps=eps)


EPS = (1e-5, 1e-6)  # PyTorch's and the course's: they differ by more than rounding
ACTIVATION = "an activation follows the projection. Eq. 1 has none: a token is the plain linear map of its patch."
NORMALISED = "the tokens are normalised. Eq. 1 has no LayerNorm: the encoder's blocks have their own."

TOKEN_MISTAKES: list[tuple[str, Callable[[vit_course.PatchEmbedding, Tensor], Tensor]]] = [
    *((sentence, in_tokens(cut)) for sentence, cut in CUTS),
    (
        "the map of the convolution, (b, d, gh, gw), is reshaped to (b, n, d). Use flatten(2).transpose(1, 2): a "
        "reshape moves no value.",
        map_reshaped,
    ),
    (
        "the projection's bias is not added.",
        lambda module, images: module(images) - module.projection.bias,
    ),
    *((ACTIVATION, lambda module, images, f=f: f(module(images))) for f in (F.relu, F.gelu)),
    *((NORMALISED, lambda module, images, eps=eps: normalised(module(images), eps)) for eps in EPS),
    *(
        (
            "the patches are normalised before the projection. Eq. 1 has no LayerNorm: the encoder's blocks have "
            "their own.",
            lambda module, images, eps=eps: module.projection(
                normalised(vit_course.patchify(images, module.patch_size), eps)
            ),
        )
        for eps in EPS
    ),
]

PATCH_EMBEDDING_MISTAKES = [Suspect(sentence, tokens) for sentence, tokens in TOKEN_MISTAKES] + [
    Suspect(
        "the patches are returned as they are cut, (b, n, c·p·p). Project them, to get (b, n, d).",
        lambda module, images: vit_course.patchify(images, module.patch_size),
    ),
    Suspect(
        "the tokens are the last axis: (b, d, n). Finish with transpose(1, 2), to get (b, n, d).",
        lambda module, images: module(images).transpose(1, 2),
    ),
    Suspect(
        "the map of the convolution, (b, d, gh, gw), is returned as it is. A list of tokens is wanted, (b, n, d): "
        "flatten(2).transpose(1, 2).",
        lambda module, images: rearrange(module(images), "b (gh gw) d -> b d gh gw", gh=module.grid_size[0]),
    ),
    Suspect(
        "the grid still has two axes, (b, gh, gw, d). Join them, as (gh gw): the tokens become one list.",
        lambda module, images: rearrange(module(images), "b (gh gw) d -> b gh gw d", gh=module.grid_size[0]),
    ),
]


def patch_embedding(cls: type[nn.Module], mapping: Callable | None = None) -> Verdict:
    """Check a class ``PatchEmbedding(*, image_size, patch_size, hidden_dim, in_channels=3)``.

    Verified: the names and shapes of the parameters; the values for square and rectangular images, one and three
    channels and a batch of one; gradients of all parameters and of the images; that train mode drops nothing, the
    images are left as they are, and two instances share nothing.

    Args:
        cls: the learner's class.
        mapping: where the parameters have other names than ``projection.weight`` ``(d, c·p·p)`` and
            ``projection.bias`` ``(d)``: a function from the course's state dict to the learner's. For a convolution
            ``self.conv``, whose weight ``(d, c, p, p)`` is filled from ``(d, c·p·p)`` as it stands::

                def mapping(state):
                    return {"conv.weight": state["projection.weight"], "conv.bias": state["projection.bias"]}

    Returns:
        One line that says what was verified, or that the class is not written yet.

    Raises:
        CheckFailed: the parameters, values, gradients or the treatment of the input are wrong.
    """

    def verify() -> str:
        embedding_layer("PatchEmbedding", cls, vit_course.PatchEmbedding, PATCH_EMBEDDING_MISTAKES, mapping)
        return "right for square and rectangular images, 1 and 3 channels; gradients reach every parameter."

    return check("patch_embedding", cls, verify)


def embedding_layer(
    name: str, cls: type[nn.Module], reference: type[nn.Module], mistakes: Sequence[Suspect], mapping: Callable | None
) -> None:
    """Verify all that is the same for both classes: sizes, values, gradients, and train mode without dropout."""
    if mapping is None:
        wrong_sizes(name, cls, reference)
    verify_module(name, cls, reference, TO_EMBED, mistakes, mapping=mapping)
    right, images = set_parameters(reference(**MANY)), formula(8, 3, 16, 16)
    with torch.no_grad():
        expected = right(images)
    result = in_train_mode(name, cls, MANY, right.state_dict(), mapping, images)
    if not same(result, expected):
        raise CheckFailed(
            "train mode changes the output though no dropout was asked for. Unless __init__ is given a rate, nothing "
            f"is dropped, and nothing is normalised.\n  train mode: {describe(result, expected)}"
        )


NORMALISATIONS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)


def wrong_sizes(name: str, cls: type[nn.Module], reference: type[nn.Module]) -> None:
    """Name a parameter's wrong size by what it would be the right size of, and a normalisation that is not in Eq. 1.

    Whatever else keeps the class from being built or filled is left for :func:`verify_module` to report.
    """
    for case in TO_EMBED:
        try:
            module = build(name, cls, case.options)
        except (CheckFailed, NotWritten):
            return
        for key, layer in module.named_modules():
            if isinstance(layer, NORMALISATIONS) and list(layer.parameters()):
                raise CheckFailed(
                    f"{key} is a {type(layer).__name__}, and Eq. 1 has none: the encoder's blocks have their own."
                )
        own = module.state_dict()
        for key, value in reference(**case.options).state_dict().items():
            if key in own and own[key].shape != value.shape:
                came, wanted = tuple(own[key].shape), tuple(value.shape)
                cause = size_named(key, came, wanted, case)
                if cause is None:
                    return
                raise CheckFailed(f"{cause}\n  {case.label}: {key} {came}, not {wanted}")


def size_named(key: str, came: tuple[int, ...], wanted: tuple[int, ...], case: Case) -> str | None:
    """Return the cause of a wrong size, if the size tells it."""
    p, d, c = case.options["patch_size"], case.options["hidden_dim"], case.args[0].shape[1]
    values = c * p * p
    if key.endswith("projection.weight"):
        if came == (d, c, p, p):
            return (
                "the projection is a convolution. That is the same map with a weight of another shape: call this check "
                "with mapping=lambda state: state, and it fills it."
            )
        if came == wanted[::-1]:
            return (
                "the projection is the wrong way round: nn.Linear(c·p·p, hidden_dim) has a weight (hidden_dim, c·p·p)."
            )
        if came == (d, p * p) and c > 1:
            return "the projection takes p·p values, a single channel. A patch holds c·p·p values."
        if came == (d, 3 * p * p) and c != 3:
            return "the projection is made for 3 channels, whatever in_channels says. A patch holds c·p·p values."
        if len(came) == 2 and came[0] == d:
            return f"the projection takes {came[1]} values. A patch holds c·p·p of them, here {values}."
        if came == (values, values):
            return "the projection gives c·p·p values: a token's width is hidden_dim, and free."
    elif len(came) == 3 and came[-1] != d:
        if came[-1] == values:
            return f"{key} has the width of a patch, c·p·p = {values}. A token is hidden_dim = {d} wide."
    elif key == "pos_embedding" and len(came) == 3:
        rows = wanted[1]
        if came[1] == rows - 1:
            return "there are n positions, one for each patch. The class token needs one as well: n + 1."
        if came[1] == 1:
            return (
                "there is one position for all tokens, so their order cannot be seen. Each token needs its own: n + 1."
            )
        return f"there are {came[1]} positions for {rows} tokens: n + 1, where n = gh·gw, gh = h // p and gw = w // p."
    return None


# --- the whole of Eq. 1 ----------------------------------------------------------------------------------------------


def assembled(module: vit_course.ImageEmbedding, patch_tokens: Tensor) -> Tensor:
    """Return the class token and the patch tokens, without positions."""
    return torch.cat([module.class_token.expand(len(patch_tokens), -1, -1), patch_tokens], dim=1)


def one_row(row: Callable[[Tensor], int]) -> Callable:
    """Return what comes of adding one row of the positions to all tokens."""

    def result(module: vit_course.ImageEmbedding, images: Tensor) -> Tensor:
        at = row(images)
        return assembled(module, module.patch_embedding(images)) + module.pos_embedding[:, at].unsqueeze(1)

    return result


def suspect(sentence: str, assemble: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Suspect:
    """Return a mistake in putting together patch tokens, class tokens ``(b, 1, d)`` and positions."""

    def result(module: vit_course.ImageEmbedding, images: Tensor) -> Tensor:
        class_tokens = module.class_token.expand(len(images), -1, -1)
        return assemble(module.patch_embedding(images), class_tokens, module.pos_embedding)

    return Suspect(sentence, result)


LAST = (
    "the class token stands last. It goes first, torch.cat([class_token, patch_tokens], dim=1): the head reads token 0."
)
BEFORE = (
    "the positions are added before the class token is in front, so it gets none. Prepend it first, then add all "
    "n + 1 rows."
)
ONE_ROW = (
    "one row of the positions is added to every token, so the order of the patches cannot be seen. Add all n + 1 "
    "rows: an index such as pos_embedding[n] takes one row, a slice [:n] takes n."
)
NO_TOKEN = "the class token is missing: n tokens instead of n + 1. Put it in front of the patch tokens with torch.cat."
ADDED = (
    "the class token is added to every patch. It is a token of its own: put it in front with "
    "torch.cat([class_token, patch_tokens], dim=1)."
)
NO_POSITIONS = "no positions are added: shuffled patches would give the same tokens. Add pos_embedding at the end."

IMAGE_EMBEDDING_MISTAKES = [
    suspect(LAST, lambda patches, token, pos: torch.cat([patches, token], dim=1) + pos),
    suspect(LAST, lambda patches, token, pos: torch.cat([patches + pos[:, 1:], token + pos[:, :1]], dim=1)),
    suspect(BEFORE, lambda patches, token, pos: torch.cat([token, patches + pos[:, 1:]], dim=1)),
    suspect(BEFORE, lambda patches, token, pos: torch.cat([token, patches + pos[:, :-1]], dim=1)),
    suspect(NO_POSITIONS, lambda patches, token, pos: torch.cat([token, patches], dim=1)),
    Suspect(ONE_ROW, one_row(lambda images: 0)),
    Suspect(ONE_ROW, one_row(lambda images: -1)),
    Suspect(ONE_ROW, one_row(len)),
    suspect(
        "each image of the batch gets a row of the positions, each token none of its own. Positions go along the "
        "token axis: (1, n + 1, d).",
        lambda patches, token, pos: torch.cat([token, patches], dim=1) + pos[0, : len(patches), None],
    ),
    suspect(
        "the class token's place holds zeros: its parameter is not used. Put self.class_token there.",
        lambda patches, token, pos: torch.cat([0 * token, patches], dim=1) + pos,
    ),
    suspect(NO_TOKEN, lambda patches, token, pos: patches + pos[:, 1:]),
    suspect(NO_TOKEN, lambda patches, token, pos: patches + pos[:, :-1]),
    suspect(ADDED, lambda patches, token, pos: patches + token + pos[:, 1:]),
    suspect(ADDED, lambda patches, token, pos: patches + token + pos[:, :-1]),
    suspect(
        "the positions are multiplied with the tokens. Eq. 1 adds them.",
        lambda patches, token, pos: torch.cat([token, patches], dim=1) * pos,
    ),
    suspect(
        "the tokens are multiplied by √d before the positions are added. That is the custom for words; Eq. 1 has no "
        "such factor.",
        lambda patches, token, pos: torch.cat([token, patches], dim=1) * pos.shape[-1] ** 0.5 + pos,
    ),
    suspect(
        "the patch tokens are multiplied by √d. That is the custom for words; Eq. 1 has no such factor.",
        lambda patches, token, pos: torch.cat([token, patches * pos.shape[-1] ** 0.5], dim=1) + pos,
    ),
    *(
        suspect(
            "the finished tokens are normalised. Eq. 1 has no LayerNorm: the encoder's blocks have their own.",
            lambda patches, token, pos, eps=eps: normalised(torch.cat([token, patches], dim=1) + pos, eps),
        )
        for eps in EPS
    ),
    *(
        Suspect(
            sentence,
            lambda module, images, tokens=tokens: (
                assembled(module, tokens(module.patch_embedding, images)) + module.pos_embedding
            ),
        )
        for sentence, tokens in TOKEN_MISTAKES
    ),
]


def image_embedding(cls: type[nn.Module], mapping: Callable | None = None) -> Verdict:
    """Check a class ``ImageEmbedding(*, image_size, patch_size, hidden_dim, in_channels=3, dropout=0.0)``.

    Verified: the names and shapes of the parameters; the values for square and rectangular images, one and three
    channels and a batch of one; gradients of all parameters and of the images; that dropout acts once, behind the
    positions, in train mode only and at the given rate; that the images are left as they are, and two instances share
    nothing.

    Args:
        cls: the learner's class.
        mapping: where the parameters have other names than ``patch_embedding.projection.weight`` ``(d, c·p·p)``,
            ``patch_embedding.projection.bias`` ``(d)``, ``class_token`` ``(1, 1, d)`` and ``pos_embedding``
            ``(1, n + 1, d)``: a function from the course's state dict to the learner's. For a class with a convolution
            ``self.conv``, whose weight ``(d, c, p, p)`` is filled from ``(d, c·p·p)`` as it stands::

                def mapping(state):
                    return {
                        "conv.weight": state["patch_embedding.projection.weight"],
                        "conv.bias": state["patch_embedding.projection.bias"],
                        "class_token": state["class_token"],
                        "pos_embedding": state["pos_embedding"],
                    }

    Returns:
        One line that says what was verified, or that the class is not written yet.

    Raises:
        CheckFailed: the parameters, values, dropout, gradients or the treatment of the input are wrong.
    """

    def verify() -> str:
        embedding_layer("ImageEmbedding", cls, vit_course.ImageEmbedding, IMAGE_EMBEDDING_MISTAKES, mapping)
        verify_modes("ImageEmbedding", cls, vit_course.ImageEmbedding, MANY, formula(8, 3, 16, 16), mapping)
        dropout_behind_positions(cls, mapping)
        return "right for square and rectangular images; dropout acts last, in train mode only; gradients flow."

    return check("image_embedding", cls, verify)


def dropout_behind_positions(cls: type[nn.Module], mapping: Callable | None) -> None:
    """Check where dropout stands: every token is 1 before the positions, and every position 0.5."""
    options = MANY | {"dropout": RATE}
    right = vit_course.ImageEmbedding(**options)
    with torch.no_grad():
        right.patch_embedding.projection.weight.fill_(0.5 / right.patch_embedding.projection.in_features)
        right.patch_embedding.projection.bias.fill_(0.5)
        right.class_token.fill_(1.0)
        right.pos_embedding.fill_(0.5)
    values = in_train_mode("ImageEmbedding", cls, options, right.state_dict(), mapping, torch.ones(8, 3, 16, 16))
    alone = 1 / right.pos_embedding.shape[1]  # the class token's share
    add, before = (lambda value: value + 0.5), drop({1.0: 1.0})
    mistakes = [
        (
            "dropout has no effect in train mode. Apply it to the sum of tokens and positions.",
            {1.5: 1.0},
        ),
        (
            "dropout acts before the positions are added, so a dropped value keeps its position, 0.5 here, not 0. Add "
            "first, then drop.",
            through(before, add),
        ),
        (
            "dropout acts on the patch tokens alone, before the class token and the positions. It is the last step.",
            mixed({1.5: 1.0}, through(before, add), alone),
        ),
        (
            "dropout spares the class token. It acts on all tokens.",
            mixed({1.5: 1.0}, drop({1.5: 1.0}), alone),
        ),
        (
            "dropout acts on the positions before they are added. Add first, then drop.",
            through(drop({0.5: 1.0}), lambda value: 1.0 + value),
        ),
        (
            "dropout acts twice, before and after the positions are added. Once is enough, at the end.",
            drop(through(before, add)),
        ),
        *slips(1.5),
    ]
    verify_levels(values, drop({1.5: 1.0}), mistakes)


def mixed(first: dict[float, float], others: dict[float, float], share: float) -> dict[float, float]:
    """Return the levels where the first token has others than the rest."""
    both = {value: (1 - share) * part for value, part in others.items()}
    for value, part in first.items():
        both[value] = both.get(value, 0.0) + share * part
    return both
