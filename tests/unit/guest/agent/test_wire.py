"""The frame decoder against honest, broken and hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import AgentProtocolError
from quicksand.guest.agent import wire

from tests.each import each

frames = st.lists(
    st.one_of(
        st.builds(
            wire.DataFrame,
            st.integers(1, 2**32 - 1),
            st.sampled_from([0, 1, 2, 0x81]),
            st.binary(max_size=300),
        ),
        st.builds(
            lambda message: wire.JsonFrame(message, wire.encode_message(message)[4:]),
            st.dictionaries(st.text(max_size=8), st.integers(-(2**63), 2**63), max_size=4),
        ),
    ),
    max_size=8,
)


def encode(frame: wire.Frame) -> bytes:
    if isinstance(frame, wire.DataFrame):
        return wire.encode_data(frame.channel, frame.stream, frame.payload)
    return wire.encode_message(frame.message)


@given(frames, st.integers(1, 64))
def test_frames_survive_any_split(sent: list[wire.Frame], step: int) -> None:
    stream = b"".join(encode(frame) for frame in sent)
    decoder = wire.FrameDecoder()
    received = [
        frame for i in range(0, len(stream), step) for frame in decoder.feed(stream[i : i + step])
    ]
    assert received == sent


@given(st.binary(max_size=4096), st.integers(1, 97))
def test_arbitrary_bytes_never_raise_anything_but_a_protocol_error(data: bytes, step: int) -> None:
    decoder = wire.FrameDecoder()
    try:
        for i in range(0, len(data), step):
            list(decoder.feed(data[i : i + step]))
    except AgentProtocolError:
        return


@given(st.binary(max_size=2000), st.integers(1, 50))
def test_leftovers_before_the_marker_are_skipped(leftovers: bytes, step: int) -> None:
    nonce = b"n" * wire.NONCE_BYTES
    stream = leftovers + wire.MARKER + nonce + wire.encode_message({"id": 1, "result": {}})
    decoder = wire.FrameDecoder()
    decoder.expect_marker(nonce)
    received = [f for i in range(0, len(stream), step) for f in decoder.feed(stream[i : i + step])]
    assert [frame.message for frame in received if isinstance(frame, wire.JsonFrame)] == [
        {"id": 1, "result": {}}
    ]


@each("length", [wire.JSON_MAX + 1, 2**31 - 1])
def test_a_json_frame_over_the_limit_is_refused_before_it_is_read(length: int) -> None:
    with pytest.raises(AgentProtocolError, match="frame of"):
        list(wire.FrameDecoder().feed(length.to_bytes(4)))


@each("length", [wire.DATA_MAX + wire.DATA_HEADER + 1, 2**31 - 1])
def test_a_data_frame_over_the_limit_is_refused_before_it_is_read(length: int) -> None:
    with pytest.raises(AgentProtocolError, match="frame of"):
        list(wire.FrameDecoder().feed((length | wire.DATA_FLAG).to_bytes(4)))


def test_a_data_frame_shorter_than_its_header_is_refused() -> None:
    with pytest.raises(AgentProtocolError, match="header"):
        list(wire.FrameDecoder().feed((wire.DATA_FLAG | 3).to_bytes(4) + b"abc"))


@each(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"id": NaN}',
        b'{"id": Infinity}',
        b'{"id": 1, "id": 2}',
        b'{"id": ' + b"9" * 10_000 + b"}",
        b'{"id": "\xff"}',
        b'{"id": 1, "result": {"name": "\\ud83d"}}',
        b'{"id": 1, "result": {"\\uDCFF": ""}}',
        b"[1, 2]",
        b"null",
        b"",
        b'{"id": 1',
    ],
    ids=lambda text: repr(text[:20]),
)
def test_json_that_is_not_plain_is_refused(text: bytes) -> None:
    with pytest.raises(AgentProtocolError, match="JSON"):
        wire.parse_message(text)


def test_noise_without_a_marker_ends_in_an_error_and_is_not_kept() -> None:
    decoder = wire.FrameDecoder()
    decoder.expect_marker(b"n" * wire.NONCE_BYTES)
    noise = b"QSND" * 65536
    with pytest.raises(AgentProtocolError, match="noise"):
        for _ in range(wire.PRE_MARKER_MAX // len(noise) + 2):
            list(decoder.feed(noise))


def test_a_request_over_the_limit_is_not_sent() -> None:
    with pytest.raises(ValueError, match="larger"):
        wire.encode_message({"x": "y" * wire.JSON_MAX})
