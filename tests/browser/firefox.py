"""Firefox without a window, driven over WebDriver BiDi, because Playwright drives only a Firefox of its own."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import websocket

LISTENS = re.compile(r"WebDriver BiDi listening on (ws://\S+)")


class Firefox:
    """A tab.

    Attributes:
        problems: errors and warnings of the pages, as they are told; read after a command.
    """

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
        expression = f"Promise.resolve({call}).then((value) => JSON.stringify(value))"
        options = dict(target={"context": self.tab}, awaitPromise=True)
        answer = self.send("script.evaluate", expression=expression, **options)
        assert answer["type"] == "success", answer
        return json.loads(answer["result"].get("value", "null"))

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Click an element at these shares of its width and height."""
        box = self.evaluate(
            "(selector) => { const element = document.querySelector(selector);"
            "element.scrollIntoView({ block: 'center' });"
            "const { left, top, width, height } = element.getBoundingClientRect();"
            "return [left, top, width, height]; }",
            selector,
        )
        at = dict(x=round(box[0] + x * box[2]), y=round(box[1] + y * box[3]))
        steps = [dict(type="pointerMove", **at), dict(type="pointerDown", button=0), dict(type="pointerUp", button=0)]
        self.send("input.performActions", context=self.tab, actions=[dict(type="pointer", id="mouse", actions=steps)])


@contextmanager
def running_firefox(profile: Path) -> Iterator[Firefox]:
    """Start Firefox with a new profile in this folder."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    assert program, "install Firefox, for example with: sudo apt install firefox-esr"
    command = [program, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            address = next(filter(None, map(LISTENS.search, process.stderr)))[1]
            options = dict(suppress_origin=True, timeout=120)
            with closing(websocket.create_connection(f"{address}/session", **options)) as connection:
                yield Firefox(connection)
        finally:
            process.kill()
