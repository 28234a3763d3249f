"""The text of ``my_vit.py``: what is in it, how a part is put into it, how it is written so that nothing is lost."""

import ast
import re
import shutil
from datetime import datetime
from pathlib import Path

from vit_course.atomic import replacing
from vit_course.checks.verdict import fail
from vit_course.mine.parts import PARTS
from vit_course.mine.source import Source, first_line, names_in

HEADER = '"""The Vision Transformer that I wrote. What I change here stays as I write it."""\n'
HISTORY = ".my_vit"  # next to the file: its earlier versions, the lock, and which parts have passed their check


def definitions(text: str) -> dict[str, ast.stmt]:
    """Return the functions, classes and constants at the top level of a file, by name; the last one of a name counts.

    Raises:
        CheckFailed: Python cannot read the file; the message names the line.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise fail("mine.syntax_error", line=error.lineno, what=error.msg) from error
    found = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node
    return found


def text_of_definition(text: str, node: ast.stmt) -> str:
    """Return a definition with its decorators and the comments right above it."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[first_line(node, lines) : node.end_lineno]).rstrip()


def with_part(text: str, part: Source) -> str:
    """Return the file's text with a part put in at its place in the course, or in place of its earlier version."""
    text = text or HEADER
    before = definitions(text)
    for line in sorted(part.imports):
        text = _with_import(text, line)
    text = _with_definition(text, part.name, part.text)
    for name, helper in part.helpers.items():
        if name in before:
            if text_of_definition(text, definitions(text)[name]) == helper:
                continue
            if users := [user for user in _users_of(text, name) if user not in (part.name, *part.helpers)]:
                raise fail("mine.helper_in_use", part=part.name, name=name, users=", ".join(users))
        text = _with_definition(text, name, helper, before=part.name)
    return text


def _users_of(text: str, name: str) -> list[str]:
    found = definitions(text)
    return [user for user, node in found.items() if user != name and name in names_in(text_of_definition(text, node))]


def _with_definition(text: str, name: str, source: str, before: str = "") -> str:
    lines = text.splitlines(keepends=True)
    found = definitions(text)
    if name in found:
        start, end = first_line(found[name], lines), found[name].end_lineno
    elif before in found:
        start = end = first_line(found[before], lines)
    else:
        start = end = _place_of(name, found, lines)
    head, tail = "".join(lines[:start]).rstrip("\n"), "".join(lines[end:]).strip("\n")
    return "\n\n\n".join(piece for piece in (head, source.strip("\n"), tail) if piece) + "\n"


def _place_of(name: str, found: dict[str, ast.stmt], lines: list[str]) -> int:
    order = list(PARTS)
    earlier = [node.end_lineno for other, node in found.items() if other in order[: order.index(name)]]
    later = [first_line(node, lines) for node in found.values()]
    return max(earlier) if earlier else min(later, default=len(lines))


def _with_import(text: str, line: str) -> str:
    head, _, name = line.rpartition("import ")
    tree, lines = ast.parse(text), text.splitlines(keepends=True)
    imports = {ast.unparse(node): node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
    for old, node in imports.items():
        before, _, names = old.rpartition("import ")
        if old == line or (head and before == head and name in names.split(", ")):
            return text
        if head and before == head and lines[node.lineno - 1].strip() == old:
            names = sorted([*names.split(", "), name], key=lambda one: (not one.isupper(), not one[0].isupper(), one))
            lines[node.lineno - 1] = f"{head}import {', '.join(names)}\n"
            return "".join(lines)
    earlier = [node.end_lineno for old, node in imports.items() if _import_rank(old) < _import_rank(line)]
    docstring = tree.body[0].end_lineno if tree.body and isinstance(tree.body[0], ast.Expr) else 0
    place = max(earlier, default=min([node.lineno - 1 for node in imports.values()], default=docstring))
    new = line + "\n"
    if _import_rank(line)[0] not in {_import_rank(old)[0] for old in imports}:  # a group of its own
        new = new + "\n" if imports and not earlier else "\n" + new
    return "".join([*lines[:place], new, *lines[place:]])


def _import_rank(line: str) -> tuple:
    """Return the place of an import in the usual order: Python's own library first, ``import`` before ``from``."""
    module = re.match(r"(?:import|from) ([\w.]+)", line)[1]
    return module.partition(".")[0] in ("torch", "einops"), line.startswith("from"), module.lower()


def read(path: Path) -> str:
    """Return the file's text; empty if there is none yet."""
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise fail("mine.unreadable", file=path.name, what=error) from error


def write(path: Path, text: str, *, why: str) -> None:
    """Write the file in one step; the version before it goes to the history folder first, which must exist."""
    if path.exists():
        shutil.copy2(path, path.parent / HISTORY / f"{datetime.now():%Y-%m-%d_%H%M%S_%f}_before_{why}.py")
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
