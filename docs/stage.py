"""Lay out what Sphinx reads, from files that stand elsewhere in the repository.

    source/               pages/*.md, and what is generated
    source/notebooks/     the lessons, and the assignments as students get them
    source/img/           figures
    source/_included/     every Markdown file of the repository that a page includes, cut at its headings:
                          README/the-lessons.md with its heading, README/the-lessons.text.md without;
                          README/opening.md up to the first code before the first heading, README/opening.rest.md
    source/api/           a page for every module

Nothing is typed twice: a page of ``pages/`` includes a section by its name; one that has gone fails the build. A link
to a section leads to the page that shows it, one to another file to the repository.
"""

import ast
import itertools
import json
import re
import shutil
from pathlib import Path

import links
from repository import Repository

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/README.md",
    "resources/fashion_mnist_patch4.md",
    "resources/runs/README.md",
    "notebooks/assignments/README.md",
    "notebooks/assignments/jupyterhub/README.md",
)
REFERENCE = ("embedding", "attention", "encoder", "model", "data", "training")  # in the order of the lessons
NOT_IN_THE_API = ("grading",)  # its commands are what one uses: for-teachers.md
INCLUDE = re.compile(r"^```\{include\} /_included/(\S+)\.md$", re.MULTILINE)


def lessons() -> list[Path]:
    """The lessons in order."""
    return sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def assignments() -> list[Path]:
    """The assignments as students get them, in order."""
    return sorted((ROOT / "notebooks" / "assignments" / "release").glob("*/*.ipynb"))


def modules() -> list[str]:
    """The modules that get a page: the reference in the order of the lessons, then the rest."""
    package = ROOT / "vit_course"
    found = {path.stem for path in package.glob("[a-z]*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    return [*REFERENCE, *sorted(found - {*REFERENCE, *NOT_IN_THE_API})]


class Staging:
    """One layout of the sources.

    Args:
        folder: where to.
        repository: where files that are no pages can be read; None: such links become plain text.
    """

    def __init__(self, folder: Path, repository: Repository | None) -> None:
        self.folder, self.repository = folder, repository
        self.written: set[Path] = set()
        self.pages = {path.name: path.read_text(encoding="utf-8") for path in (HERE / "pages").glob("*.md")}
        self.documents = {name: (ROOT / name).read_text(encoding="utf-8") for name in DOCUMENTS}
        self.shown = dict(self._where_documents_are_shown())

    def _where_documents_are_shown(self):
        """Yield ``(document, GitHub's anchor), (page, anchor there)``; the anchor is empty for a page as a whole."""
        for page, text in sorted(self.pages.items()):
            for document, section in (match[1].rpartition("/")[::2] for match in INCLUDE.finditer(text)):
                name = document + ".md"
                if name not in self.documents:  # a generated one
                    continue
                if section == "all":
                    yield (name, ""), (page, "")
                for level, heading, part in sections(self.documents[name]):
                    if section == "all" or section.removesuffix(".text") == links.github_anchor(heading):
                        if not section.endswith(".text"):
                            yield (name, links.github_anchor(heading)), (page, links.lab_anchor(heading))
                        else:
                            yield (name, links.github_anchor(heading)), (page, "")
                        for inner_level, inner, *_ in links.headings(part):
                            if inner_level > level:
                                yield (name, links.github_anchor(inner)), (page, links.lab_anchor(inner))

    def lead(self, origin: str, path: str, anchor: str) -> str | None:
        """Where a link of the file ``origin`` leads on the site: to a page, a picture, or the repository."""
        document = path or origin
        if document in self.documents or document == "README.md":
            page, there = self.shown.get((document, anchor), self.shown.get((document, ""), ("", "")))
            if page:
                return f"/{page}" + f"#{there}" * bool(there)
        if not path:
            return f"#{anchor}"
        if path.removesuffix("/") == "vit_course":
            return "/api/index.md"
        if path.startswith("img/") or ROOT / path in {*lessons(), *assignments()}:
            return f"/{path}" + f"#{anchor}" * bool(anchor)
        if not (ROOT / path).exists():
            raise ValueError(f"{origin} links to {path}, which does not exist")
        folder = "/" if (ROOT / path).is_dir() and not path.endswith("/") else ""
        return self.repository and self.repository.file(path + folder)

    def markdown(self, text: str, origin: str) -> str:
        """Lead the links of a Markdown text to the site, and name the repository's address where it is known."""
        if self.repository:
            text = text.replace("git clone <this repository>", f"git clone {self.repository.address}")
        return links.rewrite(text, origin, lambda path, anchor: self.lead(origin, path, anchor))

    def write(self, name: str, text: str) -> None:
        """Write a file, unless it is there with this text already: Sphinx reads anew only what has changed."""
        path = self.folder / name
        self.written.add(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")

    def all(self) -> None:
        """Write everything, and remove what an earlier layout left."""
        for name, text in self.pages.items():
            self.write(name, text)
        for name, text in self.documents.items():
            self.document(name, text)
        for path in [*lessons(), *assignments()]:
            self.notebook(path)
        self.lesson_list()
        self.api()
        for path in sorted((ROOT / "img").glob("*.svg")):
            self.written.add(self.folder / "img" / path.name)
            (self.folder / "img").mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, self.folder / "img")
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.written:
                path.unlink()

    def document(self, name: str, text: str) -> None:
        """Cut a document at its headings."""
        folder = "_included/" + name.removesuffix(".md")
        body = re.sub(r"\A# .*\n+", "", text)
        opening = re.split(r"^## ", body, maxsplit=1, flags=re.MULTILINE)[0]
        first, *rest = re.split(r"^(?=```)", opening, maxsplit=1, flags=re.MULTILINE)
        parts = {"all": body, "opening": first, "opening.rest": "".join(rest)}
        for _, heading, part in sections(text):
            parts[links.github_anchor(heading)] = part
            parts[links.github_anchor(heading) + ".text"] = part.partition("\n")[2]
        for part, words in parts.items():
            self.write(f"{folder}/{part}.md", self.markdown(words, name).strip() + "\n")

    def notebook(self, path: Path) -> None:
        """Copy a notebook with its links led to the site."""
        name = path.relative_to(ROOT).as_posix()
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                cell["source"] = self.markdown("".join(cell["source"]), name)
        self.write(name, json.dumps(notebook, ensure_ascii=False, indent=1))

    def lesson_list(self) -> None:
        """The lessons with what they say before their first code: promise, time, what is needed."""
        parts = []
        for path in lessons():
            name = path.relative_to(ROOT).as_posix()
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            opening = itertools.takewhile(lambda cell: cell["cell_type"] == "markdown", cells)
            text = "\n\n".join("".join(cell["source"]) for cell in opening)
            title, promise, *rest = re.split(r"\n{2,}", self.markdown(text, name))
            facts = [part for start in ("**Time**", "**You need**") for part in rest if part.startswith(start)]
            parts.append("\n\n".join([f"## [{title.removeprefix('# ')}](/{name})", promise, *facts]))
        self.write("_included/lessons.md", "\n\n".join(parts) + "\n")

    def api(self) -> None:
        """A page for every module, and lists of them with their first lines."""
        rows = {}
        for name in modules():
            path = ROOT / "vit_course" / f"{name}.py"
            path = path if path.exists() else path.with_suffix("") / "__init__.py"
            summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
            rows[name] = f"| [`{name}`](/api/{name}.md) | {summary} |"
            members = ":imported-members:\n" if path.name == "__init__.py" else ""
            self.write(
                f"api/{name}.md",
                f"# vit_course.{name}\n\n```{{eval-rst}}\n.. automodule:: vit_course.{name}\n   :members:\n"
                + f"   {members}" * bool(members)
                + "```\n",
            )
        head = "| module | |\n| --- | --- |\n"
        self.write("_included/api/reference.md", head + "\n".join(rows[name] for name in REFERENCE) + "\n")
        others = [row for name, row in rows.items() if name not in REFERENCE]
        self.write("_included/api/around.md", head + "\n".join(others) + "\n")
        toctree = "\n".join(f"/api/{name}" for name in rows)
        index = self.pages["api.md"].replace("(api)=", "")
        self.written.discard(self.folder / "api.md")
        self.write("api/index.md", f"{index}\n```{{toctree}}\n:hidden:\n\n{toctree}\n```\n")


def sections(text: str) -> list[tuple[int, str, str]]:
    """Cut a document: ``(level, heading, text with the heading, up to the next of its level)``, below the title."""
    found = links.headings(text)
    cut = []
    for index, (level, heading, start, _) in enumerate(found):
        later = [place for other, _, place, _ in found[index + 1 :] if other <= level]
        if level > 1:
            cut.append((level, heading, text[start : later[0] if later else len(text)]))
    return cut
