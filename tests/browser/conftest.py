"""A real browser for the tests of this folder: Debian's Chromium, or the one that CHROMIUM names."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from lab import NOTEBOOK_7, Lab, running_lab
from playwright.sync_api import Browser, Page, sync_playwright
from site_building import build, served

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window; a test here fails where there is none, so that nothing is skipped in silence."""
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.fail("no Chromium or Chrome was found: install one, or name its program in CHROMIUM")
    with sync_playwright() as playwright:
        # as root, in a container, Chromium's own sandbox cannot start
        options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser) -> Iterator[Callable[..., Page]]:
    """Make pages, each in a context of its own: ``new_page(viewport=PHONE, color_scheme="dark")``."""
    contexts = []

    def page(**options) -> Page:
        contexts.append(browser.new_context(**{"viewport": DESKTOP, **options}))
        return contexts[-1].new_page()

    yield page
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory) -> Iterator[Lab]:
    """JupyterLab on a copy of the course, one for each process of the tests; see ``lab.py``."""
    with running_lab(tmp_path_factory.mktemp("lab")) as server:
        yield server


@pytest.fixture(scope="session")
def notebook_7_server(tmp_path_factory) -> Iterator[Lab]:
    """Notebook 7 on another copy."""
    with running_lab(tmp_path_factory.mktemp("notebook_7"), NOTEBOOK_7) as server:
        yield server


@pytest.fixture
def lab(lab_server) -> Iterator[Lab]:
    """Lend JupyterLab to one test, after which its kernels are stopped."""
    yield lab_server
    lab_server.end_kernels()


@pytest.fixture
def notebook_7(notebook_7_server) -> Iterator[Lab]:
    """Lend Notebook 7 to one test, after which its kernels are stopped."""
    yield notebook_7_server
    notebook_7_server.end_kernels()


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The built site; one build, however many processes share the tests."""
    shared = tmp_path_factory.getbasetemp()
    if shared.name.startswith("popen-"):
        shared = shared.parent
    with FileLock(shared / "site.lock"):
        done = shared / "site" / "done"
        if not done.exists():
            build(shared / "site")
            done.touch()
    return shared / "site" / "html"


@pytest.fixture(scope="session")
def home(site) -> Iterator[str]:
    """The address at which the built site is served."""
    with served(site) as address:
        yield address
