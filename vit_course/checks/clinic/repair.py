"""What the cases of the bug clinic share: how a case is declared, and what is said of a piece that is still broken."""

from collections.abc import Callable

from vit_course.checks.engine import Check
from vit_course.checks.verdict import NotWritten, sentence


def repair(name: str, twin: str, reference: Callable, cases: list, mistakes: str, **rest: object) -> Check:
    """Return the check of a case: the fields of :class:`Check`, for a piece of code whose names are given.

    The mistake called ``symptom`` in ``mistakes`` gives what the broken piece gives; code that still gives exactly
    this is told so quietly, as an exercise is that is not written yet.
    """
    return Check(name, twin, reference, cases, mistakes, mappable=False, **rest)


def still(symptom: str) -> NotWritten:
    """Return the quiet verdict that the code behaves as it did when it came in, for what no edit of a twin shows."""
    return NotWritten(sentence("engine.not_repaired", symptom=sentence(symptom)))
