"""The package that a student's process finds under the name ``vit_course``: what an assignment gives, and no more.

What is withheld can be imported, so that a forgotten import costs nothing, and raises an error when it is used.
"""

import ast
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

COURSE = Path(__file__).resolve().parents[3]
SOURCE = COURSE / "vit_course"
WORKER = ("answers", "messages", "worker")  # of this package

WITHHELD = """
def __getattr__(name):
    from importlib.util import find_spec

    if name.startswith("__") or ("__path__" in globals() and find_spec(f"{__name__}.{name}")):
        raise AttributeError(name)  # Python looks for a module of that name next

    def withheld(*args, **kwargs):
        raise NameError(f"{name} of vit_course is not there while marks are given: define it yourself")

    return withheld
"""
CHECKS = '''"""Stands in for the checks of the course: while marks are given, every one says so and checks nothing."""


class CheckFailed(AssertionError):
    """Is never raised here."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *args, **kwargs: "not run while grading"
'''
MINE = '''"""Stands in for the reader's own model: the parts of a handed-in my_vit.py that passed their hidden test."""

import vit_course

own = {}


def take(text, names):
    """Run the file's text on top of the given parts of the course, and keep some of its parts."""
    namespace = {name: value for name, value in vars(vit_course).items() if not name.startswith("__")}
    exec(compile(text, "my_vit.py", "exec"), namespace)
    own.update((name, namespace[name]) for name in names)


def part(name):
    """Return the student's version of a part, or the course's where there is none, and print which one it is."""
    whose = "your own version, from my_vit.py" if name in own else "the course's own version"
    print(f"{name}: {whose}")
    return own[name] if name in own else getattr(vit_course, name)
'''
STAND_INS = dict(checks=CHECKS, mine=MINE)


def build(folder: Path, names: Collection[str], data: Path | None) -> None:
    """Write the stripped package to ``folder / "vit_course"``.

    Args:
        folder: is first on the worker's path.
        names: what an assignment imports, such as ``vit_course.data.load_test_images``; the files that hold these, and
            what they need, are copied.
        data: a file that ``load_test_images`` reads, or None.

    Raises:
        ValueError: a name that the course does not have.
    """
    public = {alias.name: node for node in _imports(SOURCE / "__init__.py") for alias in node.names}
    given = _closure({_module_of(name, public) for name in names} - {""}, public)
    for path in sorted(SOURCE.rglob("*.py")):
        module, copy = _name_of(path), folder / path.relative_to(COURSE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if module in given:
            shutil.copyfile(path, copy)
        elif module.split(".")[0] not in STAND_INS:
            copy.write_text(WITHHELD)
    for module, text in STAND_INS.items():
        (folder / "vit_course" / module / "__init__.py").write_text(text)
    exported = [node for node in dict.fromkeys(public.values()) if _module_of(node.module, public) in given]
    (folder / "vit_course" / "__init__.py").write_text("\n".join([*map(ast.unparse, exported), WITHHELD]))
    (folder / "grader").mkdir()
    for module in ("__init__", *WORKER):
        shutil.copyfile(Path(__file__).with_name(f"{module}.py"), folder / "grader" / f"{module}.py")
    if data is not None:
        (folder / "resources").mkdir()
        shutil.copyfile(data, folder / "resources" / data.name)


def _name_of(path: Path) -> str:
    """Return a file's module, without the package's own name: ``data``, ``train.recipes``."""
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def _module_of(name: str, public: dict[str, ast.ImportFrom]) -> str:
    """Return the module that holds a name; nothing for the package itself and what has a stand-in."""
    name = name.removeprefix("vit_course").removeprefix(".")
    if name.split(".")[0] in ("", *STAND_INS):
        return ""
    wanted = name
    while name:
        path = SOURCE.joinpath(*name.split("."))
        if path.with_suffix(".py").exists() or (path / "__init__.py").exists():
            return name
        if name in public:
            return _module_of(public[name].module, public)
        name = name.rpartition(".")[0]
    raise ValueError(f"an assignment imports {wanted}, which vit_course does not have")


def _closure(modules: set[str], public: dict[str, ast.ImportFrom]) -> set[str]:
    """Return the modules with all that they import from the package, however far."""
    found = set()
    while modules := modules - found:
        found |= modules
        modules = {
            _module_of(f"{node.module}.{alias.name}", public)
            for path in SOURCE.rglob("*.py")
            if _name_of(path) in found
            for node in _imports(path)
            for alias in node.names
        } - {""}
    return found


def _imports(path: Path) -> Iterator[ast.ImportFrom]:
    """Go through the imports from the package in a file, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vit_course":
            yield node
