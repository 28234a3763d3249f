"""How far a learner's computation is right: the twin's stages, looked for among the tensors that the code makes."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import permutations

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vit_course.checks.compare import TOLERANCE, same
from vit_course.checks.learner import running
from vit_course.checks.variants import noted
from vit_course.checks.verdict import CATALOG, refuse, sentence

MOST_TENSORS, MOST_TITLES, MOST_TURNS = 3000, 5, 24


def _tensors(values: Iterable) -> list[Tensor]:
    """Return the tensors among values, and in lists and tuples among them."""
    parts = [part for value in values for part in (value if isinstance(value, (tuple, list)) else [value])]
    return [part for part in parts if isinstance(part, Tensor)]


class Recorder(TorchFunctionMode):
    """Notes the names of torch's functions that are called, and copies every tensor of one of these sizes, or of any.

    Where one of the functions stops, ``stop`` is its error and the first tensor that it was given.
    """

    def __init__(self, sizes: set[int] | None = None) -> None:
        super().__init__()
        self.sizes, self.seen, self.names = sizes, [], set()
        self.stop: tuple[str, Tensor | None] = "", None
        self.known: dict[tuple[int, int], Tensor] = {}  # by identity and version; kept, so that no other gets its id

    def __torch_function__(self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None) -> object:
        """Run the function, and keep what it takes and gives, or its error."""
        try:
            out = func(*args, **(kwargs or {}))
        except Exception as error:
            self.stop = str(error), next(iter(_tensors(args)), None)
            raise
        self.names.add(func.__name__)
        for tensor in _tensors([*args, out]):
            wanted = tensor.is_floating_point() and (self.sizes is None or tensor.numel() in self.sizes)
            key = id(tensor), 0 if tensor.is_inference() else tensor._version
            if wanted and key not in self.known and len(self.seen) < MOST_TENSORS:
                self.known[key] = tensor
                self.seen.append((tensor.detach().clone(), _size(tensor)))
        return out


def recorded(function: Callable, *args: object) -> Recorder:
    """Return what a learner's function calls, and all tensors that it makes."""
    with running(), torch.no_grad(), Recorder() as recorder:
        function(*args)
    return recorder


def forbids(name: str, *args: object, says: str = "learner.forbidden") -> Callable:
    """Return a behavior that refuses code in which a function of torch does what the task asks to write out."""
    return lambda function, mapping: refuse(name in recorded(function, *args).names, says, name=name)


def never_seeds(says: str, call: Callable[[Callable], object]) -> Callable:
    """Return a behavior that refuses code which seeds torch's global generator: two calls then leave the same state."""

    def behavior(function: Callable, mapping: None) -> None:
        states = []
        for _ in range(2):
            torch.rand(1)
            with running(), torch.enable_grad():
                call(function)
            states.append(torch.random.get_rng_state())
        refuse(torch.equal(*states), says)

    return behavior


def stop_of(run: Callable[[], object]) -> tuple[str, Tensor | None]:
    """Return where code stops: the error and its tensor; without a tensor if none of torch's operations does."""
    with suppress(Exception), Recorder(sizes=set()) as recorder:
        run()
    return recorder.stop


def _size(tensor: Tensor) -> float:
    """Return the sum of squares, which is the same for any order of axes."""
    return tensor.detach().double().square().sum().item()


def _is_among(stage: Tensor, seen: Sequence[tuple[Tensor, float]]) -> bool:
    """Whether one of the tensors holds a stage, its axes in any order, the first two perhaps in one."""
    own = _size(stage)
    near = [tensor.squeeze() for tensor, its in seen if abs(its - own) <= 10 * TOLERANCE * max(own, 1e-6)]
    if not near:
        return False
    wanted = stage.squeeze()
    for order in map(wanted.permute, permutations(range(wanted.ndim))):
        for value in [order, order.flatten(0, 1)] if order.ndim > 2 else [order]:
            if any(tensor.shape == value.shape and same(tensor, value) for tensor in near):
                return True
    return False


def _turns(stage: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the parts of a stage that a loop computes, over its first axis, its second axis or both."""
    ways = [stage.unbind(0)] if stage.ndim > 1 else []
    ways += [stage.unbind(1), stage.flatten(0, 1).unbind(0)] if stage.ndim > 2 else []
    return [parts for parts in ways if 0 < len(parts) <= MOST_TURNS and parts[0].numel() > 3]  # few would be anywhere


class Progress:
    """Which stages of the twin the learner's code reaches.

    Args:
        stages: in their order, each ``"twin.variable"``; those that stand side by side in one string, with spaces.
        trials: :class:`vit_course.checks.declare.Trial`, one for every case.
    """

    def __init__(self, stages: Sequence[str], trials: Sequence) -> None:
        self.groups = [group.split() for group in stages]
        self.right = {stage for group in self.groups for stage in group}
        self.sometimes, self.in_parts = set(), set()  # right in some cases; right only in the turns of a loop
        self.twin = trials[0]
        self.seen, self.tensors = bool(self.right), []  # those of the first case
        every_stage = set(self.right)
        for trial in trials if self.seen else ():
            values = _stage_values(every_stage, noted((), trial))
            sizes = {part.numel() for value in values.values() for part in (value, *(of[0] for of in _turns(value)))}
            recorder, seen = Recorder(sizes if self.tensors else None), []
            with suppress(Exception), recorder, torch.no_grad():
                trial.learners()
                seen = recorder.seen  # nothing is right in code that stops
            self.seen, self.tensors = self.seen and bool(recorder.names), self.tensors or recorder.seen
            whole = {stage for stage, value in values.items() if _is_among(value, seen)}
            others = {stage: _turns(values[stage]) for stage in values.keys() - whole}
            parts = {s for s, ways in others.items() if any(all(_is_among(p, seen) for p in way) for way in ways)}
            self.right &= whole | parts
            self.sometimes |= whole | parts
            self.in_parts |= parts

    @cached_property
    def missing(self) -> list[str]:
        """The first stages that no tensor equals."""
        reached = [k for k, group in enumerate(self.groups) if self.right & set(group)]
        beside = [stage for k in reached for stage in self.groups[k] if stage not in self.right]
        ahead = self.groups[max(reached, default=-1) + 1 :]
        return beside or (ahead[0] if ahead else [])

    @cached_property
    def values(self) -> dict[str, Tensor]:
        """The stages that decide a mistake's rank, where nothing is wrong."""
        return _stage_values(self.right | set(self.missing), noted((), self.twin))

    def rank(self, notes: Sequence[tuple[str, dict]]) -> int:
        """Return how likely a mistake is one of several, from what it does to the stages; 0 is the likeliest.

        0: the learner's code has the first missing stage as the mistake gives it; 1: it changes that stage; 2: it
        changes none; 3: it changes a right one, which is possible only if the code goes back on it later.
        """
        try:
            came = _stage_values(self.values, notes) if self.seen else {}
        except (StopIteration, KeyError, AttributeError):  # not made, or no tensor
            return 2
        changed = {stage for stage, value in came.items() if not _is_among(self.values[stage], [(value, _size(value))])}
        missing = changed.difference(self.right)
        if missing and any(_is_among(came[stage], self.tensors) for stage in missing):
            return 0
        return 3 if changed & self.right else 1 if missing else 2

    def says(self) -> str:
        """Say which stages are right, and which is the first that no tensor equals; empty if nothing was seen."""
        if not self.seen:
            return ""
        found = [stage for group in self.groups for stage in group if stage in self.right]
        titles = {stage: CATALOG["stages"][stage][0] for stage in found[-MOST_TITLES:]}
        titles |= {s: sentence("far.in_parts", stage=title) for s, title in titles.items() if s in self.in_parts}
        names = ", ".join(titles.values())
        names = sentence("far.earlier", right=names) if len(found) > MOST_TITLES else names
        if not self.missing:
            return sentence("far.all", right=names)
        key = "up_to" if found else "nothing"
        key += "_sometimes" if self.missing[0] in self.sometimes else ""
        missing, look = CATALOG["stages"][self.missing[0]]
        return sentence(f"far.{key}", right=names, missing=missing, look=look)


def _stage_values(stages: Iterable[str], notes: Sequence[tuple[str, dict]]) -> dict[str, Tensor]:
    """Return variables of twins at their first return."""
    found = {}
    for stage in stages:
        part, _, variable = stage.partition(".")
        found[stage] = next(variables[variable] for name, variables in notes if name == part).detach()
    return found
