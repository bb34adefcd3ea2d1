"""Frames off a stream that comes in any pieces, and from anybody."""

from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_smb import frames as module
from quicksand_smb.disk_reserve import DiskReserve
from quicksand_smb.frames import IN_PLACE, Frames
from quicksand_smb.traffic import private_counters
from quicksand_smb.wire import ProtocolError

from tests.conftest import examples
from tests.unit.smb_attack import raw
from tests.unit.smb_attack.test_in_step import GREETING
from tests.unit.smb_attack.test_reading import Disk, disk

__all__ = ["disk"]

FRAME = st.binary(min_size=60, max_size=500).map(lambda rest: b"\xfeSMB" + rest)


def received(data: bytes, *, resynchronises: bool, most: int = 50) -> list[bytes]:
    """What is made of all bytes that a client sends before it ends the stream."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        reader = Frames(theirs, private_counters(), resynchronises=resynchronises)
        found: list[bytes] = []
        while len(found) < most:
            try:
                found.append(bytes(reader.next()))
            except EOFError:
                break
        return found


@given(st.lists(FRAME, max_size=8))
@settings(max_examples=examples(100))
def test_frames_come_out_as_they_went_in(said: list[bytes]) -> None:
    for resynchronises in (False, True):
        sent = b"".join(raw.frame(one) for one in said)
        assert received(sent, resynchronises=resynchronises) == said


@given(st.lists(FRAME, min_size=1, max_size=4), st.binary(max_size=400), FRAME)
@settings(max_examples=examples(300))
def test_garbage_is_a_protocol_error_or_passed_over(
    before: list[bytes], garbage: bytes, after: bytes
) -> None:
    start = b"".join(raw.frame(one) for one in before)
    try:
        found = received(start + garbage, resynchronises=False)
        assert found[: len(before)] == before
    except ProtocolError:
        assert garbage
    found = received(start + garbage + GREETING + raw.frame(after), resynchronises=True)
    assert found[: len(before)] == before
    if len(found) > len(before) + 1:
        assert found[-1] == after


@pytest.mark.parametrize("size", [IN_PLACE - 1, IN_PLACE, IN_PLACE + 1, IN_PLACE + 5, 150_000])
def test_frames_of_all_sizes_in_small_pieces(size: int) -> None:
    said = [b"\xfeSMB" + os.urandom(size - 4), b"\xfeSMB" + os.urandom(90)] * 3
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
    sent = b"".join(map(raw.frame, said))
    with ours, theirs:
        reader = Frames(theirs, private_counters(), resynchronises=True)
        ours.setblocking(False)
        found = []
        for one in said:
            while sent:
                try:
                    sent = sent[ours.send(sent[:4321]) :]
                except BlockingIOError:
                    break
            found.append(bytes(reader.next()))
            assert found[-1] == one
        assert found == said


def test_half_a_frame_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.1)
    for part in (1, 4, 60):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(raw.frame(b"\xfeSMB" + bytes(100))[:part])
            with pytest.raises(EOFError):
                Frames(theirs, private_counters(), resynchronises=False).next()


def test_a_full_disk_is_said_and_the_rest_goes_on(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    guest = disk.guest.begin()
    file = guest.open("file")
    found = list(os.statvfs("/"))
    found[4] = 0  # f_bavail
    monkeypatch.setattr(DiskReserve, "look", lambda _: os.statvfs_result(found))
    answers = {
        guest.ask(raw.WRITE, raw.write(file, 60_000 * one, bytes(60_000))).status
        for one in range(1200)
    }
    assert answers <= {raw.SUCCESS, raw.DISK_FULL} and raw.DISK_FULL in answers
    names = {guest.ask(raw.CREATE, raw.create(f"new{one}")).status for one in range(200)}
    assert raw.DISK_FULL in names
    guest.done(raw.READ, raw.read(file, 0, 1))
    guest.echo()
