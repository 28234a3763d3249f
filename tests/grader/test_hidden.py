"""The hidden tests: every known mistake is refused, every right style passes, whatever is drawn."""

import math
import re
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn
from witnesses import ALTERNATIVES, MUTANTS, Witness

from grader import hidden
from grader.source import ASSIGNMENTS, load_all
from vit_course import EncoderBlock
from vit_course.checks.declare import CHECKS

pytestmark = pytest.mark.usefixtures("as_readers_run_it")

SOURCES = load_all(ASSIGNMENTS / "source").values()
ASKED = re.findall(r"hidden\.(\w+)\(", "".join(code for source in SOURCES for code in source.hidden_tests.values()))
PARTS = sorted(CHECKS.keys() & set(ASKED))


def of_parts(entries):
    return [entry for entry in entries if entry.check in PARTS]


def label(entry):
    return f"{entry.check}-{entry.code.__name__}-{entry.names}"


# these have the right values, and hidden tests compare only values
UNMARKED = {"the second time as", "your code calls", "sets torch's random seed", "which parameters are trained"}
MARKED = [each for each in of_parts(MUTANTS) if not any(words in each.names for words in UNMARKED)]


@pytest.mark.parametrize("mutant", MARKED, ids=label)
def test_a_mistake_is_refused(mutant):
    for _ in range(2):
        with pytest.raises(hidden.Wrong, match=mutant.code.__name__):
            getattr(hidden, mutant.check)(mutant.code)


RIGHT = [Witness(part, CHECKS[part].reference, mapping=None) for part in PARTS]
RIGHT += [each for each in of_parts(ALTERNATIVES) if each.mapping is None]


@pytest.mark.parametrize("right", RIGHT, ids=label)
def test_a_right_implementation_passes(right):
    before = torch.random.get_rng_state()
    for _ in range(2):
        getattr(hidden, right.check)(right.code)
    assert torch.equal(before, torch.random.get_rng_state())


def textbook_layer_norm(x, weight, bias, eps):
    mean = x.mean(dim=-1, keepdim=True)
    variance = (x**2).mean(dim=-1, keepdim=True) - mean**2
    return (x - mean) / (variance + eps).sqrt() * weight + bias


class BlockOfTanh(EncoderBlock):
    def forward(self, x):
        x = x + self.dropout(self.self_attention(self.ln_1(x)))
        hidden = F.gelu(self.mlp.linear_1(self.ln_2(x)), approximate="tanh")
        return x + self.dropout(self.mlp.linear_2(self.dropout(hidden)))


def test_the_same_code_gets_the_same_mark_whatever_is_drawn():
    for _ in range(50):
        hidden.layer_norm(textbook_layer_norm)
        with pytest.raises(hidden.Wrong):
            hidden.encoder_block(BlockOfTanh)


def test_every_part_has_mutants_and_alternatives():
    assert len(PARTS) == 14
    assert {entry.check for entry in of_parts(MUTANTS)} == set(PARTS)
    assert {entry.check for entry in of_parts(ALTERNATIVES)} == set(PARTS)


def double(x, k):
    return 2 * x + k


def draw():
    return hidden.normal(hidden.whole(2, 4), 3), hidden.whole(1, 5)


def several(n):
    return [n, "a", True, None, (n + 0.5,)]


def test_any_function_can_be_tested():
    hidden.same_values(lambda x, k: x * 2 + k, double, draw, gradients=True)
    hidden.same_values(lambda x, k=1: x * 2 + k, double, lambda: (draw()[:1], dict(k=3)))
    hidden.same_values(several, several, lambda: (3,))
    hidden.same_values(nn.GELU(), F.gelu, lambda: draw()[:1], gradients=True)  # a module in place of a function


def not_written(x, k):
    raise NotImplementedError


def bold(x, k):
    raise ValueError("\x1b[1mbold\x1b[0m")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (not_written, r"^not_written: not written yet$"),
        (lambda x, k: F.avg_pool2d(x.byte()[None], 2), "stopped with NotImplementedError: .* for 'Byte' in line"),
        (lambda x, k: nn.ModuleList()(x), "stopped with NotImplementedError: Module .ModuleList. is missing"),
        (bold, "^bold: your code stopped with ValueError: bold in line"),
        (lambda x, k: 2 * x, "differ"),
        (lambda x, k: (2 * x + k).detach(), "has no gradient"),
        (lambda x, k: 2 * x.detach() + k + 0 * x, "the gradient of argument 1"),
        (lambda x, k: x.mul_(2) + k, "argument was changed"),
        (lambda x, k: (2 * x + k).flatten(), "expected shape"),
        (lambda x, k: None, "expected a tensor, got None"),
        (lambda x, k: 2 * x + k + float("nan"), "got nan"),
        (lambda x, k: 1 / 0, "^<lambda>: your code stopped with ZeroDivisionError: division by zero in line"),
        (lambda x: x, "^<lambda>: your code stopped with TypeError"),
        (nn.Linear, "^Linear: your code stopped with TypeError"),
        (3, "^int: your code stopped with TypeError"),
    ],
)
def test_a_wrong_function_is_told_why(function, message):
    with pytest.raises(hidden.Wrong, match=message):
        hidden.same_values(function, double, draw, gradients=True)


OTHERS = [([1, 2], [1, 2, 3]), ((1, 2), 3), ("a", "b"), (True, 1), (1, True), (None, 0), (1.5, 1), (math.nan, math.nan)]


@pytest.mark.parametrize(("mine", "right"), OTHERS)
def test_values_of_other_kinds_are_told_apart(mine, right):
    with pytest.raises(hidden.Wrong):
        hidden.same_values(lambda: mine, lambda: right, tuple, times=1)


class Scale(nn.Module):
    def __init__(self, *, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return self.weight * x


def changed(change):
    """Return a class to which something is done whenever an instance is made."""

    class Changed(Scale):
        def __init__(self, *, d):
            super().__init__(d=d)
            change(self)

    return Changed


SHARED = nn.Parameter(torch.ones(4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scale: scale.register_buffer("anything", torch.zeros(3)), None),
        (lambda scale: scale.register_parameter("frozen", nn.Parameter(torch.zeros(3), requires_grad=False)), None),
        (lambda scale: scale.register_parameter("more", nn.Parameter(torch.zeros(3))), "not expected: more"),
        (lambda scale: scale.requires_grad_(False), "requires_grad"),
        (lambda scale: scale.register_parameter("s", scale._parameters.pop("weight")), "no parameter weight; it has s"),
        (lambda scale: setattr(scale, "weight", SHARED), "two instances share"),
    ],
)
def test_any_class_can_be_tested(change, message):
    with pytest.raises(hidden.Wrong, match=message) if message else nullcontext():
        hidden.same_module(changed(change), Scale, lambda: (dict(d=4), hidden.normal(2, 4)))


def step_in_parts(model, optimizer, images, labels, *, at_once):
    model.train()
    optimizer.zero_grad()
    total = 0.0
    for part, wanted in zip(images.split(4), labels.split(4), strict=True):
        loss = F.cross_entropy(model(part), wanted, reduction="sum") / len(images)
        if not at_once:
            loss.backward()
        total = total + (loss if at_once else loss.detach())
    if at_once:
        total.backward()
    optimizer.step()
    return total.item()


def test_the_parts_of_a_batch_must_not_be_in_memory_at_once():
    def each_alone(*batch, at_once):
        return step_in_parts(*batch, at_once=False)

    hidden.same_training(step_in_parts, step_in_parts, [dict(at_once=True)])  # the same values
    hidden.same_training(each_alone, step_in_parts, [dict(at_once=True)], in_parts=True)
    with pytest.raises(hidden.Wrong, match="backward must run after each part"):
        hidden.same_training(step_in_parts, each_alone, [dict(at_once=True)], in_parts=True)


def test_draws_are_new_at_every_run():
    drawn = []
    for _ in range(2):
        hidden.same_values(double, double, lambda: drawn.append(draw()) or drawn[-1], times=1)
    assert not torch.equal(drawn[0][0].flatten()[:6], drawn[1][0].flatten()[:6])


def test_a_remote_value_cannot_be_compared_by_chance():
    remote = hidden.Remote("x", lambda request: {"result": 3})
    for compare in (lambda: remote == 3, lambda: remote != 3, lambda: bool(remote), lambda: remote < 3):
        with pytest.raises(TypeError, match=r"hidden\.same_values"):
            compare()
    with pytest.raises(TypeError, match="not callable"):
        remote(1)


def test_a_reference_that_leans_on_the_student_is_a_fault():
    remote = hidden.Remote("double", lambda request: {"result": double(*request["details"]["args"])})
    for reference, drawn in [(remote, draw), (lambda x, k: remote(x, k), draw), (double, lambda: remote(1))]:
        with pytest.raises(hidden.Fault):
            hidden.same_values(double, reference, drawn)


def test_a_float_that_einops_took_for_a_size_costs_no_points_later():
    request = dict(name="split", operation="call", details=dict(args=(torch.ones(2, 8),), kwargs={}))
    for size, stops in ((4.0, True), (4, False)):
        names = {"split": lambda x, size=size: rearrange(x, "b (h p) -> b h p", h=size)}
        assert ("error" in hidden.perform(names, request)) == stops
