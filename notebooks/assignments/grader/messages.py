"""Messages between the grader and a student's process: JSON for what they say, safetensors for the numbers in it.

A message is two sizes, four bytes each, then a JSON text and a safetensors file of these sizes. Nothing is unpickled,
and what comes from a student's process is hostile: sizes are bounded before anything is read, and what is not of this
form is refused.
"""

import os
import select
from collections.abc import Callable
from dataclasses import dataclass
from json import dumps, loads
from numbers import Integral, Real
from struct import Struct

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

HEAD = Struct("!II")
MAX_TEXT = 8 * 2**20  # bytes
MAX_TENSORS = 64 * 2**20  # bytes, all of a message together
LOOK_EVERY = 0.2  # seconds, while waiting


class Malformed(Exception):
    """What came is no message."""


class Ended(Exception):
    """The other side closed the connection."""


@dataclass(frozen=True)
class Other:
    """Stands for a value that does not travel, such as a module or a function; equal only to one of the same kind."""

    kind: str

    def __repr__(self) -> str:
        return f"a {self.kind}"


class Connection:
    """Two pipes, or one socket twice.

    Args:
        incoming, outgoing: descriptors to read from and to write to; they are closed with the connection.
        look: called again and again while this side waits; it raises an exception to give up.
    """

    def __init__(self, incoming: int, outgoing: int, look: Callable[[], None] = lambda: None) -> None:
        self.incoming, self.outgoing, self.look = incoming, outgoing, look
        os.set_blocking(outgoing, False)

    def send(self, message: object) -> None:
        """Send a message of numbers, texts, tensors, lists, tuples and dicts.

        Raises:
            Malformed: it is too long.
            Ended: nobody receives it.
        """
        rest = memoryview(pack(message))
        while rest:
            if select.select([], [self.outgoing], [], LOOK_EVERY)[1]:
                try:
                    rest = rest[os.write(self.outgoing, rest[: 2**16]) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise Ended from error
            else:
                self.look()

    def receive(self) -> object:
        """Wait for a message.

        Raises:
            Malformed: what comes is none.
            Ended: the other side is gone.
        """
        text_size, tensors_size = HEAD.unpack(self._read(HEAD.size))
        if text_size > MAX_TEXT or tensors_size > 2 * MAX_TENSORS:
            raise Malformed(f"{text_size} and {tensors_size} bytes")
        return unpack(self._read(text_size), self._read(tensors_size))

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            if select.select([self.incoming], [], [], LOOK_EVERY)[0]:
                try:
                    part = os.read(self.incoming, min(count - len(data), 2**20))
                except OSError as error:
                    raise Ended from error
                if not part:
                    raise Ended
                data += part
            else:
                self.look()
        return bytes(data)

    def close(self) -> None:
        """Close both ends."""
        for descriptor in {self.incoming, self.outgoing}:
            os.close(descriptor)


def pack(message: object) -> bytes:
    """Return a message as bytes."""
    tensors: dict[str, Tensor] = {}
    text = dumps(_to_json(message, tensors)).encode()
    if len(text) > MAX_TEXT:
        raise Malformed(f"a text of {len(text)} bytes")
    data = save(tensors)
    return HEAD.pack(len(text), len(data)) + text + data


def unpack(text: bytes, data: bytes) -> object:
    """Return the message that :func:`pack` made of it, or raise ``Malformed``."""
    try:
        return _from_json(loads(text), load(data))
    except (ValueError, TypeError, LookupError, RecursionError, SafetensorError, RuntimeError, AttributeError) as error:
        raise Malformed(f"no readable message ({type(error).__name__})") from error


# None, texts, truth values and numbers are themselves in JSON, nan and infinities included; a list is a list. The rest
# is an object with one key that says what it is.


def _to_json(value: object, tensors: dict[str, Tensor]) -> object:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Tensor):
        return _tensor_to_json(Tensor.as_subclass(value.detach(), Tensor), tensors)
    if isinstance(value, Integral):
        return int(value) if abs(value) < 2**63 else float(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list):
        return [_to_json(item, tensors) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_to_json(item, tensors) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": [[key, _to_json(item, tensors)] for key, item in value.items()]}
    return {"other": value.kind if isinstance(value, Other) else type(value).__name__}


def _tensor_to_json(tensor: Tensor, tensors: dict[str, Tensor]) -> dict:
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_complex():
        return {"other": f"tensor of {tensor.dtype}, {tensor.layout}, on {tensor.device}"}
    if tensor.nbytes + sum(other.nbytes for other in tensors.values()) > MAX_TENSORS:
        return {"other": f"tensor of shape {tuple(tensor.shape)}, too large to be handed over"}
    name = str(len(tensors))
    tensors[name] = tensor.cpu().resolve_neg().clone(memory_format=torch.contiguous_format)
    return {"tensor": name}


def _from_json(value: object, tensors: dict[str, Tensor]) -> object:
    if isinstance(value, list):
        return [_from_json(item, tensors) for item in value]
    if isinstance(value, str):
        return _text(value)
    if type(value) is int and abs(value) >= 2**63:
        raise ValueError(value)
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple([_from_json(item, tensors) for item in content])
    if kind == "dict":
        return {_text(key): _from_json(item, tensors) for key, item in content}
    if kind == "other":
        return Other(_text(content)[:200])
    raise ValueError(kind)


def _text(value: str) -> str:
    """Return a text that can be written as UTF-8: half of a surrogate pair can come out of JSON."""
    return value.encode("utf-8", "replace").decode()
