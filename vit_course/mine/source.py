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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
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
    name = subject.__name__
    collected = Source(name, _text_of(subject, name))
    functions = map(_function_of, inspect.getmro(subject) if inspect.isclass(subject) else [subject])
    _collect(collected.text, next(filter(None, functions)).__globals__, collected)  # of a base, if it has all methods
    return collected


def _text_of(subject: Callable, part: str) -> str:
    """Return the source of a function or class; that of a class without a method is in the last cell that has one."""
    code = getattr(_function_of(subject), "__code__", None)
    cells = [name for name in reversed(linecache.cache) if not Path(name).exists()] if inspect.isclass(subject) else []
    for name in [code.co_filename] if code else cells:
        lines = linecache.getlines(name)
        with suppress(SyntaxError):
            for node in ast.parse("".join(lines)).body:
                first = first_line(node, lines)
                is_there = code is None or first < code.co_firstlineno <= node.end_lineno
                if getattr(node, "name", None) == subject.__name__ and is_there:
                    return "".join(lines[first : node.end_lineno]).rstrip()
    raise fail("mine.no_source", part=part, name=subject.__name__)


def first_line(node: ast.stmt, lines: list[str]) -> int:
    """Return the index of a definition's first line: of its decorators, and of the comments right above."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))]) - 1
    while first and lines[first - 1].startswith("#"):
        first -= 1
    return first


def _function_of(subject: Callable) -> FunctionType | None:
    """Return the function without its decorators; of a class, its first method that neither Python nor a base wrote."""
    own = vars(subject).values() if inspect.isclass(subject) else [subject]
    functions = [each for each in map(inspect.unwrap, own) if isinstance(each, FunctionType)]
    mine = [each for each in functions if each.__module__ == subject.__module__]
    return next((each for each in mine if linecache.getlines(each.__code__.co_filename)), None)


def names_in(text: str) -> list[str]:
    """Return the global names that a piece of source reads, in alphabetical order."""

    def names(table: symtable.SymbolTable) -> set[str]:
        own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
        return own.union(*map(names, table.get_children()))

    return sorted(names(symtable.symtable(text, "cell", "exec")) - set(vars(builtins)) - {"__class__"})


def _collect(text: str, namespace: dict, collected: Source, user: str = "it") -> None:
    """Collect what a piece of source needs; messages name the helper that is the ``user`` of a name."""
    for name in names_in(text):
        if name == collected.name or name in PARTS or name in collected.helpers:
            continue
        if name not in namespace:
            raise fail("mine.undefined", part=collected.name, user=user, name=name)
        value = namespace[name]
        package = _home_of(value).partition(".")[0]
        if line := _import_line(name, value):
            collected.imports.add(line)
        elif literal := _literal(value):
            collected.helpers[name] = f"{name} = {literal}"
        elif package == "vit_course":
            raise fail("mine.of_the_course", part=collected.name, user=user, name=name)
        elif package not in ALLOWED | {"", "__main__", "my_vit"}:
            raise fail("mine.of_others", part=collected.name, user=user, name=name, package=package)
        elif getattr(value, "__name__", name) != name:
            raise fail("mine.other_name", part=collected.name, user=user, name=name, own=value.__name__)
        elif isinstance(inspect.unwrap(value), (FunctionType, type)):
            helper = _text_of(value, collected.name)
            collected.helpers[name] = ""  # a helper may call itself
            function = _function_of(value)
            _collect(helper, function.__globals__ if function else namespace, collected, f"its helper {name}")
            del collected.helpers[name]
            collected.helpers[name] = helper  # after what it uses
        else:
            said = dict(part=collected.name, user=user, name=name, kind=type(value).__name__)
            raise fail("mine.not_collectable", **said)


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
                if getattr(importlib.import_module(home), own, ...) is value:
                    return f"from {home} import {own}" + (f" as {name}" if own != name else "")
    return None


def _home_of(value: object) -> str:
    return getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None) or ""


def _literal(value: object) -> str:
    """Return how a number, a text, or a tuple, list, set or dict of them is written; nothing for all else."""
    if type(value) is float and not math.isfinite(value):
        return f'float("{value}")'
    with suppress(ValueError, SyntaxError):
        if ast.literal_eval(repr(value)) == value:
            return repr(value)
    return ""
