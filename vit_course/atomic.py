"""How a file is written so that it is whole or absent, even if the process is killed or the power fails."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to, next to ``path``; without an error the new file then takes the place of the old one."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
