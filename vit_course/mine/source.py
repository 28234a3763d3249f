"""The source of a part as the reader wrote it, with the imports, helpers and constants of the notebook that it uses."""

import ast
import builtins
import importlib
import inspect
import linecache
import math
import symtable
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType, ModuleType

from vit_course.checks.verdict import fail
from vit_course.mine.parts import PARTS

HOMES = ("torch", "torch.nn", "torch.nn.functional", "einops", "einops.layers.torch", "torch.utils.data")
ALLOWED = {"torch", "einops"} | set(sys.stdlib_module_names)


@dataclass
class Source:
    """What a part needs in a file of its own.

    Attributes:
        name, text: of the part.
        imports: lines such as ``"from torch import nn"``, one name each.
        helpers: the reader's own functions, classes and constants that the part uses, by name, in the order of use.
    """

    name: str
    text: str
    imports: set[str] = field(default_factory=set)
    helpers: dict[str, str] = field(default_factory=dict)


def source_of(subject: Callable) -> Source:
    """Collect what a part needs; ``CheckFailed`` names what cannot be collected."""
    collected = Source(subject.__name__, _text_of(subject))
    _collect(collected.text, _function_of(subject).__globals__, collected)
    return collected


def _text_of(subject: Callable) -> str:
    code = getattr(_function_of(subject), "__code__", None)
    lines = linecache.getlines(code.co_filename) if code else []
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        tree = ast.Module(body=[])
    for node in tree.body:
        first = first_line(node, lines)
        if getattr(node, "name", None) == subject.__name__ and first < code.co_firstlineno <= node.end_lineno:
            return "".join(lines[first : node.end_lineno]).rstrip()
    raise fail("mine.no_source", name=subject.__name__)


def first_line(node: ast.stmt, lines: list[str]) -> int:
    """Return the index of a definition's first line: of its decorators, and of the comments right above."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return first


def _function_of(subject: Callable) -> FunctionType | None:
    """Return the function without its decorators; of a class, its first method."""
    own = vars(subject).values() if inspect.isclass(subject) else [subject]
    return next((inspect.unwrap(each) for each in own if isinstance(each, FunctionType)), None)


def names_in(text: str) -> list[str]:
    """Return the global names that a piece of source reads, in alphabetical order."""

    def names(table: symtable.SymbolTable) -> set[str]:
        own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
        return own.union(*map(names, table.get_children()))

    return sorted(names(symtable.symtable(text, "cell", "exec")) - set(vars(builtins)) - {"__class__"})


def _collect(text: str, namespace: dict, collected: Source) -> None:
    for name in names_in(text):
        if name == collected.name or name in PARTS or name in collected.helpers:
            continue
        if name not in namespace:
            raise fail("mine.undefined", part=collected.name, name=name)
        value = namespace[name]
        if line := _import_line(name, value):
            collected.imports.add(line)
        elif _is_constant(value):
            literal = repr(value) if value not in (math.inf, -math.inf) else f'float("{value}")'
            collected.helpers[name] = f"{name} = {literal}"
        elif isinstance(value, (FunctionType, type)) and not _home_of(value).startswith("vit_course"):
            helper = _text_of(value)
            collected.helpers[name] = ""  # a helper may call itself
            _collect(helper, _function_of(value).__globals__, collected)
            del collected.helpers[name]
            collected.helpers[name] = helper  # after what it uses
        elif _home_of(value).startswith("vit_course"):
            raise fail("mine.of_the_course", part=collected.name, name=name)
        else:
            raise fail("mine.not_collectable", part=collected.name, name=name, kind=type(value).__name__)


def _import_line(name: str, value: object) -> str | None:
    if isinstance(value, ModuleType):
        path = value.__name__
        if path.partition(".")[0] not in ALLOWED:
            return None
        parent, _, last = path.rpartition(".")
        if parent and last == name:
            return f"from {parent} import {name}"
        return f"import {path}" if path == name else f"import {path} as {name}"
    for home in (*HOMES, _home_of(value)):
        if home.partition(".")[0] in ALLOWED and home != "__main__":
            for own in (name, getattr(value, "__name__", name)):
                if getattr(importlib.import_module(home), own, None) is value:
                    return f"from {home} import {own}" + (f" as {name}" if own != name else "")
    return None


def _home_of(value: object) -> str:
    return getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None) or ""


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return value is None or type(value) in (bool, int, float, str)
