"""The figures in ``img/`` are what ``tools/draw_figures.py`` draws, and nothing on them collides."""

import base64
import io
import re
from itertools import combinations

import matplotlib.style
import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.text import Text

from tools import draw_figures
from tools.site_links import ROOT

IMG = ROOT / "img"
NAMES = list(draw_figures.FIGURES)

IMAGE = re.compile(r"data:image/png;base64,([^\"]*)")
COLOR = re.compile(r"#([0-9a-f]{6})\b")
HASH = re.compile(r"(?<=[\"#])[a-z]+[0-9a-f]{10}\b")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def taken_apart(path):
    """Split a file into its words, its numbers, its colors and its embedded pictures."""
    text = path.read_text(encoding="utf-8")
    pictures = [imread(io.BytesIO(base64.b64decode(data)), format="png") for data in IMAGE.findall(text)]
    hashes = {name: f"id{'x' * rank}" for rank, name in enumerate(dict.fromkeys(HASH.findall(text)))}
    text = HASH.sub(lambda match: hashes[match[0]], IMAGE.sub("picture", text))
    colors = [list(bytes.fromhex(color)) for color in COLOR.findall(text)]
    text = COLOR.sub("color", text)
    return NUMBER.sub("number", text), [float(number) for number in NUMBER.findall(text)], colors, pictures


def test_the_folder_holds_exactly_the_figures_of_the_script():
    assert {path.stem for path in IMG.glob("*.svg")} == set(NAMES)
    for path in IMG.glob("*.svg"):
        assert path.stat().st_size < 300_000, path.name
        assert "dc:date" not in path.read_text(encoding="utf-8"), path.name


@pytest.mark.skipif(
    f"matplotlib=={matplotlib.__version__}\n" not in (ROOT / "requirements.txt").read_text(encoding="utf-8"),
    reason="the figures are drawn with the matplotlib of requirements.txt; another one places letters elsewhere",
)
@pytest.mark.parametrize("name", NAMES)
def test_drawing_again_gives_the_committed_file(tmp_path, name):
    words, numbers, colors, pictures = taken_apart(IMG / f"{name}.svg")
    new_words, new_numbers, new_colors, new_pictures = taken_apart(draw_figures.draw(name, tmp_path))
    redraw = f"draw it again with: python -m tools.draw_figures {name}"
    assert words.splitlines() == new_words.splitlines(), redraw
    np.testing.assert_allclose(numbers, new_numbers, rtol=0, atol=0.05, err_msg=redraw)
    np.testing.assert_allclose(colors, new_colors, rtol=0, atol=1, err_msg=redraw)
    assert len(pictures) == len(new_pictures), redraw
    for picture, new_picture in zip(pictures, new_pictures, strict=True):
        np.testing.assert_allclose(picture, new_picture, rtol=0, atol=1.5 / 255, err_msg=redraw)


@pytest.mark.parametrize("name", NAMES)
def test_words_stay_on_the_page_and_off_each_other(name):
    with matplotlib.style.context(["default", draw_figures.SETTINGS]):
        figure = draw_figures.FIGURES[name]()
        figure.draw_without_rendering()
        # axes that are switched off keep empty tick labels somewhere
        texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
        texts = [text for text in texts if text.axes is None or text.axes.axison or text in text.axes.texts]
        boxes = {text: text.get_window_extent() for text in texts}
    page = figure.bbox
    for text, box in boxes.items():
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert inside, f"{text.get_text()!r} leaves the page"
    for (one, box), (other, other_box) in combinations(boxes.items(), 2):
        across = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        up = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        assert min(across, up) <= 1, f"{one.get_text()!r} and {other.get_text()!r} overlap"
