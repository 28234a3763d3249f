"""One browser and one JupyterLab for all files that a process of pytest tests, and one build of the website for all.

The browser is Debian's Chromium, or the program that the variable CHROMIUM names.
"""

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import COURSE, Lab, running_lab
from playwright.sync_api import Browser, Page, expect
from support import once

from tools.explorer_page import write_explorer
from tools.lesson_figures import chromium

WAITS = 60_000  # ms, only to keep a test from waiting forever


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window; where there is none the tests fail, so that none is skipped in silence."""
    expect.set_options(timeout=WAITS)
    with chromium() as program:
        yield program


@pytest.fixture(scope="module")
def new_page(browser) -> Iterator[Callable[..., Page]]:
    """Open a page in a context of its own: ``new_page(viewport=PHONE, has_touch=True)``."""
    contexts = []

    def page(**options) -> Page:
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        contexts[-1].set_default_timeout(WAITS)
        return contexts[-1].new_page()

    yield page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab on a copy of the course."""
    with running_lab(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The website, built with the address of a repository: the folder that holds ``index.html``."""

    def build(folder: Path) -> None:
        command = [sys.executable, "-m", "tools.build_site", "--into", str(folder)]
        environment = os.environ | {"GITHUB_REPOSITORY": "example/vit-course"}
        done = subprocess.run(command, cwd=COURSE, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    return once(tmp_path_factory, "site", build) / "html"


@pytest.fixture(scope="session")
def explorer_page(tmp_path_factory) -> str:
    """The address of the explorer as a file, written without the rest of the website."""
    folder = tmp_path_factory.mktemp("explorer")
    write_explorer(folder)
    return (folder / "explorer.html").as_uri()


@pytest.fixture(scope="session")
def home(site) -> Iterator[str]:
    """The address at which the website is served."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
