"""The text of ``my_vit.py``: what is in it, how a part is put into it, how it is written so that nothing is lost."""

import ast
import re
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from vit_course.atomic import replacing
from vit_course.checks.verdict import fail
from vit_course.mine.parts import PARTS
from vit_course.mine.source import Source, first_line, names_in

HEADER = '"""My Vision Transformer. What I change here stays until I keep that part again."""\n'
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
    for name, helper in reversed(part.helpers.items()):  # each before what uses it
        users = _users_of(text, name)
        others = [user for user in users if user not in (part.name, *part.helpers)]
        if others and name in before and text_of_definition(text, definitions(text)[name]) != helper:
            raise fail("mine.helper_in_use", part=part.name, name=name, users=", ".join(others))
        text = _with_definition(text, name, helper, users=users)
    return text


def _users_of(text: str, name: str) -> list[str]:
    """Return what uses a name, in the order of the file."""
    found = definitions(text)
    users = [user for user in found if user != name and name in names_in(text_of_definition(text, found[user]))]
    return sorted(users, key=lambda user: found[user].lineno)


def _with_definition(text: str, name: str, source: str, users: Sequence[str] = ()) -> str:
    """Put a definition in place of its earlier version or, where that would come too late, before what uses it."""
    found, lines = definitions(text), text.splitlines(keepends=True)
    if name in found and not any(found[user].lineno < found[name].lineno for user in users):
        start, end = first_line(found[name], lines), found[name].end_lineno
    elif name in found:
        return _with_definition(_with_definition(text, name, ""), name, source, users)
    else:
        start = end = first_line(found[users[0]], lines) if users else _place_of(name, found, lines)
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


def write(path: Path, text: str, *, why: str) -> str:
    """Write the file in one step, its earlier version into the history folder, which must exist; return its name."""
    earlier = f"{datetime.now():%Y-%m-%d_%H%M%S_%f}_before_{why}.py"
    if path.exists():
        shutil.copy2(path, path.parent / HISTORY / earlier)
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return earlier
