"""Draw ``img/lesson.png``, an exercise of lesson 1 in JupyterLab whose check names a mistake; Chromium does the work.

PYTHONPATH=tests/browser .venv/bin/python -m tools.draw_lesson_picture
"""

import io
import json
import tempfile
from pathlib import Path

from lab import notebook, run_all, running_lab
from PIL import Image

from tools.lesson_figures import chromium
from tools.site_links import ROOT

LESSON = "my_course/01_einops_primer.ipynb"
ATTEMPT = """def patchify(images, patch_size):
    pattern = "b c (gh p1) (gw p2) -> b (gh gw) (p1 p2 c)"
    return rearrange(images, pattern, p1=patch_size, p2=patch_size)"""


def main() -> None:
    """Write a common mistake into the reader's copy of the lesson, run it, and save a picture of the place."""
    with tempfile.TemporaryDirectory() as folder, running_lab(Path(folder)) as lab, chromium() as browser:
        lesson = json.loads((lab.root / LESSON).read_text(encoding="utf-8"))
        sources = ["".join(cell["source"]) for cell in lesson["cells"]]
        stub = next(place for place, source in enumerate(sources) if source.startswith("def patchify"))
        lesson["cells"] = lesson["cells"][: stub + 2]
        lesson["cells"][stub]["source"] = ATTEMPT
        (lab.root / LESSON).write_text(json.dumps(lesson), encoding="utf-8")
        page = browser.new_page(viewport={"width": 1000, "height": 2600}, device_scale_factor=1.5)
        lab.open(page, LESSON)
        run_all(page)
        page.keyboard.press("Control+b")  # the list of files closes
        page.wait_for_timeout(1000)
        cells = notebook(page).locator(".jp-Cell")
        first, last = cells.nth(stub - 1).bounding_box(), cells.nth(stub + 1).bounding_box()
        height = last["y"] + last["height"] - first["y"]
        clip = dict(x=last["x"], y=first["y"], width=last["width"], height=height)
        picture = Image.open(io.BytesIO(page.screenshot(clip=clip)))
        picture.quantize(64).save(ROOT / "img" / "lesson.png", optimize=True)


if __name__ == "__main__":
    main()
