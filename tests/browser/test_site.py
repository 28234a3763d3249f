"""The website, built as it is published: every page in a real browser, and one of each kind in every look."""

import json
import re
import subprocess
import sys
from collections import Counter
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from site_checks import DESKTOP, PHONE, Traffic, barriers, formulas, overflow, pictures, ready, show

from tools.build_site import modules
from tools.site_links import ROOT, assignments, lessons

ADDRESS = "https://github.com/example/vit-course"
LESSON = "notebooks/02_image_embedding.html"
KINDS = ("index.html", "glossary.html", "search.html", "api/attention.html", LESSON)  # one page of each kind
NOTEBOOKS = [path.relative_to(ROOT).with_suffix(".html").as_posix() for path in lessons() + assignments()]
TEXTS = [path.stem + ".html" for path in sorted((ROOT / "docs" / "pages").glob("*.md"))]
PAGES = [*TEXTS, "api/index.html", *(f"api/{name}.html" for name in modules()), *NOTEBOOKS]


def text_of(site: Path, page: str) -> str:
    return (site / page).read_text(encoding="utf-8")


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tab(new_page):
    """One page of the browser for all of the site, so that what its pages share is fetched once."""
    return new_page()


@pytest.mark.parametrize("name", [*PAGES, "search.html"])
def test_a_page_asks_for_nothing_elsewhere_and_is_whole(name, home, tab):
    traffic = Traffic(tab, home)
    tab.set_viewport_size(PHONE)
    tab.goto(home + name)
    ready(tab)
    problems = pictures(tab) + formulas(tab) + overflow(tab)
    assert problems + traffic.problems == []


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["wide", "narrow"])
def test_a_page_of_each_kind_has_no_barriers(name, size, home, tab):
    tab.set_viewport_size(size)
    tab.goto(home + name)
    ready(tab)
    assert overflow(tab) == []
    show(tab, size, "dark")
    problems = [f"dark: {problem}" for problem in barriers(tab, rest=False)]
    show(tab, size, "light")
    assert problems + barriers(tab) == []


END = "</article>"
SPOILT = {  # what is replaced, by what, and the complaint
    "a picture that is missing": (END, '<img src="gone.png" alt="three plain words">' + END, "not loaded"),
    "a picture without words": ('<img alt="', '<img alt="" title="', "described by ''"),
    "a picture without a size": ('width="', 'data-width="', "without width and height"),
    "a formula left raw": (END, "<p>Here $a^2$ stands.</p>" + END, "raw: Here"),
    "a formula with an error": (END, r'<p class="math">\(a^b^c\)</p>' + END, "error: "),
    "a formula with an unknown command": (END, r'<p class="math">\(\nothing x\)</p>' + END, "error: \\nothing"),
    "a page that is too wide": (END, '<div style="width:3000px">wide</div>' + END, "px in 1280"),
    "letters too faint": (END, '<p style="color:#ddd;background:#fff">faint</p>' + END, "color-contrast (serious)"),
    "a field without a name": (END, '<input type="text">' + END, "label (critical)"),
    "a script that fails": (END, "<script>nothing.here()</script>" + END, "script: nothing"),
    "a picture from elsewhere": (END, '<img src="https://example.org/x.png">' + END, "leaves the site"),
}


def test_the_checks_find_what_is_spoilt(site, home, new_page):
    """Each check of a page, seen to fail on one page with all of these faults, and silent without them."""
    text = text_of(site, LESSON)
    for place, spoiling, _ in SPOILT.values():
        assert place in text
        text = text.replace(place, spoiling)
    page = new_page(viewport=DESKTOP)
    traffic = Traffic(page, home)
    page.route("https://example.org/**", lambda route: route.abort())
    page.route(home + LESSON, lambda route: route.fulfill(body=text, content_type="text/html"))
    page.goto(home + LESSON)
    ready(page)
    found = pictures(page) + formulas(page) + overflow(page) + barriers(page) + traffic.problems
    missed = [fault for fault, (*_, complaint) in SPOILT.items() if not any(complaint in problem for problem in found)]
    assert missed == [], found


def test_what_all_pages_share_is_at_most_1_8_megabytes(home, new_page):
    """Scripts, styles and fonts of a lesson: fetched once, then kept by the browser."""
    page, shared = new_page(), {}
    page.on("response", lambda response: shared.update({response.url: len(response.body())}))
    page.goto(home + LESSON)
    page.evaluate("MathJax.startup.promise")
    page.wait_for_load_state("networkidle")
    shared = {url: size for url, size in shared.items() if "/_images/" not in url and not url.endswith(".html")}
    assert sum(shared.values()) <= 1_800_000, Counter(shared).most_common(8)


@pytest.mark.parametrize(("words", "page"), [("rollout", "api/inside.html"), ("class token", "glossary.html")])
def test_search_finds(words, page, home, tab):
    """From any page: Ctrl+K, type, Enter."""
    tab.set_viewport_size(DESKTOP)
    tab.goto(home + "lessons.html")
    tab.keyboard.press("Control+k")
    tab.locator("#pst-search-dialog input[name=q]").fill(words)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search.html?q=*")
    tab.locator(f'#search-results a[href*="{page}"]').first.click()
    tab.wait_for_url(f"**/{page}*")


# --- as files --------------------------------------------------------------------------------------------------------


def built_pages(site: Path) -> list[str]:
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def broken_links(site: Path) -> list[str]:
    """Every link and source of every page that leads to nothing on the site."""
    pages = {name: text_of(site, name) for name in built_pages(site)}
    anchors = {name: set(map(unescape, re.findall(r'\bid="([^"]+)"', text))) for name, text in pages.items()}
    broken = []
    for name, text in pages.items():
        without_scripts = re.sub(r"<(script)\b[^>]*>.*?</\1>", "", text, flags=re.S)
        for address in re.findall(r'\b(?:href|src)="([^"]+)"', without_scripts):
            parts = urlsplit(unescape(address))
            if parts.scheme or parts.netloc:
                continue
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            target = target.resolve()
            where = target.relative_to(site.resolve()).as_posix() if target.is_relative_to(site.resolve()) else ""
            if not where or not target.is_file():
                broken.append(f"{name}: {address}")
            elif parts.fragment and where in anchors and unquote(parts.fragment) not in anchors[where] | {""}:
                broken.append(f"{name}: no such place: {address}")
    return broken


def test_every_page_is_there_and_no_other(site):
    found = {name for name in built_pages(site) if not name.startswith(("_modules/", "search"))}
    assert found == set(PAGES)


def test_links_and_anchors_resolve(site, tmp_path):
    assert broken_links(site) == []
    (tmp_path / "a.html").write_text('<p id="x"><a href="#x">a</a><a href="#y">b</a><a href="b.html">c</a></p>')
    assert broken_links(tmp_path) == ["a.html: no such place: #y", "a.html: b.html"]


def test_a_page_and_its_pictures_are_at_most_1_5_megabytes(site):
    for name in built_pages(site):
        sources = re.findall(r'<img[^>]*\bsrc="([^"]+)"', text_of(site, name))
        own = {site / name, *(((site / name).parent / unquote(source)).resolve() for source in sources)}
        assert sum(path.stat().st_size for path in own) <= 1_500_000, name


def test_pictures_of_a_lesson_wait_until_they_are_near_and_their_words_are_shown_nowhere_else(site):
    """Below each explorer's still, and nowhere else, a line says where it can be touched."""
    described = touched = 0
    for path in lessons():
        page = text_of(site, f"notebooks/{path.stem}.html")
        images = re.findall(r"<img [^>]*>", page[page.index("<article") :])
        assert all('loading="lazy"' in image for image in images[1:])
        described += sum('alt="Figure: ' in image for image in images)
        assert "Figure: " not in re.sub(r"<[^>]*>", "", page), path.stem
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code" and cell["outputs"]]
        explorers = sum(bool(re.search(r"\bexplore\.\w+\(", source)) for source in code)
        assert page.count('class="course-touch"') == explorers, path.stem
        touched += explorers
    assert described > 30
    assert touched > 5


@pytest.mark.parametrize("lesson", [path.stem for path in lessons()])
def test_a_lesson_opens_in_binder_and_colab_and_can_be_downloaded(lesson, site):
    links = set(map(unescape, re.findall(r'href="([^"]+)"', text_of(site, f"notebooks/{lesson}.html"))))
    opened = f"lab/tree/notebooks/{lesson}.ipynb"
    copy = f"colab/{lesson}.ipynb"
    assert f"https://mybinder.org/v2/gh/example/vit-course/HEAD?urlpath={opened}" in links
    assert f"https://colab.research.google.com/github/example/vit-course/blob/gh-pages/{copy}" in links
    assert ADDRESS in json.loads((site / copy).read_text(encoding="utf-8"))["cells"][0]["source"]
    assert f"{lesson}.ipynb" in links
    notebook = Path("notebooks", f"{lesson}.ipynb")
    assert (site / notebook).read_bytes() == (ROOT / notebook).read_bytes()


def test_pages_can_be_edited_and_complained_about(site):
    for name, source in {
        "glossary.html": "docs/pages/glossary.md",
        LESSON: "notebooks/02_image_embedding.ipynb",
        "api/attention.html": "vit_course/attention.py",
        "api/checks.html": "vit_course/checks/__init__.py",
        "api/index.html": "docs/pages/api/index.md",
    }.items():
        assert (ROOT / source).is_file()
        assert f'href="{ADDRESS}/edit/HEAD/{source}"' in text_of(site, name)
        assert f'href="{ADDRESS}/issues/new?title=' in text_of(site, name)


def test_a_signature_shows_its_shapes_and_its_source(site):
    page = text_of(site, "api/attention.html")
    signature = re.search(r'<dt [^>]*id="vit_course\.attention\.attention_weights".*?</dt>', page, re.S)[0]
    words = " ".join(unescape(re.sub(r"<[^>]*>", "", signature)).split())
    assert 'query: Float[Tensor, "b heads i e"]' in words
    assert '→ Float[Tensor, "b heads i j"]' in words
    assert 'href="../_modules/vit_course/attention.html#' in signature
    assert "softmax" in text_of(site, "_modules/vit_course/attention.html")


@pytest.mark.parametrize(
    ("link", "message"),
    [("[there](other.md#2-there)", ""), ("[nowhere](other.md#nowhere)", "nowhere"), ("[gone](gone.md)", "gone.md")],
)
def test_a_broken_link_fails_the_build(link, message, tmp_path):
    """Two pages, rendered by the site's own settings; the first case shows that right links pass."""
    source = tmp_path / "source"
    source.mkdir()
    toctree = "```{toctree}\nother\n```"
    (source / "index.md").write_text(f"# One\n\nHere is {link}.\n\n{toctree}\n", encoding="utf-8")
    (source / "other.md").write_text("# Two\n\n## 2 there\n\nText.\n", encoding="utf-8")
    code = "import pathlib, sys, tools.build_site as it; sys.exit(it.render(*map(pathlib.Path, sys.argv[1:])))"
    command = [sys.executable, "-c", code, str(source), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode != 0) == bool(message), done.stderr
    assert message in done.stderr if message else done.stderr == ""
