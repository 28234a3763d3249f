"""Links in Markdown, and where they lead on the website, on GitHub and in Google Colab."""

import os
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT_PAGES = {  # files of the repository that a page of the site includes, and that page
    "README.md": "index",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "benchmarks/README.md": "benchmarks",
    "resources/runs/README.md": "results",
    "resources/fashion_mnist_patch4.md": "results",
    "notebooks/assignments/README.md": "assignments",
    "notebooks/assignments/jupyterhub/README.md": "for_teachers",
}
SECTION_PAGES = {  # where another page has those of its sections that are linked to
    "README.md": "glossary",
    "notebooks/assignments/README.md": "for_teachers",
}

CLINIC = "notebooks/10_bug_clinic.ipynb"  # each of its cases has a page of its own on the site

CHOOSE_ADDRESS = "Replace `ADDRESS` with the address that the repository's page shows under the green **Code** button"
CODE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^ {0,3}(?P=fence)[`~]*[ \t]*$"  # a block between fences
    r"|(?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)",  # a span between backticks
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")


@dataclass(frozen=True)
class Repository:
    """A public repository on GitHub, whose branch ``gh-pages`` holds the site."""

    owner: str
    name: str

    @property
    def address(self) -> str:
        """The address of its page."""
        return f"https://github.com/{self.owner}/{self.name}"

    @property
    def site(self) -> str:
        """The address at which GitHub Pages serves the site."""
        return f"https://{self.owner.lower()}.github.io/{self.name}"

    def file(self, path: str) -> str:
        """Return where a file or a folder can be read."""
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{self.address}/{kind}/HEAD/{quote(path.rstrip('/'))}"

    def colab(self, lesson: str) -> str:
        """Return where the copy of a lesson, which lies on the branch of the site, opens in Google Colab."""
        return f"https://colab.research.google.com/github/{self.owner}/{self.name}/blob/gh-pages/colab/{quote(lesson)}"


def published() -> Repository | None:
    """Return the repository that ``GITHUB_REPOSITORY`` names as ``owner/name``, as it does on GitHub; else None.

    Raises:
        ValueError: another form.
    """
    value = os.environ.get("GITHUB_REPOSITORY", "")
    if not value:
        return None
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", value):
        raise ValueError(f"GITHUB_REPOSITORY must be owner/name; got {value!r}")
    return Repository(*value.split("/"))


def lessons(root: Path = ROOT) -> list[Path]:
    """Return the lessons in order, and the appendix."""
    notebooks = root / "notebooks"
    return sorted([*notebooks.glob("[0-9][0-9]_*.ipynb"), *notebooks.glob("appendix_*.ipynb")])


def assignments(root: Path = ROOT) -> list[Path]:
    """Return the assignments as students get them, in order."""
    return sorted((root / "notebooks" / "assignments" / "release").glob("*/*.ipynb"))


def case_page(number: int) -> str:
    """Return the notebook on the site that shows a case of the bug clinic alone."""
    return f"{CLINIC.removesuffix('.ipynb')}/case_{number:02}.ipynb"


def whole_notebook(page: str) -> str:
    """Return the notebook that a page of the site, named without its ending, is made of or is a part of."""
    return re.sub(r"/case_\d+$", "", page) + ".ipynb"


def cases_on_their_pages(text: str) -> str:
    """Lead the links of a page of ``docs/pages`` to the cases of the bug clinic."""
    return re.sub(rf"\(/{CLINIC}#10\.(\d+)-[^)]*\)", lambda case: f"(/{case_page(int(case[1]))})", text)


def with_address(text: str) -> str:
    """Put the address of the published repository, if there is one, into the commands that clone it."""
    repository = published()
    if repository is None:
        return text
    text = text.replace(CHOOSE_ADDRESS, f"The commands download the [course's repository]({repository.address})")
    return text.replace("git clone ADDRESS", f"git clone {repository.address}")


def rewrite(text: str, origin: str, lead: Callable[[str, str], str | None]) -> str:
    """Lead every link of a text elsewhere; code and addresses of the web stay as they are.

    Args:
        text: Markdown.
        origin: the file that the text is from, named from the root of the repository.
        lead: a function from a path in the repository (empty for the file itself) and an anchor to the new target;
            where it returns None, the link becomes plain text.
    """
    pieces = []

    def put_away(match: re.Match) -> str:
        pieces.append(match[0])
        return f"\ue000{len(pieces) - 1}\ue001"  # private characters, which no text contains

    def one(match: re.Match) -> str:
        path, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", path):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path)) if path else ""
        target = lead(path, anchor)
        return match["text"] if target is None else f"{match['image']}[{match['text']}]({target})"

    rewritten = LINK.sub(one, CODE.sub(put_away, text))
    return re.sub("\ue000(\\d+)\ue001", lambda match: pieces[int(match[1])], rewritten)


def on_the_site(text: str, origin: str) -> str:
    """Lead the links of a Markdown text to the pages of the site, and all others to the repository."""
    repository = published()

    def lead(path: str, anchor: str) -> str | None:
        document = path or origin
        if document == CLINIC and (case := re.match(r"10\.(\d+)-", anchor)):
            return f"/{case_page(int(case[1]))}"
        if document in DOCUMENT_PAGES:
            if not anchor:
                return f"/{DOCUMENT_PAGES[document]}.md"
            page = SECTION_PAGES.get(document, DOCUMENT_PAGES[document])
            return f"/{page}.md#{site_anchor(document, anchor)}"
        if not path:
            return f"#{anchor}"
        if path == "vit_course":
            return "/api/index.md"
        if path.startswith("docs/pages/"):
            return path.removeprefix("docs/pages") + (f"#{site_anchor(path, anchor)}" if anchor else "")
        if path.startswith("img/") or ROOT / path in {*lessons(), *assignments()}:
            return f"/{path}" + f"#{anchor}" * bool(anchor)
        if not (ROOT / path).exists():
            raise ValueError(f"{origin} links to {path}, which does not exist")
        return repository and repository.file(path)

    return rewrite(with_address(text), origin, lead)


def site_anchor(document: str, anchor: str) -> str:
    """Return the site's anchor of the heading to which GitHub gives this one."""
    prose = CODE.sub("", (ROOT / document).read_text(encoding="utf-8"))
    for heading in re.findall(r"^#{1,6} +(.+?) *$", prose, re.MULTILINE):
        if github_anchor(heading) == anchor:
            return lab_anchor(heading)
    raise ValueError(f"{document} has no heading with the anchor #{anchor}")


def plain(heading: str) -> str:
    """Return the words of a heading, without Markdown."""
    return re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)


def github_anchor(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\s-]", "", plain(heading)).strip().lower().replace(" ", "-")


def lab_anchor(heading: str) -> str:
    """Return the anchor that JupyterLab gives a heading; the site gives the same."""
    return plain(heading).strip().replace(" ", "-")
