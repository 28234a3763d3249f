"""The package that a student's process finds under the name ``vit_course``: what an assignment gives, and no more.

What is withheld can be imported, so that a forgotten import costs nothing, and raises an error when it is used.
"""

import ast
from collections.abc import Collection
from functools import cache
from pathlib import Path

from grader.source import course_imports

COURSE = Path(__file__).resolve().parents[3]
SOURCE = COURSE / "vit_course"
MODULES = {  # by name, without the package's own: "data", "train.recipes"
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
PUBLIC = {  # what the package itself exports, and from where
    alias.name: node.module
    for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text()))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}

WITHHELD = """
def __getattr__(name):
    from importlib.util import find_spec

    if name.startswith("__") or ("__path__" in globals() and find_spec(f"{__name__}.{name}")):
        raise AttributeError(name)  # Python looks for a module of that name next

    def withheld(*args, **kwargs):
        raise NameError(f"{name} of vit_course is not there while marks are given: define it yourself")

    return withheld
"""
NOT_RUN = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *args, **kwargs: "not run while grading"
"""
MINE = '''"""In place of the reader's own model: the parts of a handed-in my_vit.py that passed their hidden test."""

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
STAND_INS = dict(checks=NOT_RUN, mine=MINE + NOT_RUN)  # while marks are given, every check says so, and checks nothing


@cache
def files(names: Collection[str]) -> dict[str, str]:
    """Return the stripped package: the text of each of its files by the path, ``"vit_course/data.py"``.

    Args:
        names: what an assignment imports, such as ``vit_course.data.load_test_images``; the files that hold these, and
            what they need, are there as they are.

    Raises:
        ValueError: a name that the course does not have.
    """
    given, wanted = set(), {_module_of(name) for name in names}
    while wanted := wanted - given - {None}:
        given |= wanted
        wanted = {_module_of(name) for module in wanted for name in course_imports(MODULES[module].read_text())}
    texts = {
        path.relative_to(COURSE).as_posix(): path.read_text() if module in given else STAND_INS.get(module, WITHHELD)
        for module, path in MODULES.items()
    }
    exported = [f"from {module} import {name}" for name, module in PUBLIC.items() if _module_of(module) in given]
    return texts | {"vit_course/__init__.py": "\n".join([*exported, WITHHELD])}


def _module_of(name: str) -> str | None:
    """Return the module that holds a name; None for the package itself and what has a stand-in."""
    wanted, name = name, name.removeprefix("vit_course").removeprefix(".")
    while name:
        if name.split(".")[0] in STAND_INS:
            return None
        if name in MODULES:
            return name
        name = PUBLIC[name].removeprefix("vit_course.") if name in PUBLIC else name.rpartition(".")[0]
    if wanted not in ("", "vit_course"):
        raise ValueError(f"an assignment imports {wanted}, which vit_course does not have")
    return None
