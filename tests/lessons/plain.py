"""The reference as a lesson shows it: without annotations of shapes, docstrings and checks of arguments."""

import ast
import inspect
import textwrap
from collections.abc import Callable


def plain(source: str) -> str:
    """Return code without what a reader does not write."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(getattr(node, "body", None), list):
            node.body = [statement for statement in node.body if not is_left_out(statement)]
    return ast.unparse(tree)


def is_left_out(statement: ast.stmt) -> bool:
    """Whether a statement is a docstring or checks arguments."""
    if isinstance(statement, ast.If):
        return all(isinstance(each, ast.Raise) or is_left_out(each) for each in statement.body)
    words = ast.unparse(statement)
    return isinstance(statement, ast.Expr) and words.startswith(("'", '"', "arguments."))


def plain_source(reference: Callable) -> str:
    """Return the source of a part of the reference without what a reader does not write."""
    return plain(inspect.getsource(reference))
