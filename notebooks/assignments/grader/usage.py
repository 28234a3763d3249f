"""What the processes of a submission use, seen from outside: processor time, waiting, memory."""

import re
import time
from contextlib import suppress
from pathlib import Path

import psutil

PAUSE = 5  # seconds without a look: the grader itself was stopped
BUSY = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)  # it computes, or waits for a processor or a disk


class Usage:
    """The processes that came from one, whose number is ``pid``.

    Attributes:
        seconds: processor time, and time in which all of them only waited. Time in which the grader itself was at
            work, and time in which a busy machine let them wait, do not count.
        watched: seconds by the clock in which the grader looked.
        memory: bytes of all together, beyond what they had at the beginning.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.seconds = self.used = self.base = self.watched = 0.0
        self.resume()
        self.measure()
        self.base, self.seconds = self.memory, 0.0

    def resume(self) -> None:
        """Begin to watch again."""
        self.looked, self.is_idle = time.monotonic(), False

    def measure(self) -> None:
        """Look at all processes."""
        now, used, busy, size = time.monotonic(), 0.0, False, 0
        for each in self._tree():
            with suppress(psutil.Error), each.oneshot():
                used += sum(each.cpu_times()[:4])  # user and system, its own and its children's
                busy |= each.status() in BUSY
                size += _own_bytes(each)
        passed = now - self.looked if now - self.looked < PAUSE else 0.0
        self.watched += passed
        waited = passed if self.is_idle and not busy else 0.0  # seen at two looks: once may be after its work
        self.seconds += max(used - self.used, 0) + waited
        self.is_idle = not busy
        self.used, self.looked = max(used, self.used), now
        self.memory = max(size - self.base, 0)

    def end_all(self) -> None:
        """Kill every process."""
        for each in self._tree():
            with suppress(psutil.Error):
                each.kill()

    def _tree(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            process = psutil.Process(self.pid)
            return [process, *process.children(recursive=True)]
        return []


def _own_bytes(process: psutil.Process) -> int:
    """Return the bytes of a process that no file backs; what processes share is divided among them.

    A process that hides how it shares is counted with everything that it can see.
    """
    if not psutil.LINUX:
        return process.memory_info().rss
    for name, sizes in (("smaps_rollup", "Pss_"), ("status", "Rss")):
        with suppress(OSError):
            text = Path(f"/proc/{process.pid}/{name}").read_text(errors="replace")
            return 1024 * sum(map(int, re.findall(rf"^{sizes}(?:Anon|Shmem):\s+(\d+) kB", text, re.MULTILINE)))
    return 0
