"""The lessons' small exercises: the cases on which an answer must equal its twin, so that no solution is printed.

And the check of any small function by another one, for the assignments.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

import vit_course
from vit_course import transfer
from vit_course.checks import twins
from vit_course.checks.attention import tensors
from vit_course.checks.compare import duplicate, formula, named, set_parameters
from vit_course.checks.declare import CHECKS, Case, Check, declare
from vit_course.checks.learner import check, running, shown
from vit_course.checks.modules import Mapping, repeats
from vit_course.checks.trace import forbids, never_seeds, recorded
from vit_course.checks.transfer import returned
from vit_course.checks.verdict import Verdict, fail, refuse, sentence
from vit_course.data import load_test_images
from vit_course.weights import to_huggingface

LETTERS = load_test_images()


def _to_embed(b: int, c: int, h: int, w: int, p: int, d: int) -> tuple[Tensor, ...]:
    n = (h // p) * (w // p)
    return formula(b, c, h, w), formula(d, c, p, p), formula(d), formula(1, 1, d), formula(1, n + 1, d)


def _in_blocks(b: int, heads: int, i: int, j: int, e: int, v: int, block_size: int) -> tuple[Tensor | int, ...]:
    return *tensors("", b, heads, i, j, e, v).args, block_size


def _never_all_scores(function: Callable, mapping: Mapping) -> None:
    given = _in_blocks(1, 1, 3, 11, 4, 2, 5)
    refuse(any(tensor.numel() == 3 * 11 for tensor, _ in recorded(function, *given).seen), "exercises.all_scores")


def _copies_every_parameter(function: Callable, mapping: Mapping) -> None:
    with running(sentence("declare.on", case="five tokens")):
        repeats(lambda: function(ATTENTION, formula(2, 5, 32).double()), "exercises.not_all_copied")


def _never_calls_ours(function: Callable, mapping: Mapping) -> None:
    calls = []
    hook = ATTENTION.register_forward_hook(lambda *_: calls.append(1))
    try:
        function(ATTENTION, formula(2, 5, 32).double())
    finally:
        hook.remove()
    refuse(calls, "exercises.calls_ours")


def _counts(function: Callable, mapping: Mapping) -> None:
    if (counts := function(formula(3, 5, 4), formula(3, 5, 4) + CHANGES)).is_floating_point():
        raise fail("exercises.float_counts", came=counts.dtype)


def _indexes(function: Callable, mapping: Mapping) -> None:
    if isinstance(indices := function(3, 10, 4, 1), Tensor) and indices.is_floating_point():
        raise fail("exercises.float_indices", came=indices.dtype)


def _photo(height: int, width: int) -> tuple[Tensor]:
    values = torch.arange(height * width * 3, dtype=torch.float32)
    return ((0.5 + 0.5 * torch.sin(0.37 * values + 1e-5 * values**2)).reshape(height, width, 3),)


def _unfrozen(function: Callable, case: Case) -> dict[str, Tensor]:
    num_layers, num_blocks = case.args
    model = vit_course.VisionTransformer(**_SIZES | dict(num_layers=num_layers, num_classes=3))
    transfer.replace_head(model, 4)
    nn.init.ones_(model.head.bias)
    before = parameters_to_vector(model.parameters())
    result = function(model, num_blocks)
    returned(result, model)
    refuse(not torch.equal(parameters_to_vector(model.parameters()), before), "unfreeze_last.changed")
    return {"what is trained": torch.tensor([float(parameter.requires_grad) for parameter in model.parameters()])}


CHANGES = torch.zeros(3, 5, 4)  # some tokens differ in one feature, up or down, some in all, and some by too little
CHANGES[0, 0, 0], CHANGES[0, 2, 1], CHANGES[0, 3, 2], CHANGES[0, 4], CHANGES[1] = 0.02, -3e-4, 0.04, 0.5, 0.01
CHANGES[2, 0], CHANGES[2, 1], CHANGES[2, 2, 0], CHANGES[2, 3], CHANGES[2, 4] = 1e-6, 4e-5, 3e-4, 5e-4, 2e-5
CHANGES[0, 1] = 8e-5
PARTLY_ZERO = formula(1, 50, 3)
PARTLY_ZERO[0, [0, 9]] = 0.0


class FoundBlock(vit_course.EncoderBlock):
    """The block at the end of the appendix, with one mistake; its readers measure it before they see its code."""

    def norm(self, x: Tensor, layer: nn.LayerNorm) -> Tensor:
        """Return what the block takes for the LayerNorm of ``x``."""
        centered = x - x.mean(dim=-1, keepdim=True)
        variance = centered.square().mean(dim=-1, keepdim=True)
        inverse = (variance + layer.eps).rsqrt()
        return layer.weight * (centered * inverse + layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens after both branches."""
        x = x + self.dropout(self.self_attention(self.norm(x, self.ln_1)))
        return x + self.mlp(self.norm(x, self.ln_2))


class _GuiltyBlock(vit_course.EncoderBlock):
    """A block to which each of some pairs, a LayerNorm's weight and a bias, adds an error; rounded unlike ours."""

    def __init__(self, *pairs: tuple[str, str]) -> None:
        super().__init__(hidden_dim=32, num_heads=4, mlp_dim=128)
        self.pairs = pairs

    def forward(self, x: Tensor) -> Tensor:
        errors = [(self.get_parameter(weight) - 1) * self.get_parameter(bias) for weight, bias in self.pairs]
        return super().forward(x) * 3 / 3 + sum(errors)


def _guilty(*pairs: tuple[str, str]) -> tuple[nn.Module, nn.Module, dict, dict]:
    return _GuiltyBlock(*pairs).double().eval(), RIGHT, NEW, BLOCK.state_dict()


def _as_pairs(function: Callable, case: Case) -> object:
    """Call it, and put pairs of names into one order."""
    found = function(*case.args)
    if not isinstance(found, (list, tuple, set)) or not all(isinstance(pair, (list, tuple, set)) for pair in found):
        return found
    return sorted(tuple(sorted(map(str, pair))) for pair in found)


with torch.random.fork_rng(devices=[]):  # initial values are drawn before they are set
    torch.manual_seed(0)
    BLOCK, RIGHT, _NEW = (vit_course.EncoderBlock(hidden_dim=32, num_heads=4, mlp_dim=128).double() for _ in range(3))
    set_parameters(BLOCK)
    ATTENTION = BLOCK.self_attention
    RIGHT.eval()
    NEW = _NEW.state_dict()
    TWO_MISTAKES = ("ln_1.weight", "ln_2.bias"), ("ln_1.weight", "self_attention.out_proj.bias")
    GUILTY = {
        "a block whose MLP is wrong": _guilty(("ln_2.weight", "mlp.linear_2.bias")),
        "a block with two mistakes": _guilty(*TWO_MISTAKES),
        "a block without a mistake": _guilty(),
    }
    _SIZES = dict(image_size=8, patch_size=4, num_layers=11, num_heads=2, hidden_dim=6, mlp_dim=8)
    _SAVED = to_huggingface(set_parameters(vit_course.VisionTransformer(**_SIZES)), saved=True)
    SAVED = dict(reversed(_SAVED.items()))  # no order is promised

EXERCISES: dict[str, Check] = {}


def _exercise(name: str, cases: dict[str, tuple], *, fault: str = "", **rest: object) -> None:
    """Declare an exercise: the name of its function, which its twin has as well, and the arguments of each case."""
    group = [Case(label, args, fault=fault) for label, args in cases.items()]
    declare(name, getattr(twins, name), [group], among=EXERCISES, **rest)


_exercise("negative", {"six letters": (LETTERS,), "one row": (formula(5) / 2 + 0.5,)})
_exercise("even_then_odd", {"a letter": (LETTERS[0],), "an image of 96 × 50": (LETTERS[1, :, :, :50],)})
_exercise(
    "center_channels",
    {"six letters": (LETTERS,), "four letters with two channels": (LETTERS[2:, :2],)},
    stages=["mean"],
)
_exercise(
    "patch_similarity",
    {
        "patches of 16 × 16": (vit_course.patchify(LETTERS, 16),),
        "one image with patches of 32 × 32": (vit_course.patchify(LETTERS[:1], 32),),
    },
    stages=["lengths", "unit"],
    behaviors=[forbids("cosine_similarity", formula(2, 3, 4))],
)
_exercise("linear_weight", {"three channels": (formula(7, 3, 4, 4),), "two channels": (formula(5, 2, 2, 2),)})
SIX, TWO = (formula(1, 1, 8), formula(6, 9, 8, start=51)), (formula(1, 1, 5), formula(2, 4, 5, start=51))
_exercise("prepend_class_token", {"six images": SIX, "two images": TWO})
_exercise(
    "embed_images",
    {
        "square images": _to_embed(2, 3, 12, 12, 4, 7),
        "a rectangular image with two channels": _to_embed(1, 2, 4, 6, 2, 5),
    },
    stages=["maps", "patch_tokens", "tokens"],
)
_exercise(
    "attention_in_blocks",
    {
        "7 keys in blocks of 3": _in_blocks(2, 3, 7, 7, 4, 4, 3),
        "12 keys in blocks of 4": _in_blocks(1, 2, 5, 12, 9, 2, 4),
        "4 keys in one block of 9": _in_blocks(1, 1, 3, 4, 6, 6, 9),
    },
    stages=["scaled", "exponentials", "numerator", "denominator"],
    behaviors=[forbids("scaled_dot_product_attention", *_in_blocks(1, 1, 3, 4, 6, 6, 2)), _never_all_scores],
)
NUMBERS, THREE_AXES = torch.tensor([-1.0, 0.0, 1.0, 2.0]), torch.linspace(-4, 4, 24).view(2, 3, 4)
_exercise(
    "gelu",
    {"four numbers": (NUMBERS,), "a tensor with three axes": (THREE_AXES,)},
    stages=["scaled", "error"],
    behaviors=[forbids("gelu", torch.ones(3))],
)
_exercise(  # the class tokens of the first case are full of 100s
    "mean_patch",
    {
        "three patch tokens": (F.pad(torch.arange(24.0).reshape(2, 3, 4) ** 2, (0, 0, 1, 0), value=100.0),),
        "four patch tokens of one image": (torch.arange(1.0, 31.0).reshape(1, 5, 6) ** 2,),
        "a patch token of zeros": (torch.arange(5.0).outer(torch.arange(1.0, 7.0)).flip(0)[None],),
    },
    stages=["patches"],
)
_exercise(
    "count_parameters",
    {
        "image_size=32, patch_size=8, 2 layers, d=24": (32, 8, 2, 3, 24, 40, 10),
        "image_size=32, patch_size=16, 3 layers, d=8": (32, 16, 3, 2, 8, 20, 5),
        "ViT-Ti/16": (224, 16, 12, 3, 192, 768, 1000),
    },
    behaviors=[forbids("empty", 32, 8, 2, 3, 24, 40, 10, says="exercises.builds_a_model")],
)
_exercise(
    "mean_cross_entropy",
    {
        "two images": (torch.tensor([[2.0, 1.0, -1.0], [0.5, -0.25, 3.0]]), torch.tensor([0, 1])),
        "eight images": (3 * formula(8, 10), torch.arange(8) % 3),
        "a logit of 100": (torch.tensor([[100.0, 1.0, -1.0]]), torch.tensor([1])),
        "logits of 100 and of -100": (torch.tensor([[100.0, 98.0], [-100.0, -101.0]]), torch.tensor([1, 0])),
    },
    stages=["right", "norms", "losses"],
    behaviors=[forbids("cross_entropy", formula(4, 3), torch.tensor([0, 1, 2, 1]))],
)
_exercise(
    "errors_apart",
    {
        "two pairs of runs": (torch.tensor([0.9137, 0.6]), torch.tensor([0.8892, 0.7]), 10_000),
        "a pair with 360 images": (torch.tensor([0.5]), torch.tensor([0.4]), 360),
    },
    stages=["variance", "error"],
    has_gradients=False,
)
_exercise(
    "batch_of_step",
    {
        "the first step of 10 images in batches of 4": (0, 10, 4, 0),
        "the same step with seed 5": (0, 10, 4, 5),
        "step 2 of 10 images in batches of 4": (2, 10, 4, 3),
        "step 9 of 10 images in batches of 4": (9, 10, 4, 3),
        "step 5 of 12 images in batches of 4": (5, 12, 4, 3),
    },
    behaviors=[never_seeds("exercises.random_state", lambda function: function(3, 10, 4, 1)), _indexes],
)
SQUARES = torch.arange(16.0).reshape(4, 4) ** 2
_exercise(
    "average_gradient",
    {
        "equal shares": (SQUARES, torch.tensor([5, 5, 5, 5])),
        "shares of 10, 10, 5 and 1 images": (SQUARES, torch.tensor([10, 10, 5, 1])),
        "shares of 3 and 1 images": (torch.tensor([[1.0, -2.0, 3.0], [4.0, 0.5, 2.0]]), torch.tensor([3, 1])),
        "double precision": (SQUARES[:2].double(), torch.tensor([3, 1])),
    },
    has_gradients=False,
)
_exercise(
    "prepare_photo",
    {"a photo of 56 × 90": _photo(56, 90), "a photo of 91 × 60": _photo(91, 60), "a square photo": _photo(30, 30)},
    stages=["gray", "square"],
    has_gradients=False,
)
_exercise(
    "unfreeze_last",
    {
        "the last two of three blocks": (3, 2),
        "all four blocks": (4, 4),
        "no block": (3, 0),
        "the last two of eleven blocks": (11, 2),
    },
    fault="unfreeze_last.others",
    run=_unfrozen,
)
_exercise("joined_qkv", {"the weight of block 2": (SAVED, 2, "weight"), "the bias of block 1": (SAVED, 1, "bias")})
_exercise(
    "without",
    {
        "three patches of two images": (formula(2, 50, 3), [0, 7, 48]),
        "one patch of one image": (formula(1, 50, 4), [20]),
        "no patch": (formula(1, 50, 2), []),
        "class token and patch 8 all zeros": (PARTLY_ZERO, [3]),
    },
    has_gradients=False,
)
_exercise(
    "changed_tokens",
    {
        "three images": (formula(3, 5, 4), formula(3, 5, 4) + CHANGES),
        "outputs that are equal": (formula(2, 5, 4), formula(2, 5, 4)),
        "values near 100": (100 + formula(3, 5, 4), 100 + formula(3, 5, 4) + CHANGES),
    },
    behaviors=[_counts],
)
_exercise(
    "copied_attention",
    {"five tokens": (ATTENTION, formula(2, 5, 32).double())},
    stages=["query key value", "merged"],
    before=[_copies_every_parameter],
    behaviors=[_never_calls_ours],
)
SIZES = [(32, 7), (32, 2), (32, 5), (32, 10), (224, 16), (100, 9)]
_exercise("count_tokens", {f"count_tokens{sizes}": sizes for sizes in SIZES})
ROWS = {"a weight of 24 rows": (formula(24, 8),), "a weight of 18 rows": (formula(18, 6),), "a bias": (formula(36),)}
_exercise("reorder_qkv", ROWS)
_exercise("guilty_pairs", GUILTY, run=_as_pairs, most=1)


def exercise(function: Callable) -> Verdict:
    """Check the answer to an exercise of a lesson; the function's name says which exercise it is.

    In a notebook a failure is shown and not raised, so that the cells after it can run.

    Raises:
        ValueError: no exercise has this name.
        CheckFailed: outside of notebooks, when the answer is wrong.
    """
    name = getattr(function, "__name__", type(function).__name__)
    known = CHECKS | EXERCISES
    if name not in known:
        wanted = "a function under the name that the lesson gives it"
        raise ValueError(f"exercise needs {wanted}; got {name!r}, not {', '.join(sorted(EXERCISES))}")
    return shown(lambda: known[name](function))


def same_values(function: Callable, oracle: Callable, *inputs: object) -> Verdict:
    """Check a function by another that computes the same in its own way.

    Verified: for every input, the kind of the result (array, tensor, number, list), its shape and its values: whole
    numbers exactly, others to 1e-5 of the largest; that the input is left as it is. Gradients are not looked at. Where
    the values are wrong, the message says whether they are the right ones with the axes in another order, in other
    places, or multiplied by one factor.

    Args:
        function: the learner's function.
        oracle: a function of the same arguments, right by other means than the answer's own line: a loop, another
            library's call.
        inputs: each is one call. A tuple is taken as several arguments; arrays, tensors, numbers and lists of them as
            one.

    Returns:
        One line that says on how many inputs the values are equal, or that the function is not written yet.

    Raises:
        CheckFailed: a result is of another kind or shape or has other values, or an input was changed.
        ValueError: no inputs.

    Example::

        checks.same_values(channels_first, lambda images: images.transpose(0, 3, 1, 2), test_images)
    """
    if not inputs:
        raise ValueError("inputs must be at least one: same_values(function, oracle, *inputs)")
    name = getattr(function, "__name__", type(function).__name__).replace("<lambda>", "your function")
    label = "same_values.input" if len(inputs) > 1 else "same_values.only_input"
    calls = [given if isinstance(given, tuple) else (given,) for given in inputs]
    plain = [all(isinstance(arg, (int, float, str)) for arg in given) for given in calls]
    words = [f" ({', '.join(map(named, given))})" * short for given, short in zip(calls, plain, strict=True)]
    cases = [Case(sentence(label, place=k + 1, given=words[k]), given) for k, given in enumerate(calls)]

    def run(function: Callable, case: Case) -> object:
        with torch.enable_grad():
            return function(*map(duplicate, case.args))

    def verify() -> str:
        Check(name, oracle, [cases], run=run).verify(function)
        return sentence(f"same_values.verified{'_once' if len(inputs) == 1 else ''}", count=len(inputs))

    return check(name, function, verify)
