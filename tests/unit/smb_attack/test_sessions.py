"""What a real client has said: answered as it was then, and, spoiled, answered without harm."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from quicksand_smb import header as headers
from quicksand_smb.messages import create, ioctl, negotiate, query, readwrite, session
from quicksand_smb.wire import ProtocolError

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import StreamEnded, serving
from tests.unit.smb_attack.hostile import SESSION_AT, Hostile, messages, put, requests, spoiled
from tests.unit.smb_attack.record import SESSIONS, frames

RECORDINGS = sorted(path.stem for path in SESSIONS.iterdir())
DECODERS = {
    raw.NEGOTIATE: negotiate.decode_request,
    raw.SESSION_SETUP: session.decode_setup,
    raw.TREE_CONNECT: session.decode_tree,
    raw.TREE_DISCONNECT: session.decode_empty,
    raw.CREATE: create.decode_request,
    raw.CLOSE: create.decode_close,
    raw.READ: readwrite.decode_read,
    raw.WRITE: readwrite.decode_write,
    raw.IOCTL: ioctl.decode_request,
    raw.QUERY_DIRECTORY: query.decode_directory,
    raw.QUERY_INFO: query.decode_query,
    raw.SET_INFO: query.decode_set,
}


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_request_of_a_real_client_is_understood(name: str) -> None:
    seen = set()
    for frame in requests(SESSIONS / f"{name}.bin"):
        ours = headers.split(memoryview(frame))
        assert [bytes(one) for one in ours] == messages(frame)
        for message in ours:
            command = headers.decode_header(message).command
            assert command == int.from_bytes(message[12:14], "little")
            DECODERS[command](message)
            seen.add(command)
    assert len(seen) >= 10


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_real_client_is_answered_as_it_was(name: str, tmp_path: Path) -> None:
    """The same statuses, credits, sizes, numbers of files and data; times are others."""
    recorded = frames((SESSIONS / f"{name}.bin").read_bytes())
    with serving(tmp_path, resynchronise=False) as server:
        now = 0
        for is_clients, frame in recorded:
            if is_clients:
                begins = not any(frame[SESSION_AT : SESSION_AT + 8])
                server.guest.send(frame if begins else put(frame, SESSION_AT, now, 8))
                continue
            (answer,) = server.guest.hear()
            now = answer.session
            ours, theirs = answer.raw, frame
            assert len(ours) == len(theirs)
            assert ours[:SESSION_AT] == theirs[:SESSION_AT]
            if answer.command in (raw.CREATE, raw.READ, raw.WRITE, raw.CLOSE):
                assert ours[64:72] == theirs[64:72]
            if answer.command == raw.CREATE and answer.status == raw.SUCCESS:
                assert ours[104:144] == theirs[104:144]  # sizes, attributes, the file's number
            if answer.command == raw.READ:
                assert ours[64:] == theirs[64:]
        server.check()


FEW = 200
"""Frames that are sent at least."""


def hostilities(place: Path, seed: int, seconds: float) -> tuple[int, int]:
    """Spoiled conversations for a time, and until there were some. Returns how many frames were
    sent, and how often the server had enough and was begun anew."""
    deadline = time.monotonic() + seconds
    said = ends = 0
    while time.monotonic() < deadline or said < FEW:
        with serving(place / f"{ends}", secret=None) as server:
            server.guest.begin()
            before = server.descriptors()
            hostile = Hostile(server, seed + ends)
            try:
                while time.monotonic() < deadline or said + hostile.said < FEW:
                    hostile.play()
                hostile.make_peace()
                assert server.descriptors() <= before + 1, "descriptors leak"
            except StreamEnded:
                server.wait_until(server.has_ended)
                assert server.process.returncode == 0
                ends += 1
            said += hostile.said
            server.check()
    return said, ends


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_spoiled_conversations_do_no_harm(tmp_path: Path, seed: int) -> None:
    said, ends = hostilities(tmp_path, seed * 1000, 1)
    assert said >= FEW
    assert ends < 10


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_five_minutes_of_spoiled_conversations_do_no_harm(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    said, ends = hostilities(tmp_path, seed, 300)
    print(said, "frames,", ends, "ends")
    assert said > 20_000


def test_a_decoder_that_checks_nothing_is_found_out() -> None:
    """Spoiling reaches the decoders: one that trusts its input fails on it."""
    chance = random.Random(1)
    said = requests(SESSIONS / f"{RECORDINGS[0]}.bin")
    refused = 0
    for _ in range(2000):
        frame = spoiled(chance, chance.choice(said), said)
        try:
            for message in headers.split(memoryview(frame)):
                decoder = DECODERS.get(headers.decode_header(message).command)
                if decoder:
                    decoder(message)
        except ProtocolError:
            refused += 1
    assert 200 < refused < 1900
