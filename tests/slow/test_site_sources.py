"""What the website is made of, without a browser: links, errata, copies for Colab, and what is shipped with it."""

import hashlib
import json
import os
import re
from types import SimpleNamespace

import nbformat
import pytest
from docutils import nodes
from support import run_python

from tools import site_extension, site_links
from tools.clinic_pages import clinic_pages
from tools.colab_copies import COURSE, write_copies
from tools.site_links import CLINIC, ROOT, Repository, lessons, on_the_site

DOCS = ROOT / "docs"
EXAMPLE = Repository("example", "vit-course")


def test_every_case_of_the_bug_clinic_has_a_page_with_all_of_its_cells():
    pages = {path: json.loads(text)["cells"] for path, text in clinic_pages().items()}
    index = pages.pop(CLINIC)
    assert list(pages) == [site_links.case_page(number) for number in range(1, 13)]
    whole = json.loads((ROOT / CLINIC).read_text("utf-8"))["cells"]
    parts = [cell["id"] for page in (index, *pages.values()) for cell in page]
    assert sorted(parts) == sorted([*(cell["id"] for cell in whole), "cases"])
    for number, (path, cells) in enumerate(pages.items(), start=1):
        text = "\n".join("".join(cell["source"]) for cell in cells)
        assert text.startswith(f"# Bug clinic {number} – ")
        assert f"checks.clinic({number}, " in text
        assert "\n## " not in text
        row = next(cell["source"] for cell in index if cell["id"] == "cases")
        assert f"/{path.removesuffix('.ipynb')}" in row.replace(".ipynb", "")
        assert on_the_site(f"[here](#10.{number}-)", CLINIC) == f"[here](/{path})"
        assert site_links.cases_on_their_pages(f"[here](/{CLINIC}#10.{number}-A)") == f"[here](/{path})"


def test_a_published_site_has_the_repositorys_address_in_its_commands(monkeypatch):
    for page in ("README.md", "docs/pages/install.md", "notebooks/assignments/README.md"):
        text = (ROOT / page).read_text("utf-8")
        monkeypatch.setenv("GITHUB_REPOSITORY", "example/vit-course")
        shown = site_links.with_address(text)
        assert f"git clone {EXAMPLE.address}" in shown
        assert f"[course's repository]({EXAMPLE.address})" in shown
        assert "`ADDRESS`" not in shown
        monkeypatch.delenv("GITHUB_REPOSITORY")
        assert site_links.with_address(text) == text
        assert site_links.CHOOSE_ADDRESS in text


def section(notebook, anchor: str) -> str:
    """Return all that a reader sees in a section: text, code, outputs."""
    shown = []
    for cell in nbformat.read(notebook, as_version=4).cells:
        outputs = cell.get("outputs", [])
        printed = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
        shown += [cell.source, *printed]
    _, *parts = re.split(r"^## ", "\n".join(shown), flags=re.MULTILINE)
    sections = {site_links.lab_anchor(heading): text for heading, _, text in (part.partition("\n") for part in parts)}
    return sections.get(anchor, "")


def test_every_figure_of_the_errata_is_in_the_section_that_its_row_names():
    table = (DOCS / "pages" / "errata.md").read_text("utf-8")
    rows = [row for row in re.findall(r"^\| .+ \| .+ \| (.+) \| (.+) \|$", table, re.M) if "](/notebooks" in row[1]]
    assert len(rows) >= 40
    for measured, shown in rows:
        places = re.findall(r"\[([\w.]+)\]\(/(notebooks/[\w.]+)#([^)]+)\)", shown)  # 2.4, or A.9 of the appendix
        assert places, shown
        assert all(anchor.startswith(f"{number}-") for number, _, anchor in places), shown
        text = "\n".join(section(ROOT / notebook, anchor) for _, notebook, anchor in places)
        figures = re.findall(r"\*\*(.+?)\*\*", measured)
        assert figures, measured
        for figure in figures:
            # as a number of its own, not as a piece of a longer one
            assert re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d]|[.,]\d)", text), f"{figure} is not in {shown}"


def test_the_first_cell_of_a_colab_copy_makes_the_lesson_run(tmp_path):
    """On an empty machine, and again with a Drive: the clone is this working copy, pip writes down its arguments."""
    write_copies(tmp_path / "site", EXAMPLE)
    words, first, *cells = nbformat.read(tmp_path / "site" / "colab" / "02_image_embedding.ipynb", as_version=4).cells
    assert "Save a copy in Drive" in words.source
    stand_ins, content = tmp_path / "stand_ins", tmp_path / "content"
    drive = content / "drive" / "MyDrive"
    content.mkdir()
    (content / "my_vit.py").write_text("# written before the Drive was mounted")
    for name, source in {
        "google/colab/__init__.py": "",
        "google/colab/output.py": "def enable_custom_widget_manager():\n    print('widgets on')\n",
        "pip.py": f"import json, sys\nopen({str(content / 'asked.json')!r}, 'w').write(json.dumps(sys.argv[1:]))\n",
    }.items():
        (stand_ins / name).parent.mkdir(parents=True, exist_ok=True)
        (stand_ins / name).write_text(source)
    first = first.source.replace(COURSE, str(content / "vit-course"))
    setup = next(cell.source for cell in cells if cell.cell_type == "code")
    told = "tuple(load_test_images().shape), vit_course.__file__, open('my_vit.py').read(), Path.cwd()"
    shown = f"import vit_course; print({told})"
    git = tmp_path / "gitconfig"
    git.write_text(f'[url "{ROOT.as_uri()}"]\ninsteadOf = {EXAMPLE.address}\n[safe]\ndirectory = *\n')
    environment = os.environ | dict(PYTHONPATH=str(stand_ins), MPLBACKEND="agg", GIT_CONFIG_GLOBAL=str(git))
    mounts = f"Path({str(drive)!r}).mkdir(parents=True)"
    done = run_python("-c", "\n".join([first, mounts, first, setup, shown]), cwd=content, env=environment)
    assert done.returncode == 0, done.stderr
    assert "widgets on" in done.stdout
    assert done.stdout.index("is lost when Colab recycles this machine") < done.stdout.index("is kept in your Drive")
    works_in = drive / "vit-course"
    file = content / "vit-course" / "vit_course" / "__init__.py"
    assert f"(6, 3, 96, 96) {file} # written before the Drive was mounted {works_in}\n" in done.stdout
    assert [path.parent for path in tmp_path.rglob("my_vit.py")] == [works_in]
    assert len([*content.rglob("pyproject.toml")]) == 1  # the course is not inside itself
    asked = json.loads((content / "asked.json").read_text())
    names = {re.match(r"[\w-]+", package)[0] for package in asked[2:]}
    assert {"einops", "jaxtyping", "torchsummary"} <= names
    assert names.isdisjoint({"torch", "numpy", "jupyterlab"})  # Colab has its own


def test_a_colab_copy_shows_figures_and_leads_to_the_other_copies(tmp_path):
    write_copies(tmp_path, EXAMPLE)
    for lesson in lessons():
        notebook = nbformat.read(tmp_path / "colab" / lesson.name, as_version=4)
        nbformat.validate(notebook)
        assert all(cell.outputs == [] for cell in notebook.cells if cell.cell_type == "code")
        text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
        for address in re.findall(r"!\[[^\]]*\]\(([^)]*)\)", text):
            assert (tmp_path / address.removeprefix("https://example.github.io/vit-course/")).is_file()
        assert not re.search(r"\]\((0|\.\./)|`make (lab|update|fresh)", text)
        assert ('"transformers"' not in notebook.cells[1].source) == lesson.name.startswith("appendix")
    start = (tmp_path / "colab" / "00_start_here.ipynb").read_text(encoding="utf-8")
    assert "colab.research.google.com/github/example/vit-course/blob/gh-pages/colab/01_einops_primer.ipynb" in start


def test_what_comes_from_elsewhere_is_unchanged():
    static = DOCS / "_static"
    sums = dict(reversed(line.split("  ")) for line in (static / "SHA256SUMS").read_text().splitlines())
    shipped = static.glob("fonts/*")
    found = {path.relative_to(static).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in shipped}
    assert found == sums


def test_a_formula_of_its_own_can_break_and_has_its_number():
    page = SimpleNamespace(body=[])
    with pytest.raises(nodes.SkipNode):
        site_extension.write_formula(page, nodes.math_block("", r"a = b, \qquad b = c \tag{6}"))
    formula = "".join(page.body)
    assert formula.count("<math ") == formula.count("</math>") == 2
    assert formula.index("<mi>a</mi>") < formula.index("<mi>c</mi>") < formula.index('<span class="eqno">(6)</span>')
