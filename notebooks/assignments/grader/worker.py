"""The student's side: a Python that holds torch, and from which every submission gets a fresh process.

It runs as a script inside the sandbox of ``confine.py``. Everything in the process of a submission is in the student's
hands once their first cell runs: nothing that it sends is trusted, and it contains no expected value. The process from
which it was forked never runs a student's code. The student's process is the first in a process namespace of its own,
so that it can neither see nor signal nor trace that one, and so that everything it has started ends with it.
"""

import base64
import builtins
import ctypes
import gc
import io
import json
import os
import pydoc
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partialmethod
from pathlib import Path
from types import FunctionType

FOLDER = Path(__file__).parents[1]  # what the sandbox has for every submission
CLONE_NEWUSER, CLONE_NEWPID, PR_SET_DUMPABLE = 0x10000000, 0x20000000, 4
CAPABILITIES = 0x20080522  # the version of the kernel's structures
CUT = "\n[more output is left out]\n"
WORKERS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "timeout", "multiprocessing_context")
# these magics change nothing that is graded
IDLE_MAGICS = ("matplotlib", "pip", "conda", "mamba", "load_ext", "autoreload", "autosave", "clear", "store")


def main() -> None:
    """Load what every submission needs, then work for one, or fork a process for each that comes."""
    settings = json.loads(sys.argv[1])
    sys.path[:] = [str(FOLDER), *sys.path, *settings["libraries"]]
    cells = Cells()
    if settings["forks"]:
        prepare_more()
        control = socket.socket(fileno=os.dup(0))
        close_streams(0, 1)  # an error of this process is read from its standard error
        control.send(b"+")
        while serve_fork(control, cells):
            control.send(b"+")
    else:
        streams = os.dup(0), os.dup(1)  # of a container, two pipes
        close_streams(0, 1, 2)
        work(*streams, cells, is_alone=False)


def prepare_more() -> None:
    """Load what PyTorch itself imports at the first comparison and the first step, for all who are forked."""
    import sklearn.datasets
    import sklearn.model_selection  # noqa: F401
    import torch

    parameter = torch.nn.Parameter(torch.zeros(1))
    torch.optim.SGD([parameter]).step()
    torch.testing.assert_close(parameter, parameter)
    gc.freeze()


def serve_fork(control: socket.socket, cells: "Cells") -> bool:
    """Fork a process for a connection that the grader sends, and end it when the grader asks for it.

    Returns whether nothing of the submission has stayed; if something has, the sandbox is given up, by ending.
    """
    _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not descriptors:
        return False
    home = Path(os.environ["HOME"])
    before = state_of(home)
    guard = os.fork()
    if not guard:
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_DUMPABLE, 0)  # or the student's process, in the same namespace, could write into this one
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWPID):  # os.unshare comes with Python 3.12
            os._exit(1)
        close_streams(2)
        student = os.fork()
        if not student:
            libc.prctl(PR_SET_DUMPABLE, 1)
            control.close()
            os.setsid()  # or a signal to its group would reach the processes outside
            drop_capabilities(libc)
            with suppress(BaseException):
                work(descriptors[0], descriptors[0], cells, is_alone=True)
            os._exit(1)
        os.close(descriptors[0])
        asked = control.recv(1)
        os.kill(student, signal.SIGKILL)  # with the first process of its namespace, all others are killed
        os.waitpid(student, 0)
        os._exit(0 if asked else 1)
    os.close(descriptors[0])
    _, status = os.waitpid(guard, 0)
    for command in (["/bin/chmod", "-R", "u+rwX"], ["/bin/rm", "-rf"]):  # they stop at no depth of folders
        subprocess.run([*command, "--", *home.iterdir()], stderr=subprocess.DEVNULL)
    os.utime(home)
    return status == 0 and not any(home.iterdir()) and state_of(home) == before


def state_of(folder: Path) -> tuple:
    """Return what a submission could leave at a folder itself, but for the times."""
    return folder.stat().st_mode, os.listxattr(folder)


def drop_capabilities(libc: ctypes.CDLL) -> None:
    """Give up the rights of the first process of a namespace: it could fill the kernel's tables, such as routes."""
    header, none = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none):
        raise OSError("capset")


def close_streams(*descriptors: int) -> None:
    """Read nothing from, and write nothing to, what the grader uses."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nothing, descriptor)


# --- the student's process -------------------------------------------------------------------------------------------


def work(incoming: int, outgoing: int, cells: "Cells", *, is_alone: bool) -> None:
    """Take over the course's package and the limits, run cells and answer requests until the connection is closed.

    The process ``is_alone`` if it is the first one in a namespace of its own.
    """
    from grader import answers
    from grader.messages import Connection, Ended, Malformed

    connection = Connection(incoming, outgoing)
    start = connection.receive()
    put_package(start["package"])
    cells.output_bytes = start["limits"]["output_bytes"]
    own, original = os.getpid(), dict(vars(builtins))
    getpid, leave, kill, wait, restore = os.getpid, os._exit, os.kill, os.waitpid, vars(builtins).update
    put_back, sigkill = cells.put_back, int(signal.SIGKILL)
    limit(start["limits"], is_alone=is_alone)
    connection.send("ready")
    while True:
        try:
            message = connection.receive()
        except Ended:
            leave(0)
        if "cell" in message:
            reply = {"shown": cells.run(message["cell"])}
        else:
            displaced = put_back(message["request"]["name"])
            reply = {"answer": answers.perform(cells.namespace, message["request"])}
            cells.namespace.update(displaced)
        restore(original)
        if getpid() != own:  # a copy that the student's code has made of this process has no more to do
            leave(0)
        if is_alone:  # what the cell has left running ends
            with suppress(OSError):
                kill(-1, sigkill)
                while True:
                    wait(-1, 0)
        try:
            connection.send({"id": message["id"], **reply})
        except (Malformed, MemoryError, RuntimeError) as error:
            problem = f"the answer could not be handed over: {type(error).__name__}: {error}"
            connection.send({"id": message["id"], "answer": {"error": problem}})


def put_package(texts: dict[str, str]) -> None:
    """Write the files of the package that an assignment gives, and let Python find it."""
    top = Path(os.environ["HOME"], ".course")
    for name, text in texts.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "resources").symlink_to(FOLDER / "resources")
    sys.path[:] = [str(top), *sys.path, os.environ["HOME"]]  # at last, what a cell has written


def limit(settings: dict, *, is_alone: bool) -> None:
    """Set the kernel's limits for this process and all that come from it."""
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: settings["file_bytes"], resource.RLIMIT_NOFILE: 128}
    if sys.platform.startswith("linux"):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits[resource.RLIMIT_AS] = pages * resource.getpagesize() + settings["memory_bytes"]
        if is_alone:  # they are counted in the namespace; elsewhere all processes of the user would count
            limits[resource.RLIMIT_NPROC] = settings["processes"]
    for kind, value in limits.items():
        resource.setrlimit(kind, (value, value))


def in_this_process(self: object, init: Callable, *given: object, **options: object) -> None:
    """Make a ``DataLoader`` without workers, whatever is asked for."""
    for name in WORKERS:
        options.pop(name, None)
    init(self, *given[:5], *[0 for _ in given[5:6]], *given[6:], **options)


class Cells:
    """IPython without a terminal: magics, ``display`` and plots work, and what they show is kept.

    Attributes:
        output_bytes: how much is kept of what one cell shows.
    """

    output_bytes = 0

    def __init__(self) -> None:
        import einops.layers.torch  # noqa: F401
        import matplotlib.pyplot
        import torch.utils.data
        from IPython.core.interactiveshell import InteractiveShell
        from IPython.utils.capture import capture_output
        from traitlets.config import Config

        import grader.answers  # noqa: F401

        loader = torch.utils.data.DataLoader  # its workers would need shared memory, of which there is none
        loader.__init__ = partialmethod(in_this_process, loader.__init__)
        # the plain form of tracebacks: the others take ten seconds over a recursion without end
        config = Config(HistoryManager=dict(enabled=False), InteractiveShell=dict(xmode="Plain"))
        self.shell = shell = InteractiveShell.instance(config=config)
        self.namespace, self.errors, self.capture = shell.user_ns, [], capture_output
        self.made, self.values = {}, {}  # functions and classes; which names of these were values when one was made
        shell._showtraceback = self._keep_error
        shell.ask_exit = lambda: None  # go on after exit(): the cells below are run all the same
        builtins.help = pydoc.help  # which Python adds only where it looks for installed packages by itself
        builtins.input = lambda prompt="": ""  # nobody is there to answer
        for name in IDLE_MAGICS:
            shell.register_magic_function(lambda line, cell=None: None, "line", name)
        import matplotlib_inline.backend_inline  # noqa: F401  it looks for the shell, to show plots in it

        # what the first plot needs is made once; what is there by now is shared by all processes that are forked
        matplotlib.pyplot.loglog([1, 10], [1, 10])
        matplotlib.pyplot.savefig(io.BytesIO())
        matplotlib.pyplot.close()

    def run(self, source: str) -> list[list[str]]:
        """Run a cell and return what it shows: lists of a kind of output and its texts."""
        self.errors = []
        with self.shell.display_trap, self.capture() as captured:  # the trap first: it would replace what captures
            self.shell.run_cell(source, store_history=True)
        values = {name for name in self.made if not callable(self.namespace.get(name))}
        now = {name: each for name, each in self.namespace.items() if isinstance(each, (FunctionType, type))}
        self.values |= {name: values for name, each in now.items() if self.made.get(name) is not each}
        self.made |= now
        streams = {"stdout": captured.stdout, "stderr": captured.stderr}
        shown = [[name, self._cut(text)] for name, text in streams.items() if text]
        room = self.output_bytes
        for data in [each.data for each in captured.outputs]:
            picture = data.get("image/png", "")
            picture = base64.b64encode(picture).decode() if isinstance(picture, bytes) else str(picture)
            room -= len(picture)
            shown.append(["display", self._cut(str(data.get("text/plain", ""))), picture if room > 0 else ""])
        return shown + self.errors

    def put_back(self, asked: str) -> dict:
        """Give functions and classes their names back where cells after that of ``asked`` use them for values.

        Returns those values, because other parts may need them.
        """
        displaced = {}
        for name in self.made.keys() - self.values.get(asked, set()):
            now = self.namespace.get(name)
            if not (isinstance(now, (FunctionType, type)) or (callable(now) and name != asked)):
                displaced[name], self.namespace[name] = now, self.made[name]
        return displaced

    def _keep_error(self, kind: type, error: BaseException, lines: list[str]) -> None:
        traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))
        self.errors = [["error", kind.__name__, self._cut(str(error)), self._cut(traceback)]]

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.output_bytes else text[: self.output_bytes] + CUT


if __name__ == "__main__":
    main()
