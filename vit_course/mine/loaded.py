"""What is in ``my_vit.py``: every part checked, and the course's version where there is none or a wrong one."""

import ast
import hashlib
import inspect
import json
import linecache
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from vit_course.checks.verdict import CheckFailed, sentence
from vit_course.mine import file
from vit_course.mine.parts import PARTS
from vit_course.mine.source import names_in

PACKAGE = Path(__file__).resolve().parents[1]


class Loaded:
    """The parts of a file, each checked; the course's version where there is none, or one that fails its check.

    Attributes:
        namespace: every part, and what else the file defines, by name.
        kept: names of the reader's parts that pass their check.
        problems: why others do not count, by name.
        trouble: why the file cannot be read, if it cannot.
    """

    def __init__(self, text: str, path: Path, trouble: str = "") -> None:
        self.text, self.path, self.trouble = text, path, trouble
        self.kept: list[str] = []
        self.problems: dict[str, str] = {}
        self.written: dict[str, set[str]] = {}  # which of the parts that a part is made of the reader has written
        self.prints: dict[str, str] = {}  # fingerprints of the kept parts
        self.namespace = {"__name__": "my_vit"} | {name: part.reference for name, part in PARTS.items()}
        self.definitions = file.definitions(text)
        self.others = [node for node in ast.parse(text).body if getattr(node, "name", None) not in PARTS]
        if self.definitions.keys() & PARTS.keys():
            self.trouble = stopped(lambda: self.run(self.others))
            for name in PARTS:
                self.add(name)

    def run(self, body: list[ast.stmt]) -> None:
        """Run statements of the file; tracebacks show its lines."""
        linecache.cache[str(self.path)] = (len(self.text), None, self.text.splitlines(keepends=True), str(self.path))
        exec(compile(ast.Module(body=body, type_ignores=[]), str(self.path), "exec"), self.namespace)

    def add(self, name: str) -> None:
        """Put a part into the namespace: the reader's if it passes its check, the course's otherwise."""
        if name in self.definitions and not self.trouble:
            source = file.text_of_definition(self.text, self.definitions[name])
            problem = stopped(lambda: self.check(name, source))
            if not problem:
                self.kept.append(name)
                self.written[name] = self.written_in(source) | {name}
                return
            self.problems[name] = problem
        reference = PARTS[name].reference
        source = inspect.getsource(reference)
        self.written[name] = self.written_in(source) | {name} & self.problems.keys()
        if self.written[name].intersection(self.kept):  # the course's source, with the reader's parts in it
            names = vars(sys.modules[reference.__module__]) | {part: self.namespace[part] for part in PARTS}
            names["__name__"] = "my_vit"
            exec(compile(source, inspect.getsourcefile(reference), "exec"), names)
            reference = names[name]
            reference.of_the_course = True
        self.namespace[name] = reference

    def written_in(self, source: str) -> set[str]:
        """Return which parts that the reader has written a source uses, at first hand or through other parts."""
        return set().union(*(self.written.get(name, ()) for name in names_in(source)))

    def check(self, name: str, source: str) -> None:
        """Run a part, and its check unless this source has passed it before."""
        self.run([self.definitions[name]])
        passed = self.path.parent / file.HISTORY / "passed.json"
        known, key = {}, self.fingerprint(source)
        with suppress(OSError, ValueError):
            known = json.loads(passed.read_text(encoding="utf-8"))
        self.prints[name] = key
        if known.get(name) == key:
            return
        verdict = PARTS[name].verify(self.namespace[name])
        if not verdict.passed:
            raise CheckFailed(str(verdict))
        with suppress(OSError):  # a folder that cannot be written to makes things slower, not wrong
            passed.parent.mkdir(exist_ok=True)
            passed.write_text(json.dumps(known | {name: key}), encoding="utf-8")  # if half is written, it is ignored

    def fingerprint(self, source: str) -> str:
        """Return a hash of all that a part depends on: imports, helpers, the parts in it, and the course itself."""
        pieces = [source, *map(ast.unparse, self.others), *(self.prints.get(name, "") for name in names_in(source))]
        return hashlib.sha256("\n".join([*pieces, _course_fingerprint()]).encode()).hexdigest()

    def says(self, name: str) -> str:
        """Say in one line whose version of a part this is."""
        if self.trouble:
            return sentence("mine.trouble", name=name, trouble=self.trouble)
        if name in self.problems:
            return sentence("mine.no_longer", name=name, problem=self.problems[name])
        written = self.written.get(name, ())
        yours, failing = ([each for each in parts if each in written] for parts in (self.kept, self.problems))
        kind = "yours" if name in self.kept else "mixed" if yours else "courses"
        said = sentence(f"mine.{kind}", name=name, yours=listed(yours))
        if failing:
            said += sentence("mine.failing", part=failing[0], problem=self.problems[failing[0]])
        return said


loaded_text = lru_cache(maxsize=4)(Loaded)


def stops(text: str) -> str:
    """Say why Python cannot import the file, if so; a part that is not in it yet is the course's."""
    found = file.definitions(text)
    names = {"__name__": "my_vit"} | {name: part.reference for name, part in PARTS.items() if name not in found}
    return stopped(lambda: exec(compile(text, "my_vit.py", "exec"), names))


def stopped(run: Callable[[], None]) -> str:
    """Run something of the reader's, and say why it stops or fails its check, if so."""
    try:
        run()
    except CheckFailed as failure:
        return str(failure)
    except Exception as error:
        return sentence("mine.stopped", error=type(error).__name__, what=error)
    return ""


def listed(names: list[str]) -> str:
    """Join names with commas and a last "and"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


@cache
def _course_fingerprint() -> str:
    """Return a hash of the course's modules and checks: a new version of the course checks kept parts again."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".toml"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
