"""The reader's own model: a part that passes its check is kept in ``my_vit.py``, and later lessons use it.

The file lies in the working directory of the notebook, and imports only torch, einops and the standard library.
"""

import html
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from vit_course.checks.learner import shell, shown
from vit_course.checks.verdict import CheckFailed, Verdict, fail, sentence
from vit_course.mine import file
from vit_course.mine.loaded import Loaded, listed, loaded_text, stops
from vit_course.mine.parts import PARTS
from vit_course.mine.source import source_of

__all__ = ["keep", "part", "progress", "run_alone"]

FILE = "my_vit.py"
MODEL = {name for name, part in PARTS.items() if part.lesson <= "05"}


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
    verdict = shown(lambda: _checked_and_kept(name, subject))
    if not shell():
        return verdict
    from IPython.display import display

    display(verdict)  # at once: a cell shows only its last value, and may keep several parts
    verdict._ipython_display_ = lambda: None  # shown already
    return verdict


def _checked_and_kept(name: str, subject: Callable) -> Verdict:
    """Run the part's check, collect its source, and put it into the file."""
    if subject is PARTS[name].reference or getattr(subject, "of_the_course", False):
        return Verdict(sentence("mine.reference", name=name), state="empty")
    earlier = f"\n{sentence('mine.earlier')}" if name in load().kept else ""
    try:
        verdict = PARTS[name].verify(subject)
    except CheckFailed as failure:
        failure.args = (f"{failure}{earlier}",)
        raise
    if getattr(subject, "__module__", "") == "my_vit":
        return Verdict(f"{verdict}\n{sentence('mine.loaded')}", state=verdict.state)
    if not verdict.passed:
        return Verdict(f"{verdict}{earlier}", state=verdict.state)
    source, path, replaced = source_of(subject), place(), ""
    try:
        (path.parent / file.HISTORY).mkdir(exist_ok=True)
        with FileLock(path.parent / file.HISTORY / "lock", timeout=30):  # another notebook may keep a part as well
            before = file.read(path)
            text = file.with_part(before, source)
            if text != before:
                earlier, loaded = loaded_text(before, path).kept, Loaded(text, path)
                problem = loaded.problems.get(name, loaded.trouble) or (stops(text) if not stops(before) else "")
                if problem:
                    raise fail("mine.not_alone", name=name, problem=problem)
                if lost := [each for each in earlier if each not in loaded.kept]:
                    raise fail("mine.breaks", name=name, lost=listed(lost), problem=loaded.problems[lost[0]])
                saved = file.write(path, text, why=name)
                replaced = sentence("mine.replaced", file=saved) if name in earlier else ""
    except OSError as error:
        said = dict(file=path.name, folder=path.parent.resolve(), what=error.strerror or error)
        raise fail("mine.not_written", **said) from error
    kept = load().kept
    helpers = sentence("mine.with_helpers", helpers=listed([*source.helpers])) if source.helpers else ""
    said = sentence("mine.kept", name=name, helpers=helpers, kept=len(kept), total=len(PARTS))
    said += replaced
    if {*kept} >= MODEL and name in MODEL:
        said += sentence("mine.model_kept")
    return Verdict(f"{verdict}\n{said}" + sentence("mine.all_kept") * (len(kept) == len(PARTS)))


def part(name: str) -> Callable:
    """Return the reader's version of a part, or the course's where there is none, and print which one it is.

    The course's version of a larger part is built from the reader's smaller ones.

    Raises:
        ValueError: there is no part of this name.
    """
    if name not in PARTS:
        raise ValueError(f"name must be that of a part: {', '.join(PARTS)}; got {name!r}")
    loaded = load()
    print(_wrapped(loaded.says(name)))
    return loaded.namespace[name]


def place() -> Path:
    """Return where the file is: in this folder or, for the notebook of an assignment, in that of the lessons."""
    here = Path.cwd()
    above = here.parents[2:3] if here.name.startswith("assignment_") else ()
    return next((folder / FILE for folder in (here, *above) if (folder / FILE).exists()), here / FILE)


def load() -> Loaded:
    """Return what is in the file now; nothing, if it cannot be read."""
    path = place().resolve()
    try:
        return loaded_text(file.read(path), path)
    except CheckFailed as failure:
        return Loaded("", path, trouble=str(failure))


def _wrapped(text: str) -> str:
    """Break long lines, which a notebook shows without breaking them; what continues a line is indented."""
    lines = (textwrap.fill(line, 88, subsequent_indent="  ", break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join(lines)


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
    missing = [name for name in PARTS if name in MODEL and name not in loaded.kept]
    if missing:
        print(_wrapped(loaded.trouble or sentence("mine.incomplete", missing=listed(missing))))
        return
    done = subprocess.run([sys.executable, "-c", _ALONE], cwd=loaded.path.parent, capture_output=True, text=True)
    said = done.stdout.strip() if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]
    print(sentence("mine.alone" if done.returncode == 0 else "mine.not_running", said=said))
