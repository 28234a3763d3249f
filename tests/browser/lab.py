"""JupyterLab for the tests: a server on a copy of the course, and what a reader does and sees in it.

Settings, runtime files and the copy lie in a folder of their own, so that a test changes no file of the course.
"""

import json
import os
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

from playwright.sync_api import Locator, Page

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

# What a reader would stumble over. Code may scroll inside its editor; ruff limits the length of its lines.
# Lengths are CSS pixels, some of which browsers round. Left out is text that takes no part in the layout (MathML for
# screen readers, under the drawn formula), and what is inside an SVG or an editor. A picture is shown with at least
# 0.7 of its own width: letters of 12 px are then still 8 px high.
LAYOUT = """
panel => {
  const found = [];
  const name = part => part.tagName.toLowerCase() + [...part.classList].slice(0, 2).map(one => "." + one).join("");
  [...panel.querySelectorAll(".jp-Cell")].forEach((cell, index) => {
    const say = text => found.push(`cell ${index}: ${text}`);
    const edge = cell.getBoundingClientRect().right;
    let furthest = 1, culprit = null;
    for (const part of cell.querySelectorAll("*")) {
      const box = part.getBoundingClientRect();
      if (!box.width || !box.height || part.closest("mjx-assistive-mml, svg svg, svg > *, .cm-editor")) continue;
      const lacking = part.scrollWidth - part.clientWidth;
      if (getComputedStyle(part).overflowX != "visible" && part.clientWidth > 1 && lacking > 1)
        say(`${name(part)} holds ${part.scrollWidth} px in ${part.clientWidth} px`);
      if (box.right - edge > furthest) [furthest, culprit] = [box.right - edge, part];
    }
    if (culprit) say(`${name(culprit)} reaches ${Math.round(furthest)} px out of the cell`);
    for (const text of cell.querySelectorAll("[data-mime-type$='jupyter.stdout'] pre")) { // a check may say more
      const kept = text.style.whiteSpace;
      text.style.whiteSpace = "pre";
      if (text.scrollWidth > text.clientWidth + 1)
        say(`a line of ${text.scrollWidth} px is broken to fit ${text.clientWidth} px`);
      text.style.whiteSpace = kept;
    }
    for (const image of cell.querySelectorAll("img")) {
      const shown = image.getBoundingClientRect().width, loaded = image.naturalWidth;
      const own = Number(image.getAttribute("width")) || loaded; // a still has two pixels for each one
      if (!loaded) say(`the picture ${image.alt || image.src} is not loaded`);
      else if (shown > own + 1 || shown < 0.7 * own)
        say(`a picture of ${own} px is shown with ${Math.round(shown)} px`);
    }
  });
  const outer = panel.querySelector(".jp-WindowedPanel-outer");
  if (outer.scrollWidth > outer.clientWidth + 1)
    found.push(`the notebook holds ${outer.scrollWidth} px in ${outer.clientWidth} px`);
  return found;
}
"""
# Formulas that MathJax could not set, and dollar signs that it left.
MATHEMATICS = """
panel => [...panel.querySelectorAll(".jp-Cell")].flatMap((cell, index) => {
  const found = [];
  const say = text => found.push(`cell ${index}: mathematics: ${text}`);
  for (const wrong of cell.querySelectorAll("[data-mjx-error]")) say(wrong.getAttribute("data-mjx-error"));
  for (const rendered of cell.querySelectorAll(".jp-MarkdownOutput")) {
    for (const word of rendered.querySelectorAll("mjx-mtext"))
      if (word.getAttribute("style")?.includes("red")) say("a command that MathJax does not know");
    const walker = document.createTreeWalker(rendered, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode;
      if (/[$][^$]+[$]/.test(text.data) && !text.parentElement.closest("code, pre, mjx-container"))
        say(text.data.trim().slice(0, 60));
    }
  }
  return found;
})
"""


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
            execute(page, "docmanager:open", path=path, kernel={"id": page.evaluate(f"{KERNEL}.id")})
        else:
            page.goto(f"{self.url}lab/tree/{quote(path)}?token={self.token}&reset")
        wait_for_notebook(page, path)


def notebook(page: Page) -> Locator:
    """Return the visible notebook."""
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")


def wait_for_notebook(page: Page, path: str) -> None:
    """Return when the cells of the notebook at this path are there and its kernel is idle."""
    notebook(page).wait_for()
    page.wait_for_function(f"path => {CONTEXT}?.path === path && {CONTEXT}.isReady", arg=path)
    page.wait_for_function(f"() => {RENDERED}")
    wait_for_kernel(page)


def wait_for_kernel(page: Page) -> None:
    """Return when the visible notebook has a kernel and it is idle; the sign in the toolbar says so too early."""
    page.wait_for_function(f"() => {KERNEL}?.status === 'idle'")


def execute(page: Page, command: str, **arguments: object) -> None:
    """Execute a command of JupyterLab, for example ``docmanager:save``, and wait until it is done."""
    page.evaluate("async (given) => { await jupyterapp.commands.execute(...given) }", [command, arguments])


def run_all(page: Page) -> None:
    """Run all cells of the visible notebook."""
    execute(page, "notebook:run-all-cells")
    wait_for_kernel(page)


def findings(page: Page) -> list[str]:
    """Return what a reader would stumble over in the visible notebook.

    That is dialogs, formulas that are not set, what is cut off or scrolls sideways, and pictures hardly legible.
    Folded answers and hints are opened first, so that what is in them is measured.
    """
    panel = notebook(page)
    panel.evaluate("panel => panel.querySelectorAll('details').forEach(one => { one.open = true })")
    shown = page.locator(".jp-Dialog, .Toastify__toast--error").all_inner_texts()
    return [f"a dialog: {text}" for text in shown] + panel.evaluate(MATHEMATICS) + panel.evaluate(LAYOUT)


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
