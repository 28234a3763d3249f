"""What student code is asked to do: the operations that a hidden test sends, and how each one is answered.

This file runs in the student's process, which the student controls, so an answer is a claim and never a verdict. The
trusted side performs the same request with the reference and compares. A request contains inputs only: arguments, drawn
weights, drawn data.
"""

import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

# the folders of what is not the student's code: this one, installed packages and the standard library
LIBRARIES = tuple(str(Path(file).parents[up]) for file, up in [(__file__, 0), (torch.__file__, 1), (os.__file__, 0)])


def perform(namespace: Mapping, request: dict) -> dict:
    """Do what a request asks with the object of that name; an error becomes an answer with the key ``error``.

    Args:
        namespace: the student's names.
        request: ``name``, ``operation`` (a function of this file) and ``details``, its arguments.
    """
    if request["name"] not in namespace:
        return {"error": f"`{request['name']}` is not defined: an earlier cell failed or it is missing"}
    for name in ("_prepare_transformation_recipe", "_reconstruct_from_shape"):  # einops takes a size of 4.0 for 4 later
        getattr(getattr(sys.modules.get("einops.einops"), name, None), "cache_clear", lambda: None)()
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return OPERATIONS[request["operation"]](namespace[request["name"]], **request["details"])
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: they are the student's
        last = traceback.extract_tb(error.__traceback__)[-1]
        if "raise NotImplementedError" in (last.line or "") and not last.filename.startswith(LIBRARIES):
            return {"error": "not written yet"}
        message = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())[:300] or "no message"
        frames = [each for each in traceback.extract_tb(error.__traceback__) if not each[0].startswith(LIBRARIES)]
        place = f" in line {frames[-1].lineno}" + f", `{frames[-1].line}`" * bool(frames[-1].line) if frames else ""
        return {"error": f"your code stopped with {type(error).__name__}: {message}{place}"}


def call(
    function: Callable,
    args: tuple,
    kwargs: dict,
    cotangent: Tensor | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> dict:
    """Call a function; return its result, its arguments after the call and, with a cotangent, their gradients.

    With the ``weights`` of a module, their gradients are returned too.
    """

    def run(values: list) -> object:
        return function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :], strict=True)))

    before = [*args, *kwargs.values()]
    after = [value.clone() if isinstance(value, Tensor) else value for value in before]
    with torch.no_grad():
        answer = {"result": run(after), "after": after}
    if cotangent is None or getattr(answer["result"], "shape", None) != cotangent.shape:
        return answer
    given = [x.clone().requires_grad_() if isinstance(x, Tensor) and x.is_floating_point() else x for x in before]
    label = "argument {}" if weights is None else "the input"
    leaves = {label.format(k + 1): x for k, x in enumerate(given) if isinstance(x, Tensor) and x.requires_grad}
    leaves, result = leaves | dict(weights or {}), run(given)
    if not result.requires_grad:
        return answer | {"gradients": None}
    found = torch.autograd.grad(result, list(leaves.values()), cotangent, allow_unused=True)
    return answer | {"gradients": dict(zip(leaves, found, strict=True))}


def module(
    cls: Callable, options: dict, state: dict[str, Tensor], x: Tensor, training: bool, cotangent: Tensor | None = None
) -> dict:
    """Build a module twice, load drawn weights into one, and call it; with a cotangent, return gradients too.

    If its parameters are not those of ``state``, their names and shapes come back, and it is not called.
    """
    model, other = cls(**options), cls(**options)
    # what is frozen beside the expected parameters counts as a buffer
    parameters = {name: each for name, each in model.named_parameters() if each.requires_grad or name in state}
    held = {parameter.data_ptr() for parameter in other.parameters() if parameter.numel()}
    answer = {
        "parameters": {name: tuple(parameter.shape) for name, parameter in parameters.items()},
        "shared": [name for name, parameter in parameters.items() if parameter.data_ptr() in held],
        "frozen": [name for name, parameter in parameters.items() if not parameter.requires_grad],
    }
    if answer["frozen"] or answer["parameters"] != {name: tuple(tensor.shape) for name, tensor in state.items()}:
        return answer
    model.to(x.dtype).train(training)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(state[name])
    return answer | call(model, (x,), {}, cotangent, parameters)


class SmallModel(nn.Module):
    """A classifier whose values depend on its mode, without chance: batch normalization."""

    def __init__(self, state: dict[str, Tensor], note: Callable = lambda *_: None) -> None:
        super().__init__()
        self.note = note  # what is told of every call, of copies too
        (hidden_dim, in_features), num_classes = state["linear.weight"].shape, len(state["head.bias"])
        self.linear = nn.Linear(in_features, hidden_dim, bias=False)
        self.norm = nn.BatchNorm1d(hidden_dim, eps=0.1)  # few images: rounding is not magnified
        self.head = nn.Linear(hidden_dim, num_classes)
        self.to(state["linear.weight"].dtype).load_state_dict(state)

    def forward(self, images: Tensor) -> Tensor:
        """Map ``(b, c, h, w)`` to logits ``(b, k)``."""
        logits = self.head(torch.tanh(self.norm(self.linear(images.flatten(1)))))
        self.note(self, images, logits)
        return logits


def training(train_step: Callable, state: dict[str, Tensor], kind: str, options: dict, steps: list) -> dict:
    """Train a small model, which starts in eval mode and with gradients left over, by several steps.

    Returns each loss, the state after each step, and how many outputs of the model waited for ``backward`` at most.
    """
    waiting, most = [], 0

    def note(model: nn.Module, images: Tensor, logits: Tensor) -> None:
        nonlocal most
        if logits.requires_grad:
            waiting.append(logits)
            logits.register_hook(lambda gradient: waiting.clear())
            most = max(most, len(waiting))

    model = SmallModel(state, note).eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    groups = [dict(params=[each]) for each in model.parameters()]  # whoever looks at one group alone is found out
    optimizer = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[kind](groups, **options)
    losses, states = [], []
    for args, kwargs in steps:
        losses.append(train_step(model, optimizer, *args, **kwargs))
        states.append({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
    return {"losses": losses, "states": states, "waiting": most}


def evaluation(
    evaluate: Callable, state: dict[str, Tensor], modes: list[bool], images: Tensor, labels: Tensor, options: dict
) -> dict:
    """Evaluate a small model whose parts are in mixed modes; return the result, and what the model noted."""
    seen = []
    model = SmallModel(
        state, lambda model, images, _: seen.append((len(images), model.training, torch.is_grad_enabled()))
    )
    for part, mode in zip(model.modules(), modes, strict=True):
        part.training = mode
    return {
        "result": evaluate(model, TensorDataset(images.clone(), labels.clone()), **options),
        "gradients": torch.is_grad_enabled(),
        "seen": seen,
        "modes": [part.training for part in model.modules()],
        "state": dict(model.state_dict()),
    }


OPERATIONS = {operation.__name__: operation for operation in (call, module, training, evaluation)}
