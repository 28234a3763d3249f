"""Build the course's website: lay out what Sphinx reads, run Sphinx, write the copies for Google Colab.

    python -m tools.build_site                 into docs/_build/html; any warning fails, broken links included
    python -m tools.build_site --into FOLDER   into FOLDER/html
    python -m tools.build_site --verified      every test has just passed: each page's foot says with which versions
    python -m tools.build_site --linkcheck     ask every address of the web whether it is still there; needs a network

With ``GITHUB_REPOSITORY=owner/name`` in the environment, as GitHub Actions sets it, the pages also have what needs the
repository's address: buttons for Binder and Colab, links to files, edit and issue links.

Sphinx reads a folder that is laid out like the repository: the notebooks, the figures and every Markdown file that a
page includes are copied, the pages of ``docs/pages`` come to its root, and a page for every module is written.
"""

import argparse
import ast
import datetime
import itertools
import json
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from tools.clinic_pages import clinic_pages
from tools.colab_copies import write_copies
from tools.explorer_page import write_explorer
from tools.site_links import DOCUMENT_PAGES, ROOT, assignments, lessons, on_the_site, published

DOCS = ROOT / "docs"
REFERENCE = ("embedding", "attention", "encoder", "model", "data", "training")  # in the order of the lessons


def lay_out(source: Path) -> None:
    """Write everything that Sphinx reads into a folder."""
    shutil.copytree(DOCS / "pages", source)
    for path in [*lessons(), *assignments(), *(ROOT / "img").glob("*.*g"), *map(ROOT.joinpath, DOCUMENT_PAGES)]:
        target = source / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    for path, text in clinic_pages().items():
        (source / path).parent.mkdir(exist_ok=True)
        (source / path).write_text(text, encoding="utf-8")
    (source / "_lessons.md").write_text("\n\n".join(map(presented, lessons())), encoding="utf-8")
    (source / "_cards.md").write_text(lesson_cards(), encoding="utf-8")
    rows = {name: module_page(source, name) for name in modules()}
    for table, names in (("reference", REFERENCE), ("around", [name for name in rows if name not in REFERENCE])):
        lines = ["| module | |", "| --- | --- |", *(rows[name] for name in names)]
        (source / "api" / f"_{table}.md").write_text("\n".join(lines), encoding="utf-8")


def presented(lesson: Path) -> str:
    """Return the title of a lesson, as a link, and what stands before its first code: promise, time, needs."""
    cells = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
    opening = itertools.takewhile(lambda cell: cell["cell_type"] == "markdown", cells)
    text = "\n\n".join("".join(cell["source"]) for cell in opening)
    title, promise, *rest = re.split(r"\n{2,}", on_the_site(text, f"notebooks/{lesson.name}"))
    facts = [part for start in ("**Time**", "**You need**") for part in rest if part.startswith(start)]
    return "\n\n".join([f"## [{title.removeprefix('# ')}](/notebooks/{lesson.name})", promise, *facts])


def lesson_cards() -> str:
    """Return the README's table of lessons as a list, which the style sheet shows as cards."""
    readme = on_the_site((ROOT / "README.md").read_text(encoding="utf-8"), "README.md")
    rows = re.findall(r"^\| (\[[^|]+\.ipynb\)) \| ([^|]+) \| (\d+) \+ (\d+) \|", readme, re.MULTILINE)
    cards = [
        f"- {link}\n\n  {gain[0].upper()}{gain[1:]}.\n\n  {int(reading) + int(exercises)} minutes"
        for link, gain, reading, exercises in rows
    ]
    return "\n".join(["{.cards}", *cards])


def modules() -> list[str]:
    """Return the modules that have a page: the reference in the order of the lessons, then the others."""
    package = ROOT / "vit_course"
    found = {path.stem for path in package.glob("[a-z]*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    return [*REFERENCE, *sorted(found.difference(REFERENCE))]


def module_file(name: str) -> str:
    """Return the file of a module, from the root of the repository."""
    file = f"vit_course/{name}.py"
    return file if (ROOT / file).exists() else f"vit_course/{name}/__init__.py"


def module_page(source: Path, name: str) -> str:
    """Write a module's page, and return its row of the table of modules."""
    file = module_file(name)
    options = [":members:", ":imported-members:"] if file.endswith("__init__.py") else [":members:"]
    lines = [f".. automodule:: vit_course.{name}", *(f"   {option}" for option in options)]
    page = "\n".join([f"# vit_course.{name}", "", "```{eval-rst}", ".. highlight:: python", "", *lines, "```", ""])
    (source / "api" / f"{name}.md").write_text(page, encoding="utf-8")
    summary = (ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return f"| [`{name}`](/api/{name}.md) | {summary} |"


def verified_with() -> dict[str, str]:
    """Return what the foot of a page says: the date, the versions and the commit."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {
        "verified_date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "verified_python": platform.python_version(),
        "verified_torch": version("torch"),
        "verified_commit": commit.strip(),
    }


def render(source: Path, folder: Path, *, builder: str = "html", facts: dict[str, str] | None = None) -> int:
    """Run Sphinx on what was laid out; return 0 unless there was a warning or an error."""
    told = [word for name, value in (facts or {}).items() for word in ("-A", f"{name}={value}")]
    options = ["-W", "--keep-going", "-j", "auto", "-q", "-c", str(DOCS), "-d", str(folder / "doctrees"), *told]
    return sphinx(["-b", builder, *options, str(source), str(folder / builder)])


def main() -> int:
    """Read the command line, and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=DOCS / "_build", help="folder to build in")
    parser.add_argument("--verified", action="store_true", help="name on every page the versions that were tested")
    parser.add_argument("--linkcheck", action="store_true", help="instead of building, look for dead links to the web")
    options = parser.parse_args()
    folder = options.into.resolve()
    for part in ("source", "doctrees", "html"):
        shutil.rmtree(folder / part, ignore_errors=True)
    lay_out(folder / "source")
    if options.linkcheck:
        return render(folder / "source", folder, builder="linkcheck")
    code = render(folder / "source", folder, facts=verified_with() if options.verified else None)
    write_copies(folder / "html", published())
    write_explorer(folder / "html")
    print(f"the site was {'not built without warnings' if code else 'built'}: {folder / 'html' / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
