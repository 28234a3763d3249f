"""Messages between the grader and a student's process: what travels arrives, and nothing else is accepted."""

import math
import os
from contextlib import suppress

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from grader import messages

DTYPES = torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool
TENSORS = st.builds(
    lambda dtype, shape: torch.arange(math.prod(shape)).reshape(shape).to(dtype),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 3), max_size=3),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS | TENSORS,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(TEXTS.map(str.upper), inner),  # not "tensor"
    max_leaves=8,
)
often = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def parts(data):
    """Return the text and the tensors of a packed message."""
    text, _ = messages.HEAD.unpack(data[:8])
    return data[8 : 8 + text], data[8 + text :]


def same(one, other):
    """Whether two values are of the same kinds and equal."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


@often
@given(VALUES)
def test_values_travel(value):
    assert same(value, messages.unpack(*parts(messages.pack(value))))


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (print, "<builtin_function_or_method>"),
        (torch.zeros(1).expand(2**30), "<tensor of shape (1073741824,), too large to be handed over>"),
        (torch.zeros(1, dtype=torch.complex64), "<tensor of torch.complex64, torch.strided, on cpu>"),
        ((1, {(1, 2): 3}), "(1, {})"),
        (torch.ones(2, 3).T[:, ::2], "tensor([[1.],\n        [1.],\n        [1.]])"),
        (math.nan, "nan"),
    ],
)
def test_what_does_not_travel_is_named(value, came):
    assert str(messages.unpack(*parts(messages.pack(value)))) == came


@often
@given(VALUES, st.data())
def test_bytes_of_any_kind_are_a_message_or_are_refused(value, data):
    packed = bytearray(messages.pack(value))
    packed[data.draw(st.integers(8, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(messages.Malformed):
        messages.unpack(*parts(bytes(packed)))
    with suppress(messages.Malformed):
        messages.unpack(data.draw(st.binary(max_size=60)), data.draw(st.binary(max_size=60)))


MALFORMED = [b"[" * 10**5, b'{"tensor": "0"}', b'{"tensor": []}', b"9" * 5000, b"{", b"\xff"]
MORE_THAN_ANYBODY_NEEDS = save({str(number): torch.empty(0) for number in range(10_000)})


@pytest.mark.parametrize(
    ("text", "data", "cause"),
    [*[(text, save({}), "no readable") for text in MALFORMED], (b"{}", MORE_THAN_ANYBODY_NEEDS, "too many tensors")],
    ids=lambda value: str(value[:16]),
)
def test_a_malformed_message_is_refused(text, data, cause):
    with pytest.raises(messages.Malformed, match=cause):
        messages.unpack(text, data)


def test_what_cannot_be_packed_is_refused():
    endless = []
    endless.append(endless)
    for value in (endless, "x" * (messages.MAX_TEXT + 1)):
        with pytest.raises(messages.Malformed):
            messages.pack(value)


def test_a_message_that_is_announced_too_large_is_refused_before_it_is_read():
    incoming, outgoing = os.pipe()
    connection = messages.Connection(incoming, outgoing)
    os.write(outgoing, messages.HEAD.pack(2**31, 0))
    with pytest.raises(messages.Malformed):
        connection.receive()
    connection.close()


def test_whoever_waits_can_give_up():
    incoming, outgoing = os.pipe()

    def give_up():
        raise TimeoutError

    connection = messages.Connection(incoming, outgoing, give_up)
    with pytest.raises(TimeoutError):
        connection.receive()
    connection.send("x" * 10**4)
    assert connection.receive() == "x" * 10**4
    with pytest.raises(TimeoutError):
        connection.send("x" * 10**6)  # nobody reads
    connection.close()
