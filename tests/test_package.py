"""The package as a whole: which file imports which, and what a reader's ``import vit_course`` does not load."""

import ast
import re
from pathlib import Path

import jaxtyping
import pytest
import torch
from support import run_python

import vit_course

PACKAGE = Path(vit_course.__file__).parent
REFERENCE = ["embedding", "attention", "encoder", "model", "data", "training"]
TREES = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.glob("*.py")}


def imports(tree: ast.Module) -> set[str]:
    """Return the modules of the package that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "the package imports itself by its full name"
            parts = node.module.split(".")
            if parts[0] == "vit_course":
                found |= set(parts[1:2]) or {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "vit_course"}
    return found


def test_import_arrows_run_one_way():
    assert {name: imports(TREES[name]) for name in ["arguments", *REFERENCE]} == {
        "arguments": set(),
        "embedding": {"arguments"},
        "attention": {"arguments", "initialization"},
        "encoder": {"arguments", "attention", "initialization"},
        "model": {"arguments", "embedding", "encoder"},
        "data": {"arguments", "datasets", "resource_files"},
        "training": {"arguments"},
    }


def test_the_reference_can_be_read_in_one_sitting():
    lines = {name: len((PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in REFERENCE}
    assert sum(lines.values()) < 700, lines


@pytest.mark.parametrize("name", REFERENCE)
def test_every_tensor_is_annotated_with_its_axes(name):
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            arguments = [each for each in [*node.args.args, *node.args.kwonlyargs] if each.arg != "self"]
            annotations = [each.annotation for each in arguments] + [node.returns]
            assert None not in annotations, f"{name}.{node.name}: an argument or the result has no annotation"
            written = " ".join(map(ast.unparse, annotations))
            with_axes = r"(Float|Int64)\[Tensor, '[^']+'\]|Callable\[\[.*?\], Tensor\]"
            assert not re.search(r"\bTensor\b", re.sub(with_axes, "", written)), f"{name}.{node.name}"
            if node.name == "forward":
                assert len(re.findall(with_axes, written)) == len(annotations), f"{name}.{node.name}"


def test_types_and_axes_are_checked_while_the_tests_run():
    with pytest.raises(jaxtyping.TypeCheckError, match="images"):
        vit_course.patchify(torch.zeros(3, 8, 8), 4)
    with pytest.raises(jaxtyping.TypeCheckError, match="patch_size"):
        vit_course.patchify(torch.zeros(1, 3, 8, 8), 4.0)


def test_import_loads_nothing_heavy_and_names_all_that_it_promises():
    heavy = {"sklearn", "matplotlib", "ipywidgets", "anywidget", "IPython", "pooch", "filelock", "safetensors"}
    code = "import sys; from vit_course import *; from vit_course import data, training; print(*sys.modules)"
    assert heavy & set(run_python("-c", code, check=True).stdout.split()) == set()


def test_explorers_without_widgets_say_what_to_install():
    done = run_python("-c", "import sys; sys.modules['ipywidgets'] = None; import vit_course.explore")
    assert "vit_course.explore needs ipywidgets and anywidget, and ipywidgets is missing" in done.stderr
