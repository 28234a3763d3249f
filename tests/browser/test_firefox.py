"""The explorer and the lessons' figures compute and respond in Firefox too; the other tests use Chromium."""

import pytest
from firefox import running_firefox
from test_engine import IMAGES, MODEL, SAMPLE, assert_pytorch_s, expected
from test_explore import CALLS, STATES, differences, made, write_page


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    with running_firefox(tmp_path_factory.mktemp("firefox")) as tab:
        yield tab
        assert tab.problems == []


def test_the_explorer_computes_what_pytorch_computes_and_says_why(firefox, explorer_page):
    firefox.goto(explorer_page + "#image=0&layer=1")
    firefox.evaluate("window.engine = vit.readModel(vit.fromPlanes(vit.shipped.model)), 0")
    assert_pytorch_s(firefox, MODEL, SAMPLE.images[:3], IMAGES[:3])
    firefox.click('[data-part="weights"] .vit-cells', x=30.5 / 50, y=0.5 / 50)
    weight = expected(MODEL, IMAGES[:1])["layers.1.weights"][0, 0, 30]
    assert firefox.evaluate("document.querySelector('#why output').textContent") == f"{weight:.4f}"


def test_the_figures_have_the_words_and_values_of_python_and_follow_a_click(firefox, tmp_path):
    views = [made(call, state) for call, states in STATES.items() for state in states[:3]]
    firefox.goto(write_page(tmp_path / "page.html", views))
    assert differences(firefox, views) == []
    firefox.click(".vit-figure.attention .vit-cells", x=5.5 / 7, y=1.5 / 7)
    assert differences(firefox, [made(CALLS["attention"], dict(selected=(1, 5))), *views[1:]]) == []
