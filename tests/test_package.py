"""The package as a whole: what it promises to callers, how it is built, how quickly it is imported."""

import ast
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jaxtyping
import pytest
import torch
from packaging.requirements import Requirement
from packaging.version import Version

import vit_course
from vit_course import attention, data, training

PACKAGE = Path(vit_course.__file__).parent
REFERENCE = ["embedding", "attention", "encoder", "model", "data", "training"]
TREES = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.glob("*.py")}

# What others call: names, order, keyword-only arguments and defaults.
SIGNATURES = {
    vit_course.patchify: "(images, patch_size)",
    vit_course.unpatchify: "(patches, *, patch_size, image_size, channels=3)",
    vit_course.PatchEmbedding: "(*, image_size, patch_size, hidden_dim, in_channels=3)",
    vit_course.PatchEmbedding.forward: "(self, images)",
    vit_course.ImageEmbedding: "(*, image_size, patch_size, hidden_dim, in_channels=3, dropout=0.0)",
    vit_course.ImageEmbedding.forward: "(self, images)",
    vit_course.scaled_dot_product_attention: "(query, key, value)",
    attention.attention_weights: "(query, key)",
    vit_course.MultiHeadSelfAttention: "(*, hidden_dim, num_heads, attention_dropout=0.0)",
    vit_course.MultiHeadSelfAttention.forward: "(self, x)",
    vit_course.MultiHeadSelfAttention.attention_weights: "(self, x)",
    vit_course.MLPBlock: "(*, hidden_dim, mlp_dim, dropout=0.0)",
    vit_course.MLPBlock.forward: "(self, x)",
    vit_course.EncoderBlock: "(*, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0)",
    vit_course.EncoderBlock.forward: "(self, x)",
    vit_course.Encoder: "(*, num_layers, hidden_dim, num_heads, mlp_dim, dropout=0.0, attention_dropout=0.0)",
    vit_course.Encoder.forward: "(self, x)",
    vit_course.Encoder.attention_maps: "(self, x)",
    vit_course.VisionTransformer: "(*, image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, "
    "num_classes=1000, in_channels=3, dropout=0.0, attention_dropout=0.0, pool='token')",
    vit_course.VisionTransformer.forward: "(self, images)",
    vit_course.VisionTransformer.forward_features: "(self, images)",
    vit_course.VisionTransformer.attention_maps: "(self, images)",
    vit_course.create_vit: "(variant, *, image_size=224, num_classes=1000, **options)",
    data.load_test_images: "(path=None)",
    data.load_dataset: "(name, root=None)",
    data.LabelledImages: "(images, labels, *, class_names, mean, std)",
    data.LabelledImages.normalized: "(self)",
    data.LabelledImages.split: "(self, fraction, *, seed=0)",
    training.learning_rate_schedule: "(step, *, total_steps, warmup_steps, peak, final=0.0)",
    training.parameter_groups: "(model, weight_decay)",
    training.random_shift: "(images, generator)",
    training.train_step: "(model, optimizer, images, labels, *, label_smoothing=0.0, max_grad_norm=None)",
    training.evaluate: "(model, dataset, *, batch_size=256)",
    training.fit: "(model, train_set, valid_set, *, epochs, batch_size, peak_lr, warmup_epochs=1, "
    "weight_decay=0.05, augment=None, seed=0, progress=True, **step_options)",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda function: function.__qualname__)
def test_signatures(function):
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    assert str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)) == SIGNATURES[function]


def test_all_names_the_model_and_its_parts():
    contract = {function.__name__ for function in SIGNATURES if "." not in function.__qualname__} | {"VARIANTS"}
    elsewhere = {name for name in contract if hasattr(data, name) or hasattr(training, name)}
    assert set(vit_course.__all__) == contract - elsewhere - {"attention_weights"}


def test_all_is_sorted_and_importable():
    assert vit_course.__all__ == sorted(vit_course.__all__, key=lambda name: (not name.isupper(), name[0] > "Z", name))
    star = {}
    exec("from vit_course import *", star)
    assert star.keys() - {"__builtins__"} == set(vit_course.__all__)
    assert all(star[name] is getattr(vit_course, name) for name in vit_course.__all__)


# How it is built


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
        "attention": {"arguments"},
        "encoder": {"arguments", "attention"},
        "model": {"arguments", "embedding", "encoder"},
        "data": {"arguments", "datasets"},
        "training": {"arguments"},
    }


def test_the_reference_can_be_read_in_one_sitting():
    lines = {name: len((PACKAGE / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in REFERENCE}
    assert sum(lines.values()) < 700, lines


def test_nothing_prints_but_the_command_line():
    printing = {
        name
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert printing <= {"train", "weights"}


def public_definitions(name: str):
    """Yield the dotted name and the tree of every public class, function and method of a module."""
    definitions = (ast.ClassDef, ast.FunctionDef)
    for outer in TREES[name].body:
        if isinstance(outer, definitions) and not outer.name.startswith("_"):
            yield f"{name}.{outer.name}", outer
            for inner in outer.body if isinstance(outer, ast.ClassDef) else ():
                if isinstance(inner, definitions) and not inner.name.startswith("_"):
                    yield f"{name}.{outer.name}.{inner.name}", inner


@pytest.mark.parametrize("name", TREES)
def test_every_public_name_has_a_docstring(name):
    assert ast.get_docstring(TREES[name])
    assert [dotted for dotted, node in public_definitions(name) if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("name", REFERENCE)
def test_every_tensor_is_annotated_with_its_axes(name):
    for dotted, node in public_definitions(name):
        if isinstance(node, ast.ClassDef):
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        annotations = [each.annotation for each in arguments if each.arg != "self"] + [node.returns]
        assert None not in annotations, f"{dotted}: an argument or the result has no annotation"
        written = " ".join(ast.unparse(annotation) for annotation in annotations)
        with_axes = r"(Float|Int64)\[Tensor, '[^']+'\]"
        function_types = r"Callable\[\[.*?\], Tensor\]"
        assert not re.search(r"\bTensor\b", re.sub(rf"{with_axes}|{function_types}", "", written)), dotted
        if dotted.endswith(".forward"):
            assert len(re.findall(with_axes, written)) == len(annotations), dotted


def test_types_and_axes_are_checked_while_the_tests_run():
    with pytest.raises(jaxtyping.TypeCheckError, match="images"):
        vit_course.patchify(torch.zeros(3, 8, 8), 4)
    with pytest.raises(jaxtyping.TypeCheckError, match="patch_size"):
        vit_course.patchify(torch.zeros(1, 3, 8, 8), 4.0)


# How quickly it is there


FRESH = """
import sys, time, torch
start = time.perf_counter()
import vit_course
print(time.perf_counter() - start)
from vit_course import data, training
print(*{"sklearn", "matplotlib", "ipywidgets", "IPython", "pooch", "filelock", "safetensors"} & sys.modules.keys())
"""


def fresh_import() -> tuple[float, str]:
    """Return the seconds that the package adds to ``import torch``, and which of the heavy packages it loads."""
    run = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    seconds, heavy = run.stdout.split("\n")[:2]
    return float(seconds), heavy


def test_import_is_quick_and_loads_nothing_heavy():
    seconds, heavy = fresh_import()
    assert heavy == ""
    assert seconds < 0.3 or min(fresh_import()[0] for _ in range(2)) < 0.3  # on a busy machine, the best of three


def test_every_direct_dependency_is_pinned_inside_its_range():
    """What is tested is what the package says it works with, and nothing else is pulled in."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ranges = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    readers, *others = (
        [line for line in (PACKAGE.parent / name).read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")]
        for name in ("requirements.txt", "requirements-class.txt", "requirements-site.txt")
    )
    assert readers.pop() == "-e ."
    for pins, extra in zip(others, ("class", "site"), strict=True):
        wanted = project["optional-dependencies"][extra]
        assert [Requirement(pin).name for pin in pins] == [Requirement(each).name for each in wanted]
    pins = [pin for group in (readers, *others) for pin in group]
    pinned = {pin.name: next(iter(pin.specifier)) for pin in map(Requirement, pins)}
    assert all(pin.operator == "==" for pin in pinned.values())
    assert set(pinned) == {each.name for each in map(Requirement, ranges)}
    for each in map(Requirement, ranges):
        assert each.specifier.contains(pinned[each.name].version), each


def test_the_oldest_versions_are_the_lower_ends_of_the_ranges():
    """GitHub Actions installs them; a lower end that nobody tests is a guess."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = (PACKAGE.parent / "requirements-oldest.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line[:1] not in ("", "#", "-")]
    oldest = {pin.name: next(iter(pin.specifier)).version for pin in pins}
    extras = project["optional-dependencies"]
    for each in map(Requirement, [*project["dependencies"], *extras["notebooks"]]):
        lower = next(iter(each.specifier))
        assert (lower.operator, Version(lower.version)) == (">=", Version(oldest.pop(each.name))), each
    assert set(oldest) == {Requirement(each).name for each in [*extras["parity"], *extras["dev"]]}
    assert lines[-1] == "-e ."
