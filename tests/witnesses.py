"""Witnesses: mistakes as they were published and right code in other styles, from ``witnesses.toml``."""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from support import run_cell

from vit_course import checks
from vit_course.checks import Verdict

TABLE = tomllib.loads(Path(__file__).with_name("witnesses.toml").read_text(encoding="utf-8"))
CLINIC = TABLE.pop("clinic")  # for test_clinic.py, which knows the lesson's repairs
IMPORTS = """
import copy, functools, itertools, math
import numpy as np, torch, torch.nn.functional as F, vit_course
from einops import einsum, rearrange, reduce
from einops.layers.torch import Rearrange
from torch import nn
from torch.utils.data import DataLoader
"""


@dataclass(frozen=True)
class Witness:
    """Code of a learner: the check, its mapping, and for a mistake the ids or words that must be named."""

    check: str
    code: Callable
    mapping: Callable | None
    names: str = ""

    def verdict(self) -> Verdict:
        """Return what the check says of the code."""
        return getattr(checks, self.check)(self.code, **({"mapping": self.mapping} if self.mapping else {}))


def cell(source: str) -> dict[str, object]:
    """Run code as a cell of a notebook, and return what is defined."""
    names = {"__name__": "__main__"}
    exec(IMPORTS, names)
    run_cell(source, names, f"<cell {hash(source)}>")
    return names


def edited(source: str, edits: list[list[str]]) -> str:
    """Return the source with its edits, each of a text that occurs once."""
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def rows(kind: str) -> Iterator[Witness]:
    """Yield all rows of one kind, ``"wrong"`` or ``"right"``; a base is right."""
    for check, part in TABLE.items():
        for row in [*part.get(kind, []), *([{}] if kind == "right" else [])]:
            names = cell(row.get("code") or edited(part["base"], row.get("edits", [])))
            mapping = names.pop("mapping", None)
            yield Witness(check, list(names.values())[-1], mapping, row.get("names", ""))


MUTANTS, ALTERNATIVES = list(rows("wrong")), list(rows("right"))
