"""A learner's class: building it, giving it the course's weights by name, and what every module must do."""

import inspect
import re
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn

from vit_course.checks.compare import same
from vit_course.checks.learner import running
from vit_course.checks.verdict import CATALOG, CheckFailed, fail, refuse, sentence

Mapping = Callable[[dict], dict] | None


def takes(subject: Callable, reference: Callable, options: dict) -> None:
    """Check that the learner's code can be called as the reference is, with these arguments by name."""
    wanted, args = inspect.signature(reference).parameters, []
    if not inspect.isclass(reference):
        args = [None for name, part in wanted.items() if part.kind is not part.KEYWORD_ONLY and name not in options]
        options = options | {name: None for name, part in wanted.items() if part.kind is part.KEYWORD_ONLY}
    try:
        own = inspect.signature(subject)
    except ValueError:  # built in
        return
    try:
        own.bind(*args, **options)
    except TypeError as error:
        key = "declare.class_arguments" if inspect.isclass(subject) else "declare.arguments"
        raise fail(key, wanted=", ".join(wanted), own=", ".join(own.parameters)) from error


def build(cls: Callable, options: dict) -> nn.Module:
    """Construct the learner's module."""
    given = ", ".join(f"{key}={value}" for key, value in options.items())
    with running(sentence("modules.built", name=getattr(cls, "__name__", "it"), options=given)):
        module = cls(**options)
    refuse(not isinstance(module, nn.Module), "modules.not_a_module", came=type(module).__name__)
    refuse("_parameters" not in vars(module), "modules.no_super")
    return module


def load(module: nn.Module, state: dict[str, Tensor], mapping: Mapping, case: object) -> None:
    """Load the course's parameters into the learner's module; say which are missing, unknown or of another shape."""
    state = {key: value.clone() for key, value in state.items()}
    if mapping is not None:
        with running(sentence("modules.in_mapping")):
            state = mapping(state)
    own, buffers = module.state_dict(), dict(module.named_buffers())
    buffers |= {name: each for name, each in module.named_parameters() if not each.requires_grad}
    missing = [key for key in state if key not in own]
    unknown = [key for key in own if key not in state and key not in buffers]
    for key in state:
        _never_trains(module, key)
    if missing or unknown:
        _layers_in_a_list(module)
        _another_number(own.keys() - buffers.keys(), state.keys())
        known = {own[key].data_ptr() for key in state if key in own}
        if twice := [key for key in unknown if own[key].data_ptr() in known]:
            raise fail("modules.twice", names=few(twice))
        cause = "other_names" if missing and unknown else "missing" if missing else "unknown"
        kinds = [("missing_names", missing), ("unknown_names", unknown)]
        lines = [sentence(f"modules.{kind}", names=few(keys)) for kind, keys in kinds if keys]
        hint = "empty" if not own else "mapping" if mapping else "names"
        raise fail(f"modules.{cause}", "\n  ".join([*lines, sentence(f"modules.hint_{hint}")]))
    _other_heads(module, case.options.get("num_heads"))
    for key, value in state.items():
        if mapping is not None and own[key].ndim > value.ndim > 1 and own[key].flatten(1).shape == value.shape:
            state[key] = value = value.reshape(own[key].shape)  # a convolution's weight from a linear layer's
        if own[key].shape != value.shape:
            raise _another_size(key, tuple(own[key].shape), tuple(value.shape), case)
    module.load_state_dict(own | state)


def few(keys: Sequence[str]) -> str:
    """Name at most six of the keys."""
    more = [sentence("modules.more", count=len(keys) - 6)] if len(keys) > 6 else []
    return ", ".join([*keys[:6], *more])


def _layers_in_a_list(module: nn.Module) -> None:
    """Name layers that torch cannot see, because they are in a plain list."""
    for part in module.modules():
        for key, value in vars(part).items():
            if isinstance(value, (list, tuple)) and any(isinstance(layer, nn.Module) for layer in value):
                raise fail("modules.plain_list", name=key, kind=type(value).__name__)


def _another_number(own: Collection[str], wanted: Collection[str]) -> None:
    """Name a list with too many or too few blocks, if all names are right but for the blocks' numbers."""
    kinds = [{re.sub(r"\d+", "#", name) for name in names} for names in (own, wanted)]
    blocks = [{name.rpartition(".ln_1.")[0] for name in names if ".ln_1." in name} for names in (own, wanted)]
    if kinds[0] == kinds[1] and len(blocks[0]) != len(blocks[1]):
        name = min(blocks[1]).rpartition(".")[0]
        raise fail("modules.count", name=name, came=len(blocks[0]), wanted=len(blocks[1]))


def _other_heads(module: nn.Module, wanted: int | None) -> None:
    """Name an attention layer in it that was built with another number of heads."""
    for name, part in module.named_modules():
        came = getattr(part, "num_heads", wanted)
        attribute = f"{name}.num_heads".lstrip(".")
        refuse(wanted not in (None, came), "modules.num_heads", name=attribute, came=came, wanted=wanted)


def _another_size(name: str, came: tuple[int, ...], wanted: tuple[int, ...], case: object) -> CheckFailed:
    """Return the failure that names a parameter's wrong size by what it would be the right size of."""
    options = dict(hidden_dim=0, in_channels=3, patch_size=0) | case.options
    of = dict(came=came, wanted=wanted, d=options["hidden_dim"], c=options["in_channels"], p=options["patch_size"])
    of |= dict(
        projection=name.endswith("projection.weight"),
        positions=name.endswith("pos_embedding") and came[::2] == wanted[::2],
    )
    says = next(row["says"] for row in CATALOG["sizes"].values() if eval(row["when"], {}, of))
    at = sentence("modules.shape", case=case.label, name=name, came=came, wanted=wanted)
    return CheckFailed(f"{says.format(name=name, **of)}\n  {at}")


def _never_trains(module: nn.Module, key: str) -> None:
    """Name a parameter that is there under its name, but as a plain tensor or a buffer."""
    found = module
    for part in key.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Tensor) and not isinstance(found, nn.Parameter):
        kind = "buffer" if key in dict(module.named_buffers()) else "plain_tensor"
        raise fail(f"modules.{kind}", name=key)


def own_names(mapping: Mapping, module: nn.Module, marked: Callable[[str, Tensor], Tensor]) -> set[str]:
    """Return the learner's parameters that hold nothing but values that ``marked``, of a name and zeros, fills."""
    state = {key: marked(key, torch.zeros_like(value)) for key, value in module.state_dict().items()}
    state = mapping(state) if mapping is not None else state
    return {key for key, value in state.items() if bool((value != 0).all())}


def _key_biases(key: str, zeros: Tensor) -> Tensor:
    """Mark the biases of the keys, which rightly have no gradient: softmax takes them away."""
    if key.endswith("qkv.bias"):
        zeros.chunk(3)[1].fill_(1.0)
    return zeros


# --- behavior --------------------------------------------------------------------------------------------------------


def independent_instances(cls: Callable, options: dict) -> None:
    """Check that two instances do not share a parameter."""
    first, second = build(cls, options), build(cls, options)
    storages = {parameter.data_ptr() for parameter in first.parameters() if parameter.numel()}
    shared = [key for key, parameter in second.named_parameters() if parameter.data_ptr() in storages]
    refuse(shared, "modules.shared", names=few(shared))


def made_in_forward(module: nn.Module, x: Tensor) -> None:
    """Name layers that are made in ``forward``: torch reports each parameter that is registered."""
    made = []
    hook = nn.modules.module.register_module_parameter_registration_hook(
        lambda layer, key, parameter: made.append((key, layer))
    )
    try:
        with torch.no_grad():
            module(x.clone())
    except Exception:  # the comparison that follows reports it
        return
    finally:
        hook.remove()
    for key, layer in made[:1]:
        refuse(layer is module, "modules.parameter_in_forward", name=key)
        raise fail("modules.made_in_forward", kind=type(layer).__name__)


def repeats(call: Callable[[], object], says: str) -> None:
    """Refuse code that returns other values at the same call, with the sentence of this id."""
    with torch.no_grad():
        results = call(), call()
    refuse(all(isinstance(result, Tensor) for result in results) and not same(*results), says)


def trains_every_parameter(mine: nn.Module, right: nn.Module, mapping: Mapping) -> None:
    """Name the learner's parameters that a gradient should have reached, and has not."""
    without = own_names(mapping, right, _key_biases)
    named = dict(mine.named_parameters())
    dead = [key for key, p in named.items() if key not in without and (p.grad is None or not p.grad.abs().max() > 0)]
    if dead:
        names = sentence("modules.every") if len(dead) == len(named) else few(dead)
        raise fail("modules.dead", names=names)
