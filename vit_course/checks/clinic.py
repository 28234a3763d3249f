"""The check of lesson 09, the bug clinic: a repaired piece of code against the right one, by value and behaviour.

Code that still behaves exactly as the case's broken code is told so quietly, with the symptom that is left. Anything
else that is wrong is refused, and the message names what is still wrong: half a repair is a :class:`Suspect` too.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import vit_course
from vit_course import attention, training
from vit_course.checks.attention import MULTI_HEAD_MISTAKES, SELF_ATTENTION_CASES, attend
from vit_course.checks.dropout import RATE, drop, in_train_mode, slips, verify_levels, verify_modes
from vit_course.checks.embedding import IMAGES, PATCHIFY_MISTAKES
from vit_course.checks.encoder import BLOCK_CASES, BLOCK_MISTAKES, WIDTH, block_state
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
    judge,
    learners,
    load,
    loaded,
    results_of,
    same,
    set_parameters,
    takes,
    verify_function,
    verify_module,
    with_results,
)

# --- what all cases do -----------------------------------------------------------------------------------------------


def still(symptom: str) -> None:
    """Stop quietly: the code behaves as it did when it came in."""
    raise NotWritten(f"not repaired yet: {symptom}")


def told_symptom(symptom: Suspect, results: Callable[[], Sequence], calls: Sequence[tuple]) -> None:
    """Stop quietly if the learner's results are, in every case, those of the broken code."""
    broken = results_of(symptom, calls)
    try:
        with torch.no_grad():
            actual = results()
    except Exception:
        return  # other than the broken code, which runs; the comparison that follows reports the error
    if all(same(a, b) for a, b in zip(actual, broken, strict=True)):
        still(symptom.sentence.format(**(symptom.numbers(*calls[0]) if symptom.numbers else {})))


def repaired_function(
    name: str,
    function: Callable,
    reference: Callable,
    cases: Sequence[Case],
    symptom: Suspect,
    suspects: Sequence[Suspect],
) -> None:
    """Check a function of tensors: its values, its gradients, and that its input is left alone."""

    def results() -> list:
        copies = [[arg.clone() if isinstance(arg, Tensor) else arg for arg in case.args] for case in cases]
        return [function(*args) for args in copies]

    told_symptom(symptom, results, [case.args for case in cases])
    verify_function(name, function, reference, cases, suspects)


def repaired_module(
    name: str,
    cls: Callable,
    reference: type[nn.Module],
    cases: Sequence[Case],
    symptom: Suspect,
    suspects: Sequence[Suspect],
) -> None:
    """Check a class: values, names of parameters, gradients everywhere, the input left alone."""
    rights = [set_parameters(reference(**case.options)) for case in cases]
    pairs = list(zip(rights, cases, strict=True))

    def results() -> list:
        modules = [loaded(name, cls, case.options, right.state_dict(), None).eval() for right, case in pairs]
        return [module(case.args[0].clone()) for module, case in zip(modules, cases, strict=True)]

    told_symptom(symptom, results, [(right, case.args[0]) for right, case in pairs])
    verify_module(name, cls, reference, cases, suspects)


# --- 1: rows ---------------------------------------------------------------------------------------------------------


def pair_case(label: str, b: int, heads: int, i: int, j: int, e: int, *, size: float = 2.0) -> Case:
    """Return queries and keys without symmetry."""
    return Case(label, (size * formula(b, heads, i, e), size * formula(b, heads, j, e, start=307)))


PAIRS = [
    pair_case("8 heads of width 96", 1, 8, 5, 5, 96),
    pair_case("three heads of width 5", 2, 3, 7, 7, 5),
    pair_case("one head, more keys than queries", 1, 1, 4, 9, 16),
]


def scores(query: Tensor, key: Tensor) -> Tensor:
    """Return the scores, not scaled: ``(b, heads, i, j)``."""
    return query @ key.mT


def weights_with(root: Callable[[Tensor], float], *, dim: int = -1) -> Callable:
    """Return attention weights whose scores are divided by a root that is not e's."""
    return lambda query, key, *_: (scores(query, key) / root(query)).softmax(dim=dim)


ROWS_SYMPTOM = Suspect(
    "rows still sum to {total:.4f}, not to 1.",
    lambda query, key: scores(query, key).softmax(dim=-1) * query.shape[-1] ** -0.5,
    lambda query, key: {"total": query.shape[-1] ** -0.5},
)
WRONG_ROOTS = [
    Suspect(
        "rows sum to 1 now, but the scores reach the softmax as they are, not divided by √e = √{e}: the scaling is "
        "gone, or cancels. Divide the scores, before the softmax.",
        weights_with(lambda query: 1.0),
        lambda query, key, *_: {"e": query.shape[-1]},
    ),
    Suspect(
        "rows sum to 1 now, but the scores are divided by √{d}, the root of the whole token's width. Divide by the "
        "root of one head's, √e = √{e}.",
        weights_with(lambda query: (query.shape[1] * query.shape[-1]) ** 0.5),
        lambda query, key, *_: {"d": query.shape[1] * query.shape[-1], "e": query.shape[-1]},
    ),
    Suspect(
        "rows sum to 1 now, but the scores are divided by e = {e}, not by its root.",
        weights_with(lambda query: query.shape[-1]),
        lambda query, key, *_: {"e": query.shape[-1]},
    ),
    Suspect(
        "rows sum to 1 now, but the scores are multiplied by √e instead of divided.",
        weights_with(lambda query: query.shape[-1] ** -0.5),
    ),
    Suspect(
        "rows sum to 1 now, but the scores are divided by √96, a fixed number. Read e off the query: query.shape[-1].",
        weights_with(lambda query: 96**0.5),
    ),
]
ROWS_MISTAKES = [
    *WRONG_ROOTS,
    Suspect(
        "the scores are scaled before the softmax, and the weights once more after it: rows sum to {total:.4f}.",
        lambda query, key: attention.attention_weights(query, key) * query.shape[-1] ** -0.5,
        lambda query, key: {"total": query.shape[-1] ** -0.5},
    ),
    Suspect(
        "the softmax runs over the queries: columns sum to 1, rows do not. Use dim=-1.",
        weights_with(lambda query: query.shape[-1] ** 0.5, dim=-2),
    ),
]


def verify_rows(name: str, function: Callable) -> str:
    """Case 1: softmax, then scale."""
    repaired_function(name, function, attention.attention_weights, PAIRS, ROWS_SYMPTOM, ROWS_MISTAKES)
    return "rows sum to 1, and the weights are softmax(q kᵀ / √e) for any width."


# --- 2: padding ------------------------------------------------------------------------------------------------------


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
LOWEST = torch.finfo(torch.float32).min


def reference_masked(query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
    """Return attention weights that are 0 where the mask is False."""
    return (scores(query, key) * query.shape[-1] ** -0.5).masked_fill(~mask, -math.inf).softmax(dim=-1)


MASK_SYMPTOM = Suspect(
    "keys that the mask forbids still get {share:.1%} of the attention.",
    lambda query, key, mask: attention.attention_weights(query, key),
    lambda query, key, mask: {"share": (attention.attention_weights(query, key) * ~mask).sum(dim=-1).mean().item()},
)
MASK_MISTAKES = [
    Suspect(
        "the mask acts, but the wrong way round: it is True where a query may look. Fill where it is False, ~mask.",
        lambda query, key, mask: reference_masked(query, key, ~mask),
    ),
    Suspect(
        "forbidden scores are filled with 0, which is a score like any other: exp(0) = 1. Fill with a number so low "
        "that its exp is 0, such as -inf.",
        lambda query, key, mask: (scores(query, key) * query.shape[-1] ** -0.5).masked_fill(~mask, 0.0).softmax(dim=-1),
    ),
    Suspect(
        "forbidden weights are 0, but they are set behind the softmax: the other weights of the row no longer sum to "
        "1. Fill the scores, before the softmax.",
        lambda query, key, mask: attention.attention_weights(query, key) * mask,
    ),
    Suspect(
        "the mask acts, but the scores are no longer divided by √e. Only the mask was broken.",
        lambda query, key, mask: scores(query, key).masked_fill(~mask, LOWEST).softmax(dim=-1),
    ),
    Suspect(
        "forbidden scores are filled with -100, and a score may be lower than that: fill with -inf, or with the lowest "
        "number there is.",
        lambda query, key, mask: (scores(query, key) * query.shape[-1] ** -0.5).masked_fill(~mask, -100.0).softmax(-1),
    ),
    Suspect(
        "the mask is added to the scores as 0 and 1, which shifts them a little. Fill with a very low number where it "
        "is False.",
        lambda query, key, mask: (scores(query, key) * query.shape[-1] ** -0.5 + mask).softmax(dim=-1),
    ),
]


def verify_padding(name: str, function: Callable) -> str:
    """Case 2: a mask whose result is dropped."""
    repaired_function(name, function, reference_masked, MASKED, MASK_SYMPTOM, MASK_MISTAKES)
    return "forbidden keys get nothing, the others share 1, for masks of three shapes."


# --- 3: patches ------------------------------------------------------------------------------------------------------


def share_of_tokens(images: Tensor, patch_size: int) -> dict[str, int]:
    """Return how many tokens of reshaped images hold pixels of the first patch."""
    marked = torch.zeros_like(images[:1])
    marked[..., :patch_size, :patch_size] = 1
    return {"moved": int(reshaped(marked, patch_size)[0].any(dim=-1).sum())}


def reshaped(images: Tensor, patch_size: int) -> Tensor:
    """Return images that are reshaped, not cut."""
    return images.reshape(len(images), -1, images.shape[1] * patch_size**2)


PATCHES_SYMPTOM = Suspect(
    "one blackened patch of a 6 × 6 image still shows in {moved} tokens, not in 1.", reshaped, share_of_tokens
)


def verify_patches(name: str, function: Callable) -> str:
    """Case 3: reshaped, not cut."""
    repaired_function(name, function, vit_course.patchify, IMAGES, PATCHES_SYMPTOM, PATCHIFY_MISTAKES)
    return "each token is one square of the image, all channels, flattened as (c p1 p2)."


# --- 4: loss ---------------------------------------------------------------------------------------------------------

LOGITS = nn.Flatten()  # a model whose images are its logits: nothing to learn, nothing to go wrong


def loss_case(label: str, logits: Tensor, labels: list[int]) -> Case:
    """Return a model, images that hold the logits, and labels."""
    return Case(label, (LOGITS, logits[:, None, None], torch.tensor(labels)))


LOSSES = [
    loss_case("four images, ten classes", 4 * formula(4, 10), [3, 0, 9, 3]),
    loss_case("one image, three classes", 2 * formula(1, 3), [1]),
    loss_case("logits of 200, whose exp overflows", torch.tensor([[200.0, 0.0], [-200.0, 3.0], [5.0, 6.0]]), [1, 1, 0]),
]


def loss_with(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """Return a loss of model, images and labels from one of logits and labels."""
    return lambda model, images, labels: loss(model(images), labels)


def right_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the probability of each image's label."""
    return logits.softmax(dim=-1)[torch.arange(len(labels)), labels]


LOSS_SYMPTOM = Suspect(
    "an image that is right beyond doubt still costs {floor:.4f} with ten classes, not 0.",
    loss_with(lambda logits, labels: F.cross_entropy(logits.softmax(dim=-1), labels)),
    lambda model, images, labels: {"floor": math.log(math.e + 9) - 1},
)
LOSS_MISTAKES = [
    Suspect(
        "the second softmax is gone, but the logarithm is taken of a probability, which is 0 for large logits: the "
        "loss becomes infinite. Hand the logits to F.cross_entropy.",
        loss_with(lambda logits, labels: -right_probability(logits, labels).log().mean()),
    ),
    Suspect(
        "nll_loss wants logarithms, and gets probabilities: the logarithm is missing, and the loss is negative. Hand "
        "the logits to F.cross_entropy.",
        loss_with(lambda logits, labels: -right_probability(logits, labels).mean()),
    ),
    Suspect(
        "nll_loss wants logarithms of probabilities, and gets logits. Hand them to F.cross_entropy.",
        loss_with(F.nll_loss),
    ),
    Suspect(
        "the loss is the sum over the batch; the mean is wanted, as before.",
        loss_with(lambda logits, labels: F.cross_entropy(logits, labels, reduction="sum")),
    ),
    Suspect(
        "the softmax over the classes has become one over the images: dim=0. Leave it out.",
        loss_with(lambda logits, labels: F.cross_entropy(logits.softmax(dim=0), labels)),
    ),
    Suspect(
        "there are still two softmaxes: a sigmoid or a softmax before F.cross_entropy keeps its logits between 0 and "
        "1. It wants the logits as they are.",
        loss_with(lambda logits, labels: F.cross_entropy(logits.sigmoid(), labels)),
    ),
]


def verify_loss(name: str, function: Callable) -> str:
    """Case 4: softmax before cross-entropy."""
    repaired_function(name, function, loss_with(F.cross_entropy), LOSSES, LOSS_SYMPTOM, LOSS_MISTAKES)
    return "equal to cross-entropy of the logits, also where their exp overflows; its gradient as well."


# --- 5: projection ---------------------------------------------------------------------------------------------------


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
    Case("one channel", (formula(3, 1, 8, 4),), options=dict(patch_size=4, hidden_dim=5, in_channels=1)),
]
PROJECTION_MISTAKES = [
    Suspect(sentence.sentence, lambda module, x, cut=sentence.result: module.projection(cut(x, module.patch_size)))
    for sentence in PATCHIFY_MISTAKES[:6]
]


def made_in_forward(module: nn.Module, x: Tensor) -> list[str]:
    """Return the kinds of the layers that a call of the module makes."""
    made = []
    hook = nn.modules.module.register_module_parameter_registration_hook(
        lambda layer, key, parameter: made.append(type(layer).__name__)
    )
    try:
        with torch.no_grad():
            module(x.clone())
    finally:
        hook.remove()
    return made


def verify_projection(name: str, cls: Callable) -> str:
    """Case 5: a layer made in forward."""
    case = PROJECTIONS[0]
    takes(cls, Projection, (), case.options)
    module = build(name, cls, case.options)
    with learners(name, cls, f"on {case.label}"):
        made = made_in_forward(module, case.args[0])
        with torch.no_grad():
            first, second = module(case.args[0].clone()), module(case.args[0].clone())
        again = made_in_forward(module, case.args[0])
    if made and not again:
        raise CheckFailed(
            f"a layer ({made[0]}) is made at the first call and kept: an optimizer built before that call has never "
            "heard of it. Make it in __init__."
        )
    if made and not same(first, second):
        own = sum(parameter.numel() for parameter in module.parameters())
        if own == 0:
            still("two calls with one image give different tokens, and the module has 0 parameters to train.")
        raise CheckFailed(
            f"a layer ({made[0]}) is still made in forward, new at every call: the {own} parameters of the module do "
            "not decide its output. Make it in __init__, and only use it in forward."
        )
    if made:
        raise CheckFailed(
            f"two calls agree now, but a layer ({made[0]}) is still made in forward, each time with the same random "
            "numbers: what training changes is thrown away. Make it in __init__."
        )
    if not list(module.parameters()):
        load(name, cls, module, Projection(**case.options).state_dict(), None)
    verify_module(name, cls, Projection, PROJECTIONS, PROJECTION_MISTAKES)
    return "one layer, made once: two calls agree, all its parameters are found and get a gradient."


# --- 6: residual -----------------------------------------------------------------------------------------------------


class Adds(nn.Module):
    """A branch that takes an argument beside its input."""

    def forward(self, x: Tensor, *, shift: float) -> Tensor:
        """Double the input and shift it."""
        return x * 2 + shift


def residual(name: str, cls: Callable, branch: nn.Module) -> nn.Module:
    """Wrap a branch in the learner's class, which is called with it alone."""
    with learners(name, cls, f"when it was given {type(branch).__name__}"):
        module = cls(branch)
    if not isinstance(module, nn.Module):
        raise CheckFailed(f"it must be a class derived from nn.Module; got {type(module).__name__}.")
    return module


def caller_keeps(name: str, cls: Callable, branch: nn.Module) -> bool:
    """Whether the caller's tensor is as it was, after a call with this branch."""
    x = formula(2, 3, 4)
    with learners(name, cls, f"with the branch {type(branch).__name__}"), torch.no_grad():
        residual(name, cls, branch)(x)
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


def verify_residual(name: str, cls: Callable) -> str:
    """Case 6: an addition in place."""
    x, linear = formula(2, 3, 4), set_parameters(nn.Linear(4, 4))
    for branch in (linear, nn.ReLU(), nn.Softmax(dim=-1), nn.Identity()):
        with learners(name, cls, f"with the branch {type(branch).__name__}"), torch.no_grad():
            result = residual(name, cls, branch)(x.clone())
        if same(result, branch(x)):
            raise CheckFailed("the addition is gone: it returns the branch alone. Return the input plus the branch.")
        if not same(result, x + branch(x)):
            raise CheckFailed(
                f"it must return x + fn(x); with the branch {type(branch).__name__} it does not.\n"
                f"  {describe(result, x + branch(x))}"
            )
    with learners(name, cls, "when the call had a keyword, shift=3.0"), torch.no_grad():
        result = residual(name, cls, Adds())(x.clone(), shift=3.0)
    if not same(result, 3 * x + 3.0):
        raise CheckFailed("keywords of the call no longer reach the branch: forward(x, **kwargs), fn(x, **kwargs).")
    kept = [caller_keeps(name, cls, branch) for branch in (nn.Identity(), nn.Dropout(0.5).eval())]
    with learners(name, cls, "while its gradient was computed"):
        backward = [trains(cls, branch) for branch in (nn.ReLU(), nn.Softmax(dim=-1), nn.Sigmoid())]
    if not any(kept) and not any(backward):
        still("the caller's tensor is doubled by nn.Identity, and behind nn.ReLU there is no backward.")
    if not all(kept):
        raise CheckFailed(
            "training works now, but the caller's tensor is still changed where the branch returns its input, as "
            "nn.Identity and dropout in eval mode do. Make a new tensor: x + fn(x)."
        )
    if not all(backward):
        raise CheckFailed(
            "the caller's tensor is safe now, but there is still no backward behind ReLU, softmax or sigmoid: the "
            "branch's own output is written into. Make a new tensor: x + fn(x)."
        )
    gradients(name, cls, linear, x)
    return "x + fn(x) as a new tensor: the caller's is left alone, and every branch can be trained."


def gradients(name: str, cls: Callable, branch: nn.Module, x: Tensor) -> None:
    """Check that both ways carry their gradient, and that the branch is found among the parameters."""
    module, given = residual(name, cls, branch), x.clone().requires_grad_()
    if not any(parameter is branch.weight for parameter in module.parameters()):
        raise CheckFailed("the branch's parameters are not found: keep it as self.fn, in __init__.")
    out = module(given)
    if not out.requires_grad:
        raise CheckFailed("the values are right, but no gradient flows: .detach(), .data or no_grad cuts it off.")
    (gradient,) = torch.autograd.grad((out * formula(*out.shape)).sum(), given)
    expected = formula(*out.shape) + formula(*out.shape) @ branch.weight
    if not same(gradient, expected.detach()):
        raise CheckFailed(
            "the values are right, the gradient is not: one of the two ways, skip path or branch, is cut off by "
            f".detach(), .data or no_grad.\n  {describe(gradient, expected.detach())}"
        )


# --- 7: rate ---------------------------------------------------------------------------------------------------------

SCHEDULES = [
    Case("100 steps with 10 of warm-up", kwargs=dict(total_steps=100, warmup_steps=10, peak=2.0)),
    Case("12 steps with 4 of warm-up", kwargs=dict(total_steps=12, warmup_steps=4, peak=0.5)),
    Case("no warm-up", kwargs=dict(total_steps=9, warmup_steps=0, peak=1.0)),
]


def rates(schedule: Callable, total_steps: int, **rest: float) -> Tensor:
    """Return the rates from step 0 to four times the plan's length."""
    return torch.tensor([schedule(t, total_steps=total_steps, **rest) for t in range(4 * total_steps)])


def rates_with(after: Callable[[float, float], float]) -> Callable:
    """Return rates whose cosine part is another function of (progress, peak)."""

    def schedule(step: int, *, total_steps: int, warmup_steps: int, peak: float) -> float:
        if step < warmup_steps:
            return peak * (step + 1) / warmup_steps
        return after((step - warmup_steps) / (total_steps - warmup_steps), peak)

    return lambda **plan: rates(schedule, **plan)


def cosine(progress: float, peak: float) -> float:
    """Return half a cosine, from peak at progress 0 to zero at progress 1."""
    return peak * (1 + math.cos(math.pi * progress)) / 2


RATE_SYMPTOM = Suspect(
    "at step {step}, beyond the plan of {total} steps, the rate is back at {rate:.4g}, its peak.",
    rates_with(cosine),
    lambda **plan: {
        "total": plan["total_steps"],
        "step": 2 * plan["total_steps"] - plan["warmup_steps"],
        "rate": plan["peak"],
    },
)
RATE_MISTAKES = [
    Suspect(
        "the rate no longer climbs, but it leaps: beyond the plan it is the peak. It must stay at 0, where the cosine "
        "ends.",
        rates_with(lambda p, peak: cosine(p, peak) if p < 1 else peak),
    ),
    Suspect(
        "beyond the plan the rate starts over, as if every run began again: % is no clamp. It must stay at 0.",
        rates_with(lambda p, peak: cosine(p % 1.0, peak)),
    ),
    Suspect(
        "the plan itself has changed: the cosine is stretched, and does not reach 0 at step total_steps.",
        rates_with(lambda p, peak: cosine(min(p / 2, 1.0), peak)),
    ),
    Suspect(
        "progress stops at a half: the rate stays at half the peak and never falls to 0. It stops at 1.",
        rates_with(lambda p, peak: cosine(min(p, 0.5), peak)),
    ),
    Suspect(
        "progress is held from below: max(progress, 1) makes the rate 0 from the end of the warm-up on. min is wanted.",
        rates_with(lambda p, peak: cosine(max(p, 1.0), peak)),
    ),
    Suspect(
        "this is lesson 6's cosine: it begins one step earlier, and is 0 at step total_steps - 1. Keep this piece's "
        "own.",
        lambda **plan: rates(training.learning_rate_schedule, **plan),
    ),
]


def verify_rate(name: str, function: Callable) -> str:
    """Case 7: a cosine that nothing stops."""
    reference = rates_with(lambda p, peak: cosine(min(p, 1.0), peak))
    results = []
    for case in SCHEDULES:
        takes(function, training.learning_rate_schedule, (0,), case.kwargs)
        with learners(name, function, f"for {case.label}, or a step beyond them"):
            results.append(rates(function, **case.kwargs))
    if all(same(a, RATE_SYMPTOM.result(**case.kwargs)) for a, case in zip(results, SCHEDULES, strict=True)):
        still(RATE_SYMPTOM.sentence.format(**RATE_SYMPTOM.numbers(**SCHEDULES[0].kwargs)))
    expected = [reference(**case.kwargs) for case in SCHEDULES]
    suspects = [(s, [s.result(**case.kwargs) for case in SCHEDULES], ()) for s in RATE_MISTAKES]
    judge(SCHEDULES, results, expected, suspects)
    return "warm-up and cosine as planned, and 0 ever after."


# --- 8: positions ----------------------------------------------------------------------------------------------------


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


def rows(choose: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """Return a module's output with other rows of its table, chosen from (table, x)."""
    return lambda module, x: x + choose(module.pos_embedding, x)


POSITION_SYMPTOM = Suspect(
    "all {s} tokens of an image are still moved by one and the same vector.",
    rows(lambda table, x: table[:, x.shape[1]]),
    lambda module, x: {"s": x.shape[1]},
)
POSITION_MISTAKES = [
    *(
        Suspect(f"all tokens still get one row, {which}. Each needs its own: row 0 for token 0, and so on.", rows(row))
        for which, row in {
            "the first": lambda table, x: table[:, :1],
            "the last of the table": lambda table, x: table[:, -1:],
            "the one before": lambda table, x: table[:, x.shape[1] - 1 : x.shape[1]],
            "their mean": lambda table, x: table[:, : x.shape[1]].mean(dim=1, keepdim=True),
            "number len(x), which counts images": lambda table, x: table[:, len(x) : len(x) + 1],
        }.items()
    ),
    Suspect(
        "each token has a row of its own, but counted from the end of the table: the same token gets another row when "
        "the image has more of them. Count from the start.",
        rows(lambda table, x: table[:, -x.shape[1] :]),
    ),
    Suspect(
        "each token has a row of its own, but the first row is skipped: token 0 gets row 1. Start at 0.",
        rows(lambda table, x: table[:, 1 : x.shape[1] + 1]),
    ),
    Suspect(
        "the rows are multiplied with the tokens, and not added.",
        lambda module, x: x * module.pos_embedding[:, : x.shape[1]],
    ),
]


def verify_positions(name: str, cls: Callable) -> str:
    """Case 8: one row for all tokens."""
    repaired_module(name, cls, Positions, POSITIONS, POSITION_SYMPTOM, POSITION_MISTAKES)
    verify_module(name, cls, Positions, [FULL_TABLE], POSITION_MISTAKES)
    return "each token gets its own row, for any number of tokens up to max_len; unused rows stay out."


# --- 9: accuracy -----------------------------------------------------------------------------------------------------


class Scripted(nn.Module):
    """A model whose images hold its logits; in train mode, or where it is asked too much, it takes note."""

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


def answers(right: list[int]) -> TensorDataset:
    """Return a data set on which the scripted model is right (1) or wrong (0), image by image."""
    labels = torch.arange(len(right)) % 4
    logits = F.one_hot((labels + 1 - torch.tensor(right)) % 4, 4).float()
    return TensorDataset(logits[:, :, None, None], labels)


ANSWERS = [
    Case("10 images in batches of 4", (answers([1] * 8 + [0] * 2),), dict(batch_size=4)),
    Case("7 images in batches of 3", (answers([0, 1, 1, 0, 1, 0, 1]),), dict(batch_size=3)),
    Case("6 images in batches of 3", (answers([0, 1, 1, 0, 1, 1]),), dict(batch_size=3)),
    Case("5 images in one batch of 8", (answers([1, 0, 0, 1, 0]),), dict(batch_size=8)),
    Case("3 images, one at a time", (answers([1, 0, 1]),), dict(batch_size=1)),
]


def batches(dataset: TensorDataset, batch_size: int) -> list[Tensor]:
    """Return for each batch which of its answers are right."""
    images, labels = dataset.tensors
    return list((images.flatten(1).argmax(dim=-1) == labels).double().split(batch_size))


def accuracy_with(combine: Callable[[list[Tensor], int], Tensor | float]) -> Callable:
    """Return an accuracy from the answers by batch and the batch size."""
    return lambda dataset, batch_size: torch.as_tensor(
        combine(batches(dataset, batch_size), batch_size), dtype=torch.float64
    )


ACCURACY_SYMPTOM = Suspect(
    "8 right answers of 10 still make an accuracy of {came:.4f} in batches of 4.",
    accuracy_with(lambda parts, size: torch.stack([part.mean() for part in parts]).mean()),
    lambda dataset, batch_size: {"came": (1 + 1 + 0) / 3},
)
ACCURACY_MISTAKES = [
    Suspect(
        "the right answers are added up now, but divided by batches times batch size: the last batch may be smaller. "
        "Divide by the number of images.",
        accuracy_with(lambda parts, size: sum(part.sum() for part in parts) / (len(parts) * size)),
    ),
    Suspect(
        "each batch's accuracy is weighed with batch_size, and the last batch may be smaller. Weigh with its own "
        "number of images.",
        accuracy_with(lambda parts, size: sum(part.mean() * size for part in parts) / sum(map(len, parts))),
    ),
    Suspect(
        "the last, smaller batch is left out: its images belong to the data set too.",
        accuracy_with(
            lambda parts, size: torch.cat([part for part in parts if len(part) == size] or [torch.zeros(1)]).mean()
        ),
    ),
    Suspect(
        "the batches' accuracies are added up and divided by the number of images. Add up the right answers.",
        accuracy_with(lambda parts, size: sum(part.mean() for part in parts) / sum(map(len, parts))),
    ),
    Suspect("it is the accuracy of the last batch alone.", accuracy_with(lambda parts, size: parts[-1].mean())),
    Suspect("it is the accuracy of the first batch alone.", accuracy_with(lambda parts, size: parts[0].mean())),
    Suspect(
        "it returns the number of right answers. Divide by the number of images.",
        accuracy_with(lambda parts, size: sum(part.sum() for part in parts)),
    ),
    Suspect(
        "the accuracy comes in per cent. A number from 0 to 1 is wanted, as before.",
        accuracy_with(lambda parts, size: 100 * torch.cat(parts).mean()),
    ),
]


def reference_accuracy(model: nn.Module, dataset: TensorDataset, batch_size: int) -> float:
    """Return the share of right answers."""
    return training.evaluate(model, dataset, batch_size=batch_size)[1]


def verify_accuracy(name: str, function: Callable) -> str:
    """Case 9: the mean of batch means."""
    results, models, calls = [], [], [(*case.args, *case.kwargs.values()) for case in ANSWERS]
    for case in ANSWERS:
        takes(function, reference_accuracy, (None, *case.args), case.kwargs)
        models.append(Scripted().train())
        with learners(name, function, f"on {case.label}"):
            came = function(models[-1], *case.args, **case.kwargs)
        if came is None:
            raise CheckFailed("it returns None: is a return missing?")
        if not isinstance(came, (int, float, Tensor)) or (isinstance(came, Tensor) and came.numel() != 1):
            raise CheckFailed(f"it must return one number, the accuracy; got {type(came).__name__} {str(came)[:40]}.")
        results.append(torch.as_tensor(came, dtype=torch.float64).detach().reshape(()))
    if any(True in model.modes for model in models):
        raise CheckFailed(
            "the model is no longer in eval mode while it is measured, so that dropout acts. Keep model.eval()."
        )
    if all(same(a, b) for a, b in zip(results, results_of(ACCURACY_SYMPTOM, calls), strict=True)):
        still(ACCURACY_SYMPTOM.sentence.format(**ACCURACY_SYMPTOM.numbers(*calls[0])))
    expected = results_of(Suspect("", accuracy_with(lambda parts, size: torch.cat(parts).mean())), calls)
    judge(ANSWERS, results, expected, with_results(ACCURACY_MISTAKES, calls))
    for model, case in zip(models, ANSWERS, strict=True):
        if max(model.sizes) > case.kwargs["batch_size"]:
            raise CheckFailed(
                f"the accuracy is right, but the model gets {max(model.sizes)} images at once where batch_size="
                f"{case.kwargs['batch_size']}. Go through the set in batches."
            )
    return "right answers over images, whatever the batch size and the rest it leaves."


# --- 10: heads -------------------------------------------------------------------------------------------------------

HEADS_SYMPTOM = Suspect(
    "with {heads} heads the output is still not torch's for the same weights; with 1 head it is.",
    lambda module, x: module.out_proj(
        attend(module, x, attention=lambda q, k, v: (scores(q, k) * x.shape[-1] ** -0.5).softmax(dim=-1) @ v)
    ),
    lambda module, x: {"heads": module.num_heads},
)


def verify_heads(name: str, cls: Callable) -> str:
    """Case 10: the wrong root."""
    reference = vit_course.MultiHeadSelfAttention
    repaired_module(name, cls, reference, SELF_ATTENTION_CASES, HEADS_SYMPTOM, MULTI_HEAD_MISTAKES)
    return "equal to the course's attention for one and more heads; gradients flow."


# --- 11: block -------------------------------------------------------------------------------------------------------

WRITES = 1.5  # what a branch writes everywhere, before dropout


def branch_state(options: dict, bias: str | None) -> dict[str, Tensor]:
    """Return a block's parameters, all zero, save that one branch writes a constant."""
    state = block_state(**options)
    return state if bias is None else state | {bias: torch.full_like(state[bias], WRITES)}


def verify_block(name: str, cls: Callable) -> str:
    """Case 11: dropout on the skip path."""
    options = {"hidden_dim": WIDTH, "num_heads": 3, "mlp_dim": 40}
    dropping = options | {"dropout": RATE}
    takes(cls, vit_course.EncoderBlock, (), dropping)
    verify_module(name, cls, vit_course.EncoderBlock, BLOCK_CASES, BLOCK_MISTAKES)
    x, nothing = 2 + formula(100, 4, WIDTH), torch.zeros(100, 4, WIDTH)  # no zeros; nothing but zeros
    silent = in_train_mode(name, cls, dropping, branch_state(options, None), None, x)
    lost = (silent == 0).double().mean().item()
    first, second = (
        in_train_mode(name, cls, dropping, branch_state(options, bias), None, nothing)
        for bias in ("self_attention.out_proj.bias", "mlp.linear_2.bias")
    )
    branches_whole = same(second, torch.full_like(second, WRITES))
    if branches_whole and abs(lost - (1 - (1 - RATE) ** 2)) < 0.03:
        still(
            f"with both branches silent and dropout={RATE}, {lost:.0%} of the tokens' numbers are lost in one block, "
            "in train mode."
        )
    verify_modes(name, cls, vit_course.EncoderBlock, BLOCK_CASES[0].options, BLOCK_CASES[0].args[0], None)
    if lost > 0:
        what = "the sum is dropped, skip path and all"
        if abs(lost - RATE) < 0.03:
            what = "one of the two additions still drops the stream"
        elif branches_whole:
            what = "the stream itself is dropped"
        raise CheckFailed(
            f"{what}: x must pass each addition whole. Drop what the branch writes: x + dropout(branch).\n"
            f"  branches silent, dropout={RATE}: {lost:.0%} of the stream lost, none expected"
        )
    if not same(silent, x):
        raise CheckFailed(
            "nothing is lost on the skip path now, but the stream is still changed in train mode while both branches "
            f"are silent: is it divided by 1 - p?\n  {describe(silent, x)}"
        )
    if same(first, torch.full_like(first, WRITES)) and same(second, torch.full_like(second, WRITES)):
        raise CheckFailed(
            "the skip path is whole, but nothing that a branch writes is dropped: dropout is gone, or acts before the "
            "branch's layers. Drop what each branch writes: x + dropout(branch)."
        )
    for out, what in ((first, "attention"), (second, "the MLP")):
        none = (f"what {what} writes is not dropped. Each branch has its dropout: x + dropout(branch).", {WRITES: 1.0})
        verify_levels(out, drop({WRITES: 1.0}), [none, *slips(WRITES)])
    return "the stream passes whole, dropout acts on both branches, in train mode only."


# --- 12: pooling -----------------------------------------------------------------------------------------------------


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


def pooled(pool: Callable[[Tensor], Tensor]) -> Callable:
    """Return a head that makes one vector of the tokens in another way."""
    return lambda module, x: module.head(pool(x))


POOL_SYMPTOM = Suspect(
    "the logits still move when the class token alone is changed; the patches' mean does not hold it.",
    pooled(lambda x: x.mean(dim=1)),
)
POOL_MISTAKES = [
    Suspect(
        "the class token is out of the sum, but the sum is still divided by all {s} tokens: divide by the {n} patches.",
        pooled(lambda x: x[:, 1:].sum(dim=1) / x.shape[1]),
        lambda module, x: {"s": x.shape[1], "n": x.shape[1] - 1},
    ),
    Suspect(
        "the sum runs over all tokens and is divided by the {n} patches: the class token is still in it.",
        pooled(lambda x: x.sum(dim=1) / (x.shape[1] - 1)),
        lambda module, x: {"n": x.shape[1] - 1},
    ),
    Suspect(
        "this is the other head, which reads the class token alone. Here the mean of the patch tokens is wanted.",
        pooled(lambda x: x[:, 0]),
    ),
    Suspect(
        "a token is left out, but the last patch: the class token is the first, number 0.",
        pooled(lambda x: x[:, :-1].mean(dim=1)),
    ),
    Suspect("the patch tokens are added up. Take their mean.", pooled(lambda x: x[:, 1:].sum(dim=1))),
    Suspect("it takes the largest value over the patches. Take their mean.", pooled(lambda x: x[:, 1:].amax(dim=1))),
    Suspect(
        "the tokens are normalised once more; the encoder has done so already.",
        pooled(lambda x: F.layer_norm(x[:, 1:].mean(dim=1), x.shape[-1:], eps=1e-6)),
    ),
]


def verify_pooling(name: str, cls: Callable) -> str:
    """Case 12: the class token pooled in."""
    repaired_module(name, cls, MeanHead, POOLED, POOL_SYMPTOM, POOL_MISTAKES)
    return "the mean of the patch tokens, for any number of them; the class token stays out."


# --- all cases -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patient:
    """One case of the clinic."""

    number: int
    name: str
    verify: Callable[[str, Callable], str]


PATIENTS = [
    Patient(number, name, verify)
    for number, (name, verify) in enumerate(
        {
            "rows": verify_rows,
            "padding": verify_padding,
            "patches": verify_patches,
            "loss": verify_loss,
            "projection": verify_projection,
            "residual": verify_residual,
            "rate": verify_rate,
            "positions": verify_positions,
            "accuracy": verify_accuracy,
            "heads": verify_heads,
            "block": verify_block,
            "pooling": verify_pooling,
        }.items(),
        start=1,
    )
]


MAPPING_OFFER = ", or pass mapping=, a function from the course's state dict to yours"


def clinic(case: int | str, repaired: Callable) -> Verdict:
    """Check a repair of lesson 09: the values and the behaviour of the piece of code that was broken.

    Verified: that the symptom is gone, and that everything else is as it should be – values for several sizes, other
    than the lesson's too, train and eval mode where they matter, gradients, the caller's tensors.

    Args:
        case: the number, 1 to 12, or the name, such as ``"rows"``.
        repaired: the function or class, with the arguments that the broken one had.

    Returns:
        One line that says what was verified. It is False, and names the symptom that is left, for code that still
        behaves exactly as the broken code does.

    Raises:
        CheckFailed: something else is wrong; the message names it.
        ValueError: there is no such case.
    """
    patient = next((p for p in PATIENTS if not isinstance(case, bool) and case in (p.number, p.name)), None)
    if patient is None:
        known = ", ".join(f'{p.number} or "{p.name}"' for p in PATIENTS)
        raise ValueError(f"case must be one of {known}; got {case!r}")
    name = f"case {patient.number}, {patient.name}"

    def verify() -> str:
        try:
            return patient.verify(name, repaired)
        except CheckFailed as error:  # other checks take a mapping of names, this one does not
            raise CheckFailed(str(error).replace(MAPPING_OFFER, "")) from error.__cause__

    return check(name, repaired, verify)
