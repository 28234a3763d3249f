"""The pages of formgrader and of the feedback: what a student wrote is shown in them, and does nothing there.

Whoever marks is logged in where marks are changed, and nbgrader puts a student's text into the page as it is. Formulas
become MathML, which browsers show by themselves, because nbgrader's pages would load MathJax from another host.
"""

import html
import re
from collections.abc import Mapping

import bleach
import jinja2
from docutils.utils.math.latex2mathml import tex2mathml
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from nbgrader.preprocessors import ClearHiddenTests

from grader.source import heading_of, is_test

BLOCKS = {"br", "details", "div", "hr", "p", "pre", "summary", *(f"h{level}" for level in range(1, 7))}
TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
MATH = {"math", "mfrac", "mi", "mn", "mo", "mover", "mphantom", "mroot", "mrow", "mspace", "msqrt", "mstyle", "msub"}
MATH |= {"msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover"}
TAGS = bleach.ALLOWED_TAGS | BLOCKS | TABLES | MATH | {"del", "img", "kbd", "s", "span", "sub", "sup", "u"}
LENGTH, GAP = 10_000, 500  # characters, and spaces in a row; what is longer is shown as it is: rendering takes too long
CODE, BLANK = 20_000, 500  # likewise: characters and empty lines of a code cell
ELEMENTS = 200  # likewise: of HTML in a text
FORMULA = 2_000  # likewise
LINK = re.compile(r"(https?://|mailto:|#|[\w./-]*(#|$))", re.IGNORECASE)
PICTURE = re.compile(r"data:image/(png|jpeg|gif);base64,[A-Za-z0-9+/=\s]*")
OTHERS = {"a": {"title"}, "img": {"alt", "title"}, "td": {"align"}, "th": {"align"}, "math": {"display"}}


def _is_allowed(tag: str, name: str, value: str) -> bool:
    if (tag, name) == ("a", "href"):
        return bool(LINK.match(value))
    if (tag, name) == ("img", "src"):
        return bool(PICTURE.fullmatch(value))
    return name in OTHERS.get(tag, ()) or (tag in MATH and name in ("mathvariant", "stretchy", "width"))


class _Renderer(IPythonRenderer):
    """Render Markdown with formulas as MathML; a formula that cannot be converted is shown as it was written."""

    def inline_math(self, body: str) -> str:
        return _formula(body, False) or super().inline_math(body)

    def block_math(self, body: str) -> str:
        return _formula(body, True) or super().block_math(body)


def _formula(body: str, is_block: bool) -> str:
    try:
        return tex2mathml(body.strip(), as_block=is_block) if len(body) <= FORMULA else ""
    except Exception:  # MathError for what it does not know, anything else for what is no formula
        return ""


@jinja2.pass_context
def markdown2html(context: Mapping, source: str) -> str:
    """Render a cell's text without scripts, forms, foreign pictures, and names that the page itself uses."""
    attachments = context.get("cell", {}).get("attachments", {})
    renderer = _Renderer(escape=False, attachments=attachments, exclude_anchor_links=True)
    as_it_is = f"<pre>{html.escape(source)}</pre>"
    is_long = len(source) > LENGTH or re.search(rf"\s{{{GAP}}}", source)
    if is_long or len(re.findall("<[a-z]", source, re.IGNORECASE)) > ELEMENTS:
        return as_it_is
    try:
        page = MarkdownWithMath(renderer=renderer).render(source)
        return bleach.clean(page, tags=TAGS, attributes=_is_allowed, protocols={"http", "https", "mailto", "data"})
    except Exception:  # a picture that is missing, brackets a thousand deep, a number without end
        return as_it_is


class WithoutHiddenTests(ClearHiddenTests):
    """Leave the hidden tests out of the feedback; what a student has written stays, whatever it is."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Name the student in the page's title, and each test by its task."""
        about, heading = resources["nbgrader"], ""
        about["notebook"] = f"{about['notebook']}, {about['student']}"
        for cell in nb.cells:
            heading = heading_of(cell) or heading
            if is_test(cell):
                cell.metadata.nbgrader.grade_id = heading.lstrip("# ")
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        """Shorten a test's cell."""
        return super().preprocess_cell(cell, resources, index) if is_test(cell) else (cell, resources)


class HighlightCode(Highlight2HTML):
    """Color a cell's code."""

    def __call__(self, source: str, language: str | None = None, metadata: Mapping | None = None) -> str:
        """Return HTML."""
        if len(source) > CODE or sum(not line.strip() for line in source.splitlines()) > BLANK:
            return f"<pre>{html.escape(source)}</pre>"
        return super().__call__(source, language, metadata)
