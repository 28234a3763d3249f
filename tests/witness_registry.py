"""How wrong implementations, and right ones in other styles, are entered for the tests of the checks."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A wrong implementation: the check that must refuse it, where the mistake comes from, and ids or words named."""

    check: str
    code: Callable
    source: str
    names: str
    mapping: Callable | None = None


@dataclass(frozen=True)
class Alternative:
    """A right implementation in another style than the course's."""

    check: str
    code: Callable
    mapping: Callable | None = None


MUTANTS: list[Mutant] = []
ALTERNATIVES: list[Alternative] = []


def mutant(check: str, *, source: str, names: str, mapping: Callable | None = None) -> Callable:
    """Enter a wrong implementation of the part that ``checks.<check>`` checks."""

    def enter(code: Callable) -> Callable:
        MUTANTS.append(Mutant(check, code, source, names, mapping))
        return code

    return enter


def alternative(check: str, *, mapping: Callable | None = None) -> Callable:
    """Enter a right implementation of the part that ``checks.<check>`` checks."""

    def enter(code: Callable) -> Callable:
        ALTERNATIVES.append(Alternative(check, code, mapping))
        return code

    return enter
