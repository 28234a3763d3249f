"""The student's side: a Python that holds torch, and from which every submission gets a fresh process.

It runs as a script inside the sandbox of ``confine.py``. Everything in the process of a submission is in the student's
hands once their first cell runs: nothing that it says is trusted, and it knows no expected value. The process that it
was forked from never runs a student's code. The student's process is in a user and a process namespace of its own, so
that it can neither see nor signal nor trace that one.
"""

import base64
import builtins
import ctypes
import io
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
KILLED = 255  # the exit code of a process that the grader has ended
CUT = "\n[more output is left out]\n"
IDLE_MAGICS = ("matplotlib", "pip", "conda", "mamba", "load_ext", "autoreload")  # they change nothing that is graded


def main() -> None:
    """Load what every submission needs, then work for one, or fork a process for each that comes."""
    settings = json.loads(sys.argv[1])
    sys.path[:] = [settings["package"], *sys.path, *settings["libraries"]]
    write_files(settings["files"])
    Cells.prepare()
    if "control" in settings:
        control = socket.socket(fileno=settings["control"])
        control.send(b"ready")
        serve_forks(control, settings)
    else:
        incoming, outgoing = os.dup(0), os.dup(1)
        close_standard_streams()
        work(incoming, outgoing, settings)


# --- a process for each submission -----------------------------------------------------------------------------------


def unshare(namespaces: int) -> bool:
    """Enter new namespaces (``os.unshare``, which Python has from 3.12 on); return whether the kernel allows it."""
    return ctypes.CDLL(None).unshare(namespaces) == 0


def serve_forks(control: socket.socket, settings: dict) -> None:
    """Fork a process for each connection that the grader sends; end it when the grader says so, and say how it ended.

    The sandbox is given up, by ending, if anything of a submission would stay.
    """
    home = Path(os.environ["HOME"])
    while True:
        _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not descriptors:
            return
        reader, writer = os.pipe()
        guard = os.fork()
        if not guard:
            control.close()
            os.close(reader)
            run_guarded(descriptors[0], writer, settings)
        os.close(descriptors[0])
        os.close(writer)
        with open(reader) as file:
            first = int(file.read())
        if not control.recv(1):
            return
        with suppress(ProcessLookupError):  # with the first process of its namespace, all others are killed
            os.kill(first, signal.SIGKILL)
        code = os.WEXITSTATUS(os.waitpid(guard, 0)[1])
        remove(home.iterdir())
        if any(home.iterdir()):
            return
        write_files(settings["files"])
        control.send(json.dumps(code).encode())


def run_guarded(descriptor: int, writer: int, settings: dict) -> None:
    """In new namespaces, start the process that looks after the student's; end as it does."""
    if not unshare(CLONE_NEWUSER | CLONE_NEWPID):
        os._exit(1)
    first = os.fork()
    if not first:
        os.close(writer)
        run_first(descriptor, settings)
    os.close(descriptor)
    os.write(writer, str(first).encode())
    os.close(writer)
    status = os.waitpid(first, 0)[1]
    os._exit(KILLED if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def run_first(descriptor: int, settings: dict) -> None:
    """Be the first process of the namespace: start the student's, let orphans go, end as the student's does."""
    student = os.fork()
    if not student:
        with suppress(BaseException):
            close_standard_streams()
            work(descriptor, descriptor, settings)
        os._exit(1)
    os.close(descriptor)
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == student:
            os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def remove(paths: Iterable[Path]) -> None:
    """Remove what a student has made, whatever it is."""
    paths = list(paths)
    subprocess.run(["/bin/chmod", "-R", "u+rwX", "--", *paths], stderr=subprocess.DEVNULL)
    subprocess.run(["/bin/rm", "-rf", "--", *paths], stderr=subprocess.DEVNULL)


def write_files(files: dict[str, str]) -> None:
    """Write what a submission finds in its folder."""
    for name, content in files.items():
        Path(os.environ["HOME"], name).write_text(content)


def close_standard_streams() -> None:
    """Read nothing from, and write nothing to, what the grader uses."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)


# --- the student's process -------------------------------------------------------------------------------------------


def work(incoming: int, outgoing: int, settings: dict) -> None:
    """Run cells and answer requests until the grader closes the connection; never returns."""
    from grader import answers
    from grader.messages import Connection, Ended, Malformed

    cells, connection = Cells(settings["output_bytes"]), Connection(incoming, outgoing)
    own, original = os.getpid(), dict(vars(builtins))
    getpid, leave, restore = os.getpid, os._exit, vars(builtins).update
    limit(settings)
    connection.send("ready")
    while True:
        try:
            message = connection.receive()
        except Ended:
            leave(0)
        if "cell" in message:
            reply = {"outputs": cells.run(message["cell"])}
        else:
            reply = {"answer": answers.perform(cells.namespace, message["request"])}
        restore(original)
        if getpid() != own:  # a copy that the student's code has made of this process has no more to do
            leave(0)
        try:
            connection.send({"id": message["id"], **reply})
        except (Malformed, MemoryError, RuntimeError) as error:
            problem = f"the answer could not be handed over: {type(error).__name__}: {error}"
            connection.send({"id": message["id"], "answer": {"error": problem}, "outputs": []})


def limit(settings: dict) -> None:
    """Set the kernel's limits for this process and all that come from it."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: settings["file_bytes"],
        resource.RLIMIT_NOFILE: 128,
    }
    if sys.platform.startswith("linux"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + settings["memory_bytes"]
        if "control" in settings:  # counted in the namespace; elsewhere it would count all processes of the user
            limits[resource.RLIMIT_NPROC] = settings["processes"]
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


class Cells:
    """IPython without a terminal: magics, ``display`` and plots work, and what they show is kept.

    Args:
        output_bytes: how much is kept of what one cell shows.
    """

    @classmethod
    def prepare(cls) -> None:
        """Import what every notebook imports, and make IPython's shell."""
        import einops.layers.torch  # noqa: F401
        import matplotlib.pyplot  # noqa: F401
        import torch.utils.data  # noqa: F401
        from IPython.core.displayhook import CapturingDisplayHook
        from IPython.core.displaypub import CapturingDisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        import grader.answers  # noqa: F401

        # the plain form of tracebacks: the others take ten seconds over a recursion without end
        config = Config(HistoryManager=dict(enabled=False), InteractiveShell=dict(xmode="Plain"))
        cls.shell = shell = InteractiveShell.instance(config=config)
        shell.display_pub = CapturingDisplayPublisher()
        shell.display_trap.hook = CapturingDisplayHook(shell=shell, outputs=shell.display_pub.outputs)
        shell.ask_exit = lambda: None  # go on after exit(): the cells below are run all the same
        for name in IDLE_MAGICS:
            shell.register_magic_function(lambda line, cell=None: None, "line", name)
        import matplotlib_inline.backend_inline  # noqa: F401  it looks for the shell, to show plots in it

    def __init__(self, output_bytes: int) -> None:
        self.output_bytes, self.errors = output_bytes, []
        self.shell._showtraceback = self._keep_error
        self.namespace = self.shell.user_ns
        builtins.input = lambda prompt="": ""  # nobody is there to answer

    def run(self, source: str) -> list[dict]:
        """Run a cell and return what it shows, in notebook format; an error is part of it."""
        printed, complained, self.errors = io.StringIO(), io.StringIO(), []
        shown = self.shell.display_pub.outputs
        shown.clear()
        with redirect_stdout(printed), redirect_stderr(complained):
            self.shell.run_cell(source, store_history=True)
        outputs = [
            dict(output_type="stream", name=name, text=self._cut(stream.getvalue()))
            for name, stream in [("stdout", printed), ("stderr", complained)]
            if stream.getvalue()
        ]
        room = self.output_bytes
        for each in [*shown]:
            data = {kind: as_text(each["data"][kind]) for kind in ("text/plain", "image/png") if kind in each["data"]}
            room -= sum(map(len, data.values()))
            if room > 0:
                outputs.append(dict(output_type="display_data", data=data, metadata={}))
        return outputs + self.errors

    def _keep_error(self, kind: type, error: BaseException, lines: list[str]) -> None:
        plain = [self._cut(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines]
        self.errors = [dict(output_type="error", ename=kind.__name__, evalue=self._cut(str(error)), traceback=plain)]

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.output_bytes else text[: self.output_bytes] + CUT


def as_text(data: object) -> str:
    """Return text, or a picture in base64."""
    return base64.b64encode(data).decode() if isinstance(data, bytes) else str(data)


if __name__ == "__main__":
    main()
