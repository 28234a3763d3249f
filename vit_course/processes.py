"""One training run over several processes: which process this is, its share of a batch, and means over all of them."""

import os
import signal
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch import distributed as dist


@dataclass(frozen=True)
class Processes:
    """This process among ``count``: ``rank`` counts from 0, ``local_rank`` on its own machine."""

    rank: int = 0
    local_rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that validates, writes and reports."""
        return self.rank == 0

    def share(self, batch: Tensor) -> Tensor:
        """Return this process's part of a batch; ``count`` must divide its length."""
        return batch.tensor_split(self.count)[self.rank]

    def average_gradients(self, model: nn.Module) -> nn.Module:
        """Wrap a model so that every backward pass leaves the same, averaged gradients in all processes."""
        return model if self.count == 1 else nn.parallel.DistributedDataParallel(model)

    def means(self, *values: float) -> list[float]:
        """Return the mean of each number over all processes. All must call it, and all wait for the last."""
        if self.count == 1:
            return [float(value) for value in values]
        totals = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(totals)
        return (totals / self.count).tolist()

    def wait(self) -> None:
        """Wait until all processes have come this far."""
        self.means(0.0)

    def agree(self, *values: object) -> bool:
        """Return whether these values are printed alike in all processes. All must call it."""
        digest = float(zlib.crc32(repr(values).encode()))
        return self.means(digest) == [digest]

    @classmethod
    def from_environment(cls) -> "Processes":
        """Read what ``torchrun`` says to each process that it starts; without it there is one."""
        rank, local_rank, count = (int(os.environ.get(*entry)) for entry in _ENVIRONMENT)
        return cls(rank, local_rank, count)


_ENVIRONMENT = (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"))


@contextmanager
def joined() -> Iterator[Processes]:
    """Join the processes that ``torchrun`` started, or be the only one.

    Raises:
        ConnectionError: another process has gone.
    """
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
    except RuntimeError as error:  # what gloo and NCCL raise when a process at the other end is gone
        if not isinstance(error, dist.DistError) and "onnection" not in str(error):
            raise
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it to who is left, and would cut the message off
        raise ConnectionError(
            f"process {processes.rank} of {processes.count} lost another one, and a run needs all of them: {error}"
        ) from error
