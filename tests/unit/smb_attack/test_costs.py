"""What one frame may cost: the server's processor, and the time that others wait for it."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server

MOST_S = 2.0
"""Seconds of the processor for the dearest frame; before there was a bound they took 7 to 27."""
SEARCHES = {
    "many stars": "*a" * 250 + "b",
    "questions": "*a?" * 80 + "b",
    "dos": '*a<a>a"b' * 30,
}


@pytest.fixture
def rich(guest: Guest) -> Guest:
    """Has all the credits that it can get."""
    while guest.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
        pass
    return guest


def spent(server: Server) -> float:
    """Seconds of the processor that the server has used."""
    words = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def cost_of(server: Server, guest: Guest, frame: bytes) -> float:
    """Of a frame, and of an echo behind it."""
    before = spent(server)
    guest.send(frame)
    guest.hear()
    guest.echo()
    return spent(server) - before


@pytest.mark.parametrize("pattern", SEARCHES.values(), ids=SEARCHES)
def test_nobody_waits_for_a_search_that_finds_nothing(
    server: Server, guest: Guest, pattern: str
) -> None:
    for number in range(6_000):
        os.close(os.open(server.share / (f"{number:05}" + "a" * 240), os.O_CREAT, 0o644))
    directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
    before = spent(server)
    guest.send(
        guest.message(raw.QUERY_DIRECTORY, raw.find(directory, pattern)),
        guest.message(raw.ECHO, raw.NOTHING),
    )
    answers = [guest.hear()[0] for _ in range(2)]
    if pattern != SEARCHES["many stars"]:  # which is over so soon that the order says nothing
        assert answers[0].command == raw.ECHO, "it has waited"
    assert spent(server) - before < 2 * MOST_S
    guest.echo()


def test_a_directory_that_is_searched_can_be_closed(server: Server, guest: Guest) -> None:
    for number in range(10_000):
        os.close(os.open(server.share / (f"{number:05}" + "a" * 240), os.O_CREAT, 0o644))
    directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
    body = raw.find(directory, SEARCHES["questions"])
    before = server.descriptors()
    guest.send(
        guest.message(raw.QUERY_DIRECTORY, body),
        guest.message(raw.QUERY_DIRECTORY, body),
        guest.message(raw.CLOSE, raw.close(directory)),
    )
    found = {(one := guest.hear()[0]).command: one.status for _ in range(3)}
    assert found[raw.CLOSE] == raw.SUCCESS
    guest.echo()
    server.wait_until(lambda: server.descriptors() < before)


def chained(guest: Guest, bodies: list[tuple[int, bytes]]) -> bytes:
    return raw.chain(*(guest.message(command, body) for command, body in bodies))


def renames(server: Server, guest: Guest) -> bytes:
    """Of a directory, beside which thousands of files are open."""
    directory = guest.open("dir0", options=raw.DIRECTORY)
    for number in range(4000):
        guest.open(f"{number}")
        if not number % 100:
            guest.echo()
    bodies = [raw.set_info(directory, 10, raw.rename(f"dir{one}")) for one in range(1, 61)]
    return chained(guest, [(raw.SET_INFO, body) for body in bodies])


def renames_beside_grown_names(server: Server, guest: Guest) -> bytes:
    """Of a directory, beside which thousands of open files have a longer name than they had."""
    directory = guest.open("dir0", options=raw.DIRECTORY)
    for number in range(4000):
        file = guest.open(f"{number}")
        guest.done(raw.SET_INFO, raw.set_info(file, 10, raw.rename(f"longer{number}")))
    bodies = [raw.set_info(directory, 10, raw.rename(f"dir{one}")) for one in range(1, 61)]
    return chained(guest, [(raw.SET_INFO, body) for body in bodies])


def locks_that_roll_back(server: Server, guest: Guest) -> bytes:
    mine, other = guest.open("file"), guest.open("file")
    for batch in range(3):
        taken = [(1_000_000 + batch * 4000 + 2 * one, 1, 0x12) for one in range(511)]
        guest.done(raw.LOCK, raw.lock(mine, *taken))
    elements = [(2 * one, 1, 0x12) for one in range(510)] + [(1_000_000, 1, 0x12)]
    return chained(guest, [(raw.LOCK, raw.lock(other, *elements))] * 60)


def links_far_down(server: Server, guest: Guest) -> bytes:
    """A link behind five hundred directories, which the server looks for."""
    at = os.open(server.share, os.O_RDONLY)
    for _ in range(500):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.symlink("elsewhere", "link", dir_fd=at)
    os.close(at)
    path = "\\".join(["d"] * 500 + ["link", "x"])
    return chained(guest, [(raw.CREATE, raw.create(path, disposition=raw.OPEN))] * 60)


def attributes(server: Server, guest: Guest) -> bytes:
    """Of which each question reads all, and is answered with little."""
    file = guest.open("file")
    for number in range(128):
        value = bytes(60_000)
        body = struct.pack("<IBBH", 0, 0, 4, len(value)) + b"%04d" % number + b"\0" + value
        guest.ask(raw.SET_INFO, raw.set_info(file, 15, body))
    return chained(guest, [(raw.QUERY_INFO, raw.query(file, 1, 15, most=100))] * 60)


def opens_of_one_file(server: Server, guest: Guest) -> bytes:
    for number in range(4000):
        guest.open("file")
        if not number % 100:
            guest.echo()
    return chained(guest, [(raw.CREATE, raw.create("file", disposition=raw.OPEN))] * 60)


FRAMES = (
    renames,
    renames_beside_grown_names,
    locks_that_roll_back,
    links_far_down,
    attributes,
    opens_of_one_file,
)


@pytest.mark.parametrize("make", FRAMES)
def test_no_frame_is_dear(
    server: Server, rich: Guest, make: Callable[[Server, Guest], bytes]
) -> None:
    frame = make(server, rich)
    while rich.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
        pass
    cost = cost_of(server, rich, frame)
    assert cost < MOST_S, f"{cost:.1f} s"


def test_bytes_that_are_no_frame_are_passed_over_soon(server: Server) -> None:
    before = spent(server)
    server.guest.send_raw(bytes(6 << 20))
    server.guest.begin()
    assert spent(server) - before < MOST_S
