"""The website, built as it is published, in a real browser: every page, wide and narrow, light and dark."""

import json
import re
import subprocess
import sys
from collections import Counter
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import site_checks
import stage
from conftest import DESKTOP, PHONE
from site_building import REPOSITORY, ROOT, binder_urlpath, button, expected_pages

MEBIBYTE = 1024 * 1024
LESSONS = [path.stem for path in stage.lessons()]


def built_pages(site: Path) -> list[str]:
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def text_of(site: Path, page: str) -> str:
    return (site / page).read_text(encoding="utf-8")


# --- every page ------------------------------------------------------------------------------------------------------


# Colours do not depend on the width: on the phone they are looked at on a page of each kind.
KINDS = ("index.html", "glossary.html", "search.html", "api/attention.html", "notebooks/02_image_embedding.html")


@pytest.mark.parametrize("name", [*expected_pages(), "search.html"])
def test_page(name, home, new_page):
    """One load: what it asks for, pictures, formulas; then each width and colour scheme, barriers included."""
    page = new_page(viewport=DESKTOP, color_scheme="light")
    traffic = site_checks.Traffic(page, home)
    page.goto(home + name)
    site_checks.ready(page)
    problems = site_checks.pictures(page) + site_checks.formulas(page)
    for size in (DESKTOP, PHONE):
        site_checks.show(page, size, "light")
        problems += site_checks.overflow(page)
    of_its_kind = name in KINDS
    for size, theme, looks in (
        (DESKTOP, "light", dict()),
        (DESKTOP, "dark", dict(rest=False)),
        (PHONE, "dark", dict(colours=of_its_kind)),
        *[(PHONE, "light", dict(rest=False))] * of_its_kind,
    ):
        site_checks.show(page, size, theme)
        found = site_checks.barriers(page, **looks)
        problems += [f"{size['width']} px, {theme}: {problem}" for problem in found]
    assert problems + traffic.problems == []


END = "</article>"
SPOILT = {  # what is replaced, by what, and the complaint
    "a picture from elsewhere": (END, '<img src="https://example.org/x.png">' + END, "leaves the site"),
    "a picture that is missing": (END, '<img src="gone.png" alt="three plain words">' + END, "not loaded"),
    "a picture without words": ('<img alt="', '<img alt="" title="', "described by ''"),
    "a picture without a size": ('width="', 'data-width="', "without width and height"),
    "a formula left raw": (END, "<p>Here $a^2$ stands.</p>" + END, "raw: Here"),
    "a formula with an error": (END, r'<p class="math">\(a^b^c\)</p>' + END, "error: "),
    "a formula with an unknown command": (END, r'<p class="math">\(\nothing x\)</p>' + END, "error: "),
    "a page that is too wide": (END, '<div style="width:3000px">wide</div>' + END, "px in 1280"),
    "letters too faint": (END, '<p style="color:#ddd;background:#fff">faint</p>' + END, "color-contrast (serious)"),
    "a script that fails": (END, "<script>nothing.here()</script>" + END, "script: nothing"),
    "a field without a name": (END, '<input type="text">' + END, "label (critical)"),
}


@pytest.mark.parametrize("fault", SPOILT)
def test_the_checks_find_what_is_spoilt(fault, site, home, new_page):
    """Each check of a page, seen to fail on a page with one thing spoilt."""
    place, spoiling, complaint = SPOILT[fault]
    name = "notebooks/02_image_embedding.html"
    text = text_of(site, name)
    assert place in text
    page = new_page(viewport=DESKTOP)
    traffic = site_checks.Traffic(page, home)
    page.route("https://example.org/**", lambda route: route.abort())
    page.route(home + name, lambda route: route.fulfill(body=text.replace(place, spoiling), content_type="text/html"))
    page.goto(home + name)
    site_checks.ready(page)
    problems = site_checks.pictures(page) + site_checks.formulas(page) + site_checks.overflow(page)
    if complaint.endswith(")"):
        problems += site_checks.barriers(page, colours="contrast" in complaint, rest="contrast" not in complaint)
    assert any(complaint in problem for problem in problems + traffic.problems), problems + traffic.problems


# --- links, sizes, what was built ------------------------------------------------------------------------------------


def broken_links(site: Path) -> list[str]:
    """Every link and source of every page that leads to nothing on the site."""
    pages = {name: text_of(site, name) for name in built_pages(site)}
    anchors = {name: set(map(unescape, re.findall(r'\bid="([^"]+)"', text))) for name, text in pages.items()}
    broken = []
    for name, text in pages.items():
        for address in re.findall(
            r'\b(?:href|src)="([^"]+)"', re.sub(r"<(script)\b[^>]*>.*?</\1>", "", text, flags=re.S)
        ):
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
    assert found == set(expected_pages())


def test_links_and_anchors_resolve(site):
    assert broken_links(site) == []


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<p id="x"><a href="#x">a</a><a href="#y">b</a><a href="b.html">c</a></p>')
    assert broken_links(tmp_path) == ["a.html: no such place: #y", "a.html: b.html"]


def test_a_page_and_its_pictures_are_at_most_1_5_megabytes(site):
    sizes = {}
    for name in built_pages(site):
        own = {site / name}
        for address in re.findall(r'<img[^>]*\bsrc="([^"]+)"', text_of(site, name)):
            own.add(((site / name).parent / unquote(address)).resolve())
        sizes[name] = sum(path.stat().st_size for path in own)
    largest = max(sizes, key=sizes.get)
    print(f"largest: {largest}, {sizes[largest] / MEBIBYTE:.2f} MiB")
    assert sizes[largest] <= 1_500_000, (largest, sizes[largest])


def test_pictures_below_the_first_wait_until_they_are_near(site):
    for lesson in LESSONS:
        images = re.findall(r"<img [^>]*>", text_of(site, f"notebooks/{lesson}.html"))
        assert all('loading="lazy"' in image for image in images[1:])


def test_what_all_pages_share_is_at_most_1_8_megabytes(home, new_page):
    """Scripts, styles and fonts of a lesson: fetched once, then kept by the browser."""
    page = new_page()
    shared = {}
    page.on("response", lambda response: shared.update({response.url: len(response.body())}))
    page.goto(home + "notebooks/02_image_embedding.html")
    page.evaluate("MathJax.startup.promise")
    page.wait_for_load_state("networkidle")
    own = {address for address in shared if "/_images/" in address or address.endswith(".html")}
    total = sum(size for address, size in shared.items() if address not in own)
    print(f"shared: {total / MEBIBYTE:.2f} MiB in {len(shared) - len(own)} files")
    assert total <= 1_800_000, Counter(shared).most_common(8)


def test_what_describes_a_picture_is_shown_nowhere_else(site):
    described = 0
    for lesson in LESSONS:
        page = text_of(site, f"notebooks/{lesson}.html")
        described += len(re.findall(r'<img [^>]*alt="Figure: ', page))
        assert "Figure: " not in re.sub(r"<[^>]*>", "", page), lesson
    assert described > 30


def test_a_picture_that_could_be_touched_says_where(site):
    """One line below each explorer's still, and nowhere else."""
    told = {}
    for path in stage.lessons():
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code" and cell["outputs"]]
        explorers = sum(bool(re.search(r"\bexplore\.\w+\(", source)) for source in code)
        page = text_of(site, f"notebooks/{path.stem}.html")
        assert page.count('class="course-touch"') == explorers, path.stem
        told[path.stem] = explorers
    assert told["07_inside_the_model"] > 0


# --- buttons and lines -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_lesson_opens_in_binder_and_colab_and_can_be_downloaded(lesson, site):
    page = text_of(site, f"notebooks/{lesson}.html")
    opened = binder_urlpath(site, lesson)
    assert opened == f"lab/tree/notebooks/{lesson}.ipynb"
    assert (ROOT / opened.removeprefix("lab/tree/")).is_file()
    assert button(page, "binder").startswith(f"https://mybinder.org/v2/gh/{REPOSITORY}/HEAD?")
    copy = f"colab/{lesson}.ipynb"
    assert button(page, "colab") == f"https://colab.research.google.com/github/{REPOSITORY}/blob/gh-pages/{copy}"
    cells = json.loads((site / copy).read_text(encoding="utf-8"))["cells"]
    assert f"https://github.com/{REPOSITORY}" in cells[0]["source"]
    download = site / "notebooks" / button(page, "download")
    assert download.read_bytes() == (ROOT / "notebooks" / f"{lesson}.ipynb").read_bytes()


def test_pages_can_be_edited_and_complained_about(site):
    for name, source in {
        "glossary.html": "docs/pages/glossary.md",
        "notebooks/02_image_embedding.html": "notebooks/02_image_embedding.ipynb",
        "api/attention.html": "vit_course/attention.py",
        "api/checks.html": "vit_course/checks/__init__.py",
        "api/index.html": "docs/pages/api.md",
    }.items():
        assert (ROOT / source).is_file()
        assert f'href="https://github.com/{REPOSITORY}/edit/HEAD/{source}"' in text_of(site, name)
        assert f'href="https://github.com/{REPOSITORY}/issues/new?title=' in text_of(site, name)


def test_the_foot_says_what_was_verified(site):
    facts = ROOT / "docs" / "verified.json"
    page = text_of(site, "index.html")
    if facts.exists():
        facts = json.loads(facts.read_text(encoding="utf-8"))
        assert f"Python {facts['python']} and torch {facts['torch']}" in page
    else:
        assert "was not verified by continuous integration" in page


def test_a_signature_shows_its_shapes_and_its_source(home, new_page):
    page = new_page()
    page.goto(home + "api/attention.html")
    signature = page.locator("dt.sig", has_text="attention_weights").first
    words = " ".join(signature.inner_text().split())
    assert 'query: Float[Tensor, "b heads i e"]' in words
    assert '→ Float[Tensor, "b heads i j"]' in words
    signature.get_by_text("[source]").click()
    page.wait_for_url("**/_modules/vit_course/attention.html#*")
    assert "softmax(dim=-1)" in page.locator("pre").inner_text()


@pytest.mark.parametrize(("words", "page"), [("rollout", "api/inside.html"), ("class token", "glossary.html")])
def test_search_finds(words, page, home, new_page):
    """From any page: Ctrl+K, type, Enter."""
    tab = new_page()
    tab.goto(home + "lessons.html")
    tab.keyboard.press("Control+k")
    tab.locator("#pst-search-dialog input[name=q]").fill(words)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search.html?q=*")
    result = tab.locator(f'#search-results a[href*="{page}"]').first
    result.wait_for()
    result.click()
    tab.wait_for_url(f"**/{page}*")


# --- the reader ------------------------------------------------------------------------------------------------------


def test_a_reader_follows_the_link_and_reads_lesson_2_on_a_phone(site, home, new_page):
    page = new_page(viewport=PHONE, has_touch=True, is_mobile=True)
    traffic = site_checks.Traffic(page, home)
    page.goto(home)
    page.get_by_role("link", name="2 Image embedding", exact=True).tap()
    page.wait_for_url("**/notebooks/02_image_embedding.html")
    site_checks.ready(page)
    assert page.locator("h1").first.inner_text().startswith("Lesson 2 – Image embedding")
    assert site_checks.pictures(page) + site_checks.formulas(page) + site_checks.overflow(page) == []
    size = "element => parseFloat(getComputedStyle(element).fontSize)"
    letters = page.locator("article p").evaluate_all(f"list => list.map({size})")
    assert len(letters) > 50
    assert min(size for (size,) in zip(letters, strict=True)) >= 14
    assert Counter(letters).most_common(1)[0][0] >= 16
    aside = page.locator("article p, article pre, article img").evaluate_all(
        "list => list.map(part => part.closest('a:has(> img), .math, pre, .pst-scrollable-table-container') ?? part)"
        ".filter(part => part.getBoundingClientRect().right > innerWidth).map(part => part.outerHTML.slice(0, 200))"
    )
    assert aside == []
    assert traffic.problems == []
    opened = page.get_by_role("link", name="Open in JupyterLab").get_attribute("href")
    assert opened == button(text_of(site, "notebooks/02_image_embedding.html"), "binder")
    assert binder_urlpath(site, "02_image_embedding") == "lab/tree/notebooks/02_image_embedding.ipynb"


def test_an_answer_unfolds_on_tap(home, new_page):
    page = new_page(viewport=PHONE, has_touch=True)
    page.goto(home + "notebooks/02_image_embedding.html")
    first = page.locator("article details").first
    hidden = first.locator("p").first
    assert not hidden.is_visible()
    first.locator("summary").tap()
    assert hidden.is_visible()


def test_a_figure_on_a_phone_keeps_letters_that_can_be_read(home, new_page):
    """A wide one is shown at no less than 0.6 of its size, in a box of its own that scrolls."""
    page = new_page(viewport=PHONE)
    page.goto(home + "notebooks/02_image_embedding.html")
    site_checks.ready(page)
    shown = page.locator("article img").evaluate_all(
        "list => list.map(image => [image.getBoundingClientRect().width, image.getAttribute('width')])"
    )
    assert min(width / min(float(natural), 960) for width, natural in shown) >= 0.6


# --- the build -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "message"),
    [("[there](other.md#2-there)", ""), ("[nowhere](other.md#nowhere)", "nowhere"), ("[gone](gone.md)", "gone.md")],
)
def test_a_broken_link_fails_the_build(link, message, tmp_path):
    """Two pages of staged source, rendered by the site's own settings; the first case shows that right links pass."""
    source = tmp_path / "source"
    source.mkdir()
    toctree = "```{toctree}\nother\n```"
    (source / "index.md").write_text(f"# One\n\nHere is {link}.\n\n{toctree}\n", encoding="utf-8")
    (source / "other.md").write_text("# Two\n\n## 2 there\n\nText.\n", encoding="utf-8")
    code = "import build, pathlib, sys; sys.exit(build.render(*map(pathlib.Path, sys.argv[1:])))"
    command = [sys.executable, "-c", code, str(source), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True)
    if message:
        assert done.returncode != 0
        assert message in done.stderr
    else:
        assert (done.returncode, done.stderr) == (0, "")
