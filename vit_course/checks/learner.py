"""Running code that a learner wrote: is it there, what stopped it and where, and what does it borrow from outside."""

import ast
import difflib
import dis
import inspect
import linecache
import re
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Number
from pathlib import Path
from types import CodeType, FunctionType

import einops
import numpy as np
import torch
from torch import Tensor, nn

from vit_course.checks.compare import OBJECTS, named
from vit_course.checks.verdict import CATALOG, CheckFailed, NotWritten, Verdict, fail, refuse, sentence

PACKAGE = Path(__file__).resolve().parents[1]
STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])


def check(name: str, subject: object, verify: Callable[[], str]) -> Verdict:
    """Run ``verify`` and turn what happens into the learner's line or into ``CheckFailed``.

    Torch's random numbers are put back afterwards, so that a check changes nothing in the notebook around it.
    """
    random = torch.random.get_rng_state()
    _forget_patterns()
    try:
        refuse(not callable(subject), "learner.not_callable", came=type(subject).__name__)
        _older_than_a_syntax_error(subject)
        if inspect.isclass(subject) and issubclass(subject, nn.Module):
            _misplaced_forward(subject)
        if _is_stub(subject):
            raise NotWritten(sentence("learner.stub"))
        with torch.enable_grad():
            return Verdict(f"{name}: {verify()}")
    except NotWritten as stub:
        return Verdict(f"{name}: {stub}", state="empty")
    except CheckFailed as failure:
        lines = "\n  ".join([*_borrowed(subject), str(failure)])
        failure.args = (f"{name}: {lines}",)
        raise
    finally:
        torch.random.set_rng_state(random)


def _forget_patterns() -> None:
    """Empty einops' caches: to them a size of 4.0 is the 4 that a learner writes next, and they return its error."""
    for name in ("_prepare_transformation_recipe", "_reconstruct_from_shape"):  # of einops' own, so they may move
        getattr(getattr(einops.einops, name, None), "cache_clear", lambda: None)()


def shown(verify: Callable[[], Verdict]) -> Verdict:
    """Run a check; in a notebook its failure is shown and not raised, so that *Run All* goes on to the next cell."""
    try:
        return verify()
    except CheckFailed as failure:
        if not shell():
            raise
        return Verdict(str(failure), state="wrong")


def shell() -> object:
    """Return the shell of the notebook in which this runs, if there is one."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


# --- is it there -----------------------------------------------------------------------------------------------------


def _parsed(subject: object) -> ast.Module | None:
    """Return the syntax tree of a function or class; None where its source is not to be had."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(subject)))
    except (OSError, TypeError, SyntaxError):
        return None


def _is_stub(subject: object) -> bool:
    """Whether a function, or the ``forward`` of a class, has an empty body: ``...``, ``pass`` or a docstring alone."""
    if inspect.isclass(subject):
        if issubclass(subject, nn.Module) and subject.forward is nn.Module.forward:
            return True
        subject = getattr(subject, "forward", None)
    tree = _parsed(inspect.unwrap(subject)) if callable(subject) else None
    body = getattr(tree.body[0], "body", None) if tree and tree.body else None
    return isinstance(body, list) and all(map(_is_constant, body))


def _is_constant(statement: ast.stmt) -> bool:
    """Whether a statement does nothing: ``pass``, a docstring or ``...``, or the return of None or ``...``."""
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.Return):
        return value is None or (isinstance(value, ast.Constant) and value.value in (None, ...))
    return isinstance(statement, ast.Pass) or (isinstance(statement, ast.Expr) and isinstance(value, ast.Constant))


def _misplaced_forward(cls: type[nn.Module]) -> None:
    """Name a ``forward`` or ``__init__`` that is misspelled, indented too far, or outside the class."""
    own = [part for part in cls.__mro__ if part is not object and not part.__module__.startswith("torch.")]
    methods = {  # Python puts the class before a name that begins with two underscores, but not __init__
        name.removeprefix(f"_{part.__name__}"): value
        for part in own
        for name, value in vars(part).items()
        if isinstance(value, FunctionType)
    }
    for wanted in ("__init__", "forward"):
        if wanted in methods:
            continue
        near = difflib.get_close_matches(wanted, methods.keys() - {"forward", "__init__"}, cutoff=0.7)
        if near and not hasattr(nn.Module, near[0]):
            raise fail("learner.misspelled", own=near[0], wanted=wanted)
    if cls.forward is not nn.Module.forward:
        return
    refuse("__call__" in methods, "learner.call_for_forward")
    for name, method in methods.items():
        tree = _parsed(method) or ast.Module()
        if any(isinstance(part, ast.FunctionDef) and part.name == "forward" for part in ast.walk(tree)):
            raise fail("learner.nested_forward", inside=name)
    init = vars(cls).get("__init__")
    outside = getattr(init, "__globals__", {}).get("forward")
    if isinstance(outside, FunctionType) and next(iter(inspect.signature(outside).parameters), "") == "self":
        raise fail("learner.forward_outside")
    tree = _parsed(init) if init is not None else None
    if tree and not all(_is_constant(part) or "super()" in ast.unparse(part) for part in tree.body[0].body):
        raise fail("learner.no_forward")


def _older_than_a_syntax_error(subject: object) -> None:
    """Refuse to judge a version that the learner has since replaced in a cell that Python could not read."""
    notebook, name = shell(), getattr(subject, "__name__", "")
    for source in reversed(notebook.user_ns.get("_ih", [])[:-1] if notebook and name else []):
        if re.search(rf"^\s*(def|class) {re.escape(name)}\b", source, re.MULTILINE):
            try:
                compile(notebook.transform_cell(source), "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            except SyntaxError as error:
                raise fail("learner.syntax_error", own=name, line=error.lineno, what=error.msg) from error
            return


# --- what stopped it -------------------------------------------------------------------------------------------------


@contextmanager
def running(doing: str = "") -> Iterator[None]:
    """Report an error inside the learner's code as theirs, with the line; ``doing`` says what the code was given."""
    try:
        yield
    except (CheckFailed, NotWritten):
        raise
    except Exception as error:
        if isinstance(error, NotImplementedError) and not _raised_in_library(error):
            raise fail("learner.not_implemented") from error
        if "'ellipsis'" in str(error) or (isinstance(error, TypeError) and "ellipsis" in str(error).lower()):
            raise NotWritten(sentence("learner.ellipsis")) from error
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # torch.load writes in bold
        message = textwrap.shorten(text, 300, placeholder="...") or "no message"
        told = sentence("learner.stopped", error=type(error).__name__, doing=doing and f" {doing}", place=place(error))
        raise CheckFailed("\n  ".join([told, message, *_explained(error)])) from error


def _raised_in_library(error: BaseException) -> bool:
    """Whether an installed library raised the error: torch does for a call of an ``nn.ModuleList``, for example.

    Its compiled code has no frame of its own, and is known by its words: "softmax" not implemented for 'Long'.
    """
    in_library = "site-packages" in traceback.extract_tb(error.__traceback__)[-1].filename
    return in_library or "\" not implemented for '" in str(error)


def _own_frames(error: BaseException) -> list:
    """Return the frames of the learner's own code, outermost first: neither the course's nor a library's."""
    frames = []
    for frame, number in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        if not (file.is_relative_to(PACKAGE) or file.is_relative_to(STANDARD_LIBRARY) or "site-packages" in str(file)):
            frames.append((frame, number))
    return frames


def place(error: BaseException) -> str:
    """Return the innermost line of the learner's own, whichever cell it is in; empty if the error came up elsewhere."""
    frames = _own_frames(error)
    if not frames:
        return ""
    frame, number = frames[-1]
    path = frame.f_code.co_filename
    line = linecache.getline(path, number).strip()
    of = sentence("learner.of_file") if Path(path).name == "my_vit.py" else ""  # a part that was kept earlier
    return sentence("learner.line" if line else "learner.number", number=number, of=of, line=line)


def _explained(error: Exception) -> list[str]:
    """Return what an error means, in the learner's terms; empty if it is clear by itself."""
    text = str(error)
    einops = any("einops" in Path(frame.filename).parts for frame in traceback.extract_tb(error.__traceback__))
    rows = CATALOG["einops" if einops else "torch"].values()
    lines = [row["says"].format(**match.groupdict()) for row in rows if (match := re.search(row["when"], text))][:1]
    if "NoneType" in text and (frames := _own_frames(error)):
        frame, number = frames[-1]
        words = re.findall(r"\w+", linecache.getline(frame.f_code.co_filename, number))
        called = [frame.f_globals.get(word) for word in words]
        lines += [sentence("learner.callee_returns_none", own=f.__name__) for f in called if _never_returns(f)][-1:]
    return lines


def _never_returns(function: object) -> bool:
    """Whether a function of the learner's has no ``return`` with a value."""
    tree = _parsed(function) if isinstance(function, FunctionType) else None
    if not tree or not isinstance(tree.body[0], ast.FunctionDef):
        return False
    return not any(isinstance(part, (ast.Return, ast.Yield)) and part.value for part in ast.walk(tree))


# --- what it borrows -------------------------------------------------------------------------------------------------


def _borrowed(subject: object) -> list[str]:
    """Return notes on tensors, numbers, models and data that the learner's code reads from the notebook around it."""
    notes = []
    for function in vars(subject).values() if inspect.isclass(subject) else [subject]:
        if isinstance(function, FunctionType) and function.__module__ != nn.Module.__module__:
            for name in sorted(_read_from_outside(function.__code__)):
                value = function.__globals__.get(name)
                if isinstance(value, (Tensor, np.ndarray, Number, dict, *OBJECTS)) and not name.isupper():
                    notes.append(sentence("learner.borrowed", name=name, value=named(value)))
    return list(dict.fromkeys(notes))


def _read_from_outside(code: CodeType) -> set[str]:
    """Return the names outside of all functions that code reads, or a function inside it."""
    own = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return own.union(*(_read_from_outside(part) for part in code.co_consts if isinstance(part, CodeType)))
