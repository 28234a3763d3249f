"""The reader's own model: a part that passes its check is kept in ``my_vit.py``, and later lessons use it.

The file lies in the working directory of the notebook. It is plain Python that imports torch and einops only.
"""

import ast
import hashlib
import html
import inspect
import json
import linecache
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

from filelock import FileLock

from vit_course.checks.learner import shown
from vit_course.checks.verdict import CheckFailed, Verdict, fail, sentence
from vit_course.mine import file
from vit_course.mine.parts import PARTS, REFERENCE
from vit_course.mine.source import names_in, source_of

__all__ = ["keep", "part", "progress", "run_alone"]

FILE = "my_vit.py"
PACKAGE = Path(__file__).resolve().parents[1]


def keep(subject: Callable) -> Verdict:
    """Check a part of the model and, if it is right, keep its source in ``my_vit.py``.

    Args:
        subject: a function or class under the name of a part, such as ``PatchEmbedding``.

    Returns:
        What the check says, and whether the part was kept. The version that it replaces stays in ``.my_vit/``.

    Raises:
        ValueError: the name is not that of a part.
        CheckFailed: outside of notebooks, when the part is wrong or cannot be kept.
    """
    name = getattr(subject, "__name__", type(subject).__name__)
    if name not in PARTS:
        raise ValueError(f"keep needs a part of the model under its own name: {', '.join(PARTS)}; got {name!r}")
    return shown(lambda: _checked_and_kept(name, subject))


def _checked_and_kept(name: str, subject: Callable) -> Verdict:
    """Run the part's check, collect its source, and put it into the file."""
    if subject is PARTS[name].reference or getattr(subject, "of_the_course", False):
        return Verdict(sentence("mine.reference", name=name), state="empty")
    verdict = PARTS[name].verify(subject)
    if not verdict.passed or getattr(subject, "__module__", "") == "my_vit":
        return verdict
    source, path = source_of(subject), place()
    try:
        (path.parent / file.HISTORY).mkdir(exist_ok=True)
        with FileLock(path.parent / file.HISTORY / "lock", timeout=30):  # another notebook may keep a part as well
            before = file.read(path)
            text = file.with_part(before, source)
            if text != before:
                loaded = Loaded(text, path)
                if name in loaded.problems:
                    raise fail("mine.not_alone", name=name, problem=loaded.problems[name])
                file.write(path, text, why=name)
    except OSError as error:
        said = dict(file=path.name, folder=path.parent.resolve(), what=error.strerror or error)
        raise fail("mine.not_written", **said) from error
    kept = len(load().kept)
    said = sentence("mine.kept", name=name, kept=kept, total=len(PARTS))
    return Verdict(f"{verdict}\n{said}" + sentence("mine.all_kept") * (kept == len(PARTS)))


def part(name: str) -> Callable:
    """Return the reader's version of a part, or the course's where there is none, and print which one it is.

    The course's version of a larger part is built from the reader's smaller ones.

    Raises:
        ValueError: there is no part of this name.
    """
    loaded = load()
    if name not in loaded.namespace or not callable(loaded.namespace[name]):
        raise ValueError(f"name must be that of a part: {', '.join(PARTS)}; got {name!r}")
    print(_wrapped(loaded.says(name)))
    return loaded.namespace[name]


def place() -> Path:
    """Return where the file is: in this folder or, for the notebook of an assignment, in that of the lessons."""
    here = Path.cwd()
    above = here.parents[2:3] if here.name.startswith("assignment_") else ()
    return next((folder / FILE for folder in (here, *above) if (folder / FILE).exists()), here / FILE)


def load() -> "Loaded":
    """Return what is in the file now; nothing, if it cannot be read."""
    path = place().resolve()
    try:
        return loaded_text(file.read(path), path)
    except CheckFailed as failure:
        return Loaded("", path, trouble=str(failure))


class Loaded:
    """The parts of a file, each checked; the course's version where there is none, or one that fails its check.

    Attributes:
        namespace: every part, and what else the reference defines, by name.
        kept: names of the reader's parts that pass their check.
        problems: why others do not count, by name.
        trouble: why the file cannot be read, if it cannot.
    """

    def __init__(self, text: str, path: Path, trouble: str = "") -> None:
        self.text, self.path, self.trouble = text, path, trouble
        self.kept: list[str] = []
        self.problems: dict[str, str] = {}
        self.mixed: dict[str, set[str]] = {}  # which of the reader's parts are in a part
        self.prints: dict[str, str] = {}  # fingerprints of the kept parts
        self.namespace = {name: value for module in REFERENCE for name, value in vars(module).items()}
        self.namespace["__name__"] = "my_vit"
        self.definitions = file.definitions(text)
        if self.definitions.keys() & PARTS.keys():
            self.run_all_but_the_parts()
            for name in PARTS:
                self.add(name)

    def run_all_but_the_parts(self) -> None:
        """Run the reader's imports, helpers and constants; tracebacks show the lines of the file."""
        linecache.cache[str(self.path)] = (len(self.text), None, self.text.splitlines(keepends=True), str(self.path))
        body = [node for node in ast.parse(self.text).body if getattr(node, "name", None) not in PARTS]
        try:
            self.run(body)
        except Exception as error:
            self.trouble = sentence("mine.stopped", error=type(error).__name__, what=error)

    def run(self, body: list[ast.stmt]) -> None:
        """Run statements of the file, whose lines keep their numbers."""
        exec(compile(ast.Module(body=body, type_ignores=[]), str(self.path), "exec"), self.namespace)

    def add(self, name: str) -> None:
        """Put a part into the namespace: the reader's if it passes its check, the course's otherwise."""
        if name in self.definitions and not self.trouble:
            source = file.text_of_definition(self.text, self.definitions[name])
            uses = self.parts_in(source) - {name}
            try:
                self.run([self.definitions[name]])
                self.check(name, source)
                self.kept.append(name)
                self.mixed[name] = uses | {name}
                return
            except CheckFailed as failure:
                self.problems[name] = str(failure)
            except Exception as error:
                self.problems[name] = sentence("mine.stopped", error=type(error).__name__, what=error)
        reference = PARTS[name].reference
        source = inspect.getsource(reference)
        self.mixed[name] = self.parts_in(source) - {name}
        if self.mixed[name]:  # the course's source, with the reader's parts in it
            exec(compile(source, inspect.getsourcefile(reference), "exec"), self.namespace)
            self.namespace[name].of_the_course = True
        else:
            self.namespace[name] = reference

    def parts_in(self, source: str) -> set[str]:
        """Return which of the reader's parts a source uses, at first hand or through other parts."""
        return set().union(*(self.mixed.get(name, ()) for name in names_in(source))) & set(self.kept)

    def check(self, name: str, source: str) -> None:
        """Run a part's check, unless this source has passed it before."""
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
        """Return a hash of all that a part depends on: helpers, the parts in it, and the course itself."""
        others = [node for name, node in self.definitions.items() if name not in PARTS]
        pieces = [source, *map(ast.unparse, others), *(self.prints.get(name, "") for name in names_in(source))]
        return hashlib.sha256("\n".join([*pieces, _course_fingerprint()]).encode()).hexdigest()

    def says(self, name: str) -> str:
        """Say in one line whose version of a part this is."""
        if name in self.kept:
            return sentence("mine.yours", name=name)
        if self.trouble:
            return sentence("mine.trouble", name=name, trouble=self.trouble)
        if name in self.problems:
            return sentence("mine.no_longer", name=name, problem=self.problems[name])
        if self.mixed.get(name):
            yours = [each for each in PARTS if each in self.mixed[name]]
            return sentence("mine.mixed", name=name, yours=_listed(yours))
        return sentence("mine.courses", name=name)


loaded_text = lru_cache(maxsize=4)(Loaded)


def _wrapped(text: str) -> str:
    """Break long lines, which a notebook shows without breaking them; what continues a line is indented."""
    lines = (textwrap.fill(line, 88, subsequent_indent="  ", break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join(lines)


def _listed(names: list[str]) -> str:
    """Join names with commas and a last "and"."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


class Progress(str):
    """A table of the parts, which a notebook shows line by line."""

    __repr__ = str.__str__

    def _repr_html_(self) -> str:
        return f'<pre style="font-family: monospace; line-height: 1.4">{html.escape(self, quote=False)}</pre>'


def progress() -> Progress:
    """Return a table of all parts that shows which ones are kept in ``my_vit.py``, and in which lesson each belongs."""
    loaded = load()
    states = dict.fromkeys(PARTS, "mine.state_open") | dict.fromkeys(loaded.problems, "mine.state_failing")
    states |= dict.fromkeys(loaded.kept, "mine.state_kept")
    rows = [f"{part.lesson}  {name:30}{sentence(states[name])}".rstrip() for name, part in PARTS.items()]
    summary = sentence("mine.summary", kept=len(loaded.kept), total=len(PARTS))
    return Progress("\n".join([*filter(None, [loaded.trouble]), *rows, summary]))


_ALONE = """
import sys
sys.modules["vit_course"] = None  # importing it would fail
import torch
import my_vit
sizes = dict(image_size=96, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=10)
images = torch.rand(6, 3, 96, 96)
print(tuple(images.shape), "->", tuple(my_vit.VisionTransformer(**sizes)(images).shape))
"""


def run_alone() -> None:
    """Run the model of ``my_vit.py`` in a fresh Python that cannot import ``vit_course``, and print what it returns."""
    loaded = load()
    missing = [name for name, part in PARTS.items() if part.lesson <= "05" and name not in loaded.kept]
    if missing:
        print(_wrapped(sentence("mine.incomplete", missing=_listed(missing))))
        return
    done = subprocess.run([sys.executable, "-c", _ALONE], cwd=loaded.path.parent, capture_output=True, text=True)
    said = done.stdout.strip() if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]
    print(sentence("mine.alone" if done.returncode == 0 else "mine.not_running", said=said))


@cache
def _course_fingerprint() -> str:
    """Return a hash of the course's modules and checks: a new version of the course checks kept parts again."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".toml"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
