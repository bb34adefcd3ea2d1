"""The first words between two machines, which either may send in any shape."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.errors import RemoteError, RemoteRefusedError
from quicksand.guest.agent import wire
from quicksand.remote.hello import Hello, Welcome, read_hello, read_welcome, welcome

from tests.conftest import examples
from tests.each import each

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
NAMES = ("id", "method", "params", "result", "error", "protocol", "version", "capabilities")
MORE_NAMES = ("resumed", "code", "message", "nonce", "client", "resume")
NEAR_IT = st.recursive(
    st.one_of(JSON, st.sampled_from(["hello", "0" * 32])),
    lambda inner: st.dictionaries(st.sampled_from(NAMES + MORE_NAMES), inner, max_size=5),
    max_leaves=10,
)


def read(data: bytes) -> tuple[Any, Any]:
    """What each end makes of ``data``: an error of ours, or what it says."""

    async def main() -> list[Any]:
        found: list[Any] = []
        for begin in (lambda reader: read_welcome(reader, "box"), read_hello):
            reader = asyncio.StreamReader()
            reader.feed_data(data)
            reader.feed_eof()
            try:
                found.append(await begin(reader))
            except (RemoteError, EOFError) as error:
                found.append(error)
        return found

    answer, asked = asyncio.run(main())
    return answer, asked


def test_what_one_end_says_the_other_understands() -> None:
    hello = Hello(client="a" * 32, resume=True)
    assert read(hello.encode())[1][0] == hello
    said = welcome(resumed=True)
    assert read(said.encode(hello).removeprefix(hello.marker))[0] == said


def test_a_newer_version_of_the_same_protocol_is_understood() -> None:
    """It can more, and says more."""
    result = {"protocol": 1, "version": "99.0", "capabilities": ["command", "teleport"], "new": {}}
    answer, _ = read(wire.encode_message({"id": 0, "result": result, "new": [1]}))
    assert answer == Welcome(
        protocol=1,
        version="99.0",
        capabilities=frozenset({"command", "teleport"}),
        resumed=False,
    )


@each("protocol", [0, 2, -1, 10**9])
def test_an_answer_in_another_protocol_is_refused(protocol: int) -> None:
    result = {"protocol": protocol, "version": "99.0", "capabilities": []}
    answer, _ = read(wire.encode_message({"id": 0, "result": result}))
    assert isinstance(answer, RemoteRefusedError)
    assert f"speaks the protocol {protocol}" in str(answer)


@given(data=st.binary(max_size=200))
def test_no_bytes_are_more_than_an_error(data: bytes) -> None:
    for found in read(data):
        assert isinstance(found, RemoteError | EOFError)


@settings(max_examples=examples(100))
@given(message=NEAR_IT)
def test_whatever_is_said_is_an_error_or_bounded(message: Any) -> None:
    text = json.dumps(message).encode()
    answer, _ = read(len(text).to_bytes(4) + text)
    if isinstance(answer, Welcome):
        assert len(answer.version) <= 64
        assert all(len(one) <= 64 for one in answer.capabilities)
    else:
        assert isinstance(answer, RemoteError | EOFError)


def test_a_number_without_end_is_an_error() -> None:
    text = b'{"id": 0, "result": {"protocol": ' + b"9" * 5000 + b"}}"
    assert isinstance(read(len(text).to_bytes(4) + text)[0], RemoteError)


@each("length", [4097, 1 << 20, (1 << 32) - 1])
def test_a_frame_that_is_too_long_is_not_waited_for(length: int) -> None:
    for found in read(length.to_bytes(4) + b"{" * 10):
        assert isinstance(found, RemoteError | EOFError)
