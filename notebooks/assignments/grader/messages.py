"""Messages between the grader and a student's process: JSON for what they say, safetensors for the tensors in it.

A message is two sizes, four bytes each, then a JSON text and a safetensors file of these sizes. Nothing is unpickled,
and what comes from a student's process may be hostile: sizes are bounded before anything is read, and everything that
does not have this form is refused. What a student writes can be no more than a text, a number, a tensor, a list, a
tuple or a dict of such; anything else travels as a text with the name of its type.
"""

import os
import select
import time
from collections.abc import Callable
from json import dumps, loads
from numbers import Real
from struct import Struct

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

HEAD = Struct("!II")
MAX_TEXT = 8 * 2**20  # bytes
MAX_TENSORS = 64 * 2**20  # bytes, all of a message together
MAX_HEADER = 2**18  # bytes, of what safetensors says about them: some thousand tensors
LOOK_EVERY = 0.2  # seconds


class Malformed(Exception):
    """What came is no message."""


class Ended(Exception):
    """The other side closed the connection."""


class Connection:
    """Two pipes, or one socket twice.

    Args:
        incoming, outgoing: descriptors to read from and to write to; they are closed with the connection.
        look: called again and again, also while the other side sends or reads byte by byte, and however short every
            message is; it raises an exception to give up.
    """

    def __init__(self, incoming: int, outgoing: int, look: Callable[[], object] = lambda: None) -> None:
        self.incoming, self.outgoing, self.look, self.looked = incoming, outgoing, look, time.monotonic()
        os.set_blocking(outgoing, False)

    def send(self, message: object) -> None:
        """Send a message; ``Malformed`` if it is too long, ``Ended`` if nobody receives it."""
        rest = memoryview(pack(message))
        while rest:
            self._wait([], [self.outgoing])
            try:
                rest = rest[os.write(self.outgoing, rest[: 2**16]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Ended from error

    def receive(self) -> object:
        """Wait for a message; ``Malformed`` if what comes is none, ``Ended`` if the other side is gone."""
        text_size, tensors_size = HEAD.unpack(self._read(HEAD.size))
        if text_size > MAX_TEXT or tensors_size > 2 * MAX_TENSORS:
            raise Malformed(f"{text_size} and {tensors_size} bytes")
        return unpack(self._read(text_size), self._read(tensors_size))

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._wait([self.incoming], [])
            try:
                part = os.read(self.incoming, min(count - len(data), 2**20))
            except OSError as error:
                raise Ended from error
            if not part:
                raise Ended
            data += part
        return bytes(data)

    def _wait(self, readable: list[int], writable: list[int]) -> None:
        ready = False
        while not ready:
            ready = any(select.select(readable, writable, [], LOOK_EVERY))
            if time.monotonic() > self.looked + LOOK_EVERY:
                self.looked = time.monotonic()
                self.look()

    def close(self) -> None:
        """Close both ends."""
        for descriptor in {self.incoming, self.outgoing}:
            os.close(descriptor)


def pack(message: object) -> bytes:
    """Return a message as bytes."""
    tensors: dict[str, Tensor] = {}

    def tagged(value: object) -> object:
        if isinstance(value, Tensor):
            tensor = Tensor.as_subclass(value.detach(), Tensor)
            if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_complex():
                return f"<tensor of {tensor.dtype}, {tensor.layout}, on {tensor.device}>"
            if tensor.nbytes + sum(other.nbytes for other in tensors.values()) > MAX_TENSORS:
                return f"<tensor of shape {tuple(tensor.shape)}, too large to be handed over>"
            name = str(len(tensors))
            tensors[name] = tensor.cpu().resolve_neg().clone(memory_format=torch.contiguous_format)
            return {"tensor": name}
        return float(value) if isinstance(value, Real) else f"<{type(value).__name__}>"

    def marked(value: object) -> object:
        """Mark tuples, which JSON has not: what takes a pair need not take a list."""
        if isinstance(value, dict):
            return {key: marked(each) for key, each in value.items()}
        if isinstance(value, (list, tuple)):
            each = [*map(marked, value)]
            return {"tuple": each} if isinstance(value, tuple) else each
        return value

    try:
        text = dumps(marked(message), default=tagged, skipkeys=True).encode()
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{type(error).__name__}: {error}") from error
    if len(text) > MAX_TEXT:
        raise Malformed(f"a text of {len(text)} bytes")
    data = save(tensors)
    return HEAD.pack(len(text), len(data)) + text + data


def unpack(text: bytes, data: bytes) -> object:
    """Return the message that :func:`pack` made of it, or raise ``Malformed``."""
    if int.from_bytes(data[:8], "little") > MAX_HEADER:
        raise Malformed("too many tensors")

    def read(each: dict) -> object:
        if each.keys() == {"tuple"}:
            return tuple(each["tuple"])
        return tensors[each["tensor"]] if each.keys() == {"tensor"} else each

    try:
        tensors = load(data)
        return loads(text, object_hook=read)
    except (ValueError, TypeError, LookupError, RecursionError, SafetensorError, RuntimeError, AttributeError) as error:
        raise Malformed(f"no readable message ({type(error).__name__})") from error
