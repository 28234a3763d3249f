"""How requests and answers travel between the grader and a student's process: JSON and the bytes of tensors.

A frame is the length of a JSON text in four bytes, the text, and the buffers of the tensors that it lists, one after
the other. Nothing is ever unpickled. What comes from the student's process is hostile: :func:`receive` accepts these
types and sizes and nothing else, before it reads or allocates anything.
"""

import math
import socket
from dataclasses import dataclass
from json import dumps, loads
from numbers import Integral, Real
from struct import pack, unpack
from time import monotonic

import torch
from torch import Tensor

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)
}
MAX_TEXT = 8 * 2**20  # bytes
MAX_TENSORS = 64 * 2**20  # bytes, all of a frame together
MAX_COUNT = 10_000  # of tensors in a frame
MAX_AXES = 16


class Malformed(Exception):
    """A frame that does not keep to the protocol."""


class Ended(Exception):
    """The other side closed the connection."""


class TooLate(Exception):
    """No whole frame came before the deadline."""


@dataclass(frozen=True)
class Other:
    """Stands for a value that does not travel, such as a module or a function; equal to nothing but its like."""

    kind: str

    def __repr__(self) -> str:
        return f"a {self.kind}"


def send(connection: socket.socket, message: object, deadline: float = math.inf) -> None:
    """Send a message of numbers, texts, tensors, lists, tuples and dicts; ``deadline`` is a time of ``monotonic``."""
    tensors: list[Tensor] = []
    body = _encode(message, tensors)
    listed = [[str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for tensor in tensors]
    text = dumps([body, listed]).encode()
    if len(text) > MAX_TEXT:
        raise Malformed(f"a text of {len(text)} bytes")
    rest = memoryview(b"".join([pack("!I", len(text)), text, *(tensor.numpy().tobytes() for tensor in tensors)]))
    while rest:
        _set_timeout(connection, deadline)
        try:
            rest = rest[connection.send(rest[: 2**20]) :]
        except TimeoutError:
            raise TooLate from None
        except ConnectionError as error:
            raise Ended from error


def receive(connection: socket.socket, deadline: float = math.inf) -> object:
    """Receive a message; ``Malformed`` if it is not one, ``Ended`` or ``TooLate`` if it does not come."""
    (size,) = unpack("!I", _read(connection, 4, deadline))
    if size > MAX_TEXT:
        raise Malformed(f"a text of {size} bytes")
    try:
        body, listed = loads(_read(connection, size, deadline))
        if len(listed) > MAX_COUNT:
            raise Malformed(f"{len(listed)} tensors")
        shapes = [_checked(*entry) for entry in listed]
    except (ValueError, TypeError, RecursionError) as error:
        raise Malformed(f"no readable frame: {type(error).__name__}") from error
    sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in shapes]
    if sum(sizes) > MAX_TENSORS:
        raise Malformed(f"tensors of {sum(sizes)} bytes")
    tensors = [_tensor(_read(connection, count, deadline), *entry) for entry, count in zip(shapes, sizes, strict=True)]
    try:
        return _decode(body, tensors)
    except (ValueError, TypeError, IndexError, RecursionError) as error:
        raise Malformed(f"no readable value: {type(error).__name__}") from error


def _checked(dtype: object, shape: object) -> tuple[torch.dtype, tuple[int, ...]]:
    if not isinstance(dtype, str) or dtype not in DTYPES or not isinstance(shape, list) or len(shape) > MAX_AXES:
        raise ValueError
    if not all(type(size) is int and 0 <= size <= MAX_TENSORS for size in shape):
        raise ValueError
    if math.prod(max(1, size) for size in shape) > MAX_TENSORS:  # so that no stride overflows beside an axis of 0
        raise ValueError
    return DTYPES[dtype], tuple(shape)


def _tensor(buffer: bytearray, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    if not buffer:
        return torch.empty(shape, dtype=dtype)
    if dtype is torch.bool:  # whatever the bytes are
        return (torch.frombuffer(buffer, dtype=torch.uint8) != 0).reshape(shape)
    return torch.frombuffer(buffer, dtype=dtype).reshape(shape)


def _set_timeout(connection: socket.socket, deadline: float) -> None:
    remaining = deadline - monotonic()
    if remaining <= 0:
        raise TooLate
    connection.settimeout(None if remaining == math.inf else remaining)


def _read(connection: socket.socket, count: int, deadline: float) -> bytearray:
    data = bytearray()
    while len(data) < count:
        _set_timeout(connection, deadline)
        try:
            part = connection.recv(min(count - len(data), 2**20))
        except TimeoutError:
            raise TooLate from None
        except ConnectionError as error:
            raise Ended from error
        if not part:
            raise Ended
        data += part
    return data


# --- values ----------------------------------------------------------------------------------------------------------
# None, texts, truth values and numbers are themselves in JSON, nan and infinities included; a list is a list. The rest
# is an object with one key that says what it is.


def _encode(value: object, tensors: list[Tensor]) -> object:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Tensor):
        return _encode_tensor(Tensor.as_subclass(value.detach(), Tensor), tensors)
    if isinstance(value, Integral):
        return int(value) if abs(value) < 2**63 else float(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list):
        return [_encode(item, tensors) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [_encode(item, tensors) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": [[key, _encode(item, tensors)] for key, item in value.items()]}
    return {"other": value.kind if isinstance(value, Other) else type(value).__name__}


def _encode_tensor(tensor: Tensor, tensors: list[Tensor]) -> dict:
    if tensor.dtype not in DTYPES.values() or tensor.layout is not torch.strided or tensor.is_meta:
        return {"other": f"tensor of {tensor.dtype}, {tensor.layout}, on {tensor.device}"}
    if tensor.ndim > MAX_AXES or tensor.nbytes + sum(other.nbytes for other in tensors) > MAX_TENSORS:
        return {"other": f"tensor of shape {tuple(tensor.shape)}, too large to be handed over"}
    tensors.append(tensor.cpu().contiguous().resolve_conj().resolve_neg())
    return {"tensor": len(tensors) - 1}


def _decode(value: object, tensors: list[Tensor]) -> object:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if isinstance(value, str):
        return _text(value)
    if type(value) is int and abs(value) >= 2**63:
        raise ValueError
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor" and type(content) is int and content >= 0:
        return tensors[content]
    if kind == "tuple" and isinstance(content, list):
        return tuple(_decode(item, tensors) for item in content)
    if kind == "dict" and isinstance(content, list):
        return {_text(key): _decode(item, tensors) for key, item in content}
    if kind == "other":
        return Other(_text(content)[:200])
    raise ValueError


def _text(value: object) -> str:
    """Return a text that can be written as UTF-8: half of a surrogate pair can come out of JSON."""
    if not isinstance(value, str):
        raise TypeError
    return value.encode("utf-8", "replace").decode()
