"""JupyterLab for the tests: a server on a copy of the course, and the steps of a reader in it, by menus and clicks.

The server runs this interpreter's JupyterLab, or Notebook 7, on a free port of this machine. Settings, runtime files
and the copy lie in a folder of their own, so that a test changes no file of the course and reads no settings of yours.
"""

import io
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import nbformat
import numpy as np
import psutil
from nbformat.v4 import new_notebook
from PIL import Image
from playwright.sync_api import Locator, Page, expect

COURSE = Path(__file__).resolve().parents[2]
COPIED = ("notebooks", "img", "resources", "vit_course", "benchmarks")  # what lessons read, show and link to
STARTS_WITHIN = 60  # seconds
STOPS_WITHIN = 15
RUNS_WITHIN = 300  # seconds a whole notebook may take on a slow machine

# The modules that serve them, and where they show a file. Each has its own server: one that had served the first would
# refuse the other the fonts of formulas, because jupyter_server remembers by name where it found a file.
JUPYTERLAB, NOTEBOOK_7 = "jupyterlab", "notebook"
PLACES = {JUPYTERLAB: "lab/tree", NOTEBOOK_7: "notebooks"}

SERVER = {
    "ServerApp": {
        "ip": "127.0.0.1",
        "port": 0,  # any that is free
        "open_browser": False,
        "allow_root": True,  # as in a container
    },
    "LabApp": {"extension_manager": "readonly", "news_url": None, "expose_app_in_browser": True},  # no network is asked
    "JupyterNotebookApp": {"expose_app_in_browser": True},
}
# The server ends, and its kernels with it, when its input does: on stop(), and also when the tests are killed.
ENDS_WITH_INPUT = """
import os, signal, sys, threading
def end():
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)
threading.Thread(target=end, daemon=True).start()
"""
# Every cell is in the page, on the screen or not, so that all can be measured; nothing is saved behind a test's back.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "docmanager-extension/plugin": {"autosave": False},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
PNG = "image => fetch(image.src).then(answer => answer.bytes()).then(bytes => [...bytes])"
PAGE = {"disabledExtensions": {"@jupyter/nbgrader": True}}  # teachers alone have it


@dataclass
class Lab:
    """A running server: ``url`` ends with a slash, ``root`` is the folder it serves, ``log`` what it has printed."""

    program: str
    url: str
    token: str
    root: Path
    log: Path

    def address(self, path: str) -> str:
        """Where a browser finds ``path``, such as ``lab/tree/notebooks/….ipynb``, with nothing else open."""
        return f"{self.url}{quote(path)}?token={self.token}&reset"

    def open(self, page: Page, path: str) -> None:
        """Open a notebook, named by its path below the root; return when its cells are there and its kernel is idle."""
        page.goto(self.address(f"{PLACES[self.program]}/{path}"))
        notebook(page).wait_for(timeout=1000 * STARTS_WITHIN)
        wait_for_kernel(page)

    def write(self, path: str, cells: list[nbformat.NotebookNode]) -> None:
        """Write a notebook to ``path`` below the root; it names its kernel, so that none is asked for."""
        kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(new_notebook(cells=cells, metadata=kernel), self.root / path)

    def save(self, page: Page, path: str) -> nbformat.NotebookNode:
        """Save the notebook on show with its shortcut, and return what the file at ``path`` now holds."""
        with page.expect_response(lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url):
            page.keyboard.press("Control+s")
        return nbformat.read(self.root / path, as_version=4)

    def ask(self, path: str, method: str = "GET") -> object:
        """Ask the server's own interface, as ``ask("api/kernels")``; return what it answers."""
        headers = {"Authorization": f"token {self.token}"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers, method=method)) as answer:
            return json.loads(answer.read() or "null")

    def end_kernels(self) -> None:
        """Stop every kernel, so that a lesson leaves no memory taken to the next."""
        for session in self.ask("api/sessions"):
            self.ask(f"api/sessions/{session['id']}", method="DELETE")


def notebook(page: Page) -> Locator:
    """The notebook on show."""
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")


def prompts(page: Page) -> Locator:
    """The numbers beside the code cells: ``[ ]:`` before a cell is run, ``[*]:`` while it waits or runs, ``[3]:``."""
    return notebook(page).locator(".jp-CodeCell .jp-InputPrompt")


def wait_for_kernel(page: Page) -> None:
    """Return when the notebook on show has a kernel and it is idle; the sign in the toolbar says so earlier."""
    idle = "() => jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    page.wait_for_function(idle, timeout=1000 * STARTS_WITHIN)


def menu(page: Page, name: str, entry: str) -> None:
    """Choose an entry of a menu of the menu bar, by clicks."""
    page.locator("#jp-MainMenu, #menu-panel").get_by_role("menuitem", name=name, exact=True).click()
    page.locator(".lm-Menu").get_by_role("menuitem", name=re.compile(rf"^{re.escape(entry)}")).click()


def run_all(page: Page) -> None:
    """Clear all outputs, so that none of them is an old one, choose Run → Run All Cells, and wait for the last cell."""
    menu(page, "Edit", "Clear Outputs of All Cells")
    expect(prompts(page).first).to_have_text("[ ]:")
    menu(page, "Run", "Run All Cells")
    wait_for_cells(page)


def wait_for_cells(page: Page) -> None:
    """Return when the first code cell was started and no cell waits or runs any more."""
    expect(prompts(page).first).not_to_have_text("[ ]:", timeout=1000 * STARTS_WITHIN)
    expect(prompts(page).filter(has_text="*")).to_have_count(0, timeout=1000 * RUNS_WITHIN)
    wait_for_kernel(page)


def pixels(picture: bytes | Locator) -> np.ndarray:
    """The pixels of a PNG file, or of the one that a picture in the browser shows."""
    if isinstance(picture, Locator):
        picture = bytes(picture.evaluate(PNG))
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"), dtype=int)


@contextmanager
def running_lab(folder: Path, program: str = JUPYTERLAB) -> Iterator[Lab]:
    """Copy the course into ``folder`` and serve it; at the end no process of the server is left, kernels included."""
    root, config, runtime = folder / "course", folder / "config", folder / "runtime"
    for name in COPIED:
        shutil.copytree(COURSE / name, root / name, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    token = secrets.token_hex(16)
    write_json(config / "jupyter_server_config.json", SERVER | {"IdentityProvider": {"token": token}})
    (config / "jupyter_server_config.py").write_text(ENDS_WITH_INPUT)
    for name, settings in SETTINGS.items():
        write_json(config / "lab/user-settings/@jupyterlab" / f"{name}.jupyterlab-settings", settings)
    write_json(config / "labconfig/page_config.json", PAGE)
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(config),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "IPYTHONDIR": str(folder / "ipython"),
    }
    log = folder / "log.txt"
    command = [sys.executable, "-m", program, f"--ServerApp.root_dir={root}"]
    with log.open("w") as stream:
        pipes = dict(stdin=subprocess.PIPE, stdout=stream, stderr=subprocess.STDOUT)
        # in a session of its own: an interruption of the tests reaches the server through stop()
        process = subprocess.Popen(command, cwd=root, env=environment, start_new_session=True, **pipes)
    try:
        yield Lab(program, url_of(process, runtime, log), token, root, log)
    finally:
        stop(process)


def write_json(path: Path, content: object) -> None:
    """Write a file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1))


def url_of(process: subprocess.Popen, runtime: Path, log: Path) -> str:
    """Wait for the file in which the server tells its address, which it writes once it listens."""
    deadline = time.monotonic() + STARTS_WITHIN
    told = runtime / f"jpserver-{process.pid}.json"
    while time.monotonic() < deadline:
        try:
            return json.loads(told.read_text())["url"]
        except (FileNotFoundError, json.JSONDecodeError):  # not there, or not all of it
            pass
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    raise RuntimeError(f"JupyterLab does not answer (exit status {process.poll()}):\n{log.read_text()}")


def stop(process: subprocess.Popen) -> None:
    """End the server and all that it has started; kernels have process groups of their own, so each is looked after."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.stdin.close()
    try:
        process.wait(STOPS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for kernel in family:
        with suppress(psutil.NoSuchProcess):
            kernel.kill()
            kernel.wait(STOPS_WITHIN)
