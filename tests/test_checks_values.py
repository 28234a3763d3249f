"""The check of small functions: right ones pass in any kind, wrong ones are refused with the cause."""

import copy
import re

import numpy as np
import pytest
import torch
from einops import rearrange
from torch import nn

from vit_course import checks
from vit_course.checks.compare import unchanged

IMAGES = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
TENSOR = torch.linspace(-2, 3, 24).reshape(2, 3, 4)


def channels_last(images):
    return images.transpose(0, 2, 3, 1)


def softmax(x):
    exponents = (x - x.max(dim=-1, keepdim=True).values).exp()
    return exponents / exponents.sum(dim=-1, keepdim=True)


# the learner's function, the oracle, the inputs
RIGHT = {
    "arrays": (channels_last, lambda a: np.moveaxis(a, 1, 3), [IMAGES]),
    "tensors": (softmax, lambda x: torch.softmax(x, dim=-1), [TENSOR, 100 * TENSOR]),
    "two arguments": (lambda q, k: q @ k.mT, lambda q, k: torch.einsum("bid,bjd->bij", q, k), [(TENSOR, TENSOR + 1)]),
    "tensor and number": (lambda x, n: x * n, lambda x, n: sum(x for _ in range(n)), [(TENSOR, 3), (TENSOR, 4)]),
    "numbers": (lambda n: n * n, lambda n: sum([n] * n), [3, 9304]),
    "float for an array without axes": (lambda x: x.sum().item(), lambda x: np.array(276.0), [torch.arange(24)]),
    "whole number for a float of the same value": (lambda n: n / 2, lambda n: n // 2, [4, 10]),
    "shapes": (lambda x: tuple(x.shape), lambda x: x.shape, [TENSOR]),
    "list in, list out": (lambda xs: [2 * x for x in xs], lambda xs: [x + x for x in xs], [[TENSOR, IMAGES, 3]]),
    "tuples of results": (lambda x: (x.min(), x.max()), lambda x: torch.aminmax(x.flatten(), dim=0), [TENSOR]),
    "infinities": (lambda x: x.masked_fill(x < 0, -torch.inf), lambda x: torch.where(x < 0, -torch.inf, x), [TENSOR]),
    "booleans": (lambda x: x > 0, lambda x: torch.gt(x, 0), [TENSOR]),
    "strings": (lambda n: f"{n} patches", lambda n: str(n) + " patches", [3]),
    "a view of the input": (lambda x: x, lambda x: x + 0, [TENSOR]),
    "nothing in it": (lambda x: x[:0], lambda x: torch.zeros(0, 3, 4), [TENSOR]),
    "a parameter": (lambda x: nn.Parameter(x), lambda x: x.clone(), [TENSOR]),
    "autograd": (lambda x: torch.autograd.grad(x.requires_grad_().square().sum(), x)[0], lambda x: 2 * x, [TENSOR]),
    "an input with gradients": (softmax, lambda x: torch.softmax(x, -1), [TENSOR.clone().requires_grad_()]),
    "nan in the input": (lambda x: x.nan_to_num(), lambda x: torch.zeros(2), [torch.tensor([torch.nan, 0.0])]),
}

# what the message must hold, and the same three
WRONG = [
    ("the axes are in another order", lambda a: a.transpose(0, 3, 2, 1), channels_last, [IMAGES]),
    ("the axes are in another order", lambda x: x, lambda x: x.T, [torch.arange(9.0).view(3, 3)]),
    ("reshape moves no value", lambda a: a.reshape(2, 4, 5, 3), channels_last, [IMAGES]),
    ("in other places. Where axes are split or merged", lambda x, y: torch.cat([y, x]), lambda x, y: torch.cat([x, y]),
     [(TENSOR[0], TENSOR[1, :2])]),
    ("but their shape is not", lambda x: x.flatten(), lambda x: x.clone(), [TENSOR]),
    ("each value is the right one times 0.5.", lambda x: x / 4, lambda x: x / 2, [TENSOR, TENSOR + 1]),
    ("each value is the right one minus 1.", lambda x: -x, lambda x: x.neg() + 1, [TENSOR, TENSOR * 2]),
    ("the values are wrong.", lambda x: x > 1, lambda x: x > 0, [TENSOR]),
    ("times -1.", lambda x: -x, lambda x: x.clone(), [TENSOR]),
    ("one of yours sums to 2.", lambda x: torch.softmax(x, 1), lambda x: torch.softmax(x, -1), [TENSOR, TENSOR**2]),
    ("values are wrong.", lambda x: torch.softmax(2 * x, -1), lambda x: torch.softmax(x, -1), [TENSOR]),
    ("right for input 1 (2); wrong for input 2 (3).", lambda n: n + n, lambda n: n * n, [2, 3]),
    ("right for input 1; wrong for input 2", lambda x: x.exp() / x.exp().sum(-1, True), lambda x: torch.softmax(x, -1),
     [TENSOR, 100 * TENSOR]),
    ("right for input 1, but not everywhere: your code stopped with RuntimeError on input 2", lambda x: x.view(2, 12),
     lambda x: x.flatten(1), [TENSOR, TENSOR[:1]]),
    ("right one times -1.", lambda x: -x.view(2, 12), lambda x: x.flatten(1), [TENSOR, TENSOR[:1]]),
    ("expected shape (2, 3), got (2, 4)", lambda x: x.sum(1), lambda x: x.sum(2), [TENSOR]),
    ("your code stopped with ZeroDivisionError on input 2 (3) in line", lambda n: n / (3 - n),
     lambda n: n / (3 - n) if n < 3 else 0, [2, 3]),
    ("wrong shape.", lambda x: x.flatten()[:1], lambda x: x[0, 0, 0], [TENSOR]),
    ("expected 86567656, got 86567655", lambda n: n - 1, lambda n: n, [86_567_656]),
    ("1 of 2 values differ", lambda x: x + torch.tensor([0, 1]), lambda x: x, [torch.tensor([3, 86_567_656])]),
    ("expected a tensor of shape (2, 3, 4), got an array", lambda x: x.numpy(), lambda x: x + 0, [TENSOR]),
    ("expected a tensor of shape (2, 3, 4), got 12", lambda x: x.sum().item(), lambda x: x + 0, [TENSOR]),
    ("it returns None: is a return missing?", lambda x: print(end=""), lambda x: x + 0, [TENSOR]),
    ("expected (2, 3, 4), got (2, 3)", lambda x: x.shape[:2], lambda x: tuple(x.shape), [TENSOR]),
    ("part [1] of the result: expected 5, got 4", lambda n: [n, 4], lambda n: [n, 5], [1]),
    ("got nan", lambda x: x / 0 * 0, lambda x: x + 0, [TENSOR]),
    ("expected 'b n d', got 'b d n'", lambda n: "b d n", lambda n: "b n d", [1]),
    ("another kind of result", lambda n: str(n), lambda n: n, [3]),
    ("it returns complex numbers", lambda x: x + 5j, lambda x: x + 0, [TENSOR]),
    ("expected 3, got 1000000000000", lambda n: 10**400, lambda n: n, [3]),
    ("in place", lambda x: x.mul_(2), lambda x: 2 * x, [TENSOR]),
    ("in place", lambda tensors: tensors.pop("a"), lambda tensors: tensors["a"], [dict(a=TENSOR)]),
    ("in place", lambda a: np.multiply(a, 2, out=a), lambda a: 2 * a, [IMAGES]),
    ("in place", lambda xs: [xs.pop(), xs[0]], lambda xs: [xs[1], xs[0]], [[TENSOR, IMAGES]]),
    ("your code stopped with ZeroDivisionError on the input, 3 in line", lambda n: n / 0, lambda n: n, [3]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "oracle", "inputs"), RIGHT.values(), ids=RIGHT)
def test_right_functions_pass(function, oracle, inputs):
    verdict = checks.same_values(function, oracle, *inputs)
    name = function.__name__.replace("<lambda>", "your function")
    count = "the input" if len(inputs) == 1 else "2 inputs"
    assert verdict == f"{name}: equal to an independent computation on {count}."


@pytest.mark.parametrize(("message", "function", "oracle", "inputs"), WRONG)
def test_wrong_functions_are_refused_with_the_cause(message, function, oracle, inputs):
    kept = copy.deepcopy(inputs)
    with pytest.raises(checks.CheckFailed) as caught:
        checks.same_values(function, oracle, *inputs)
    said = re.sub("`.*`", "", str(caught.value))  # without the line of this file, which holds the message
    assert message.lower() in said.lower()
    assert unchanged(kept, inputs)


def test_no_inputs_verify_nothing():
    with pytest.raises(ValueError, match="at least one"):
        checks.same_values(channels_last, channels_last)


def test_an_error_of_the_oracle_is_not_the_learners():
    with pytest.raises(AttributeError):
        checks.same_values(channels_last, lambda images: images.nothing, IMAGES)


HALF = [lambda x: x + ..., lambda x: rearrange(..., "b c h w -> b h w c"), lambda x: (...).transpose(1, 3)]


@pytest.mark.parametrize("stub", HALF)
def test_a_stub_is_told_so_quietly(stub):
    verdict = checks.same_values(stub, channels_last, torch.zeros(1, 2, 3, 4))
    assert not verdict.passed
    assert "not written yet" in verdict
