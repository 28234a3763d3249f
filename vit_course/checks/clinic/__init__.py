"""The check of lesson 10, the bug clinic: a repaired piece of code against the right one, by value and behavior.

Code that still behaves exactly as the case's broken code, which is the mistake called "symptom", is told so quietly.
Anything else that is wrong is refused, and the message names what is still wrong.
"""

from collections.abc import Callable

from vit_course.checks.clinic.first import FIRST
from vit_course.checks.clinic.second import SECOND
from vit_course.checks.learner import check, shown
from vit_course.checks.verdict import Verdict, sentence

CLINIC = [*FIRST, *SECOND]
NAMES = [repaired.name for repaired in CLINIC]


def clinic(case: int | str, repaired: Callable) -> Verdict:
    """Check a repair of lesson 10: the values and the behavior of the piece of code that was broken.

    Verified: that the symptom is gone, and that everything else is as it should be – values for several sizes, other
    than the lesson's too, train and eval mode where they matter, gradients, the caller's tensors.

    Args:
        case: the number, 1 to 12, or the name, such as ``"rows"``.
        repaired: the function or class, with the arguments that the broken one had.

    Returns:
        One line that says what was verified. It is False, and names the symptom that is left, for code that still
        behaves exactly as the broken code does.

    Raises:
        CheckFailed: outside of notebooks, when something else is wrong; the message names it.
        ValueError: there is no such case.
    """
    numbers = dict(enumerate(NAMES, start=1))
    if isinstance(case, bool) or case not in (*numbers, *NAMES):
        known = ", ".join(f'{number} or "{name}"' for number, name in numbers.items())
        raise ValueError(sentence("clinic.unknown", known=known, came=repr(case)))
    place = case if isinstance(case, int) else NAMES.index(case) + 1

    def verify() -> str:
        CLINIC[place - 1].verify(repaired)
        return sentence(f"clinic.{numbers[place]}")

    return shown(lambda: check(f"case {place}, {numbers[place]}", repaired, verify))
