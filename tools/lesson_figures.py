"""The interactive figures outside JupyterLab: live on the website, and as the still pictures that notebooks store."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path

from tools.site_links import ROOT
from vit_course.explore.figure import FIGURES

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH = 880  # of a still, in pixels of the page; it is stored with twice as many
FONT = (ROOT / "docs/_static/fonts/source-sans-3-latin-wght-normal.woff2").as_uri()
PAGE = """<!doctype html><meta charset="utf-8"><title>figure</title>
<style>
  @font-face {{ font-family: "Source Sans 3"; src: url("{font}"); font-weight: 200 900; }}
  body {{ margin: 0; font: 16px/1.4 "Source Sans 3"; }}
</style>
{scripts}
<div class="cell"><div class="cell_output"></div>{live}</div>"""


def scripts(kinds: list[str], folder: str) -> str:
    """Return the HTML that loads what figures of these kinds need, from the address of a folder."""
    files = [f"{folder}/{name}.js" for name in ("drawing", "figure", *sorted({*kinds}))]
    styles = "".join(f'<link rel="stylesheet" href="{folder}/{name}.css">' for name in ("drawing", "figure"))
    return styles + "".join(f'<script defer src="{escape(file)}"></script>' for file in files)


def live(stored: dict) -> str:
    """Return the HTML that becomes a live figure, of what a notebook's output has stored about it."""
    text = json.dumps(stored, ensure_ascii=False).replace("</", "<\\/")
    return f'<script type="application/json" class="vit-stored">{text}</script>'


@contextmanager
def chromium() -> Iterator:
    """Start Chromium or Chrome without a window, or the program that the variable CHROMIUM names; give the browser.

    Raises:
        FileNotFoundError: there is none.
    """
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise FileNotFoundError("no Chromium or Chrome was found: install one, or name its program in CHROMIUM")
    # Chromium's own sandbox cannot start as root in a container.
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=options)


def stills(figures: list[dict]) -> list[bytes]:
    """Draw figures, as stored by outputs, as PNG files with two pixels for each pixel of the page."""
    if not figures:
        return []
    pictures = []
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        view = dict(viewport={"width": WIDTH, "height": 900}, device_scale_factor=2, color_scheme="light")
        page = browser.new_page(**view)
        for stored in figures:
            text = PAGE.format(scripts=scripts([stored["kind"]], FIGURES.as_uri()), live=live(stored), font=FONT)
            Path(folder, "page.html").write_text(text, encoding="utf-8")
            page.goto(Path(folder, "page.html").as_uri())
            page.evaluate("document.fonts.ready")
            pictures.append(page.locator(".vit-figure").screenshot())
    return pictures
