"""Wrong versions of a part, made from its twin: a mistake is a list of edits of the twin's source.

A mistake is named only if the learner's values equal, in every case, those that the edited twin gives. Mistakes that
do not overlap combine; the fewest are tried first, the smallest case first, and their number is bounded.
"""

import inspect
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from types import CodeType

import torch
from torch import Tensor

from vit_course.checks import twins
from vit_course.checks.compare import same
from vit_course.checks.dropout import Draws
from vit_course.checks.verdict import sentence

TABLE = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))
SOURCES = {
    name: inspect.getsource(twin)
    for name, twin in vars(twins).items()
    if getattr(twin, "__module__", "") == twins.__name__
}
MOST_CALLS = 6000  # of twins in one search for mistakes that come together


@dataclass(frozen=True)
class Mistake:
    """What is replaced in a twin, by what, and what is said of it; see ``mistakes.toml``."""

    id: str
    part: str
    template: str
    edits: tuple[tuple[str, str], ...]
    fields: dict[str, str]
    drawn: bool

    @cached_property
    def spans(self) -> tuple[tuple[int, int, str], ...]:
        """The stretches of the twin's source that are replaced, with what replaces them."""
        source = SOURCES[self.part]
        return tuple((start := source.index(old), start + len(old), new) for old, new in self.edits)

    def says(self, variables: dict[str, object]) -> str:
        """Return the sentence, its fields computed from the edited twin's variables."""
        values = {key: eval(expression, {"torch": torch}, variables) for key, expression in self.fields.items()}
        return self.template.format(**values)


@cache
def mistakes_of(section: str) -> tuple[Mistake, ...]:
    """Return the mistakes of a section of ``mistakes.toml``, each in all its forms."""
    found = []
    rows = dict(TABLE.get(section, {}))
    part = rows.pop("twin", section)
    for name, row in rows.items():
        for number, form in enumerate([row, *row.get("forms", [])]):
            identity = f"{section}.{name}" + (f"/{number}" if number else "")
            edits, fields = tuple(map(tuple, form["edits"])), form.get("fields", row.get("fields", {}))
            found.append(Mistake(identity, part, row["says"], edits, fields, row.get("drawn", False)))
    return tuple(found)


def compatible(first: Mistake, second: Mistake) -> bool:
    """Whether two mistakes replace different stretches of the twins."""
    if first.part != second.part:
        return True
    return all(a[1] <= b[0] or b[1] <= a[0] for a in first.spans for b in second.spans)


# --- running an edited twin ------------------------------------------------------------------------------------------


@cache
def _compiled(part: str, spans: tuple[tuple[int, int, str], ...]) -> CodeType:
    """Compile a twin with some stretches replaced, in which every ``return x`` reports to ``_note``."""
    source = SOURCES[part]
    for start, end, new in sorted(spans, reverse=True):
        source = source[:start] + new + source[end:]
    source = re.sub(r"^( *)return (.+)$", rf"\1return _note({part!r}, locals(), (\2))", source, flags=re.MULTILINE)
    return compile(source, f"<{part}>", "exec")


def _define(names: dict[str, object], parts: Iterable[str], mistakes: Sequence[Mistake]) -> None:
    """Define these twins in a namespace, with the mistakes in them."""
    for part in parts:
        spans = tuple(span for mistake in mistakes if mistake.part == part for span in mistake.spans)
        exec(_compiled(part, spans), names)


def namespace(mistakes: Sequence[Mistake] = (), note: Callable = lambda name, variables, result: result) -> dict:
    """Return all twins, with these mistakes in them; what ``note(name, variables, result)`` returns is their result."""
    names = vars(twins) | {"_note": note}
    _define(names, SOURCES, mistakes)
    return names


class Bench:
    """All twins in one namespace, in which edited ones take the place of right ones and are run.

    Attributes:
        notes: the name and the variables of every twin that was run, in the order of their returns.
        calls: how many twins were run in all, a measure of the time.
    """

    def __init__(self) -> None:
        self.calls, self.notes = 0, []
        self.names = namespace(note=self._note)
        self.right = {part: self.names[part] for part in SOURCES}

    def _note(self, name: str, variables: dict, result: object) -> object:
        self.calls += 1
        self.notes.append((name, variables | {"result": result}))
        return result

    def run(self, mistakes: Sequence[Mistake], run: Callable[[dict], object]) -> object:
        """Return what a function gives of all twins, with these mistakes in them."""
        self.notes.clear()
        self.names.update(self.right)
        _define(self.names, {mistake.part for mistake in mistakes}, mistakes)
        return run(self.names)


def noted(mistakes: Sequence[Mistake], run: Callable[[dict], object]) -> list[tuple[str, dict]]:
    """Return the variables of every twin that returns, in the order of their returns."""
    bench = Bench()
    with suppress(Exception), torch.no_grad(), warnings.catch_warnings(action="ignore"):
        bench.run(mistakes, run)
    return bench.notes


# --- finding the mistakes that explain a learner's values ------------------------------------------------------------


def without_nan(result: object) -> object:
    """Return a result with a number in place of nan, because a mistake explains a learner's nan by its own."""
    if isinstance(result, Tensor) and result.is_floating_point():
        return result.nan_to_num(nan=0.123, posinf=torch.inf, neginf=-torch.inf)
    return result


def explanation(
    mistakes: Sequence[Mistake],
    results: Sequence[tuple[Callable, object]],
    *,
    most: int = 2,
    most_calls: int = MOST_CALLS,
    rank: Callable[[list], int] = lambda notes: 1,
) -> tuple[Mistake, ...]:
    """Return the fewest mistakes that give all results; an empty tuple if none do.

    Args:
        mistakes: the candidates, in the order in which they are tried.
        results: for every case a function of the twins and the learner's result, the case that tells most first.
        most: how many mistakes may come together.
        most_calls: how many twins are run at most for mistakes that come together.
        rank: orders the mistakes by their notes of the first case, if none explains all alone; see
            :meth:`vit_course.checks.trace.Progress.rank`.
    """
    if all(isinstance(result, Tensor) and result.isnan().all() for _, result in results):
        return ()
    targets = [(run, without_nan(result)) for run, result in results]
    bench, notes = Bench(), {}

    def explains(chosen: Sequence[Mistake]) -> bool:
        for k, (run, result) in enumerate(targets):
            tries = 2 if isinstance(result, Draws) else 1  # where one draw shows in many values, their shares vary more
            try:
                equal = any(same(result, without_nan(bench.run(chosen, run))) for _ in range(tries))
            except Exception:  # a wrong version may stop where the learner's does not
                equal = False
            if k == 0 and len(chosen) == 1:
                notes[chosen[0].id] = [*bench.notes]
            if not equal:
                return False
        return True

    def together() -> Iterator[tuple[Mistake, ...]]:
        ranks = {mistake.id: rank(notes.get(mistake.id, [])) for mistake in mistakes}
        ordered = sorted(mistakes, key=lambda mistake: ranks[mistake.id])
        for count in range(2, most + 1):
            places = sorted(combinations(range(len(ordered)), count), key=sum)
            found = [tuple(ordered[k] for k in chosen) for chosen in places]
            found.sort(key=lambda chosen: 2 * (ranks[chosen[0].id] > 0) + (ranks[chosen[-1].id] == 3))
            yield from (chosen for chosen in found if all(compatible(*pair) for pair in combinations(chosen, 2)))

    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        for mistake in mistakes:
            if explains([mistake]):
                return (mistake,)
        bench.calls = 0
        for chosen in together():
            if bench.calls > most_calls:
                break
            if explains(chosen):
                return chosen
    return ()


def told(mistakes: Sequence[Mistake], run: Callable[[dict], object]) -> str:
    """Return the sentences of mistakes, with numbers from the first case."""
    notes = noted(mistakes, run)
    of = {name: variables for name, variables in reversed(notes)}  # of each twin's first return
    said = list(dict.fromkeys(mistake.says(of.get(mistake.part, {})) for mistake in mistakes))
    if len(said) == 1:
        return said[0]
    rows = [sentence("declare.numbered", number=k, says=text) for k, text in enumerate(said, start=1)]
    return "\n  ".join([sentence("declare.several", count=len(said)), *rows])
