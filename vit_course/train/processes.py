"""One training run over several processes: which process this is, its share of a batch, and means over all of them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch import distributed as dist


@dataclass(frozen=True)
class Processes:
    """This process among ``count``: ``rank`` counts from 0, ``local_rank`` on its own machine."""

    rank: int = 0
    local_rank: int = 0
    count: int = 1

    @classmethod
    def from_environment(cls) -> "Processes":
        """Read the variables that ``torchrun`` sets for each process; without it there is one process."""
        variables = (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))
        return cls(*(int(os.environ.get(name, default)) for name, default in variables))

    @property
    def first(self) -> bool:
        """Whether this is the process that validates, writes and reports."""
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """Return this process's part of a batch; ``count`` must divide its length."""
        return batch.tensor_split(self.count)[self.rank]

    def means(self, *values: float) -> list[float]:
        """Return the mean of each number over all processes. All must call it, and all wait for the last one."""
        totals = torch.tensor(values, dtype=torch.float64)
        if self.count > 1:
            dist.all_reduce(totals)
        return (totals / self.count).tolist()

    def wait(self) -> None:
        """Wait until all processes have reached this line."""
        self.means(0.0)


@contextmanager
def process_group() -> Iterator[Processes]:
    """Connect the processes that ``torchrun`` started; ``ConnectionError`` when one of the others has gone."""
    processes = Processes.from_environment()
    if processes.count == 1:
        yield processes
        return
    if processes.local_rank < torch.cuda.device_count():
        torch.cuda.set_device(processes.local_rank)
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
        yield processes
        dist.destroy_process_group()
    except RuntimeError as error:  # gloo and NCCL raise it when a process at the other end is gone
        if not isinstance(error, dist.DistError) and "onnection" not in str(error):
            raise
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it to the others, and would cut the message off
        lost = f"process {processes.rank} of {processes.count} lost another one, and a run needs all of them"
        raise ConnectionError(f"{lost}: {error}") from error
