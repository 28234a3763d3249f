"""What a reader would stumble over in a notebook in JupyterLab: one line for each finding.

Code may scroll inside its editor; ruff limits the length of its lines.
"""

from lab import notebook
from nbformat import NotebookNode
from playwright.sync_api import Page

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


def visible_findings(page: Page) -> list[str]:
    """Return dialogs, formulas that are not set, what is cut off or scrolls sideways, and pictures hardly legible.

    Folded answers and hints are opened first, so that what is in them is measured.
    """
    panel = notebook(page)
    panel.evaluate("panel => panel.querySelectorAll('details').forEach(one => { one.open = true })")
    shown = page.locator(".jp-Dialog, .Toastify__toast--error").all_inner_texts()
    return [f"a dialog: {text}" for text in shown] + panel.evaluate(MATHEMATICS) + panel.evaluate(LAYOUT)


def findings(page: Page, saved: NotebookNode) -> list[str]:
    """Return the same, and what went wrong in a run after which the notebook was ``saved``."""
    found = []
    for index, cell in enumerate(saved.cells):
        if cell.cell_type == "code":
            if cell.execution_count is None:
                found.append(f"cell {index}: not run")
            if "raises-exception" not in cell.metadata.get("tags", []):
                errors = [output for output in cell.outputs if output.output_type == "error"]
                found += [f"cell {index}: {error.ename}: {error.evalue}" for error in errors]
    return found + visible_findings(page)
