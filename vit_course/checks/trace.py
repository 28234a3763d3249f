"""How far a learner's computation is right: the twin's stages, looked for among the tensors that the code makes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import permutations

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from vit_course.checks.compare import TOLERANCE, same
from vit_course.checks.variants import Mistake, noted
from vit_course.checks.verdict import CATALOGUE, sentence

MOST_TENSORS, MOST_TITLES = 3000, 5


def _tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the floating-point tensors in a result, or in the arguments of a call."""
    if isinstance(value, Tensor) and value.is_floating_point():
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors_in(part)


class Recorder(TorchFunctionMode):
    """Keeps a copy of every tensor that goes through torch and has one of the sizes that are looked for."""

    def __init__(self, sizes: set[int]) -> None:
        super().__init__()
        self.sizes, self.seen, self.calls = sizes, [], 0

    def __torch_function__(self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None) -> object:
        """Run the function, and keep what it takes and gives."""
        out = func(*args, **(kwargs or {}))
        self.calls += 1
        for tensor in _tensors_in((args, out)):
            if tensor.numel() in self.sizes and len(self.seen) < MOST_TENSORS:
                self.seen.append((tensor.detach().clone(), _size(tensor)))
        return out


def _size(tensor: Tensor) -> float:
    """Return the sum of squares, which is the same for any order of axes."""
    return tensor.detach().double().square().sum().item()


def _is_among(stage: Tensor, seen: Sequence[tuple[Tensor, float]]) -> bool:
    """Whether one of the tensors holds a stage, its axes in any order, the first two perhaps in one."""
    wanted, own = stage.squeeze(), _size(stage)
    orders = [wanted.permute(order) for order in permutations(range(wanted.ndim))]
    orders += [order.flatten(0, 1) for order in orders if order.ndim > 2]
    for tensor, its in seen:
        if abs(its - own) <= 10 * TOLERANCE * max(own, 1e-6):
            tensor = tensor.squeeze()
            if any(tensor.shape == order.shape and same(tensor, order) for order in orders):
                return True
    return False


class Progress:
    """Which stages of the twin the learner's code reaches.

    Args:
        stages: in their order, each ``"twin.variable"``; those that stand side by side in one string, with spaces.
        twins: for every case a function that runs the right one among the twins that it is given.
        runs: for every case a function that runs the learner's code.
    """

    def __init__(self, stages: Sequence[str], twins: Sequence[Callable[[dict], object]], runs: Sequence) -> None:
        self.groups = [group.split() for group in stages]
        self.right = {stage for group in self.groups for stage in group}
        self.twin = twins[0]
        self.seen = bool(self.right)
        for twin, run in zip(twins, runs, strict=True) if self.seen else ():
            values = _stage_values(self.right, noted((), twin))
            recorder = Recorder({value.numel() for value in values.values()})
            try:
                with recorder, torch.no_grad():
                    run()
            except Exception:
                self.right = set()
            self.seen = self.seen and recorder.calls > 0
            self.right = {stage for stage in self.right if _is_among(values[stage], recorder.seen)}

    @cached_property
    def missing(self) -> list[str]:
        """The first stages that no tensor equals."""
        found = [any(stage in self.right for stage in group) for group in self.groups]
        if not any(found):
            return self.groups[0] if self.groups else []
        beside = [s for group in self.groups for s in group if s not in self.right and self.right & set(group)]
        ahead = self.groups[max(k for k, seen in enumerate(found) if seen) + 1 :]
        return beside or (ahead[0] if ahead else [])

    @cached_property
    def values(self) -> dict[str, Tensor]:
        """The stages that decide a mistake's rank, where nothing is wrong."""
        return _stage_values(self.right | set(self.missing), noted((), self.twin))

    def rank(self, mistake: Mistake) -> int | None:
        """Return 0 for a mistake that changes the first missing stage, 1 for others; None if a right one changes."""
        if not self.seen:
            return 1
        try:
            came = _stage_values(self.values, noted((mistake,), self.twin))
        except Exception:
            return 1
        changed = {
            stage for stage, value in self.values.items() if not _is_among(value, [(came[stage], _size(came[stage]))])
        }
        return None if changed & self.right else int(not changed)

    def says(self) -> str:
        """Say which stages are right, and which is the first that no tensor equals; empty if nothing was seen."""
        if not self.seen:
            return ""
        if not self.right:
            return sentence("far.nothing", **_words(self.missing[0]))
        titles = [_words(stage)["missing"] for group in self.groups for stage in group if stage in self.right]
        names = ", ".join(titles[-MOST_TITLES:])
        names = sentence("far.earlier", right=names) if len(titles) > MOST_TITLES else names
        if not self.missing:
            return sentence("far.all", right=names)
        return sentence("far.up_to", right=names, **_words(self.missing[0]))


def _stage_values(stages: Iterable[str], notes: Sequence[tuple[str, dict]]) -> dict[str, Tensor]:
    """Return variables of twins at their first return."""
    found = {}
    for stage in stages:
        part, _, variable = stage.partition(".")
        found[stage] = next(variables[variable] for name, variables in notes if name == part).detach()
    return found


def _words(stage: str) -> dict[str, str]:
    """Return what a missing stage is called, and where to look for its mistakes."""
    return dict(zip(("missing", "look"), CATALOGUE["stages"][stage], strict=True))
