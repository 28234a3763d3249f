"""Build the website, serve it on this machine, and name what the tests open."""

import contextlib
import functools
import http.server
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import stage

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = [*stage.lessons(), *stage.assignments()]
REPOSITORY = "example/vit-course"


def build(folder: Path) -> Path:
    """Build with the address of a repository; return the folder with ``index.html``."""
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--into", str(folder)]
    environment = os.environ | {"GITHUB_REPOSITORY": REPOSITORY}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "html"


def expected_pages() -> list[str]:
    """Every page that the sources promise, as its address from the root of the site."""
    notebooks = [
        path.relative_to(ROOT).with_suffix(".html").as_posix() for path in stage.lessons() + stage.assignments()
    ]
    texts = [path.stem + ".html" for path in sorted((ROOT / "docs" / "pages").glob("*.md")) if path.stem != "api"]
    return [*texts, "api/index.html", *(f"api/{name}.html" for name in stage.modules()), *notebooks]


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder while the block runs; give its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def button(page: str, kind: str) -> str:
    """Where a button of a page leads: ``binder`` or ``colab``."""
    return unescape(re.search(rf'<a class="course-button {kind}" href="([^"]+)"', page)[1])


def binder_urlpath(site: Path, lesson: str) -> str:
    """What a lesson's Binder button asks JupyterLab to open: ``lab/tree/notebooks/02_image_embedding.ipynb``."""
    page = (site / "notebooks" / f"{lesson}.html").read_text(encoding="utf-8")
    return parse_qs(urlsplit(button(page, "binder")).query)["urlpath"][0]
