"""The package that a student's process finds under the name ``vit_course``: what an assignment gives, and no more."""

import ast
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3] / "vit_course"
WORKER = ("answers", "frames", "worker")  # of this package

CHECKS = '''"""Stands in for the checks of the course: while marks are given, every one says so and checks nothing."""


class CheckFailed(AssertionError):
    """Is never raised here."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *args, **kwargs: "not run while grading"
'''


def build(folder: Path, names: Collection[str], data: Path | None) -> None:
    """Write the stripped package to ``folder / "vit_course"``.

    Args:
        folder: is first on the worker's path.
        names: what an assignment imports, such as ``vit_course.data.load_test_images`` or ``data``; the files that
            hold these, and what they need, are copied.
        data: a file that ``load_test_images`` reads, or None.

    Raises:
        ValueError: a name that the course does not have.
    """
    package = folder / "vit_course"
    public = {alias.name: node for node in _imports(SOURCE / "__init__.py") for alias in node.names}
    modules = _closure({module for name in names if (module := _module_of(name, public))})
    (package / "checks").mkdir(parents=True)
    (folder / "grader").mkdir()
    (package / "checks" / "__init__.py").write_text(CHECKS)
    (folder / "grader" / "__init__.py").touch()
    for module in modules:
        shutil.copyfile(SOURCE / f"{module}.py", package / f"{module}.py")
    for module in WORKER:
        shutil.copyfile(Path(__file__).with_name(f"{module}.py"), folder / "grader" / f"{module}.py")
    exported = [node for node in dict.fromkeys(public.values()) if _own_module(node) in modules]
    (package / "__init__.py").write_text("\n".join(map(ast.unparse, exported)) + "\n")
    if data is not None:
        (folder / "resources").mkdir()
        shutil.copyfile(data, folder / "resources" / data.name)


def _module_of(name: str, public: dict[str, ast.ImportFrom]) -> str | None:
    """Return the module that holds a name; None for the package itself, the checks and the hidden tests."""
    first = name.removeprefix("vit_course").removeprefix(".").split(".")[0]
    if first in ("", "checks"):
        return None
    if (SOURCE / f"{first}.py").exists():
        return first
    if first in public:
        return _own_module(public[first])
    raise ValueError(f"an assignment imports {name}, which vit_course does not have")


def _closure(modules: set[str]) -> set[str]:
    """Return the modules with all that they import from the package, however far."""
    found = set()
    while modules := modules - found:
        found |= modules
        nodes = [node for module in modules for node in _imports(SOURCE / f"{module}.py")]
        modules = {name for node in nodes for name in _names_of(node)}
    return found


def _imports(path: Path) -> Iterator[ast.ImportFrom]:
    """Go through the imports from the package in a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vit_course":
            yield node


def _names_of(node: ast.ImportFrom) -> set[str]:
    if node.module == "vit_course":
        return {alias.name for alias in node.names}
    return {_own_module(node)}


def _own_module(node: ast.ImportFrom) -> str:
    return node.module.split(".")[1]
