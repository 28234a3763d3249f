"""What must hold on every page of the site: each function takes an opened page and returns what is wrong with it."""

from importlib.resources import files

from playwright.sync_api import ConsoleMessage, Page, Request

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def watch(page: Page, home: str) -> list[str]:
    """Return a list to which is added, from now on, what the page requests elsewhere or in vain and complains of.

    Args:
        page: a page that has not been opened yet.
        home: the address below which everything that it requests must lie.
    """
    problems: list[str] = []
    say, own = problems.append, (home, "data:", "blob:")

    def miss(request: Request) -> None:
        if not (request.failure or "").endswith("ABORTED"):  # it was still loading when the page was left
            say(f"not loaded: {request.url}")

    def hear(told: ConsoleMessage) -> None:
        if told.type in ("error", "warning") and not told.text.endswith("to activate."):  # JupyterLab's slow start
            say(f"console: {told.text}")

    page.on("request", lambda request: request.url.startswith(own) or say(f"leaves the site: {request.url}"))
    page.on("response", lambda answer: answer.status >= 400 and say(f"{answer.status}: {answer.url}"))
    page.on("requestfailed", miss)
    page.on("console", hear)
    page.on("pageerror", lambda error: say(f"script: {error}"))
    return problems


def ready(page: Page) -> None:
    """Wait until every picture has come or failed, lazy ones too; unfold what is folded."""
    page.wait_for_load_state("load")
    page.evaluate(
        """async () => {
            for (const details of document.querySelectorAll("article details")) details.open = true;
            for (const image of document.images) {
                if (!image.checkVisibility()) continue; // a still, which a live figure has replaced
                image.scrollIntoView();
                await image.decode().catch(() => null);
            }
            scrollTo(0, 0);
        }"""
    )


def formulas(page: Page) -> list[str]:
    """Every formula has a size, and none was overlooked."""
    return page.evaluate(
        r"""() => {
            const problems = [];
            for (const formula of document.querySelectorAll("article math"))
                if (formula.getBoundingClientRect().width === 0) problems.push("not set: " + formula.textContent);
            const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
            while (texts.nextNode()) {
                const {textContent: text, parentElement: parent} = texts.currentNode;
                if (parent.closest("pre, code, script, style, .sig")) continue;
                if (/\$[^$]+\$|\\[(\[]/.test(text)) problems.push("raw: " + text.trim().slice(0, 60));
            }
            return problems;
        }"""
    )


def too_wide(page: Page) -> list[str]:
    """Nothing makes the page itself scroll sideways, and what must fit its own box does.

    That is code of up to 88 characters a line, and on a phone all code of a cell and every table of words.
    """
    return page.evaluate(
        """() => {
            const {scrollWidth, clientWidth} = document.documentElement;
            const name = part => part.tagName.toLowerCase() + (part.className ? "." + part.className : "");
            const beyond = [...document.querySelectorAll("main *")].filter(
                part => part.getBoundingClientRect().right > clientWidth + 1).slice(0, 3).map(name);
            const problems = scrollWidth > clientWidth ? [`${scrollWidth} px in ${clientWidth}: ${beyond}`] : [];
            const isPhone = innerWidth < 768;
            const parts = [...document.querySelectorAll(".cell_input pre")].filter(
                code => isPhone || Math.max(...code.textContent.split("\\n").map(line => line.length)) <= 88);
            if (isPhone) parts.push(...document.querySelectorAll("article table:not(:has(td.text-right))"));
            const box = part => part.closest(".pst-scrollable-table-container") ?? part;
            const cut = parts.filter(part => box(part).scrollWidth > box(part).clientWidth);
            return [...problems, ...cut.map(
                part => `cut off at ${innerWidth}: ` + part.textContent.trim().slice(0, 60))];
        }"""
    )


def show(page: Page, size: dict, theme: str) -> None:
    """Change the width and the colours of an opened page, and wait until the theme's script and styles have followed.

    The script makes boxes that scroll reachable by keyboard a moment after the width has changed.
    """
    page.set_viewport_size(size)
    page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    page.wait_for_function(
        """() => [...document.querySelectorAll("[tabindex='-1']:is(pre, div)")].every(
            box => box.scrollWidth <= box.clientWidth)"""
    )
    page.evaluate(
        """() => Promise.all(document.getAnimations().filter(move => move instanceof CSSTransition)
            .map(move => move.finished.catch(() => null)))"""
    )


def barriers(page: Page) -> list[str]:
    """What axe-core calls serious or critical.

    What is written alike looks alike: of tokens of one kind in code, of words in code type and of formulas in a line
    the first is kept and the others become plain, so that a lesson with ten thousand of them takes seconds.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(
        """async () => {
            const seen = new Set();
            const again = kind => seen.has(kind) || !seen.add(kind);
            for (const token of document.querySelectorAll("div.highlight span[class]"))
                if (again((token.closest(".cell_output") ? "output " : "code ") + token.className))
                    token.replaceWith(...token.childNodes);
            for (const word of document.querySelectorAll("article code"))
                if (again("word in " + word.parentElement.tagName)) word.replaceWith(word.textContent);
            for (const formula of [...document.querySelectorAll("article math")].slice(1)) formula.replaceChildren();
            document.normalize();
            return (await axe.run(document, {resultTypes: ["violations"], preload: false})).violations;
        }"""
    )
    return [
        f"{violation['id']} ({violation['impact']}): {node['target']} {node['html'][:160]}"
        for violation in found
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"][:4]
    ]


def problems_in_both_looks(page: Page) -> list[str]:
    """Return what is too wide and what is a barrier in the dark on a desktop and in the light on a phone.

    Widths change the places of things and themes their colors: each of both is seen once.
    """
    problems = []
    for size, theme in ((DESKTOP, "dark"), (PHONE, "light")):
        show(page, size, theme)
        problems += too_wide(page) + barriers(page)
    return problems


WATCH_SHIFTS = """
    window.shift = 0;
    new PerformanceObserver(list => list.getEntries().forEach(entry => { window.shift += entry.value; }))
        .observe({type: "layout-shift", buffered: true});
"""
