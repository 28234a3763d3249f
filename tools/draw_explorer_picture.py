"""Draw ``img/explorer.png``, the explorer with an attention weight and its arithmetic; Chromium does the work.

.venv/bin/python -m tools.draw_explorer_picture
"""

import io
import tempfile
from pathlib import Path

from PIL import Image

from tools.explorer_page import write_explorer
from tools.lesson_figures import chromium
from tools.site_links import ROOT

CHOICES = "layer=1&head=0&token=0&cell=layers.1.weights:0.0.30"  # of the class token and patch 29
SCROLL = """scrollBy(0, document.querySelector("#attention .line").getBoundingClientRect().top
    - document.querySelector("header").offsetHeight - 8)"""


def main() -> None:
    """Write the page into a temporary folder, open it with the choices, and save what a visitor sees."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        write_explorer(Path(folder))
        page = browser.new_page(viewport={"width": 1280, "height": 690}, device_scale_factor=1.5)
        page.goto(f"{Path(folder, 'explorer.html').as_uri()}#{CHOICES}")
        page.evaluate(SCROLL)
        page.wait_for_timeout(500)
        picture = Image.open(io.BytesIO(page.screenshot()))
        picture.quantize(256).save(ROOT / "img" / "explorer.png", optimize=True)


if __name__ == "__main__":
    main()
