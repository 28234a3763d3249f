"""Wrong versions of a part, made from its twin: a mistake is a list of edits of the twin's source.

A mistake is named only if the learner's values equal, in every case, those that the edited twin gives. Mistakes that
do not overlap combine; the fewest are tried first, the smallest case first, and their number is bounded.
"""

import ast
import inspect
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, islice
from pathlib import Path
from types import CodeType

import torch
from torch import Tensor

from vit_course.checks import twins
from vit_course.checks.compare import TOLERANCE, same
from vit_course.checks.verdict import sentence

TABLE = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))
PARTS = {name: part for name, part in vars(twins).items() if getattr(part, "__module__", "") == twins.__name__}
SOURCES = {name: inspect.getsource(part) for name, part in PARTS.items()}
MOST_CALLS = 9000  # of twins in one search: less than a second of one core


@dataclass(frozen=True)
class Mistake:
    """What is replaced in a twin, by what, and what is said of it; see ``mistakes.toml``."""

    id: str
    part: str
    template: str
    edits: tuple[tuple[str, str], ...]
    fields: dict[str, str]
    seen: str
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
            seen, drawn = row.get("seen", ""), row.get("drawn", False)
            found.append(Mistake(identity, part, row["says"], edits, fields, seen, drawn))
    return tuple(found)


def compatible(first: Mistake, second: Mistake) -> bool:
    """Whether two mistakes replace different stretches of the twins."""
    if first.part != second.part:
        return True
    return all(a[1] <= b[0] or b[1] <= a[0] for a in first.spans for b in second.spans)


# --- running an edited twin ------------------------------------------------------------------------------------------


class _Returns(ast.NodeTransformer):
    """Rewrite ``return x`` in a function as ``return _note("name", locals(), x)``."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.name = node.name
        return self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> ast.Return:
        call = ast.parse(f"_note({self.name!r}, locals(), 0)", mode="eval").body
        call.args[2] = node.value
        return ast.copy_location(ast.Return(call), node)


@cache
def _compiled(part: str, spans: tuple[tuple[int, int, str], ...], noting: bool) -> CodeType:
    """Compile a twin with some stretches replaced."""
    source = SOURCES[part]
    for start, end, new in sorted(spans, reverse=True):
        source = source[:start] + new + source[end:]
    tree = ast.parse(source)
    return compile(ast.fix_missing_locations(_Returns().visit(tree)) if noting else tree, f"<{part}>", "exec")


def namespace(mistakes: Sequence[Mistake] = (), note: Callable | None = None) -> dict[str, object]:
    """Return all twins, with these mistakes in them; ``note(name, variables, result)`` hears what each one returns."""
    names = vars(twins) | {"TWIN": True, "_note": note}
    for part in SOURCES:
        spans = tuple(span for mistake in mistakes if mistake.part == part for span in mistake.spans)
        exec(_compiled(part, spans, note is not None), names)
    return names


def noted(mistakes: Sequence[Mistake], run: Callable[[dict], object]) -> list[tuple[str, dict]]:
    """Return the variables of every twin that runs, in the order of their returns."""
    notes = []

    def note(name: str, variables: dict, result: object) -> object:
        notes.append((name, variables | {"result": result}))
        return result

    with torch.no_grad(), warnings.catch_warnings(action="ignore"):
        run(namespace(mistakes, note))
    return notes


# --- finding the mistakes that explain a learner's values ------------------------------------------------------------


class _Target:
    """The learner's result in one case, quick to compare: most wrong guesses differ in the largest value."""

    def __init__(self, result: object) -> None:
        self.result = result
        flat = result.detach().flatten().double() if isinstance(result, Tensor) and result.numel() else None
        self.at = None if flat is None else int(flat.abs().nan_to_num().argmax())
        self.largest = None if flat is None else flat[self.at].item()

    def equals(self, other: object) -> bool:
        if self.at is None:
            return same(self.result, other)
        if not isinstance(other, Tensor) or other.shape != self.result.shape:
            return False
        value = other.flatten()[self.at].item()
        near = abs(value - self.largest) <= 1e-3 + 10 * TOLERANCE * abs(self.largest) or value == self.largest
        return near and same(self.result, other)


def explanation(
    mistakes: Sequence[Mistake],
    runs: Sequence,
    results: Sequence,
    *,
    most: int = 2,
    most_tries: int = 3000,
    rank: Callable[[Mistake], int | None] = lambda mistake: 0,
) -> tuple[Mistake, ...]:
    """Return the fewest mistakes that give all results; an empty tuple if none do.

    Args:
        mistakes: the candidates, in the order in which they are tried.
        runs: for every case a :class:`vit_course.checks.engine.TwinRun`.
        results: the learner's, in the same order.
        most: how many mistakes may come together.
        most_tries: how many combinations are tried at most; fewer where a run calls many twins.
        rank: orders the mistakes that may come together with others, None for none; asked if none explains all alone.
    """
    targets = [_Target(result) for result in results]
    order = sorted(range(len(runs)), key=lambda k: getattr(results[k], "numel", lambda: 0)())
    drawn = any(hasattr(result, "matches") for result in results)

    def explains(chosen: Sequence[Mistake]) -> bool:
        names = namespace(chosen)
        try:
            with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                return all(runs[k].could_give(names, results[k]) and targets[k].equals(runs[k](names)) for k in order)
        except Exception:  # a wrong version may stop where the learner's does not
            return False

    def candidates() -> Iterator[tuple[Mistake, ...]]:
        yield from ((mistake,) for mistake in mistakes)
        ranks = {id(mistake): rank(mistake) for mistake in mistakes} if most > 1 else {}
        kept = [mistake for mistake in mistakes if ranks.get(id(mistake)) is not None]
        kept.sort(key=lambda mistake: ranks[id(mistake)])
        apart = {(id(a), id(b)) for a, b in combinations(kept, 2) if compatible(a, b)}
        for count in range(2, most + 1):
            places = sorted(combinations(range(len(kept)), count), key=sum)  # the likeliest first
            for chosen in (tuple(kept[k] for k in chosen) for chosen in places):
                if all((id(a), id(b)) in apart for a, b in combinations(chosen, 2)):
                    yield chosen

    called = [name for name, _ in noted((), runs[order[0]])]
    calls = len(called) // called.count(called[-1])  # of twins in one run, a measure of its time
    bound = len(mistakes) + min(most_tries, MOST_CALLS // calls) // (10 if drawn else 1)
    return next((chosen for chosen in islice(candidates(), bound) if explains(chosen)), ())


def told(mistakes: Sequence[Mistake], run: Callable[[dict], object]) -> str:
    """Return the sentences of mistakes, with numbers from the first case."""
    notes = noted(mistakes, run)
    of = {name: variables for name, variables in reversed(notes)}  # of each twin's first return
    said = list(dict.fromkeys(mistake.says(of.get(mistake.part, {})) for mistake in mistakes))
    if len(said) == 1:
        return said[0]
    rows = [sentence("engine.numbered", number=k, says=text) for k, text in enumerate(said, start=1)]
    return "\n  ".join([sentence("engine.several", count=len(said)), *rows])
