"""What a check tells a learner, in the words of ``sentences.toml``: another language is another such file."""

import tomllib
from pathlib import Path

CATALOGUE = tomllib.loads(Path(__file__).with_name("sentences.toml").read_text(encoding="utf-8"))


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


class Verdict(str):
    """One line for the learner. ``passed`` is False for a stub that is still empty, and so is its truth value."""

    passed: bool

    def __new__(cls, line: str, *, passed: bool = True) -> "Verdict":
        """Make the line, and remember whether something was verified."""
        verdict = super().__new__(cls, line)
        verdict.passed = passed
        return verdict

    def __repr__(self) -> str:
        return str(self)

    def __bool__(self) -> bool:
        return self.passed


def sentence(key: str, **fields: object) -> str:
    """Return the sentence with this id, ``"section.name"``, with its fields filled in."""
    section, _, name = key.partition(".")
    return CATALOGUE[section][name].format(**fields)


def fail(key: str, detail: str = "", **fields: object) -> CheckFailed:
    """Return the failure with this sentence and, indented in a line of its own, a detail."""
    return CheckFailed(sentence(key, **fields) + (f"\n  {detail}" if detail else ""))
