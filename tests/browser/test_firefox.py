"""The explorer and the lessons' figures compute and respond in Firefox too; the other tests use Chromium.

Firefox is driven over WebDriver BiDi, because Playwright drives only a Firefox of its own.
"""

import json
import shutil
import subprocess
from contextlib import closing

import pytest
import websocket
from test_engine import IMAGES, MODEL, SAMPLE, assert_pytorch_s, expected
from test_explore import CALLS, differences, every_state, made, write_page


class Firefox:
    """A tab; in ``problems`` are errors and warnings of its pages, as they are told; read after a command."""

    def __init__(self, connection: websocket.WebSocket) -> None:
        self.connection, self.problems, self.commands = connection, [], 0
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=["log.entryAdded"])
        self.tab = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def send(self, method: str, **params: object) -> dict:
        """Send a command and return its result."""
        self.commands += 1
        self.connection.send(json.dumps({"id": self.commands, "method": method, "params": params}))
        while True:
            told = json.loads(self.connection.recv())
            if told.get("method") == "log.entryAdded" and told["params"]["level"] in ("error", "warn"):
                self.problems.append(told["params"]["text"])
            if told.get("id") == self.commands:
                assert told["type"] == "success", told
                return told["result"]

    def goto(self, address: str) -> None:
        """Open a page and wait until all of it is loaded."""
        self.send("browsingContext.navigate", context=self.tab, url=address, wait="complete")

    def evaluate(self, script: str, argument: object = None) -> object:
        """Return what a JavaScript expression is, or what a function makes of the argument."""
        call = f"({script})({json.dumps(argument)})" if argument is not None else script
        options = dict(expression=f"JSON.stringify(({call}))", target={"context": self.tab}, awaitPromise=False)
        answer = self.send("script.evaluate", **options)
        assert answer["type"] == "success", answer
        return json.loads(answer["result"].get("value", "null"))

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Click an element at these shares of its width and height."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{found}.scrollIntoView({{ block: 'center' }})")
        box = self.evaluate(f"{found}.getBoundingClientRect()")
        at = dict(x=round(box["x"] + x * box["width"]), y=round(box["y"] + y * box["height"]))
        steps = [dict(type="pointerMove", **at), dict(type="pointerDown", button=0), dict(type="pointerUp", button=0)]
        self.send("input.performActions", context=self.tab, actions=[dict(type="pointer", id="mouse", actions=steps)])


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    assert program, "install Firefox, for example with: sudo apt install firefox-esr"
    profile = str(tmp_path_factory.mktemp("firefox"))
    command = [program, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            address = next(line for line in process.stderr if "WebDriver BiDi listening on ws://" in line).split()[-1]
            options = dict(suppress_origin=True, timeout=120)
            with closing(websocket.create_connection(f"{address}/session", **options)) as connection:
                tab = Firefox(connection)
                yield tab
                assert tab.problems == []
        finally:
            process.kill()


def test_the_explorer_computes_what_pytorch_computes_and_says_why(firefox, explorer_page):
    firefox.goto(explorer_page + "#image=0&layer=1")
    firefox.evaluate("window.engine = vit.readModel(vit.fromPlanes(vit.shipped.model)), 0")
    assert_pytorch_s(firefox, MODEL, SAMPLE.images[:3], IMAGES[:3])
    firefox.click('[data-part="weights"] .vit-cells', x=30.5 / 50, y=0.5 / 50)
    weight = expected(MODEL, IMAGES[:1])["layers.1.weights"][0, 0, 30]
    assert firefox.evaluate("document.querySelector('#why output').textContent") == f"{weight:.4f}"


def test_the_figures_have_the_words_and_values_of_python_and_follow_a_click(firefox, tmp_path):
    firefox.goto(write_page(tmp_path / "page.html", every_state()))
    assert differences(firefox, every_state()) == []
    firefox.click(".vit-figure.attention .vit-cells", x=5.5 / 7, y=1.5 / 7)
    assert differences(firefox, [made(CALLS["attention"], dict(selected=(1, 5))), *every_state()[1:]]) == []
