"""One training run over several processes: which process this is, and means over all of them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed as dist


class Processes:
    """This process among ``count``, as ``torchrun`` tells it; without it there is one process.

    Attributes:
        rank, local_rank: counted from 0, among all processes and among those on this machine.
        first: whether this is the process that validates, writes and reports.
    """

    def __init__(self) -> None:
        self.rank, self.local_rank = int(os.environ.get("RANK", 0)), int(os.environ.get("LOCAL_RANK", 0))
        self.count = int(os.environ.get("WORLD_SIZE", 1))
        self.first = self.rank == 0

    def means(self, *values: float) -> list[float]:
        """Return the mean of each number over all processes. All must call it, and all wait for the last one."""
        totals = torch.tensor(values, dtype=torch.float64)
        if self.count > 1:
            dist.all_reduce(totals)
        return (totals / self.count).tolist()

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect the processes; ``ConnectionError`` when one of the others has gone."""
        try:
            if self.count > 1:
                if self.local_rank < torch.cuda.device_count():
                    torch.cuda.set_device(self.local_rank)
                dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
            yield
            if self.count > 1:
                dist.destroy_process_group()
        except RuntimeError as error:  # gloo and NCCL raise it when a process at the other end is gone
            if self.count == 1 or (not isinstance(error, dist.DistError) and "onnection" not in str(error)):
                raise
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it to all, and would cut the message off
            lost = f"process {self.rank} of {self.count} lost another one, and a run needs all of them"
            raise ConnectionError(f"{lost}: {error}") from error
