"""The pages of formgrader and of the feedback: what a student wrote is shown in them, and does nothing there.

Whoever marks is logged in where marks are changed, and nbgrader puts a student's text into the page as it is.
"""

import html
import re
from collections.abc import Mapping

import bleach
import jinja2
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

BLOCKS = {"br", "details", "div", "hr", "p", "pre", "summary", *(f"h{level}" for level in range(1, 7))}
TABLES = {"table", "tbody", "td", "th", "thead", "tr"}
TAGS = bleach.ALLOWED_TAGS | BLOCKS | TABLES | {"del", "img", "kbd", "s", "span", "sub", "sup", "u"}
LENGTH = 100_000  # characters; what is longer is shown as it is, for rendering it can take for ever
LINK = re.compile(r"(https?://|mailto:|#|[\w./-]*(#|$))", re.IGNORECASE)
PICTURE = re.compile(r"data:image/(png|jpeg|gif);base64,[A-Za-z0-9+/=\s]*|[\w./-]+")


def _is_allowed(tag: str, name: str, value: str) -> bool:
    if (tag, name) == ("a", "href"):
        return bool(LINK.match(value))
    if (tag, name) == ("img", "src"):
        return bool(PICTURE.fullmatch(value))
    return (tag, name) in {("a", "title"), ("img", "alt"), ("img", "title"), ("td", "align"), ("th", "align")}


@jinja2.pass_context
def markdown2html(context: Mapping, source: str) -> str:
    """Render a cell's text without scripts, forms, foreign pictures, and names that the page itself uses."""
    attachments = context.get("cell", {}).get("attachments", {})
    renderer = IPythonRenderer(escape=False, attachments=attachments, exclude_anchor_links=True)
    as_it_is = f"<pre>{html.escape(source)}</pre>"
    if len(source) > LENGTH:
        return as_it_is
    try:
        page = MarkdownWithMath(renderer=renderer).render(source)
    except Exception:  # a picture that is missing, brackets a thousand deep
        return as_it_is
    return bleach.clean(page, tags=TAGS, attributes=_is_allowed, protocols={"http", "https", "mailto", "data"})
