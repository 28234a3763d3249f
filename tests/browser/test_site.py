"""The website, built as it is published: one page of each kind in a browser, and every page as a file."""

import json
import os
import re
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import expect
from site_checks import DESKTOP, PHONE, WATCH_SHIFTS, barriers, formulas, ready, show, too_wide, watch

from tools.build_site import modules, render
from tools.clinic_pages import clinic_pages
from tools.site_links import CLINIC, ROOT, assignments, lessons

ADDRESS = "https://github.com/example/vit-course"
LESSON = "notebooks/02_image_embedding.html"
TEXTS = [path.stem + ".html" for path in sorted((ROOT / "docs" / "pages").glob("*.md"))]
NOTEBOOKS = [path.relative_to(ROOT).with_suffix(".html").as_posix() for path in lessons() + assignments()]
CASES = [path.replace(".ipynb", ".html") for path in clinic_pages() if path != CLINIC]
PAGES = [*TEXTS, "api/index.html", *(f"api/{name}.html" for name in modules()), *NOTEBOOKS, *CASES]
KINDS = ["index.html", "results.html", "search.html", "api/attention.html", LESSON, CASES[0]]


@pytest.fixture(scope="module")
def tab(new_page):
    """One page of the browser for all of the site, so that what its pages share is fetched once."""
    return new_page()


@pytest.mark.parametrize("name", [*KINDS, *(name for name in NOTEBOOKS if name not in KINDS)])
def test_a_page_is_whole_stays_on_the_site_and_has_no_barriers(name, home, tab):
    problems = watch(tab, home)
    tab.set_viewport_size(PHONE)
    tab.goto(home + name)
    ready(tab)
    problems += formulas(tab) + too_wide(tab)
    show(tab, DESKTOP, "dark")
    problems += too_wide(tab)
    if name in KINDS:
        problems += barriers(tab)
        show(tab, PHONE, "light")
        problems += barriers(tab)
    assert problems == []


@pytest.mark.parametrize("size", [PHONE, DESKTOP])
def test_the_menus_open_and_close(size, home, tab):
    tab.set_viewport_size(size)
    tab.goto(home + LESSON)
    pages, sections = tab.get_by_role("link", name="Glossary"), tab.get_by_role("link", name="2.5 The class token")
    toggle = tab.locator(".bd-header-article .primary-toggle")
    if size is PHONE:
        expect(pages).not_to_be_in_viewport()
        toggle.click()
        tab.locator("#pst-primary-sidebar-modal").get_by_role("link", name="Lesson 4").click()
        tab.wait_for_url("**/04_mlp_and_encoder.html")
        tab.go_back()
        expect(sections).not_to_be_visible()
        tab.locator(".bd-header-article .secondary-toggle").click()
    else:
        expect(pages).to_be_visible()
        toggle.click()
        expect(pages).not_to_be_visible()
        toggle.click()
        expect(pages).to_be_visible()
    sections.click()
    expect(tab.get_by_role("heading", name="2.5 The class token")).to_be_in_viewport()
    expect(tab.locator("dialog[open]")).to_have_count(0)


def test_the_first_paint_has_the_colors_of_the_system(home, new_page):
    """Before the theme's own script has come, and where scripts are off."""
    page = new_page(color_scheme="dark")
    page.route("**/pydata-sphinx-theme.js*", lambda route: route.abort())
    page.goto(home + "index.html")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 29)"
    plain = new_page(java_script_enabled=False)
    plain.goto(home + "index.html")
    expect(plain.locator("body")).to_have_css("color", "rgb(31, 36, 48)")


@pytest.mark.parametrize("name", ["index.html", LESSON])
def test_a_page_does_not_jump_while_it_loads_and_can_be_read_on_a_phone(name, home, new_page):
    page = new_page(viewport=PHONE, is_mobile=True, has_touch=True)
    page.add_init_script(WATCH_SHIFTS)
    page.route("**/source-sans-3-latin-wght-normal*", lambda route: (page.wait_for_timeout(1000), route.continue_()))
    with page.expect_request_finished(lambda request: "wght-normal" in request.url):  # letters on a slow line
        page.goto(home + name)
    page.evaluate("document.fonts.ready")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("window.shift") < 0.1
    sizes = "list => list.map(element => parseFloat(getComputedStyle(element).fontSize))"
    assert min(page.locator("article p").evaluate_all(sizes)) >= 14


def search(page, words):
    """Search from any page: Ctrl+K, type, Enter."""
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input[name=q]").fill(words)
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?q=*")


def test_search_finds(home, tab):
    """What a page shares with all others is small; searching fetches no page."""
    tab.set_viewport_size(DESKTOP)
    tab.goto(home + "lessons.html")
    shared = "performance.getEntriesByType('resource').filter(each => !each.name.includes('/_images/'))"
    assert tab.evaluate(f"{shared}.reduce((sum, each) => sum + each.decodedBodySize, 0)") <= 800_000
    search(tab, "rollout")
    found = tab.locator('#search-results a[href*="api/inside.html"]').first
    found.wait_for()
    assert tab.evaluate(f"{shared}.filter(each => each.name.includes('.html')).length") == 0
    found.click()
    tab.wait_for_url("**/api/inside.html*")


def test_search_without_a_server_shows_the_section_first(site, new_page):
    """All of it works from the files alone."""
    page = new_page()
    problems = watch(page, site.as_uri())
    for words, first in (("class token", "2.5 The class token"), ("glossary", "Glossary")):
        page.goto((site / LESSON).as_uri())
        search(page, words)
        expect(page.locator("#search-results li a").first).to_contain_text(first)
    assert problems == []


def test_paper_is_light_and_nothing_on_it_is_folded_or_cut(home, new_page):
    page = new_page(color_scheme="dark")
    page.goto(home + LESSON)
    state = "[document.documentElement.dataset.theme, document.querySelectorAll('article details:not([open])').length]"
    before = page.evaluate(state)
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {state} }})")
    page.pdf()
    assert page.evaluate("window.printed") == ["light", 0]
    assert page.evaluate(state) == before
    assert before[0] == "dark"
    assert before[1] > 10
    grounds = "all => all.map(image => getComputedStyle(image).backgroundColor)"
    assert set(page.locator("article img").evaluate_all(grounds)) == {"rgb(255, 255, 255)"}
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})  # as A4 is
    page.evaluate("for (const details of document.querySelectorAll('article details')) details.open = true")
    wide = "all => all.filter(code => code.scrollWidth > code.clientWidth).map(code => code.textContent)"
    assert page.locator("article pre").evaluate_all(wide) == []
    assert too_wide(page) == []


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
    others = ("_modules/", "search", "404", "explorer")
    assert {name for name in found if not name.startswith(others)} == set(PAGES)
    for name in PAGES:
        text = text_of(site, name)
        assert undescribed(text) == [], name
        assert re.search(r'<meta name="description" property="og:description" content="[^"]{40,300}">', text), name
        assert re.search(r"<title>(.*)</title>", text)[1].count("Build a Vision Transformer from scratch") == 1, name
        assert "searchindex.js" not in text, name
        assert not re.findall(r'\bsrc="https?:|<link rel="(?:stylesheet|preload)"[^>]*href="https?:', text), name
        files = {(site / name).parent / unquote(source) for source in re.findall(r'<img[^>]*\bsrc="([^"]+)"', text)}
        assert sum(path.stat().st_size for path in files | {site / name}) <= 1_500_000, name
    pictures = '<article><img alt="" width="1"><img alt="three plain words"><img alt="a b c" width="1">'
    assert len(undescribed(pictures)) == 2


def test_a_page_that_is_missing_leads_back_and_a_link_elsewhere_shows_a_picture(site):
    """GitHub shows the page in place of any address: what it links to is named from the root of the site."""
    missing, home = text_of(site, "404.html"), "https://example.github.io/vit-course/"
    assert missing.index(f'<base href="{home}">') < missing.index("<link ")
    assert 'href="lessons.html"' in missing
    picture = re.search(r'<meta property="og:image" content="([^"]*)">', text_of(site, LESSON))[1]
    assert (site / picture.removeprefix(home)).read_bytes()[16:24] == bytes.fromhex("000004b000000276")  # 1200 x 630


@pytest.mark.parametrize("path", lessons(), ids=lambda path: path.stem)
def test_a_lesson_can_be_opened_elsewhere_and_its_pictures_wait_until_they_are_near(path, site):
    """The words of a picture are shown nowhere; each explorer's still has what makes a live figure of it."""
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
    assert page.count('class="vit-stored"') == len(explorers)


def test_a_page_can_be_edited_and_complained_about(site):
    sources = {
        "glossary.html": "docs/pages/glossary.md",
        LESSON: "notebooks/02_image_embedding.ipynb",
        "api/attention.html": "vit_course/attention.py",
        "api/checks.html": "vit_course/checks/__init__.py",
    }
    for name, source in sources.items():
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


@pytest.mark.filterwarnings("ignore")  # Sphinx is started in this process, which has loaded most of what it needs
def test_a_mistake_fails_the_build(tmp_path, capsys):
    """A right link, two that lead nowhere and a formula with a mistake, rendered by the site's own settings.

    Code that names no language is commands; one with a place for an address has no button that copies it.
    """
    source = tmp_path / "source"
    source.mkdir()
    links = "[there](other.md#2-there), [nowhere](other.md#nowhere), [gone](gone.md), $\\nothing x$"
    commands = "```\ngit clone ADDRESS\n```\n\n```\nmake test\n```"
    (source / "index.md").write_text(
        f"# One\n\n{links}.\n\n{commands}\n\n```{{toctree}}\nother\n```\n", encoding="utf-8"
    )
    (source / "other.md").write_text("# Two\n\n## 2 there\n\nText.\n", encoding="utf-8")
    (source / "lessons.md").write_text("---\norphan: true\n---\n\n# Three\n", encoding="utf-8")
    assert render(source, tmp_path) != 0
    told = capsys.readouterr().err
    for words in ("nowhere", "gone.md", r"\nothing x: Unknown LaTeX command"):
        assert words in told
    assert "2-there" not in told
    page = text_of(tmp_path / "html", "index.html")
    assert '<div class="no-copy highlight-sh notranslate">' in page
    assert '<div class="highlight-sh notranslate">' in page
