"""What the README says is so: links, commands, minutes, names and results."""

import inspect
import json
import re
import statistics
from pathlib import Path

import nbformat
import pytest
import torch

from vit_course import VARIANTS, VisionTransformer, weights
from vit_course.train.__main__ import parser

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
START = nbformat.read(ROOT / "notebooks" / "00_start_here.ipynb", as_version=4)
ROWS = re.findall(r"\(notebooks/(\d\d_\w+\.ipynb)\) \| ([^|]+) \| (\d+) \| (\d+) \|", README)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)
    }
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    broken = [
        target
        for target in targets
        if not target.startswith("https://")
        and not (target[1:] in headings if target.startswith("#") else (ROOT / target).exists())
    ]
    assert broken == []


def test_every_command_that_is_named_exists():
    targets = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, flags=re.MULTILINE))
    assert len(targets) <= 12
    pages = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/pages/*.md"),
        ROOT / "benchmarks" / "README.md",
        *ROOT.glob("notebooks/**/*.md"),
    ]
    for page in [*pages, *ROOT.glob("notebooks/*.ipynb")]:
        for target, what in re.findall(r"(?:^|`)make ([a-z-]+)(?: WHAT=(\w+))?", page.read_text("utf-8"), re.MULTILINE):
            assert target in targets, f"{page.name} names make {target}"
            assert not what or f"\nrebuild-{what}:" in MAKEFILE, f"{page.name} names make rebuild WHAT={what}"


def test_the_plain_commands_are_those_of_the_makefile():
    """Whoever has no make types the same."""
    options = [re.search(rf"^{name} := (.*)$", MAKEFILE, flags=re.MULTILINE)[1] for name in ("PARALLEL", "NBVAL")]
    assert f".venv/bin/python -m pytest {' '.join(options)} tests notebooks" in README


def test_every_lesson_is_listed_with_its_own_minutes():
    notebooks = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert [name for name, *_ in ROWS] == notebooks
    for name, _, minutes, seconds in ROWS[1:]:
        text = "\n".join(cell.source for cell in nbformat.read(ROOT / "notebooks" / name, as_version=4).cells)
        assert re.search(r"\*\*Time\*\* – (\d+) minutes to read, (\d+) seconds to run", text).groups() == (
            minutes,
            seconds,
        )


def test_start_here_lists_the_same_lessons():
    text = "\n".join(cell.source for cell in START.cells)
    rows = re.findall(r"\((\d\d_\w+\.ipynb)\) \| ([^|]+) \| (\d+) \| (\d+) \|", text)
    assert rows == ROWS[1:]


def test_the_names_table_has_the_models_own_names():
    model = VisionTransformer(**VARIANTS["Ti/16"] | dict(num_layers=1), image_size=32)
    keys = [re.sub(r"\.(weight|bias)$", "", key) for key in model.state_dict()]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in README.splitlines() if line.count("|") == 7]
    ours = [name for row in rows for name in re.findall(r"`([\w.]+)`", row[2])]
    assert len(rows) > 15
    for key in keys:
        assert any(key.endswith(name) for name in ours), f"{key} is not in the table"
    arguments = set(inspect.signature(VisionTransformer).parameters)
    for name in ours:
        assert name in arguments or any(key.endswith(name) for key in keys), f"{name} is not a name of ours"


def test_the_result_is_the_logs():
    lines = (ROOT / "resources" / "runs" / "digits.jsonl").read_text(encoding="utf-8").splitlines()
    accuracies = [run["test_accuracy"] for run in map(json.loads, lines) if run["changes"] == {}]
    assert len(accuracies) == 5
    values = min(accuracies), statistics.median(accuracies), max(accuracies)
    low, median, high = (f"{100 * value:.1f}" for value in values)
    assert f"{median} % (median of five seeds, {low} to {high} %)" in README


def test_the_code_does_what_its_comments_say():
    code, loading, moving = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names = {"images": torch.rand(1, 3, 224, 224)}
    exec(code, names)
    assert sum(parameter.numel() for parameter in names["model"].parameters()) == 86_567_656
    assert names["logits"].shape == (1, 1000)
    assert [tuple(weights.shape) for weights in names["maps"]] == 12 * [(1, 12, 197, 197)]
    exec(loading, names)
    assert names["about"]["dataset"] == "fashion_mnist"
    assert names["model"](torch.zeros(1, 1, 28, 28)).shape == (1, len(names["about"]["class_names"]))
    before = {name: value.clone() for name, value in names["model"].state_dict().items()}
    names["state_dict"] = weights.to_torchvision(names["model"])
    torch.nn.init.ones_(names["model"].head.weight)
    exec(moving, names)
    torch.testing.assert_close(dict(names["model"].state_dict()), before, rtol=0, atol=0)
    torch.testing.assert_close(names["state_dict"], weights.to_timm(names["model"]), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("column", "write"), [(3, weights.to_torchvision), (4, weights.to_timm), (5, weights.to_huggingface)]
)
def test_the_names_table_has_the_other_libraries_names(column, write):
    """Every name of a part is one in their checkpoint, and every part of their checkpoint stands in the table."""
    keys = write(VisionTransformer(**VARIANTS["Ti/16"] | dict(num_layers=1), image_size=32))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in README.splitlines() if line.count("|") == 7]
    rows = rows[next(place for place, row in enumerate(rows) if row[0] == "patch projection") :]
    names = [name.strip(".…_") for row in rows for name in re.findall(r"`([\w.…]+)`", row[column])]
    assert [name for name in names if not any(name in key for key in keys)] == []
    assert [key for key in keys if not any(name in key for name in names)] == []


def test_commands_for_training_can_be_typed_as_they_stand():
    commands = re.findall(r"-m vit_course\.train ([^#\n]*)", README)
    assert len(commands) == 3
    for command in commands:
        options = parser().parse_args(command.split())
        assert options.dataset == "fashion_mnist" or options.resume


def test_each_document_has_a_row_whose_classes_stand_in_its_section_and_are_tested():
    """Those tests take the classes from the notebook and run every one of them."""
    tests = (ROOT / "tests" / "test_published_vits.py").read_text(encoding="utf-8")
    cells = nbformat.read(ROOT / "notebooks" / "08_published_vits.ipynb", as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    rows = re.findall(r"\| 8\.(\d): (.*) \| yes \|", README)
    assert [int(section) for section, _ in rows] == [1, 2, 3, 4, 5]
    classes, section = {}, 0
    for cell in cells:
        section = max([section, *map(int, re.findall(r"^## 8\.(\d)", cell.source, flags=re.MULTILINE))])
        if cell.cell_type == "code":
            classes |= dict.fromkeys(re.findall(r"^class (\w+)", cell.source, flags=re.MULTILINE), section)
    for section, names in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert classes[name] <= int(section), f"{name} does not stand in section 8.{section}"
            of_a_tested_one = re.search(rf"(?<!class )\b{name}\(", code)
            assert f"N.{name}" in tests or f'"{name}"' in tests or of_a_tested_one, f"{name} is not tested"
        assert f'"00{int(section) - 1}' in tests
