"""What a reader would stumble over in a notebook that was run in JupyterLab: a line a finding.

What the browser itself complains of, ``site_checks.Traffic`` hears.
"""

from lab import notebook
from nbformat import NotebookNode
from playwright.sync_api import Page

LEAST = 0.7  # of its own width a picture must be shown with: lettering of 12 px is then still 8 px high

# Lengths are CSS pixels, of which browsers round some. Text that belongs to no layout (MathML for screen readers,
# which lies under the drawn formula) is left out, as is what is drawn inside an SVG or an editor.
MEASURE = """
panel => {
  const found = [];
  const say = (cell, place, text) => found.push({cell, place, text});
  const name = part => part.tagName.toLowerCase() + [...part.classList].slice(0, 2).map(one => "." + one).join("");
  [...panel.querySelectorAll(".jp-Cell")].forEach((cell, index) => {
    const edge = cell.getBoundingClientRect().right;
    let furthest = 1, culprit = null;
    for (const part of cell.querySelectorAll("*")) {
      const box = part.getBoundingClientRect();
      if (!box.width || !box.height || part.closest("mjx-assistive-mml, svg svg, svg > *, .cm-editor")) continue;
      const place = part.closest(".jp-OutputArea") ? "output" : "prose";
      const lacking = part.scrollWidth - part.clientWidth;
      if (getComputedStyle(part).overflowX != "visible" && part.clientWidth > 1 && lacking > 1)
        say(index, place, `${name(part)} holds ${part.scrollWidth} px in ${part.clientWidth} px`);
      if (box.right - edge > furthest) [furthest, culprit] = [box.right - edge, part];
    }
    if (culprit) say(index, "beyond", `${name(culprit)} reaches ${Math.round(furthest)} px out of the cell`);
    for (const editor of cell.querySelectorAll(".cm-scroller"))
      if (editor.scrollWidth > editor.clientWidth + 1)
        say(index, "code", `code of ${editor.scrollWidth} px in an editor of ${editor.clientWidth} px`);
    for (const text of cell.querySelectorAll("[data-mime-type$='jupyter.stdout'] pre")) { // a check may say more
      const kept = text.style.whiteSpace;
      text.style.whiteSpace = "pre";
      if (text.scrollWidth > text.clientWidth + 1)
        say(index, "output", `a line of ${text.scrollWidth} px is broken to fit ${text.clientWidth} px`);
      text.style.whiteSpace = kept;
    }
    for (const image of cell.querySelectorAll("img")) {
      const shown = image.getBoundingClientRect().width, own = image.naturalWidth;
      if (!own) say(index, "picture", `the picture ${image.alt || image.src} is not loaded`);
      else if (shown > own + 1 || shown < LEAST * own)
        say(index, "picture", `a picture of ${own} px is shown with ${Math.round(shown)} px`);
    }
  });
  const outer = panel.querySelector(".jp-WindowedPanel-outer");
  if (outer.scrollWidth > outer.clientWidth + 1)
    say(null, "notebook", `the notebook holds ${outer.scrollWidth} px in ${outer.clientWidth} px`);
  return found;
}
""".replace("LEAST", str(LEAST))

MATHEMATICS = """
panel => [...panel.querySelectorAll(".jp-Cell")].flatMap((cell, index) => {
  const found = [];
  for (const wrong of cell.querySelectorAll("[data-mjx-error]"))
    found.push([index, wrong.getAttribute("data-mjx-error")]);
  for (const rendered of cell.querySelectorAll(".jp-MarkdownOutput")) {
    for (const word of rendered.querySelectorAll("mjx-mtext"))
      if (word.getAttribute("style")?.includes("red")) found.push([index, "a command that MathJax does not know"]);
    const walker = document.createTreeWalker(rendered, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const text = walker.currentNode;
      if (/[$][^$]+[$]/.test(text.data) && !text.parentElement.closest("code, pre, mjx-container"))
        found.push([index, text.data.trim().slice(0, 60)]);
    }
  }
  return found;
})
"""


def findings(page: Page, saved: NotebookNode, *, code: bool = True) -> list[str]:
    """Look for everything after a run; ``saved`` is the notebook's file, saved then."""
    return not_run(saved) + look_at_everything(page, code=code)


def look_at_everything(page: Page, *, code: bool = True) -> list[str]:
    """Look for what can be seen. Folded answers and hints are opened first, so that what is in them is measured."""
    notebook(page).evaluate("panel => panel.querySelectorAll('details').forEach(one => { one.open = true })")
    return dialogs(page) + mathematics(page) + layout(page, code=code)


def not_run(saved: NotebookNode) -> list[str]:
    """Code cells that were not run, and errors of cells that announce none by the tag ``raises-exception``."""
    found = []
    for index, cell in enumerate(saved.cells):
        if cell.cell_type == "code":
            if cell.execution_count is None:
                found.append(f"cell {index}: not run")
            if "raises-exception" not in cell.metadata.get("tags", []):
                errors = [output for output in cell.outputs if output.output_type == "error"]
                found += [f"cell {index}: {error.ename}: {error.evalue}" for error in errors]
    return found


def dialogs(page: Page) -> list[str]:
    """Dialogs and error notices that JupyterLab shows."""
    shown = page.locator(".jp-Dialog, .Toastify__toast--error")
    return [f"a dialog: {text}" for text in shown.all_inner_texts()]


def mathematics(page: Page) -> list[str]:
    """Formulas that MathJax could not set, and dollar signs that it left standing."""
    return [f"cell {index}: mathematics: {what}" for index, what in notebook(page).evaluate(MATHEMATICS)]


def layout(page: Page, *, code: bool = True) -> list[str]:
    """What is cut off, scrolls sideways or reaches out of its cell, and pictures missing or hardly legible.

    ``code=False`` lets code scroll inside its editor.
    """
    found = notebook(page).evaluate(MEASURE)
    return [f"cell {one['cell']}: {one['text']}" for one in found if code or one["place"] != "code"]
