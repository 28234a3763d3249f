"""Links in Markdown: found outside of code, and led elsewhere."""

import posixpath
import re
from collections.abc import Callable

CODE = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,})[^\n]*\n.*?^ {0,3}(?P=fence)[`~]*[ \t]*$"  # a block between fences
    r"|(?<!`)(?P<ticks>`+)(?!`)[^\n]*?(?<!`)(?P=ticks)(?!`)",  # a span between backticks
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^()\s]+)\)")
HEADING = re.compile(r"^(?P<marks>#{1,6}) +(?P<text>.+?) *$", re.MULTILINE)


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply a change to the text with code out of its reach: a private character stands for each piece."""
    pieces = []

    def put_away(match: re.Match) -> str:
        pieces.append(match[0])
        return f"\ue000{len(pieces) - 1}\ue001"

    changed = change(CODE.sub(put_away, text))
    return re.sub("\ue000(\\d+)\ue001", lambda match: pieces[int(match[1])], changed)


def rewrite(text: str, origin: str, lead: Callable[[str, str], str | None]) -> str:
    """Lead every link elsewhere.

    Args:
        text: Markdown.
        origin: the file that it stands in, from the root of the repository.
        lead: from a path in the repository (empty for the file itself) and an anchor to the new target; for None the
            link becomes plain text. Addresses of the web stay as they are.
    """

    def one(match: re.Match) -> str:
        path, _, anchor = match["target"].partition("#")
        if re.match(r"[a-z]+:", path):
            return match[0]
        folder = path.endswith("/")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path)) if path else ""
        target = lead(path + "/" * folder, anchor)
        return match["text"] if target is None else f"{match['image']}[{match['text']}]({target})"

    return outside_code(text, lambda prose: LINK.sub(one, prose))


def headings(text: str) -> list[tuple[int, str, int, int]]:
    """Return ``(level, text, start, end)`` of every heading outside of code."""
    masked = CODE.sub(lambda match: re.sub(r"[^\n]", "\0" if "\n" in match[0] else r"\g<0>", match[0]), text)
    return [(len(match["marks"]), match["text"], match.start(), match.end()) for match in HEADING.finditer(masked)]


def plain(heading: str) -> str:
    """The words of a heading, without Markdown."""
    return re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)


def github_anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\s-]", "", plain(heading)).strip().lower().replace(" ", "-")


def lab_anchor(heading: str) -> str:
    """The anchor that JupyterLab gives a heading; the site gives the same."""
    return plain(heading).strip().replace(" ", "-")
