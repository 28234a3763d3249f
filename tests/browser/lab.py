"""JupyterLab for the tests: a server on a copy of the course, and what a reader does in it by menus and clicks.

Settings, runtime files and the copy lie in a folder of their own, so that a test changes no file of the course.
"""

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import nbformat
from nbformat.v4 import new_notebook
from playwright.sync_api import Locator, Page, expect

from tools.my_course import Copies

COURSE = Path(__file__).resolve().parents[2]
COPIED = ("notebooks", "img", "resources", "vit_course", "benchmarks")  # what lessons read, show and link to

SERVER = {
    "ServerApp": {"ip": "127.0.0.1", "port": 0, "open_browser": False, "allow_root": True},  # port 0: any free one
    "LabApp": {"extension_manager": "readonly", "news_url": None, "expose_app_in_browser": True},
}
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # the page holds every cell, so that all can be measured
    "docmanager-extension/plugin": {"autosave": False},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
PAGE = {"disabledExtensions": {"@jupyter/nbgrader": True}}  # only teachers have it
KERNEL = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel"
CONTEXT = "jupyterapp.shell.currentWidget?.context"
RENDERED = """[...document.querySelectorAll(".jp-NotebookPanel:not(.lm-mod-hidden)")].some(panel =>
    [...panel.querySelectorAll(".jp-MarkdownCell")].every(cell => cell.querySelector(".jp-MarkdownOutput > *")) &&
    [...panel.querySelectorAll("img")].every(image => image.complete))"""


@dataclass
class Lab:
    """A running server: ``url`` ends with a slash, and ``root`` is the folder that it serves."""

    url: str
    token: str
    root: Path

    def open(self, page: Page, path: str) -> None:
        """Open a notebook by its path below the root; return when its cells are there and its kernel is idle.

        A page that shows a notebook opens the next one next to it and connects it to the same kernel.
        """
        if page.url.startswith(self.url):
            arguments = {"path": path, "kernel": {"id": page.evaluate(f"{KERNEL}.id")}}
            page.evaluate("async given => { await jupyterapp.commands.execute('docmanager:open', given) }", arguments)
        else:
            page.goto(f"{self.url}lab/tree/{quote(path)}?token={self.token}&reset")
        notebook(page).wait_for()
        page.wait_for_function(f"path => {CONTEXT}?.path === path && {CONTEXT}.isReady", arg=path)
        page.wait_for_function(f"() => {RENDERED}")
        wait_for_kernel(page)

    def write(self, path: str, cells: list[nbformat.NotebookNode]) -> None:
        """Write a notebook to ``path`` below the root; it names its kernel, so that JupyterLab asks for none."""
        kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(new_notebook(cells=cells, metadata=kernel), self.root / path)

    def save(self, page: Page, path: str) -> nbformat.NotebookNode:
        """Save the visible notebook with its shortcut, and return what the file at ``path`` now holds."""
        with page.expect_response(lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url):
            page.keyboard.press("Control+s")
        return nbformat.read(self.root / path, as_version=4)


def notebook(page: Page) -> Locator:
    """Return the visible notebook."""
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")


def prompts(page: Page) -> Locator:
    """Return the numbers next to the code cells: ``[ ]:`` before a cell runs, ``[*]:`` meanwhile, then ``[3]:``."""
    return notebook(page).locator(".jp-CodeCell .jp-InputPrompt")


def wait_for_kernel(page: Page) -> None:
    """Return when the visible notebook has a kernel and it is idle; the sign in the toolbar says so too early."""
    page.wait_for_function(f"() => {KERNEL}?.status === 'idle'")


def choose(page: Page, menu: str, entry: str) -> None:
    """Choose an entry of a menu, named by how it begins."""
    page.locator("#jp-MainMenu").get_by_role("menuitem", name=menu, exact=True).click()
    page.locator(".lm-Menu").get_by_role("menuitem", name=re.compile(f"^{entry}")).click()


def run_all(page: Page) -> None:
    """Clear all outputs, so that none is an old one, run all cells from the menu, and wait for the last one."""
    choose(page, "Edit", "Clear Outputs of All Cells")
    expect(prompts(page).first).to_have_text("[ ]:")
    choose(page, "Run", "Run All Cells")
    wait_for_cells(page)


def wait_for_cells(page: Page) -> None:
    """Return when the first code cell was started and no cell waits or runs any more."""
    expect(prompts(page).first).not_to_have_text("[ ]:")
    expect(prompts(page).filter(has_text="*")).to_have_count(0, timeout=600_000)
    wait_for_kernel(page)


@contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """Copy the course into ``folder / "course"`` and serve it; at the end its kernels stop."""
    root, config, runtime = folder / "course", folder / "config", folder / "runtime"
    for name in COPIED:
        shutil.copytree(COURSE / name, root / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    Copies(root).update()  # as make lab does
    token = secrets.token_hex(16)
    settings = {f"lab/user-settings/@jupyterlab/{name}.jupyterlab-settings": each for name, each in SETTINGS.items()}
    settings["jupyter_server_config.json"] = SERVER | {"IdentityProvider": {"token": token}}
    settings["labconfig/page_config.json"] = PAGE
    for name, content in settings.items():
        (config / name).parent.mkdir(parents=True, exist_ok=True)
        (config / name).write_text(json.dumps(content))
    folders = {"CONFIG_DIR": config, "DATA_DIR": folder / "data", "RUNTIME_DIR": runtime}
    environment = os.environ | {f"JUPYTER_{name}": str(path) for name, path in folders.items()}
    environment["IPYTHONDIR"] = str(folder / "ipython")
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={root}"]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        told = runtime / f"jpserver-{process.pid}-open.html"  # written after the file with the address
        while not told.exists():
            assert process.poll() is None, (folder / "log.txt").read_text()
            time.sleep(0.1)
        url = json.loads((runtime / f"jpserver-{process.pid}.json").read_text())["url"]
        yield Lab(url, token, root)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()  # its kernels end when they miss it
            process.wait()
