"""The website, built as it is published: one page of each kind in a browser, and every page as a file."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from site_checks import DESKTOP, PHONE, WORDS, Traffic, barriers, formulas, overflow, pictures, ready, show

from tools.build_site import modules
from tools.site_links import ROOT, assignments, lessons

ADDRESS = "https://github.com/example/vit-course"
LESSON = "notebooks/02_image_embedding.html"
TEXTS = [path.stem + ".html" for path in sorted((ROOT / "docs" / "pages").glob("*.md"))]
NOTEBOOKS = [path.relative_to(ROOT).with_suffix(".html").as_posix() for path in lessons() + assignments()]
PAGES = [*TEXTS, "api/index.html", *(f"api/{name}.html" for name in modules()), *NOTEBOOKS]
KINDS = ["index.html", "glossary.html", "results.html", "search.html", "api/attention.html", LESSON, NOTEBOOKS[-1]]


@pytest.fixture(scope="module")
def tab(new_page):
    """One page of the browser for all of the site, so that what its pages share is fetched once."""
    return new_page()


@pytest.mark.parametrize("name", [*KINDS, *(name for name in NOTEBOOKS if name not in KINDS)])
def test_a_page_is_whole_stays_on_the_site_and_has_no_barriers(name, home, tab):
    traffic = Traffic(tab, home)
    tab.set_viewport_size(PHONE)
    tab.goto(home + name)
    ready(tab)
    problems = pictures(tab) + formulas(tab) + overflow(tab)
    if name in KINDS:
        show(tab, DESKTOP, "dark")
        problems += overflow(tab) + barriers(tab)
        show(tab, PHONE, "light")
        problems += barriers(tab)
    assert problems + traffic.problems == []


END = "</article>"
SPOILT = {  # what is replaced, by what, and the complaint
    "a picture that is missing": (END, '<img src="gone.png" alt="three plain words">' + END, "not loaded"),
    "a picture without words": ('<img alt="', '<img alt="" title="', "described by ''"),
    "a picture without a size": (' width="', ' data-width="', "without a size"),
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
    """One page with all of these faults fails every check."""
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


def test_search_finds(home, tab):
    """From any page: Ctrl+K, type, Enter. What the page shares with all others is small."""
    tab.set_viewport_size(DESKTOP)
    tab.goto(home + "lessons.html")
    shared = "performance.getEntriesByType('resource').filter(each => !each.name.includes('/_images/'))"
    assert tab.evaluate(f"{shared}.reduce((sum, each) => sum + each.decodedBodySize, 0)") <= 1_800_000
    tab.keyboard.press("Control+k")
    tab.locator("#pst-search-dialog input[name=q]").fill("rollout")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search.html?q=*")
    tab.locator('#search-results a[href*="api/inside.html"]').first.click()
    tab.wait_for_url("**/api/inside.html*")


def text_of(site: Path, page: str) -> str:
    return (site / page).read_text(encoding="utf-8")


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
            target = ((site / name).parent / unquote(parts.path) if parts.path else site / name).resolve()
            where = target.relative_to(site.resolve()).as_posix() if target.is_relative_to(site.resolve()) else ""
            if not where or not target.is_file():
                broken.append(f"{name}: {address}")
            elif parts.fragment and where in anchors and unquote(parts.fragment) not in anchors[where] | {""}:
                broken.append(f"{name}: no such place: {address}")
    return broken


def test_links_and_anchors_resolve(site, tmp_path):
    assert broken_links(site) == []
    (tmp_path / "a.html").write_text('<p id="x"><a href="#x">a</a><a href="#y">b</a><a href="b.html">c</a></p>')
    assert broken_links(tmp_path) == ["a.html: no such place: #y", "a.html: b.html"]


def test_every_page_is_there_and_described_and_asks_nobody_else_for_anything(site):
    found = {name for name in built_pages(site) if not name.startswith(("_modules/", "search"))}
    assert found == set(PAGES)
    for name in found:
        text = text_of(site, name)
        assert not re.findall(r'\bsrc="https?:|<link rel="(?:stylesheet|preload)"[^>]*href="https?:', text), name
        images = re.findall(r"<img [^>]*>", text[text.index("<article") :])
        for image in images:
            assert len(unescape(re.search(r'alt="([^"]*)"', image)[1]).split()) >= WORDS, (name, image)
            assert " width=" in image, (name, image)
        files = {((site / name).parent / unquote(re.search(r'src="([^"]+)"', each)[1])).resolve() for each in images}
        assert sum(path.stat().st_size for path in files | {site / name}) <= 1_500_000, name


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_a_lesson_can_be_opened_elsewhere_and_its_pictures_wait_until_they_are_near(path, site):
    """The words of a picture are shown nowhere; below each explorer's still a line says where it can be touched."""
    name, copy = path.relative_to(ROOT), f"colab/{path.name}"
    page = text_of(site, f"notebooks/{path.stem}.html")
    links = set(map(unescape, re.findall(r'href="([^"]+)"', page)))
    assert f"https://mybinder.org/v2/gh/example/vit-course/HEAD?urlpath=lab/tree/{name.as_posix()}" in links
    assert f"https://colab.research.google.com/github/example/vit-course/blob/gh-pages/{copy}" in links
    assert ADDRESS in json.loads((site / copy).read_text(encoding="utf-8"))["cells"][0]["source"]
    assert path.name in links
    assert (site / name).read_bytes() == path.read_bytes()
    images = re.findall(r"<img [^>]*>", page[page.index("<article") :])
    assert all('loading="lazy"' in image for image in images[1:])
    assert "Figure: " not in re.sub(r"<[^>]*>", "", page)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code" and cell["outputs"]]
    explorers = [source for source in code if re.search(r"\bexplore\.\w+\(", source)]
    assert page.count('class="course-touch"') == len(explorers)


SOURCES = {
    "glossary.html": "docs/pages/glossary.md",
    LESSON: "notebooks/02_image_embedding.ipynb",
    "api/attention.html": "vit_course/attention.py",
    "api/checks.html": "vit_course/checks/__init__.py",
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_page_can_be_edited_and_complained_about(name, site):
    assert (ROOT / SOURCES[name]).is_file()
    assert f'href="{ADDRESS}/edit/HEAD/{SOURCES[name]}"' in text_of(site, name)
    assert f'href="{ADDRESS}/issues/new?title=' in text_of(site, name)


def test_a_signature_shows_its_shapes_and_its_source(site):
    page = text_of(site, "api/attention.html")
    signature = re.search(r'<dt [^>]*id="vit_course\.attention\.attention_weights".*?</dt>', page, re.S)[0]
    words = " ".join(unescape(re.sub(r"<[^>]*>", "", signature)).split())
    assert 'query: Float[Tensor, "b heads i e"]' in words
    assert '→ Float[Tensor, "b heads i j"]' in words
    assert 'href="../_modules/vit_course/attention.html#' in signature


def test_a_broken_link_fails_the_build(tmp_path):
    """Two pages, rendered by the site's own settings, with one right link and two that lead nowhere."""
    source = tmp_path / "source"
    source.mkdir()
    links = "[there](other.md#2-there), [nowhere](other.md#nowhere), [gone](gone.md)"
    (source / "index.md").write_text(f"# One\n\n{links}.\n\n```{{toctree}}\nother\n```\n", encoding="utf-8")
    (source / "other.md").write_text("# Two\n\n## 2 there\n\nText.\n", encoding="utf-8")
    code = "import pathlib, sys, tools.build_site as it; sys.exit(it.render(*map(pathlib.Path, sys.argv[1:])))"
    command = [sys.executable, "-c", code, str(source), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "nowhere" in done.stderr
    assert "gone.md" in done.stderr
    assert "2-there" not in done.stderr
