"""What the README and the pages of the website state is true: links, commands, minutes, names and results."""

import inspect
import json
import re
import statistics

import nbformat
import pytest
import torch

from tools.site_links import ROOT, lab_anchor, lessons
from tools.write_run_pages import read
from vit_course import VARIANTS, VisionTransformer, weights
from vit_course.train.__main__ import parser

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "pages").glob("*.md")}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
LESSON = r"\]\((?:notebooks/)?(\w+\.ipynb)\) \| ([^|]+) \| (\d+) \+ (\d+) \|"
ROWS = re.findall(LESSON, README)
TIMES = [r"(\d+) minutes to read", r"(\d+) minutes (?:for the exercises|more)"]
# of the table of names: the paper's, ours, torchvision's, timm's, Hugging Face's
NAMES = [
    [cell.strip() for cell in line.split("|")[1:-1]] for line in PAGES["glossary"].splitlines() if line.count("|") == 7
]
MODEL = VisionTransformer(**VARIANTS["Ti/16"] | dict(num_layers=1), image_size=32)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)", text, flags=re.MULTILINE)
    anchors = {"#" + re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    targets = re.findall(r"\]\(([^)\s]+)\)|\bsrc=\"([^\"]+)\"", text)
    targets = [target for target in map("".join, targets) if not target.startswith("https://")]
    assert [target for target in targets if target not in anchors and not (ROOT / target.split("#")[0]).exists()] == []


def test_every_command_that_is_named_exists():
    targets = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, flags=re.MULTILINE))
    assert len(targets) <= 12
    pages = ["*.md", "docs/pages/*.md", "benchmarks/README.md", "notebooks/**/*.md", "notebooks/*.ipynb"]
    for page in [path for pattern in pages for path in ROOT.glob(pattern)]:
        for target, what in re.findall(r"(?:^|`)make ([a-z-]+)(?: WHAT=(\w+))?", page.read_text("utf-8"), re.MULTILINE):
            assert target in targets, f"{page.name} names make {target}"
            assert not what or f"\nrebuild-{what}:" in MAKEFILE, f"{page.name} names make rebuild WHAT={what}"


def test_the_plain_commands_are_those_of_the_makefile():
    """Whoever has no make types the same."""
    options = [re.search(rf"^{name} := (.*)$", MAKEFILE, flags=re.MULTILINE)[1] for name in ("PARALLEL", "NBVAL")]
    assert f".venv/bin/python -m pytest {' '.join(options)} tests notebooks" in CONTRIBUTING


def test_every_lesson_is_listed_with_its_own_minutes_here_and_in_start_here():
    texts = {path.name: path.read_text(encoding="utf-8") for path in lessons()}
    assert [name for name, *_ in ROWS] == list(texts)
    for name, _, *times in ROWS[1:]:
        line = re.search(r"\*\*Time\*\*.*", texts[name])[0]
        assert times == [re.search(each, line)[1] for each in TIMES], f"{name}: {line}"
    cells = nbformat.reads(texts["00_start_here.ipynb"], as_version=4).cells
    listed = re.findall(LESSON, "\n".join(cell.source for cell in cells))
    assert listed == ROWS[1:]
    reading, exercises = (sum(int(row[place]) for row in listed) / 60 for place in (2, 3))
    assert round(reading + exercises) == 18, "Start here says about 18 hours"
    assert reading < exercises, "Start here says that most of them are for the exercises"


def test_each_term_of_the_glossary_is_in_the_section_that_its_row_links_to():
    row = r"^\| (.+?) \| .+ \| \[.+\]\(/(notebooks/\S+\.ipynb)#(\S+)\) \|$"
    rows = re.findall(row, PAGES["glossary"], re.MULTILINE)
    terms = [term for term, *_ in rows]
    assert len(terms) > 100
    assert terms == sorted(terms, key=lambda term: term.lower().replace("-", " "))
    for term, lesson, anchor in rows:
        cells = nbformat.read(ROOT / lesson, as_version=4).cells
        sections = re.split(r"^## ", "\n".join(cell.source for cell in cells), flags=re.MULTILINE)
        (section,) = [each for each in sections if lab_anchor(each.partition("\n")[0]) == anchor]
        text = (cells[0].source.partition("\n")[0] + section).lower()  # "Transfer learning" is the title of lesson 8
        missing = [word for word in re.findall(r"[a-z]{3,}", term.lower()) if word[:6] not in text]
        assert not missing, f"{term} is not in {lesson}#{anchor}"


def test_the_names_table_has_the_models_own_names():
    keys = [re.sub(r"\.(weight|bias)$", "", key) for key in MODEL.state_dict()]
    ours = [name for row in NAMES for name in re.findall(r"`([\w.]+)`", row[2])]
    assert len(NAMES) > 15
    assert [key for key in keys if not any(key.endswith(name) for name in ours)] == []
    arguments = set(inspect.signature(VisionTransformer).parameters)
    assert [name for name in set(ours) - arguments if not any(key.endswith(name) for key in keys)] == []


@pytest.mark.parametrize(
    ("column", "write"), [(3, weights.to_torchvision), (4, weights.to_timm), (5, weights.to_huggingface)]
)
def test_the_names_table_has_the_other_libraries_names(column, write):
    """Every name of a part is one in their checkpoint, and every part of their checkpoint is in the table."""
    keys = write(MODEL)
    rows = NAMES[next(place for place, row in enumerate(NAMES) if row[0] == "patch projection") :]
    names = [name.strip(".…_") for row in rows for name in re.findall(r"`([\w.…]+)`", row[column])]
    assert [name for name in names if not any(name in key for key in keys)] == []
    assert [key for key in keys if not any(name in key for name in names)] == []


def test_the_result_is_the_logs():
    def quoted(accuracies):
        assert len(accuracies) == 5
        values = statistics.median(accuracies), min(accuracies), max(accuracies)
        median, low, high = (f"{100 * value:.1f}" for value in values)
        return median, f"(median of five seeds; range {low} to {high}%)"

    lines = (ROOT / "resources" / "runs" / "digits.jsonl").read_text(encoding="utf-8").splitlines()
    median, seeds = quoted([run["test_accuracy"] for run in map(json.loads, lines) if run["changes"] == {}])
    assert f"{median}% of held-out digits correctly {seeds}" in README
    results = [run["result"] for run in read("best") if run["config"]["dataset"] == "cifar10"]
    median, seeds = quoted([result["test_accuracy"] for result in results])
    assert f"{median}% within half an hour on two CPU cores {seeds}" in README
    assert max(result["seconds"] for result in results) < 30 * 60
    assert f"a ViT with {results[0]['parameters'] / 1e6:.2f} million parameters" in README


def test_the_code_does_what_its_comments_say():
    card = (ROOT / "resources" / "fashion_mnist_patch4.md").read_text(encoding="utf-8")
    code, moving, loading = re.findall(r"```python\n(.*?)```", README + card, flags=re.DOTALL)
    names = {"images": torch.rand(1, 3, 224, 224)}
    exec(code, names)
    assert sum(parameter.numel() for parameter in names["model"].parameters()) == 86_567_656
    assert names["logits"].shape == (1, 1000)
    assert [tuple(weights.shape) for weights in names["maps"]] == 12 * [(1, 12, 197, 197)]
    exec(loading, names)
    assert names["about"]["dataset"] == "fashion_mnist"
    assert names["model"](torch.zeros(1, 1, 28, 28)).shape == (1, len(names["about"]["class_names"]))
    before = {name: value.clone() for name, value in names["model"].state_dict().items()}
    names["checkpoint"] = weights.to_torchvision(names["model"])
    torch.nn.init.ones_(names["model"].head.weight)
    exec(moving, names)
    torch.testing.assert_close(dict(names["model"].state_dict()), before, rtol=0, atol=0)
    torch.testing.assert_close(names["timm_weights"], weights.to_timm(names["model"]), rtol=0, atol=0)


def test_commands_for_training_on_the_page_and_in_the_help_can_be_typed_as_they_stand():
    on_the_page = ["fashion_mnist", "runs/fashion_mnist-quick-seed0", "fashion_mnist"]
    for text, expected in ((PAGES["results"], on_the_page), (parser().epilog, ["digits", *on_the_page])):
        commands = re.findall(r"-m vit_course\.train (.*?)(?=   |#|$)", text, re.MULTILINE)
        options = [parser().parse_args(command.split()) for command in commands]
        assert [each.out if each.resume else each.dataset for each in options] == expected


def test_each_published_document_has_a_row_whose_classes_are_in_its_section():
    cells = nbformat.read(ROOT / "notebooks" / "appendix_published_implementations.ipynb", as_version=4).cells
    rows = re.findall(r"\| A\.(\d): (.*) \|", PAGES["errata"])
    assert [int(section) for section, _ in rows] == [1, 2, 3, 4, 5]
    parts = (ROOT / "vit_course" / "rewritten.py").read_text("utf-8").split("\n\n\n")
    classes = {}
    for sources in (parts, [cell.source for cell in cells]):
        section = 0
        for source in sources:
            section = max([section, *map(int, re.findall(r"^(?:## |# -+ )A\.(\d)", source, flags=re.MULTILINE))])
            classes |= dict.fromkeys(re.findall(r"^(?:class|def) (\w+)", source, flags=re.MULTILINE), section)
    for section, names in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert classes[name] <= int(section), f"{name} is not in section A.{section}"
