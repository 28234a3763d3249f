"""What student code is asked to do: the operations that a hidden test sends, and how each one is answered.

This file runs in the student's process, which the student controls; so an answer is a claim, never a verdict. The
trusted side performs the same request with the reference and compares. A request holds inputs only: arguments, drawn
weights, drawn data.
"""

import linecache
import os
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
    try:
        with torch.enable_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return OPERATIONS[request["operation"]](namespace[request["name"]], **request["details"])
    except NotImplementedError:
        return {"error": "not written yet"}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: they are the student's
        return {"error": f"your code stopped with {type(error).__name__}: {_short(error)}{_place(error)}"}


def call(function: Callable, args: tuple, kwargs: dict, cotangent: Tensor | None = None) -> dict:
    """Call a function; with a cotangent, give the gradients of its floating-point arguments too.

    The arguments come back as they are after the call, so that writing into them shows.
    """
    given = [value.clone() if isinstance(value, Tensor) else value for value in args]
    named = {key: value.clone() if isinstance(value, Tensor) else value for key, value in kwargs.items()}
    leaves = [value for value in (*given, *named.values()) if isinstance(value, Tensor) and value.is_floating_point()]
    if cotangent is None:
        with torch.no_grad():
            result = function(*given, **named)
        return {"result": result, "arguments": given, "keywords": named}
    for leaf in leaves:
        leaf.requires_grad_()
    return {"gradients": _gradients(function(*given, **named), leaves, cotangent)}


def calls(function: Callable, arguments: list[tuple[tuple, dict]]) -> dict:
    """Call a function many times: a whole curve in one request."""
    return {"results": [function(*args, **kwargs) for args, kwargs in arguments]}


def value(subject: object) -> dict:
    """Return a variable."""
    return {"result": subject}


def module(
    cls: Callable,
    options: dict,
    state: dict[str, Tensor],
    inputs: list[Tensor],
    method: str = "forward",
    training: bool = False,
    cotangent: Tensor | None = None,
) -> dict:
    """Build a module, load drawn weights, call it on every input; with a cotangent, give the gradients of the first.

    If its parameters are not those of ``state``, their names and shapes alone come back.
    """
    model = cls(**options)
    parameters = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    if parameters != {name: tuple(tensor.shape) for name, tensor in state.items()}:
        return {"parameters": parameters}
    if state:
        model.to(next(iter(state.values())).dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(state[name])
    model.train(training)
    run = model if method == "forward" else getattr(model, method)
    if cotangent is None:
        given = [x.clone() for x in inputs]
        with torch.no_grad():
            return {"parameters": parameters, "results": [run(x) for x in given], "arguments": given}
    x = inputs[0].clone().requires_grad_()
    names, leaves = zip(*model.named_parameters(), strict=True) if parameters else ((), ())
    gradients = _gradients(run(x), [x, *leaves], cotangent)
    if gradients is None:
        return {"parameters": parameters, "gradients": None}
    return {"parameters": parameters, "gradients": dict(zip(["the input", *names], gradients, strict=True))}


def instances(cls: Callable, options: dict) -> dict:
    """Build a module twice; name the parameters that both hold."""
    first, second = cls(**options), cls(**options)
    held = {parameter.data_ptr() for parameter in first.parameters() if parameter.numel()}
    return {"shared": [name for name, parameter in second.named_parameters() if parameter.data_ptr() in held]}


class SmallModel(nn.Module):
    """A classifier whose values depend on its mode, without chance: batch normalisation. It notes how it is called.

    Args:
        in_features: values in an image.
        hidden_dim, num_classes: widths.
    """

    def __init__(self, in_features: int, hidden_dim: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, hidden_dim, bias=False)
        self.norm = nn.BatchNorm1d(hidden_dim, eps=0.1)  # few images: rounding is not magnified
        self.head = nn.Linear(hidden_dim, num_classes)
        self.seen = []

    def forward(self, images: Tensor) -> Tensor:
        """Map ``(b, c, h, w)`` to logits ``(b, k)``."""
        self.seen.append((len(images), self.training, torch.is_grad_enabled()))
        return self.head(torch.tanh(self.norm(self.linear(images.flatten(1)))))


def training(
    train_step: Callable, sizes: dict, state: dict[str, Tensor], optimizer: dict, steps: list[tuple[tuple, dict]]
) -> dict:
    """Train a small model, that starts in eval mode, by several steps; return every loss and the state after each."""
    model = _small_model(sizes, state)
    model.eval()
    kind = {"SGD": torch.optim.SGD, "Adam": torch.optim.Adam}[optimizer["kind"]]
    updates = kind(model.parameters(), **optimizer["options"])
    losses, states = [], []
    for args, kwargs in steps:
        losses.append(train_step(model, updates, *args, **kwargs))
        states.append({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})
    return {"losses": losses, "states": states}


def evaluation(
    evaluate: Callable,
    sizes: dict,
    state: dict[str, Tensor],
    modes: list[bool],
    images: Tensor,
    labels: Tensor,
    options: dict,
) -> dict:
    """Evaluate a small model whose parts are in mixed modes; return the result, and what the model noted."""
    model = _small_model(sizes, state)
    for part, mode in zip(model.modules(), modes, strict=True):
        part.training = mode
    result = evaluate(model, TensorDataset(images.clone(), labels.clone()), **options)
    return {
        "result": result,
        "seen": model.seen,
        "modes": [part.training for part in model.modules()],
        "state": dict(model.state_dict()),
        "gradients": [name for name, parameter in model.named_parameters() if parameter.grad is not None],
    }


def _small_model(sizes: dict, state: dict[str, Tensor]) -> SmallModel:
    model = SmallModel(**sizes).to(state["linear.weight"].dtype)
    model.load_state_dict(state)
    return model


def _gradients(result: object, leaves: list[Tensor], cotangent: Tensor) -> list | None:
    if not isinstance(result, Tensor) or not result.requires_grad:
        return None
    found = iter(torch.autograd.grad(result, [x for x in leaves if x.requires_grad], cotangent, allow_unused=True))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


def _short(error: BaseException) -> str:
    message = " ".join(str(error).split()) or "no message"
    return message if len(message) <= 300 else message[:297] + "..."


def _place(error: BaseException) -> str:
    frames = [
        (frame.filename, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(LIBRARIES)
    ]
    if not frames:
        return ""
    line = linecache.getline(*frames[-1]).strip()
    return f" in line {frames[-1][1]}" + (f", `{line}`" if line else "")


OPERATIONS = {
    operation.__name__: operation for operation in (call, calls, value, module, instances, training, evaluation)
}
