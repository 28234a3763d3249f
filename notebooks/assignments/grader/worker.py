"""Runs a student's cells and answers requests, in a process that has given up its rights.

Everything here is in the student's hands once their first cell runs. Nothing that it says is trusted, and it knows no
expected value.
"""

import base64
import builtins
import io
import os
import re
import resource
import site
import socket
from contextlib import redirect_stderr, redirect_stdout
from os import _exit, getpid
from pathlib import Path

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from grader import answers, frames

BUILTINS = dict(vars(builtins))
restore = vars(builtins).update
SETTINGS = dict(
    HistoryManager=dict(enabled=False),
    InteractiveShell=dict(xmode="Plain"),  # the others take ten seconds over a recursion without end
)
CUT = "\n[more output is left out]\n"


def serve(connection: int, memory_bytes: int, output_bytes: int) -> None:
    """Run cells and answer requests until the grader closes the connection.

    Args:
        connection: descriptor of the socket to the grader.
        memory_bytes: how much more than now this process may use.
        output_bytes: what is kept of one cell's outputs.
    """
    own, channel = getpid(), socket.socket(fileno=connection)
    site.sethelper()  # help(), which Python without its site module does not have
    shell = Shell.instance(config=Config(SETTINGS))
    limit_memory(memory_bytes)
    os.dup2(1, 2)  # from now on nobody reads standard error
    frames.send(channel, {"ready": True})
    while True:
        try:
            message = frames.receive(channel)
        except frames.Ended:
            return
        if "cell" in message:
            reply = {"outputs": shell.outputs_of(message["cell"], output_bytes)}
        else:
            reply = {"answer": answers.perform(shell.user_ns, message["request"])}
        restore(BUILTINS)
        if getpid() != own:  # a copy that the student's code has made of this process has no more to do
            _exit(0)
        send_reply(channel, message["id"], reply)


def send_reply(channel: socket.socket, number: int, reply: dict) -> None:
    """Send a reply, or that it cannot be sent."""
    try:
        frames.send(channel, {"id": number, **reply})
    except (frames.Malformed, MemoryError, RuntimeError) as error:
        problem = f"the answer could not be handed over: {type(error).__name__}: {error}"
        frames.send(channel, {"id": number, "answer": {"error": problem}, "outputs": []})


def limit_memory(memory_bytes: int) -> None:
    """Limit the address space to what libraries take now and so much more."""
    statistics = Path("/proc/self/statm")
    if statistics.exists():
        now = int(statistics.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory_bytes,) * 2)


# --- what a cell shows -----------------------------------------------------------------------------------------------


class Recorder:
    """The outputs of one cell in notebook format, up to a size.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self.outputs, self.left = [], limit

    def add(self, output: dict, size: int) -> None:
        """Keep an output of this size, if there is room."""
        if self.left <= 0:
            return
        self.left -= size
        if self.left <= 0:
            output = dict(output_type="stream", name="stderr", text=CUT)
        self.outputs.append(output)

    def stream(self, name: str, text: str) -> None:
        """Keep text that was printed, as far as there is room."""
        if self.left <= 0 or not text:
            return
        kept = text[: self.left]
        self.left -= len(kept)
        last = self.outputs[-1] if self.outputs else {}
        if last.get("name") != name:
            last = dict(output_type="stream", name=name, text=[])
            self.outputs.append(last)
        last["text"] += [kept] if self.left else [kept, CUT]

    def show(self, data: dict, **kind: object) -> None:
        """Keep text and pictures of a value."""
        kept = {"text/plain": str(data.get("text/plain", ""))}
        if png := data.get("image/png"):
            kept["image/png"] = png if isinstance(png, str) else base64.b64encode(png).decode()
        self.add(dict(data=kept, metadata={}, **kind), sum(map(len, kept.values())))


class Stream(io.TextIOBase):
    """What ``print`` writes to while a cell runs."""

    encoding = "utf-8"

    def __init__(self, shell: "Shell", name: str) -> None:
        self._shell, self._name = shell, name

    def writable(self) -> bool:
        """Say that it can be written to."""
        return True

    def write(self, text: str) -> int:
        """Keep the text."""
        self._shell.recorder.stream(self._name, str(text))
        return len(text)


class Hook(DisplayHook):
    """Keeps the value of a cell's last line."""

    def write_output_prompt(self) -> None:
        """Write no prompt."""

    def write_format_data(self, format_dict: dict, md_dict: dict | None = None) -> None:
        """Keep what the value looks like."""
        self.shell.recorder.show(format_dict, output_type="execute_result", execution_count=self.prompt_count)


class Publisher(DisplayPublisher):
    """Keeps what ``display`` and plots show."""

    def publish(self, data: dict, metadata: dict | None = None, **_: object) -> None:
        """Keep what is shown."""
        Shell.instance().recorder.show(data, output_type="display_data")


class Shell(InteractiveShell):
    """IPython without a terminal: magics, ``display`` and plots work, and what they show is kept."""

    displayhook_class = Hook
    display_pub_class = Publisher

    def outputs_of(self, source: str, limit: int) -> list[dict]:
        """Run a cell and return its outputs; an error is one of them."""
        self.recorder = Recorder(limit)
        with redirect_stdout(Stream(self, "stdout")), redirect_stderr(Stream(self, "stderr")):
            self.run_cell(source, store_history=True)
        for output in self.recorder.outputs:
            if output["output_type"] == "stream":
                output["text"] = "".join(output["text"])
        return self.recorder.outputs

    def _showtraceback(self, etype: type, evalue: BaseException, stb: list[str]) -> None:
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in stb]
        error = dict(output_type="error", ename=etype.__name__, evalue=str(evalue), traceback=lines)
        self.recorder.add(error, sum(map(len, lines)) + len(error["evalue"]))

    def ask_exit(self) -> None:
        """Go on after ``exit``: the cells below are run all the same."""
