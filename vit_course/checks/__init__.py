"""Checks of a learner's own code, ``checks.<name>``: each says what it verified, or names the mistake."""

from vit_course.checks import attention, embedding, encoder, inside, training, transfer  # noqa: F401  they declare
from vit_course.checks.clinic import clinic
from vit_course.checks.declare import CHECKS
from vit_course.checks.exercises import exercise, same_values
from vit_course.checks.verdict import CheckFailed, Verdict

PUBLIC = {name: check.public() for name, check in CHECKS.items()}
globals().update(PUBLIC)
__all__ = ["CheckFailed", "Verdict", "clinic", "exercise", "same_values", *PUBLIC]
