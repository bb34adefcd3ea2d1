"""What a guest can have the server keep, each kind of thing alone and all together: the process
stays below the 128 MiB that `Server.check` allows."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server, serving

MIB = 1 << 20
ONE_KIND = 28 * MIB
"""More than three quarters of what is paid for (`quicksand_smb.ledger`), which one process of a
guest gets, and less than it takes where something is not paid for."""
AT_ONCE = 50
"""Requests of one frame."""
NO_SUCH_FILE = 0xC000000F
ENOUGH = (raw.INSUFFICIENT_RESOURCES, raw.TOO_MANY_OPENED_FILES)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """As deployed: clients may keep directories, and what Linux writes is guarded."""
    with serving(tmp_path, leases="directories") as made:
        yield made
        made.check()


@pytest.fixture
def guest(server: Server) -> Guest:
    """As Linux speaks."""
    return server.guest.begin(0x311)


@pytest.fixture
def rich(guest: Guest) -> Guest:
    """Has all the credits that it can get."""
    refill(guest)
    return guest


def refill(guest: Guest) -> None:
    while guest.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
        pass


def ask_all(
    guest: Guest, command: int, bodies: list[bytes], *, process: int = 1
) -> list[raw.Response]:
    """Many requests, few frames; up to a frame of which nothing is done."""
    answers = []
    for at in range(0, len(bodies), AT_ONCE):
        part = bodies[at : at + AT_ONCE]
        guest.send(raw.chain(*(guest.message(command, body, process=process) for body in part)))
        answers += guest.hear()
        refill(guest)
        if all(answer.status in ENOUGH for answer in answers[-len(part) :]):
            break
    return answers


def files(guest: Guest, count: int) -> list[bytes]:
    bodies = [raw.create(f"file{number}") for number in range(count)]
    answers = ask_all(guest, raw.CREATE, bodies)
    return [answer.file for answer in answers if answer.status == raw.SUCCESS]


def deep_opens(server: Server, guest: Guest) -> list[raw.Response]:
    """One file, 512 names down."""
    at = os.open(server.share, os.O_RDONLY)
    for _ in range(511):
        os.mkdir("a name", dir_fd=at)
        below = os.open("a name", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("f", os.O_CREAT, 0o644, dir_fd=at))
    os.close(at)
    path = "\\".join(["a name"] * 511 + ["f"])
    return ask_all(guest, raw.CREATE, [raw.create(path)] * 3000)


def entries(server: Server, guest: Guest) -> list[raw.Response]:
    """Who may do what, with as many entries as a descriptor may have."""
    ace = struct.pack("<BBHI", 0, 0, 16, 1) + struct.pack("<BB6s", 1, 0, b"\0" * 5 + b"\1")
    acl = struct.pack("<BBHHH", 2, 0, 8 + 254 * 16, 254, 0) + ace * 254
    descriptor = struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl
    bodies = []
    for file in files(guest, 2000):
        known = struct.pack("<HBBIHHI", 33, 3, 0, len(descriptor), 96, 0, 4)
        bodies.append(known + file + descriptor)
    return ask_all(guest, raw.SET_INFO, bodies)


def searches(server: Server, guest: Guest) -> list[raw.Response]:
    """With the longest patterns there are, and with the dearest."""
    wild = "".join(chr(0x4E00 + one) + "?" for one in range(255))
    handles = ask_all(
        guest, raw.CREATE, [raw.create("", disposition=raw.OPEN, options=raw.DIRECTORY)] * 1100
    )
    found = [answer.file for answer in handles if answer.status == raw.SUCCESS]
    half = len(found) // 2
    dear = ask_all(guest, raw.QUERY_DIRECTORY, [raw.find(one, wild) for one in found[:half]])
    long = [raw.find(one, "x" * 32_000) for one in found[half:]]
    return dear + ask_all(guest, raw.QUERY_DIRECTORY, long)


def trees(server: Server, guest: Guest) -> list[raw.Response]:
    return ask_all(guest, raw.TREE_CONNECT, [raw.tree_connect("RW")] * 1100)


def renamed(server: Server, guest: Guest) -> list[raw.Response]:
    """Open files whose directory gets the longest name that there is."""
    at = os.open(server.share, os.O_RDONLY)
    for _ in range(18):
        os.mkdir("d" * 200, dir_fd=at)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    (server.share / "a").mkdir()
    (server.share / "a" / "f").touch()
    opened = ask_all(guest, raw.CREATE, [raw.create("a\\f")] * 15_000)
    is_linux = context(raw.POSIX_TAG, bytes(4))
    directory = guest.open("a", disposition=raw.OPEN, options=raw.DIRECTORY, contexts=is_linux)
    target = "/".join(["d" * 200] * 18 + ["y"])
    guest.done(raw.SET_INFO, raw.set_info(directory, 10, raw.rename(target)))
    return opened


def guarded(server: Server, guest: Guest) -> list[raw.Response]:
    """Files that Linux opens for writing, each of which the host may change meanwhile."""
    bodies = []
    for number in range(16_000):
        lease = context(b"RqLs", struct.pack("<16sIIQ", b"%016d" % number, 7, 0, 0))
        lease = len(lease).to_bytes(4, "little") + lease[4:]
        contexts = lease + context(raw.POSIX_TAG, bytes(4))
        body = raw.create(f"{number}", contexts=contexts)
        bodies.append(body[:3] + b"\xff" + body[4:])  # the level that asks for a lease
    return ask_all(guest, raw.CREATE, bodies)


def context(name: bytes, data: bytes) -> bytes:
    """[MS-SMB2] 2.2.13.2."""
    at = 16 + len(name) + -len(name) % 8
    made = struct.pack("<IHHHHI", 0, 16, len(name), 0, at, len(data)) + name
    made += bytes(at - len(made)) + data
    return made + bytes(-len(made) % 8)


KINDS = (deep_opens, entries, searches, trees, renamed, guarded)


@pytest.mark.parametrize("attack", KINDS)
def test_what_is_kept_is_bounded(
    server: Server, rich: Guest, attack: Callable[[Server, Guest], list[raw.Response]]
) -> None:
    before = server.memory()
    statuses = [answer.status for answer in attack(server, rich)]
    assert statuses[0] in (raw.SUCCESS, NO_SUCH_FILE) and len(statuses) > 100
    assert server.memory() < 64 * MIB, f"{server.memory() >> 20} MiB"
    assert server.memory() - before < ONE_KIND, f"{(server.memory() - before) >> 20} MiB more"


def test_all_together_are_bounded(server: Server, rich: Guest) -> None:
    """And then with as much that waits to be answered, and heard, as there may be."""
    for attack in reversed(KINDS):  # the greediest last
        attack(server, rich)
    (server.share / "big").write_bytes(bytes(8 * MIB))
    refill(rich)
    big = rich.ask(raw.CREATE, raw.create("big"))
    if big.status == raw.SUCCESS:
        for _ in range(4):
            rich.send(rich.message(raw.READ, raw.read(big.file, 0, 2 * MIB), charge=32))
    server.wait_until(server.is_idle)
    assert server.memory() < 128 * MIB, f"{server.memory() >> 20} MiB"


def test_what_is_closed_is_given_back(server: Server, rich: Guest) -> None:
    """Three times as much as there may be, one after the other."""
    path = Path(server.share, *["d" * 200] * 10)
    path.mkdir(parents=True)
    (path / "f").touch()
    text = "\\".join(["d" * 200] * 10 + ["f"])
    for _ in range(4):
        answers = ask_all(rich, raw.CREATE, [raw.create(text)] * 3000)
        opened = [answer.file for answer in answers if answer.status == raw.SUCCESS]
        assert len(opened) == 3000
        ask_all(rich, raw.CLOSE, [raw.close(file) for file in opened])
    directory = rich.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
    for number in range(1000):
        rich.ask(raw.QUERY_DIRECTORY, raw.find(directory, f"x{number}*", flags=0x10))
        if not number % 100:
            refill(rich)
    rich.done(raw.QUERY_DIRECTORY, raw.find(directory, "*", flags=0x10))


# Programs of a guest that open many files, each told by the number of its process


def names(start: int, count: int) -> list[bytes]:
    return [raw.create(f"some\\where\\file{number}") for number in range(start, start + count)]


def done(answers: list[raw.Response]) -> list[bytes]:
    return [answer.file for answer in answers if answer.status == raw.SUCCESS]


def test_who_opens_too_much_keeps_nobody_else_from_opening(server: Server, rich: Guest) -> None:
    (server.share / "some" / "where").mkdir(parents=True)
    greedy = done(ask_all(rich, raw.CREATE, names(0, 20_000), process=1))
    assert len(greedy) > 10_000
    again = rich.ask(raw.CREATE, names(0, 1)[0], process=1)
    assert again.status == raw.TOO_MANY_OPENED_FILES
    for process in range(2, 6):
        others = done(ask_all(rich, raw.CREATE, names(0, 400), process=process))
        assert len(others) == 400
        refill(rich)
    assert len(done(ask_all(rich, raw.CREATE, names(0, 2000), process=7))) <= 1024
    ask_all(rich, raw.CLOSE, [raw.close(file) for file in greedy[:8000]], process=1)
    assert rich.ask(raw.CREATE, names(0, 1)[0], process=1).status == raw.SUCCESS


def test_where_the_system_gives_few_descriptors_they_are_shared_likewise(tmp_path: Path) -> None:
    with serving(tmp_path, descriptors=1024) as server:
        guest = server.guest.begin()
        refill(guest)
        (server.share / "some" / "where").mkdir(parents=True)
        greedy = done(ask_all(guest, raw.CREATE, names(0, 2000), process=1))
        assert 300 < len(greedy) < 700
        assert len(done(ask_all(guest, raw.CREATE, names(0, 20), process=2))) == 20
        directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
        guest.done(raw.QUERY_DIRECTORY, raw.find(directory, "*"))
        server.check()
