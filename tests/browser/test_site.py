"""The website, built as it is published: one page of each kind in a browser, and every page as a file."""

import json
import os
import re
import subprocess
import sys
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from site_checks import DESKTOP, PHONE, Traffic, barriers, formulas, overflow, ready, show

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
    problems = formulas(tab) + overflow(tab)
    if name in KINDS:
        show(tab, DESKTOP, "dark")
        problems += overflow(tab) + barriers(tab)
        show(tab, PHONE, "light")
        problems += barriers(tab)
    assert problems + traffic.problems == []


SPOILT = {  # what the page gets, and the complaint
    '<img src="gone.png" alt="three plain words">': "404: ",
    "<p>Here $a^2$ stands.</p>": "raw: Here",
    r'<p class="math">\(a^b^c\)</p>': "error: ",
    r'<p class="math">\(\nothing x\)</p>': "error: \\nothing",
    '<div style="width:3000px">wide</div>': "px in 1280",
    '<p style="color:#ddd;background:#fff">faint</p>': "color-contrast (serious)",
    '<input type="text">': "label (critical)",
    "<script>nothing.here()</script>": "script: nothing",
    '<img src="https://example.org/x.png">': "leaves the site",
}


def test_the_checks_find_what_is_spoilt(site, home, new_page):
    """One page with all of these faults fails every check."""
    text = text_of(site, LESSON).replace("</article>", "".join(SPOILT) + "</article>")
    page = new_page(viewport=DESKTOP)
    traffic = Traffic(page, home)
    page.route("https://example.org/**", lambda route: route.abort())
    page.route(home + LESSON, lambda route: route.fulfill(body=text, content_type="text/html"))
    page.goto(home + LESSON)
    ready(page)
    found = formulas(page) + overflow(page) + barriers(page) + traffic.problems
    missed = [spoilt for spoilt, complaint in SPOILT.items() if not any(complaint in problem for problem in found)]
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


def broken_links(site: Path) -> list[str]:
    """Every link and source of every page that leads to nothing on the site."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))}
    broken = []
    for page, text in pages.items():
        without_scripts = re.sub(r"<(script)\b[^>]*>.*?</\1>", "", text, flags=re.S)
        for address in re.findall(r'\b(?:href|src)="([^"]+)"', without_scripts):
            parts = urlsplit(unescape(address))
            if not parts.scheme and not parts.netloc:
                target = Path(os.path.normpath(page.parent / unquote(parts.path))) if parts.path else page
                anchor = f'id="{escape(unquote(parts.fragment))}"' if parts.fragment else ""
                if not target.is_file() or not target.is_relative_to(site) or anchor not in pages.get(target, anchor):
                    broken.append(f"{page.name}: {address}")
    return broken


def undescribed(text: str) -> list[str]:
    """Every picture of a page that has no size, so that the page jumps when it comes, or no words."""
    images = re.findall(r"<img [^>]*>", text[text.index("<article") :])
    return [each for each in images if not re.search(r'\balt="\S+ \S+ \S', each) or " width=" not in each]


def test_links_and_anchors_resolve(site, tmp_path):
    assert broken_links(site) == []
    (tmp_path / "a.html").write_text('<p id="x"><a href="#x">a</a><a href="#y">b</a><a href="b.html">c</a></p>')
    assert broken_links(tmp_path) == ["a.html: #y", "a.html: b.html"]


def test_every_page_is_there_and_described_and_asks_nobody_else_for_anything(site):
    found = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert {name for name in found if not name.startswith(("_modules/", "search"))} == set(PAGES)
    for name in PAGES:
        text = text_of(site, name)
        assert undescribed(text) == [], name
        assert not re.findall(r'\bsrc="https?:|<link rel="(?:stylesheet|preload)"[^>]*href="https?:', text), name
        files = {(site / name).parent / unquote(source) for source in re.findall(r'<img[^>]*\bsrc="([^"]+)"', text)}
        assert sum(path.stat().st_size for path in files | {site / name}) <= 1_500_000, name
    assert (
        len(undescribed('<article><img alt="" width="1"><img alt="three plain words"><img alt="a b c" width="1">')) == 2
    )


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_a_lesson_can_be_opened_elsewhere_and_its_pictures_wait_until_they_are_near(path, site):
    """The words of a picture are shown nowhere; below each explorer's still a line says where it can be touched."""
    name, copy = path.relative_to(ROOT), f"colab/{path.name}"
    page = text_of(site, f"notebooks/{path.stem}.html")
    links = set(map(unescape, re.findall(r'href="([^"]+)"', page)))
    assert f"https://mybinder.org/v2/gh/example/vit-course/HEAD?urlpath=lab/tree/{name.as_posix()}" in links
    assert f"https://colab.research.google.com/github/example/vit-course/blob/gh-pages/{copy}" in links
    assert ADDRESS in json.loads((site / copy).read_text(encoding="utf-8"))["cells"][1]["source"]
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
