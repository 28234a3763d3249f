"""What a check tells a learner, in the words of ``sentences.toml``: another language is another such file."""

import html
import tomllib
from pathlib import Path

CATALOG = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))


class CheckFailed(AssertionError):
    """A check refused the learner's code; the message names the mistake, then what was expected and what came.

    Attributes:
        mistakes: ids of the mistakes that were recognized by value, ``"part.mistake"``; empty if there were none.
    """

    mistakes: tuple[str, ...] = ()

    def _render_traceback_(self) -> list[str]:
        """Show the message alone in a notebook: the traceback through the check's own code helps nobody."""
        return [f"{type(self).__name__}: {self}"]


class NotWritten(Exception):
    """The learner's code is still a stub, or still behaves as the broken code that it should repair."""


MARKS = dict(right="✓ ", wrong="✗ ", empty="")
COLORS = dict(right="#1b7f4b", wrong="#d1495b", empty="#8a8a8a")  # of a bar that is seen on white and on black


class Verdict(str):
    """What a check tells the learner: ``state`` is ``"right"``, ``"wrong"`` or ``"empty"``, for a stub.

    Its truth value is whether the code is right.
    """

    state: str

    def __new__(cls, line: str, *, state: str = "right") -> "Verdict":
        """Make the line, and remember what it says."""
        verdict = super().__new__(cls, line)
        verdict.state = state
        return verdict

    @property
    def passed(self) -> bool:
        """Whether the code is right."""
        return self.state == "right"

    def __repr__(self) -> str:
        return MARKS[self.state] + self

    def _repr_html_(self) -> str:
        """Show a bar at the side: green if the code is right, red if it is wrong, gray for a stub."""
        style = f"border-left: 4px solid {COLORS[self.state]}; padding: 2px 10px; white-space: pre-wrap"
        return f'<div style="{style}">{html.escape(repr(self), quote=False)}</div>'

    def __bool__(self) -> bool:
        return self.passed


def sentence(key: str, **fields: object) -> str:
    """Return the sentence with this id, ``"section.name"``, with its fields filled in."""
    section, _, name = key.partition(".")
    return CATALOG[section][name].format(**fields)


def fail(key: str, detail: str = "", **fields: object) -> CheckFailed:
    """Return the failure with this sentence and, indented in a line of its own, a detail."""
    return CheckFailed(sentence(key, **fields) + (f"\n  {detail}" if detail else ""))


def refuse(wrong: object, key: str, detail: str = "", **fields: object) -> None:
    """If something is wrong, raise the failure that :func:`fail` makes of the rest."""
    if wrong:
        raise fail(key, detail, **fields)
