"""What the website is made of: links, errata, copies for Colab, what Binder installs, what is shipped with the site."""

import hashlib
import json
import os
import re
import subprocess
import sys

import nbformat
import pytest
from jinja2 import Environment

from tools import build_site, site_links
from tools.colab_copies import write_copies
from tools.site_links import ROOT, Repository, lessons, on_the_site, published

DOCS = ROOT / "docs"
EXAMPLE = Repository("example", "vit-course")


# --- links -----------------------------------------------------------------------------------------------------------


def test_links_are_led_and_code_is_left_alone():
    text = """\
See [two](02_x.ipynb#2.1-A), ![a figure](../img/a.svg) and [`code`](../vit_course).

[the web](https://example.org/a.md) stays; `[not](a.md)` and

```python
table[rows](columns.md)
```

[last](README.md)
"""
    led = site_links.rewrite(text, "notebooks/01.ipynb", lambda path, anchor: f"/{path}!{anchor}")
    assert "[two](/notebooks/02_x.ipynb!2.1-A)" in led
    assert "![a figure](/img/a.svg!)" in led
    assert "[`code`](/vit_course!)" in led
    assert "[the web](https://example.org/a.md) stays; `[not](a.md)`" in led
    assert "table[rows](columns.md)" in led
    assert "[last](/notebooks/README.md!)" in led
    assert site_links.rewrite("see [the log](log.jsonl).", "a/b.md", lambda *_: None) == "see the log."


def test_anchors_of_a_heading():
    assert site_links.lab_anchor("2.1 The `einops` way: *now*") == "2.1-The-einops-way:-now"
    assert site_links.github_anchor("2.1 The `einops` way: *now*") == "21-the-einops-way-now"


@pytest.mark.parametrize(
    ("origin", "link", "known", "unknown"),
    [
        ("README.md", "#without-make-or-on-windows", "/install.md#Without-make,-or-on-Windows", None),
        ("README.md", "notebooks/02_image_embedding.ipynb", "/notebooks/02_image_embedding.ipynb", None),
        ("README.md", "vit_course", "/api/index.md", None),
        ("README.md", "resources/runs/README.md", "/results.md", None),
        ("notebooks/00_start_here.ipynb", "../img/architecture.svg", "/img/architecture.svg", None),
        ("README.md", "LICENSE", "https://github.com/example/vit-course/blob/HEAD/LICENSE", "words"),
        ("README.md", "tests/", "https://github.com/example/vit-course/tree/HEAD/tests", "words"),
    ],
)
def test_where_links_lead(origin, link, known, unknown, monkeypatch):
    """To the page that shows it; to the repository; and, where its address is not known, nowhere."""
    monkeypatch.setenv("GITHUB_REPOSITORY", "example/vit-course")
    assert on_the_site(f"[words]({link})", origin) == f"[words]({known})"
    monkeypatch.delenv("GITHUB_REPOSITORY")
    assert on_the_site(f"[words]({link})", origin) == (unknown or f"[words]({known})")


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("gone.py", r"README\.md links to gone\.py, which does not exist"),
        ("#gone", r"README\.md has no heading .*#gone"),
    ],
)
def test_a_link_that_leads_nowhere_stops_the_build(link, message):
    with pytest.raises(ValueError, match=message):
        on_the_site(f"[words]({link})", "README.md")


@pytest.mark.parametrize("value", ["owner", "a/b/c", "a b/c", "https://github.com/a/b"])
def test_the_repository_is_owner_and_name(value, monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", value)
    with pytest.raises(ValueError, match="GITHUB_REPOSITORY must be owner/name; got"):
        published()


@pytest.mark.parametrize("lesson", lessons()[1:], ids=lambda path: path.stem)
def test_a_lesson_is_listed_with_its_own_minutes(lesson):
    first = "\n".join(cell.source for cell in nbformat.read(lesson, as_version=4).cells[:3])
    listed = build_site.presented(lesson)
    assert listed.startswith(f"## [{first.splitlines()[0].removeprefix('# ')}](/notebooks/{lesson.name})")
    (time,) = re.findall(r"^\*\*Time\*\* .*", first, flags=re.MULTILINE)
    assert time in listed
    assert "**You need**" in listed


# --- errata ----------------------------------------------------------------------------------------------------------


def section(notebook, anchor: str) -> str:
    """All that a reader sees in a section: text, code, outputs."""
    found, inside = [], False
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type == "markdown":
            cut = re.split(r"^(## .*)$", cell.source, flags=re.MULTILINE)
            for piece in cut:
                if piece.startswith("## "):
                    inside = site_links.lab_anchor(piece.removeprefix("## ")) == anchor
                elif inside:
                    found.append(piece)
        elif inside:
            outputs = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
            found += [cell.source, *outputs]
    assert found, f"{notebook.name} has no section {anchor}"
    return "\n".join(found)


ROWS = [
    row
    for row in re.findall(
        r"^\| (.+) \| (.+) \| (.+) \| (.+) \|$", (DOCS / "pages" / "errata.md").read_text("utf-8"), re.M
    )
    if "](/notebooks" in row[3]
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_a_figure_of_the_errata_stands_where_its_row_says(row):
    _, _, measured, shown = row
    places = re.findall(r"\[([\d.]+)\]\(/(notebooks/[\w.]+)#([^)]+)\)", shown)
    assert places
    for number, _, anchor in places:
        assert anchor.startswith(f"{number}-")
    text = "\n".join(section(ROOT / notebook, anchor) for _, notebook, anchor in places)
    figures = re.findall(r"\*\*(.+?)\*\*", measured)
    assert figures
    for figure in figures:
        # a number as such, and not a piece of a longer one
        assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d]|[.,]\d)", text), f"{figure} does not stand there"


def test_the_errata_are_many():
    assert len(ROWS) >= 40


# --- Colab and Binder ------------------------------------------------------------------------------------------------


def test_the_first_cell_of_a_colab_copy_makes_the_lesson_run(tmp_path):
    """On an empty folder: the clone comes from this working copy, pip only notes what it is asked for."""
    copies = tmp_path / "site"
    write_copies(copies, EXAMPLE)
    cells = nbformat.read(copies / "colab" / "02_image_embedding.ipynb", as_version=4).cells
    stand_ins = tmp_path / "stand_ins"
    (stand_ins / "google" / "colab").mkdir(parents=True)
    (stand_ins / "google" / "colab" / "__init__.py").write_text("")
    (stand_ins / "google" / "colab" / "output.py").write_text(
        "def enable_custom_widget_manager():\n    print('widgets on')\n"
    )
    (stand_ins / "pip.py").write_text("import json, sys\nopen('asked.json', 'w').write(json.dumps(sys.argv[1:]))\n")
    program = "\n".join(
        [
            cells[0].source,
            next(cell.source for cell in cells[1:] if cell.cell_type == "code"),
            "images = load_test_images()",
            "print(tuple(images.shape), Path.cwd().name, vit_course.__file__)",
        ]
    )
    empty = tmp_path / "content"
    empty.mkdir()
    environment = os.environ | {
        "PYTHONPATH": str(stand_ins),
        "MPLBACKEND": "agg",
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": f"url.{ROOT.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": EXAMPLE.address,
        "GIT_CONFIG_KEY_1": "safe.directory",
        "GIT_CONFIG_VALUE_1": "*",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=empty, env=environment, capture_output=True, text=True, timeout=80
    )
    assert done.returncode == 0, done.stderr
    clone = empty / "vit-course"
    assert "widgets on" in done.stdout
    assert f"(6, 3, 96, 96) notebooks {clone / 'vit_course' / '__init__.py'}" in done.stdout
    asked = json.loads((empty / "asked.json").read_text())
    assert asked[:2] == ["install", "--quiet"]
    names = {re.match(r"[\w-]+", package)[0] for package in asked[2:]}
    assert {"einops", "jaxtyping", "torchsummary"} <= names
    assert names.isdisjoint({"torch", "numpy", "jupyterlab"})  # Colab's own stay


def test_a_colab_copy_shows_figures_and_leads_to_the_other_copies(tmp_path):
    write_copies(tmp_path, EXAMPLE)
    for lesson in lessons():
        notebook = nbformat.read(tmp_path / "colab" / lesson.name, as_version=4)
        nbformat.validate(notebook)
        assert all(cell.outputs == [] for cell in notebook.cells if cell.cell_type == "code")
        text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text)
        assert pictures
        for address in pictures:
            assert (tmp_path / address.removeprefix("https://example.github.io/vit-course/")).is_file()
        assert "](0" not in text
        assert "](../" not in text
    start = (tmp_path / "colab" / "00_start_here.ipynb").read_text(encoding="utf-8")
    assert "colab.research.google.com/github/example/vit-course/blob/gh-pages/colab/01_einops_primer.ipynb" in start


def test_binder_installs_the_tested_versions_with_the_build_for_cpus():
    folder = ROOT / ".binder"
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in lines
    (pins,) = [line.split()[1] for line in lines if line.startswith("-r ")]
    assert (folder / pins).resolve() == ROOT / "requirements.txt"
    version = (folder / "runtime.txt").read_text(encoding="utf-8").strip().removeprefix("python-")
    assert f'requires-python = ">={version}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


# --- what is shipped, and what was verified --------------------------------------------------------------------------


def test_what_comes_from_elsewhere_is_unchanged_and_has_its_licence():
    static = DOCS / "_static"
    sums = dict(reversed(line.split("  ")) for line in (static / "SHA256SUMS").read_text().splitlines())
    shipped = {path for name in ("mathjax", "fonts") for path in static.glob(f"{name}/**/*") if path.is_file()}
    assert {path.relative_to(static).as_posix() for path in shipped} == set(sums)
    for name, expected in sums.items():
        assert hashlib.sha256((static / name).read_bytes()).hexdigest() == expected, name
    assert "Apache License" in (static / "mathjax" / "LICENSE").read_text(encoding="utf-8")
    for font in ("source-sans-3", "source-code-pro"):
        assert "SIL Open Font License" in (static / "fonts" / f"LICENSE-{font}").read_text(encoding="utf-8")


@pytest.mark.parametrize("known", [EXAMPLE, None])
def test_the_foot_of_a_page_names_what_was_verified(known):
    template = Environment(autoescape=True).from_string((DOCS / "_templates" / "site-footer.html").read_text("utf-8"))
    facts = build_site.verified_with()
    told = " ".join(re.sub(r"<[^>]*>", "", template.render(**facts, site_repository=known)).split())
    python = ".".join(map(str, sys.version_info[:3]))
    assert f"every test passed with Python {python} and torch {facts['verified_torch']}, commit " in told
    assert re.search(r"Last verified \d{4}-\d\d-\d\d: ", told)
    untold = template.render(site_repository=known)
    assert "This build was not verified" in untold
    assert "Last verified" not in untold
