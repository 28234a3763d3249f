"""What the processes of a submission use, seen from outside: processor time, waiting, memory."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil


class Usage:
    """The processes that came from one.

    Args:
        pid: the process that was started.
        forks: whether it holds a process that never runs a student's code, and forks those that do.
    """

    def __init__(self, pid: int, *, forks: bool = False) -> None:
        self.root, self.forks = pid, forks
        self.memory = self.base = 0
        self.waited, self.looked = 0.0, time.monotonic()
        tree = self._tree()
        self.base = max((self._memory_of(each.pid) for each in tree), default=0)
        self.before, self.used = self._processor_seconds(tree), 0.0

    @property
    def seconds(self) -> float:
        """Processor time and waiting, as of the last :meth:`measure`."""
        return self.used + self.waited

    def resume(self) -> None:
        """Begin to watch again: while the grader itself was at work, the submission could only wait."""
        self.looked = time.monotonic()

    def measure(self) -> float:
        """Look at all processes; return the seconds that they have computed, or only waited, so far."""
        now, tree = time.monotonic(), self._tree()
        if not any(state in "RD" for each in tree for state in self._states(each.pid)):
            self.waited += now - self.looked
        self.looked = now
        self.used = max(self._processor_seconds(tree) - self.before, self.used)
        self.memory = sum(max(self._memory_of(each.pid) - self.base, 0) for each in tree)
        return self.seconds

    def end_others(self) -> bool:
        """Kill what a submission has left running beside its own process; return whether there was something."""
        tree = [each for each in self._tree() if self._name(each) not in ("bwrap", "setpriv")]
        kept = tree[:1]  # with forks: then the guard, the first of its namespace, the student's
        for _ in range(3 if self.forks else 0):
            children = [each for each in tree if kept and self._parent(each) == kept[-1].pid]
            kept += sorted(children, key=psutil.Process.create_time)[:1]
        others = [each for each in tree if each not in kept]
        for each in others:
            with suppress(psutil.Error):
                each.suspend()  # what is stopped forks no more
        for each in others:
            with suppress(psutil.Error):
                each.kill()
        return bool(others)

    def end_all(self) -> None:
        """Kill every process."""
        for each in self._tree():
            with suppress(psutil.Error):
                each.kill()

    def _tree(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            process = psutil.Process(self.root)
            return [process, *process.children(recursive=True)]
        return []

    @staticmethod
    def _processor_seconds(tree: list[psutil.Process]) -> float:
        total = 0.0
        for each in tree:
            with suppress(psutil.Error):
                total += sum(each.cpu_times()[:4])  # user and system, its own and its children's
        return total

    @staticmethod
    def _name(process: psutil.Process) -> str:
        with suppress(psutil.Error):
            return process.name()
        return ""

    @staticmethod
    def _parent(process: psutil.Process) -> int:
        with suppress(psutil.Error):
            return process.ppid()
        return 0

    @staticmethod
    def _memory_of(pid: int) -> int:
        """Return the bytes of a process that no file backs."""
        with suppress(OSError, psutil.Error):
            status = Path(f"/proc/{pid}/status")
            if not status.exists():
                return psutil.Process(pid).memory_info().rss
            fields = dict(line.split(":", 1) for line in status.read_text(errors="replace").splitlines() if ":" in line)
            return sum(int(fields.get(name, "0 kB").split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))
        return 0

    @staticmethod
    def _states(pid: int) -> Iterator[str]:
        """Yield the state of each thread: R if it computes or waits for a processor, D for a disk."""
        for path in Path(f"/proc/{pid}/task").glob("*/stat"):
            with suppress(OSError):
                yield path.read_text(errors="replace").rpartition(")")[2].split()[0]
