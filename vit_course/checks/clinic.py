"""The check of lesson 09, the bug clinic: a repaired piece of code against the right one, by value and behavior.

Code that still behaves exactly as the case's broken code, which is the mistake called "symptom", is told so quietly.
Anything else that is wrong is refused, and the message names what is still wrong.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import vit_course
from vit_course import attention
from vit_course.checks.attention import HEADS, LAYER, STAGES, TOKENS
from vit_course.checks.compare import describe, formula, same, set_parameters
from vit_course.checks.embedding import IMAGES, modes
from vit_course.checks.encoder import BLOCK_SIZES, BLOCKS, DRAWN, NOTHING, ONES, drawn, silent
from vit_course.checks.engine import Case, Check
from vit_course.checks.learner import check, running, shown
from vit_course.checks.modules import Mapping, build, layers_made_by
from vit_course.checks.training import number
from vit_course.checks.verdict import NotWritten, Verdict, fail, sentence


def still(symptom: str) -> NotWritten:
    """Return the quiet verdict that the code behaves as it did when it came in."""
    return NotWritten(sentence("engine.not_repaired", symptom=sentence(symptom)))


# --- 1 rows, 2 padding, 3 patches, 4 loss ----------------------------------------------------------------------------


def pair_case(label: str, b: int, heads: int, i: int, j: int, e: int, *, size: float = 2.0) -> Case:
    """Return queries and keys without symmetry."""
    return Case(label, (size * formula(b, heads, i, e), size * formula(b, heads, j, e, start=307)))


PAIRS = [
    pair_case("8 heads of width 96", 1, 8, 5, 5, 96),
    pair_case("three heads of width 5", 2, 3, 7, 7, 5),
    pair_case("one head, more keys than queries", 1, 1, 4, 9, 16),
]


def masked_case(label: str, shape: tuple[int, ...], i: int, j: int, heads: int, e: int, *, size: float = 2.0) -> Case:
    """Return queries, keys and a mask that allows every query key 0, and none key 1."""
    mask = formula(*shape, start=41) > -0.3
    mask[..., 0], mask[..., 1] = True, False
    pair = pair_case(label, 2, heads, i, j, e, size=size)
    return Case(label, (*pair.args, mask))


MASKED = [
    masked_case("padding, a mask (b, 1, 1, j)", (2, 1, 1, 8), 5, 8, 3, 4),
    masked_case("a mask (i, j)", (6, 6), 6, 6, 2, 5),
    masked_case("a mask (b, heads, i, j)", (2, 2, 4, 7), 4, 7, 2, 6),
    masked_case("scores in the hundreds", (6, 6), 6, 6, 2, 5, size=40.0),
]


def masked_reference(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """Return attention weights that are 0 where the mask is False."""
    return (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(~mask, -math.inf).softmax(dim=-1)


LOGITS = nn.Flatten()  # a model whose images are its logits: nothing to learn, nothing to go wrong


def loss_case(label: str, logits: Tensor, labels: list[int]) -> Case:
    """Return a model, images that hold the logits, and labels."""
    return Case(label, (LOGITS, logits[:, None, None], torch.tensor(labels)))


LOSSES = [
    loss_case("four images, ten classes", 4 * formula(4, 10), [3, 0, 9, 3]),
    loss_case("one image, three classes", 2 * formula(1, 3), [1]),
    loss_case("logits of 200, whose exp overflows", torch.tensor([[200.0, 0.0], [-200.0, 3.0], [5.0, 6.0]]), [1, 1, 0]),
]


def loss_reference(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of the model's logits."""
    return F.cross_entropy(model(images), labels)


# --- 5 projection ----------------------------------------------------------------------------------------------------


class Projection(nn.Module):
    """Patches, each through one linear layer: ``(b, c, h, w) -> (b, n, d)``."""

    def __init__(self, *, patch_size: int, hidden_dim: int, in_channels: int = 3) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(in_channels * patch_size**2, hidden_dim)

    def forward(self, images: Tensor) -> Tensor:
        """Cut, then project."""
        return self.projection(vit_course.patchify(images, self.patch_size))


PROJECTIONS = [
    Case("square images", (formula(2, 3, 6, 6),), options=dict(patch_size=2, hidden_dim=7)),
    Case("one channel", (formula(3, 1, 8, 8),), options=dict(patch_size=4, hidden_dim=5, in_channels=1)),
]


def made_where(cls: type[nn.Module], mapping: Mapping) -> None:
    """Name a layer that is made in ``forward``: at every call, at the first, or each time alike."""
    case = PROJECTIONS[0]
    module = build(cls, case.options)
    with running(sentence("engine.on", case=case.label)), torch.no_grad():
        made = layers_made_by(module, case.args[0])
        first, second = module(case.args[0].clone()), module(case.args[0].clone())
        again = layers_made_by(module, case.args[0])
    own = sum(parameter.numel() for parameter in module.parameters())
    if made and not again:
        raise fail("clinic.made_once", kind=made[0])
    if made and not same(first, second):
        raise fail("clinic.still_made", kind=made[0], count=own) if own else still("clinic.new_tokens")
    if made:
        raise fail("clinic.made_alike", kind=made[0])


# --- 6 residual ------------------------------------------------------------------------------------------------------


class Adds(nn.Module):
    """A branch that takes an argument beside its input."""

    def forward(self, x: Tensor, *, shift: float) -> Tensor:
        """Double the input and shift it."""
        return x * 2 + shift


def residual(cls: Callable, branch: nn.Module) -> nn.Module:
    """Wrap a branch in the learner's class, which is called with it alone."""
    with running(sentence("clinic.given", branch=type(branch).__name__)):
        module = cls(branch)
    if not isinstance(module, nn.Module):
        raise fail("modules.not_a_module", came=type(module).__name__)
    return module


def caller_keeps(cls: Callable, branch: nn.Module) -> bool:
    """Whether the caller's tensor is as it was, after a call with this branch."""
    x = formula(2, 3, 4)
    with running(sentence("clinic.with_branch", branch=type(branch).__name__)), torch.no_grad():
        residual(cls, branch)(x)
    return torch.equal(x, formula(2, 3, 4))


def trains(cls: Callable, branch: nn.Module) -> bool:
    """Whether a gradient can be computed with this branch."""
    x = formula(2, 3, 4).requires_grad_()
    try:
        cls(branch)(x * 1).sum().backward()
    except RuntimeError as error:
        if "inplace operation" not in str(error):
            raise
        return False
    return True


def verify_residual(cls: Callable) -> None:
    """Case 6: an addition in place."""
    x, linear = formula(2, 3, 4), set_parameters(nn.Linear(4, 4))
    for branch in (linear, nn.ReLU(), nn.Softmax(dim=-1), nn.Identity()):
        kind = type(branch).__name__
        with running(sentence("clinic.with_branch", branch=kind)), torch.no_grad():
            result = residual(cls, branch)(x.clone())
        if same(result, branch(x)):
            raise fail("clinic.addition_gone")
        if not same(result, x + branch(x)):
            raise fail("clinic.not_the_sum", describe(result, x + branch(x)), branch=kind)
    with running(sentence("clinic.with_keyword")), torch.no_grad():
        result = residual(cls, Adds())(x.clone(), shift=3.0)
    if not same(result, 3 * x + 3.0):
        raise fail("clinic.no_keywords")
    kept = [caller_keeps(cls, branch) for branch in (nn.Identity(), nn.Dropout(0.5).eval())]
    with running(sentence("modules.with_gradients")):
        backward = [trains(cls, branch) for branch in (nn.ReLU(), nn.Softmax(dim=-1), nn.Sigmoid())]
    if not any(kept) and not any(backward):
        raise still("clinic.doubled")
    if not all(kept):
        raise fail("clinic.still_changed")
    if not all(backward):
        raise fail("clinic.no_backward")
    module, given = residual(cls, linear), x.clone().requires_grad_()
    if not any(parameter is linear.weight for parameter in module.parameters()):
        raise fail("clinic.not_found")
    out = module(given)
    if not out.requires_grad:
        raise fail("clinic.cut_off")
    (gradient,) = torch.autograd.grad((out * formula(*out.shape)).sum(), given)
    expected = (formula(*out.shape) + formula(*out.shape) @ linear.weight).detach()
    if not same(gradient, expected):
        raise fail("clinic.half_cut_off", describe(gradient, expected))


# --- 7 rate, 8 positions, 9 accuracy ---------------------------------------------------------------------------------

SCHEDULES = [
    Case("100 steps with 10 of warm-up", kwargs=dict(total_steps=100, warmup_steps=10, peak=2.0)),
    Case("12 steps with 4 of warm-up", kwargs=dict(total_steps=12, warmup_steps=4, peak=0.5)),
    Case("no warm-up", kwargs=dict(total_steps=9, warmup_steps=0, peak=1.0)),
]


def rates(schedule: Callable, case: Case) -> Tensor:
    """Return the rates from step 0 to four times the plan's length."""
    steps = range(4 * case.kwargs["total_steps"])
    return torch.tensor([number(schedule(t, **case.kwargs), "a rate") for t in steps], dtype=torch.float64)


def rate_reference(step: int, *, total_steps: int, warmup_steps: int, peak: float) -> float:
    """Return the arguments' names, for messages; the twin computes the rate."""
    raise NotImplementedError


class Positions(nn.Module):
    """Add a learned position to each token, from a table that may be longer: ``(b, s, d) -> (b, s, d)``."""

    def __init__(self, *, max_len: int, hidden_dim: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, max_len, hidden_dim).normal_(std=0.02))

    def forward(self, x: Tensor) -> Tensor:
        """Add row i to token i."""
        return x + self.pos_embedding[:, : x.shape[1]]


POSITIONS = [
    Case("5 tokens and 8 positions", (formula(2, 5, 6),), options=dict(max_len=8, hidden_dim=6)),
    Case("1 image of 3 tokens", (formula(1, 3, 4),), options=dict(max_len=9, hidden_dim=4)),
    Case("more images than tokens", (formula(6, 3, 5),), options=dict(max_len=7, hidden_dim=5)),
]
FULL_TABLE = Case("as many tokens as positions", (formula(2, 6, 4),), options=dict(max_len=6, hidden_dim=4))


class Scripted(nn.Module):
    """A model whose images hold its logits; it notes its mode and how many images it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.modes: set[bool] = set()
        self.sizes: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits that the images hold."""
        self.modes.add(self.training)
        self.sizes.append(len(images))
        return self.dropout(images.flatten(1))


def answers(label: str, right: list[int], batch_size: int) -> Case:
    """Return a data set on which the scripted model is right (1) or wrong (0), image by image."""
    labels = torch.arange(len(right)) % 4
    logits = F.one_hot((labels + 1 - torch.tensor(right)) % 4, 4).float()
    return Case(label, (TensorDataset(logits[:, :, None, None], labels),), dict(batch_size=batch_size))


ANSWERS = [
    answers("10 images in batches of 4", [1] * 8 + [0] * 2, 4),
    answers("7 images in batches of 3", [0, 1, 1, 0, 1, 0, 1], 3),
    answers("6 images in batches of 3", [0, 1, 1, 0, 1, 1], 3),
    answers("5 images in one batch of 8", [1, 0, 0, 1, 0], 8),
    answers("3 images, one at a time", [1, 0, 1], 1),
]


def measured(function: Callable, case: Case) -> Tensor:
    """Return the accuracy that the learner's code measures."""
    model = Scripted().train()
    came = number(function(model, *case.args, **case.kwargs), "the accuracy")
    if True in model.modes:
        raise fail("clinic.train_mode")
    return torch.tensor(came, dtype=torch.float64)


def in_batches(function: Callable, mapping: Mapping) -> None:
    """Check that the model never gets more images than a batch holds."""
    for case in ANSWERS:
        model, size = Scripted(), case.kwargs["batch_size"]
        function(model, *case.args, **case.kwargs)
        if max(model.sizes) > size:
            raise fail("clinic.too_many", count=max(model.sizes), size=size)


def accuracy_reference(model: nn.Module, dataset: TensorDataset, batch_size: int) -> float:
    """Return the arguments' names, for messages; the twin computes the accuracy."""
    raise NotImplementedError


# --- 10 heads, 11 block, 12 pooling ----------------------------------------------------------------------------------


class Attention(vit_course.MultiHeadSelfAttention):
    """Attention without dropout."""

    def __init__(self, *, hidden_dim: int, num_heads: int) -> None:
        super().__init__(hidden_dim=hidden_dim, num_heads=num_heads)


class Block(vit_course.EncoderBlock):
    """A block with one rate."""

    def __init__(self, *, hidden_dim: int, num_heads: int, mlp_dim: int, dropout: float = 0.0) -> None:
        super().__init__(hidden_dim=hidden_dim, num_heads=num_heads, mlp_dim=mlp_dim, dropout=dropout)


def writes(bias: str) -> Callable[[nn.Module], None]:
    """Return weights with which one branch writes a constant, and nothing else."""

    def weights(block: nn.Module) -> None:
        silent(block)
        block.get_parameter(bias).fill_(1.5)

    return weights


BRANCHES = [
    drawn("both branches silent, dropout=0.25", ONES, BLOCK_SIZES | DRAWN, silent, fault="dropout.on_stream"),
    drawn("attention alone, dropout=0.25", NOTHING, BLOCK_SIZES | DRAWN, writes("self_attention.out_proj.bias")),
    drawn("the MLP alone, dropout=0.25", NOTHING, BLOCK_SIZES | DRAWN, writes("mlp.linear_2.bias")),
]


class MeanHead(nn.Module):
    """The mean of the patch tokens, then one linear layer: ``(b, s, d) -> (b, k)``."""

    def __init__(self, *, hidden_dim: int, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(hidden_dim, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(tokens[:, 1:].mean(dim=1))


POOLED = [
    Case("a class token and 4 patches", (4 * formula(2, 5, 8),), options=dict(hidden_dim=8, num_classes=3)),
    Case("one image of 9 patches", (4 * formula(1, 10, 6),), options=dict(hidden_dim=6, num_classes=4)),
    Case("a single patch", (4 * formula(3, 2, 5),), options=dict(hidden_dim=5, num_classes=2)),
]

# --- all cases -------------------------------------------------------------------------------------------------------


def case(name: str, twin: str, reference: Callable, cases: list, mistakes: str, **rest: object) -> Check:
    """Return the check of a case."""
    return Check(name, twin, reference, cases, mistakes, mappable=False, **rest)


CLINIC = [
    case("rows", "attention_weights", attention.attention_weights, [PAIRS], "rows attention_weights", stages=STAGES),
    case("padding", "masked_weights", masked_reference, [MASKED], "masked_weights"),
    case("patches", "patchify", vit_course.patchify, [IMAGES], "patches patchify"),
    case("loss", "batch_loss", loss_reference, [LOSSES], "batch_loss"),
    case("projection", "patch_embedding", Projection, [PROJECTIONS], "patch_embedding patchify", before=[made_where]),
    None,
    case("rate", "capped_rate", rate_reference, [SCHEDULES], "capped_rate", run=rates, gradients=False),
    case("positions", "add_positions", Positions, [POSITIONS, [FULL_TABLE]], "add_positions"),
    case("accuracy", "accuracy", accuracy_reference, [ANSWERS], "accuracy", run=measured, gradients=False,
         behaviors=[in_batches]),
    case("heads", "multi_head_attention", Attention, [TOKENS], f"heads multi_head_attention {HEADS}", stages=LAYER),
    case("block", "encoder_block", Block, [BLOCKS, modes(BLOCKS[0].options, BLOCKS[0].args[0], "dropout"), BRANCHES],
         "block encoder_block mlp_block drop"),
    case("pooling", "mean_head", MeanHead, [POOLED], "mean_head"),
]  # fmt: skip
NAMES = [repaired.name if repaired else "residual" for repaired in CLINIC]


def clinic(case: int | str, repaired: Callable) -> Verdict:
    """Check a repair of lesson 09: the values and the behavior of the piece of code that was broken.

    Verified: that the symptom is gone, and that everything else is as it should be – values for several sizes, other
    than the lesson's too, train and eval mode where they matter, gradients, the caller's tensors.

    Args:
        case: the number, 1 to 12, or the name, such as ``"rows"``.
        repaired: the function or class, with the arguments that the broken one had.

    Returns:
        One line that says what was verified. It is False, and names the symptom that is left, for code that still
        behaves exactly as the broken code does.

    Raises:
        CheckFailed: outside of notebooks, when something else is wrong; the message names it.
        ValueError: there is no such case.
    """
    numbers = dict(enumerate(NAMES, start=1))
    if isinstance(case, bool) or case not in (*numbers, *NAMES):
        known = ", ".join(f'{number} or "{name}"' for number, name in numbers.items())
        raise ValueError(sentence("clinic.unknown", known=known, came=repr(case)))
    place = case if isinstance(case, int) else NAMES.index(case) + 1

    def verify() -> str:
        checked = CLINIC[place - 1]
        if checked is None:
            verify_residual(repaired)
        else:
            checked.verify(repaired)
        return sentence(f"clinic.{numbers[place]}")

    return shown(lambda: check(f"case {place}, {numbers[place]}", repaired, verify))
