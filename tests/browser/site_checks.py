"""What must hold on every page of the site: each function takes an opened page and returns what is wrong with it."""

import contextlib
import functools
from importlib.resources import files

from playwright.sync_api import Page, TimeoutError

COLOURS = ["color-contrast", "link-in-text-block"]  # axe's rules that look at colours, its slowest
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
SERIOUS = ("serious", "critical")
WORDS = 3  # an alternative text of fewer words describes nothing


class Traffic:
    """What a page asks for and complains of, from the moment this is made.

    Args:
        page: a page that has not been opened yet.
        home: where all it asks for must lie.
    """

    def __init__(self, page: Page, home: str) -> None:
        self.problems: list[str] = []
        page.on("request", lambda request: self._request(request.url, home))
        page.on("response", lambda response: self._response(response.status, response.url))
        page.on("requestfailed", lambda request: self.problems.append(f"not loaded: {request.url}"))
        page.on("console", lambda message: self._console(message.type, message.text))
        page.on("pageerror", lambda error: self.problems.append(f"script: {error}"))

    def _request(self, address: str, home: str) -> None:
        if not address.startswith((home, "data:", "blob:")):
            self.problems.append(f"leaves the site: {address}")

    def _response(self, status: int, address: str) -> None:
        if status >= 400:
            self.problems.append(f"{status}: {address}")

    def _console(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.problems.append(f"console: {text}")


def ready(page: Page) -> None:
    """Wait until formulas are set and every picture, lazy ones too, has come or failed; unfold what is folded."""
    page.wait_for_load_state("load")
    page.evaluate("window.MathJax?.startup?.promise")
    page.evaluate(
        """async () => {
            for (const details of document.querySelectorAll("article details")) details.open = true;
            for (const image of document.images) {
                image.scrollIntoView();
                await image.decode().catch(() => null);
            }
            scrollTo(0, 0);
        }"""
    )


def pictures(page: Page) -> list[str]:
    """Every picture has come, keeps its place while it comes, and is described in words."""
    found = page.evaluate(
        """() => [...document.querySelectorAll("article img")].map(image => ({
            name: image.src, width: image.naturalWidth, alt: image.alt,
            sized: image.hasAttribute("width") && image.hasAttribute("height"),
        }))"""
    )
    problems = []
    for picture in found:
        if not picture["width"]:
            problems.append(f"not loaded: {picture['name']}")
        if not picture["sized"]:
            problems.append(f"without width and height: {picture['name']}")
        if len(picture["alt"].split()) < WORDS:
            problems.append(f"described by {picture['alt']!r}: {picture['name']}")
    return problems


def formulas(page: Page) -> list[str]:
    """Every formula is set, none is an error, and none was overlooked."""
    return page.evaluate(
        r"""() => {
            const problems = [];
            for (const formula of document.querySelectorAll("article .math")) {
                const set = formula.querySelector("mjx-container");
                if (!set || set.getBoundingClientRect().width === 0) problems.push("not set: " + formula.textContent);
            }
            for (const error of document.querySelectorAll(
                "mjx-merror, [data-mjx-error], mjx-container [style*='color: red']"))
                problems.push("error: " + error.textContent);
            const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
            while (texts.nextNode()) {
                const {textContent: text, parentElement: parent} = texts.currentNode;
                if (parent.closest("pre, code, script, style, mjx-container, .sig")) continue;
                if (/\$[^$]+\$|\\[(\[]/.test(text)) problems.push("raw: " + text.trim().slice(0, 60));
            }
            return problems;
        }"""
    )


def overflow(page: Page) -> list[str]:
    """Nothing makes the page itself scroll sideways."""
    return page.evaluate(
        """() => {
            const root = document.documentElement;
            if (root.scrollWidth <= root.clientWidth) return [];
            const wide = [...document.querySelectorAll("main *")].filter(
                part => part.getBoundingClientRect().right > root.clientWidth + 1);
            const name = part => part.tagName.toLowerCase() + (part.className ? "." + part.className : "");
            return [`${root.scrollWidth} px in ${root.clientWidth}: ` + wide.slice(0, 3).map(name).join(", ")];
        }"""
    )


@functools.cache
def axe_source() -> str:
    """The script that looks for barriers; it comes with a Python package."""
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def show(page: Page, size: dict, theme: str) -> None:
    """Change the width and the colours of an opened page, and wait until the theme has followed."""
    page.set_viewport_size(size)
    page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    # it makes boxes that scroll reachable by keyboard a moment after the width has changed
    with contextlib.suppress(TimeoutError):
        page.wait_for_function(
            """() => [...document.querySelectorAll("[tabindex='-1']:is(pre, div)")].every(
                box => box.scrollWidth <= box.clientWidth)""",
            timeout=3000,
        )
    page.evaluate(
        """() => Promise.all(document.getAnimations().filter(move => move instanceof CSSTransition)
            .map(move => move.finished.catch(() => null)))"""
    )


def barriers(page: Page, *, colours: bool = True, rest: bool = True) -> list[str]:
    """What axe-core calls serious or critical, by its rules about colours, by all the rest, or by both.

    What is written alike looks alike: of tokens of one kind in code, of words in code type and of formulas in a line
    the first is kept and the others become plain, so that a lesson with ten thousand of them takes seconds. The page
    is spent afterwards.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe_source())
    page.evaluate(
        """() => {
            const seen = new Set();
            for (const token of document.querySelectorAll("div.highlight span[class]")) {
                const kind = (token.closest(".cell_output") ? "output " : "code ") + token.className;
                if (seen.has(kind)) token.replaceWith(...token.childNodes); else seen.add(kind);
            }
            for (const word of document.querySelectorAll("article code")) {
                const kind = "word in " + word.parentElement.tagName;
                if (seen.has(kind)) word.replaceWith(word.textContent); else seen.add(kind);
            }
            const inline = [...document.querySelectorAll("mjx-container:not([display]) > mjx-math")];
            for (const formula of inline.slice(1)) formula.replaceChildren();
            document.normalize();
        }"""
    )
    options = {"resultTypes": ["violations"], "preload": False}
    if not rest:
        options["runOnly"] = {"type": "rule", "values": COLOURS}
    elif not colours:
        options["rules"] = {rule: {"enabled": False} for rule in COLOURS}
    found = page.evaluate("options => axe.run(document, options)", options)["violations"]
    return [
        f"{violation['id']} ({violation['impact']}): {node['target']} {node['html'][:160]}"
        for violation in found
        if violation["impact"] in SERIOUS
        for node in violation["nodes"][:4]
    ]
