"""The reference as a lesson shows it: without annotations of shapes, docstrings and checks of arguments."""

import ast
import inspect
import textwrap
from collections.abc import Callable


class Plain(ast.NodeTransformer):
    """Take away what a reader does not write."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        return self.visit_ClassDef(node)

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if ast.unparse(node).startswith("arguments.") else node

    def visit_If(self, node: ast.If) -> ast.If | None:
        self.generic_visit(node)
        return None if not node.body or isinstance(node.body[0], ast.Raise) else node


def plain_source(reference: Callable) -> str:
    """Return the source of a part of the reference without what a reader does not write."""
    return ast.unparse(Plain().visit(ast.parse(textwrap.dedent(inspect.getsource(reference)))))
