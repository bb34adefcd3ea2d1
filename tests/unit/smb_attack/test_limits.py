"""What a guest could make the server keep or do without an end; each stays within the memory that
`Server.check` allows."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import time
from pathlib import Path

import pytest

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server, StreamEnded, serving

MIB = 1 << 20
REFUSED = (raw.INVALID_PARAMETER, raw.INSUFFICIENT_RESOURCES)


@pytest.fixture
def rich(guest: Guest) -> Guest:
    """Has all the credits that it can get."""
    while guest.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
        pass
    return guest


def big(server: Server, size: int) -> None:
    with (server.share / "big").open("wb") as file:
        for _ in range(size // MIB):
            file.write(b"b" * MIB)


def test_reading_more_than_agreed_is_refused(server: Server, rich: Guest) -> None:
    big(server, 32 * MIB)
    file = rich.open("big")
    for count in (8 * MIB + 1, 16 * MIB, 1 << 31, 0xFFFFFFFF):
        answer = rich.ask(raw.READ, raw.read(file, 0, count), charge=128)
        assert answer.status == raw.INVALID_PARAMETER
    answer = rich.ask(raw.READ, raw.read(file, 0, 2 * MIB), charge=1)
    assert answer.status == raw.INVALID_PARAMETER
    assert len(rich.done(raw.READ, raw.read(file, 0, 8 * MIB), charge=128).data) == 8 * MIB


def test_a_chain_of_1500_reads_ends_the_conversation(server: Server, guest: Guest) -> None:
    big(server, MIB)
    file = guest.open("big")
    reads = [raw.header(raw.READ, message=guest.number) + raw.read(file, 0, MIB)] * 1500
    guest.send(raw.chain(*reads))
    assert guest.is_silent(0.5)
    assert guest.ask(raw.ECHO, raw.NOTHING).status == raw.SESSION_DELETED


def test_a_chain_of_large_reads_is_bounded_as_a_whole(server: Server, rich: Guest) -> None:
    big(server, 8 * MIB)
    file = rich.open("big")
    for count in (2 * MIB, 4 * MIB):
        charge = count >> 16
        number = 200 // charge
        frame = raw.chain(
            *(
                rich.message(raw.READ, raw.read(file, 0, count), charge=charge)
                for _ in range(number)
            )
        )
        rich.send(frame)
        heard = rich.hear()
        assert sum(len(one.data) for one in heard if one.status == raw.SUCCESS) <= 8 * MIB
        assert {one.status for one in heard} <= {raw.SUCCESS, *REFUSED}
        while rich.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
            pass


def test_many_small_reads_in_a_chain_are_answered(server: Server, guest: Guest) -> None:
    (server.share / "file").write_bytes(b"0123456789")
    file = guest.open("file")
    for _ in range(3):
        guest.echo()
    reads = [guest.message(raw.READ, raw.read(file, at, 1)) for at in range(10)]
    guest.send(raw.chain(*reads))
    assert b"".join(one.data for one in guest.hear()) == b"0123456789"


def test_memory_of_create_contexts_that_overlap_is_bounded(server: Server, rich: Guest) -> None:
    size = 7 * MIB
    contexts = bytearray(size)
    for at in range(0, 31 * 24, 24):
        following = 24 if at < 30 * 24 else 0
        struct.pack_into(
            "<IHHHHI", contexts, at, following, 16, 4, 0, 24, size - at - 24 if size > at else 0
        )
        contexts[at + 16 : at + 20] = b"Ctx%c" % (65 + at // 24)
    for _ in range(3):
        answer = rich.ask(raw.CREATE, raw.create("file", contexts=bytes(contexts)), charge=112)
        assert answer.status == raw.INVALID_PARAMETER


def test_a_login_that_never_ends_takes_no_memory(server: Server) -> None:
    guest = server.guest
    guest.negotiate(0x311)
    for _ in range(60):
        stuffed = raw.setup(raw.HELLO) + bytes(4 * MIB)
        assert guest.ask(raw.SESSION_SETUP, stuffed, charge=1).status == raw.INVALID_PARAMETER
        body = raw.setup(raw.HELLO + bytes(60_000))
        guest.session = guest.ask(raw.SESSION_SETUP, body, charge=1).session
    assert guest.session


def test_sessions_and_trees_have_a_limit(server: Server) -> None:
    guest = server.guest
    guest.negotiate(0x210)
    statuses = set()
    for _ in range(100):
        guest.session = 0
        statuses.add(guest.ask(raw.SESSION_SETUP, raw.setup(raw.HELLO)).status)
    assert statuses == {raw.MORE_PROCESSING, raw.INSUFFICIENT_RESOURCES}
    guest.begin()
    answers = [guest.ask(raw.TREE_CONNECT, raw.tree_connect("RW")).status for _ in range(1100)]
    assert answers[-1] == raw.INSUFFICIENT_RESOURCES
    guest.begin().open("still")


def test_open_files_have_a_limit_and_others_go_on(server: Server, rich: Guest) -> None:
    guest, files = rich, []
    statuses = {raw.SUCCESS}
    while raw.TOO_MANY_OPENED_FILES not in statuses:
        guest.send(raw.chain(*(guest.message(raw.CREATE, raw.create("file")) for _ in range(60))))
        answers = guest.hear()
        statuses = {answer.status for answer in answers}
        files += [answer.file for answer in answers if answer.status == raw.SUCCESS]
        while guest.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
            pass
        assert len(files) < 20_000
    assert server.descriptors() < 20_480
    guest.done(raw.WRITE, raw.write(files[0], 0, b"works"))
    for file in files[:2]:
        guest.done(raw.CLOSE, raw.close(file))
    guest.open("another")


def test_listings_that_are_never_ended_have_a_limit(server: Server, guest: Guest) -> None:
    for number in range(400):
        (server.share / f"{number:0200}").touch()
    statuses = []
    for _ in range(1100):
        file = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
        statuses.append(guest.ask(raw.QUERY_DIRECTORY, raw.find(file, "*", flags=2)).status)
    assert set(statuses) == {raw.SUCCESS, raw.INSUFFICIENT_RESOURCES}
    guest.begin().open("still")


def test_what_is_told_of_changes_has_a_limit(server: Server, guest: Guest) -> None:
    deep = "\\".join(["d" * 200] * 8)
    for depth in range(1, 9):
        guest.open("\\".join(["d" * 200] * depth), options=raw.DIRECTORY)
    watches = 0
    for _ in range(600):
        file = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
        number = guest.number
        answer = guest.ask(raw.CHANGE_NOTIFY, raw.notify(file))
        if answer.status != raw.PENDING:
            assert answer.status == raw.INSUFFICIENT_RESOURCES
            continue
        watches += 1
        guest.send(guest.message(raw.CANCEL, raw.NOTHING, message=number, charge=0))
        assert guest.hear()[0].status == raw.CANCELLED
    assert watches
    for number in range(300):
        guest.done(raw.CLOSE, raw.close(guest.open(f"{deep}\\{number:0200}")))
    guest.echo()


def test_questions_that_wait_have_a_limit(server: Server, guest: Guest) -> None:
    (server.share / "file").touch()
    directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
    statuses = [guest.ask(raw.CHANGE_NOTIFY, raw.notify(directory)).status for _ in range(600)]
    assert set(statuses) == {raw.PENDING, raw.INSUFFICIENT_RESOURCES}
    held = guest.open("file")
    guest.done(raw.LOCK, raw.lock(held, (0, 1, 2 | 0x10)))
    other = guest.open("file")
    assert guest.ask(raw.LOCK, raw.lock(other, (0, 1, 2))).status == raw.INSUFFICIENT_RESOURCES
    guest.echo()


def test_locks_have_a_limit(server: Server, guest: Guest) -> None:
    taken = 0
    for number in range(12):
        file = guest.open(f"{number}")
        for batch in range(4):
            elements = [(batch * 4000 + 2 * one, 1, 1 | 0x10) for one in range(512)]
            answer = guest.ask(raw.LOCK, raw.lock(file, *elements))
            taken += 512 * (answer.status == raw.SUCCESS)
            if answer.status == raw.INSUFFICIENT_RESOURCES:
                break
    assert 0 < taken <= 8192
    guest.echo()


@pytest.mark.parametrize("count", [0, 1025, 65535])
def test_a_wrong_number_of_locks_is_refused(guest: Guest, count: int) -> None:
    file = guest.open("file")
    body = raw.lock(file, (0, 1, 0x12), count=count)
    assert guest.ask(raw.LOCK, body).status == raw.INVALID_PARAMETER
    elements = [(one, 1, 0x12) for one in range(1025)]
    assert guest.ask(raw.LOCK, raw.lock(file, *elements)).status == raw.INVALID_PARAMETER


def test_a_storm_of_cancels_is_not_answered(server: Server, guest: Guest) -> None:
    directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
    for _ in range(200):
        assert guest.ask(raw.CHANGE_NOTIFY, raw.notify(directory)).status == raw.PENDING
    storm = [
        raw.header(raw.CANCEL, message=1 << 40 | one, session=guest.session) + raw.NOTHING
        for one in range(3000)
    ]
    guest.send(*storm)
    guest.echo()


def test_copying_has_limits(server: Server, rich: Guest) -> None:
    big(server, 2 * MIB)
    source, target = rich.open("big"), rich.open("target")

    def copy(*chunks: tuple[int, int, int], count: int | None = None) -> int:
        number = len(chunks) if count is None else count
        data = source[:8] + bytes(16) + struct.pack("<II", number, 0)
        data += b"".join(struct.pack("<QQII", *one, 0) for one in chunks)
        return rich.ask(raw.IOCTL, raw.ioctl(target, 0x001480F2, data), charge=16).status

    assert copy((0, 0, MIB), (MIB, MIB, MIB)) == raw.SUCCESS
    for chunks in (
        [(0, 0, 0)],
        [(0, 0, MIB + 1)],
        [(0, 0, 0xFFFFFFFF)],
        [(0, 0, MIB)] * 17,
        [(0, 0, 1)] * 257,
        [(0, (1 << 63) - 1, 1)],
        [(0, (1 << 64) - 1, 1)],
        [((1 << 64) - 1, 0, 1)],
        [(2 * MIB, 0, 1)],
    ):
        assert copy(*chunks) not in (raw.SUCCESS, raw.PENDING)
    for count in (1000, 1_000_000, 0xFFFFFFFF):
        assert copy((0, 0, 1), count=count) == raw.INVALID_PARAMETER
    assert (server.share / "target").stat().st_size == 2 * MIB


def test_sizes_beyond_all_bounds_are_refused(server: Server, guest: Guest) -> None:
    file = guest.open("file")
    for size in (1 << 43, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
        for level in (19, 20):
            answer = guest.ask(raw.SET_INFO, raw.set_info(file, level, struct.pack("<Q", size)))
            assert answer.status != raw.SUCCESS
        answer = guest.ask(raw.WRITE, raw.write(file, size, b"x"))
        assert answer.status != raw.SUCCESS or size == (1 << 64) - 1  # which is "at the end"
        answer = guest.ask(raw.READ, raw.read(file, size, 1))
        assert answer.status != raw.SUCCESS
        zero = struct.pack("<QQ", 0, size)
        guest.ask(raw.IOCTL, raw.ioctl(file, 0x000980C8, zero))
        guest.ask(raw.IOCTL, raw.ioctl(file, 0x000940CF, zero))
    assert (server.share / "file").stat().st_size <= 1
    assert (server.share / "file").stat().st_blocks <= 8


TIMES = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 2, (1 << 64) - 3, 1 << 62]


def test_times_beyond_all_bounds_are_answered(server: Server, guest: Guest) -> None:
    file = guest.open("file")
    for times in itertools.product(TIMES, repeat=2):
        body = struct.pack("<QQQQII", times[0], *times, times[1], 0, 0)
        guest.ask(raw.SET_INFO, raw.set_info(file, 4, body))
        for level in (4, 18, 34):
            assert guest.ask(raw.QUERY_INFO, raw.query(file, 1, level)).status == raw.SUCCESS
    directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
    guest.done(raw.QUERY_DIRECTORY, raw.find(directory, "*"))


@pytest.mark.parametrize("most", [0, 1, 7, 64 * 1024 + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_room_for_answers_is_as_much_as_was_paid_for(guest: Guest, most: int) -> None:
    file = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
    for command, body in (
        (raw.QUERY_INFO, raw.query(file, 1, 18, most=most)),
        (raw.QUERY_INFO, raw.query(file, 2, 5, most=most)),
        (raw.QUERY_INFO, raw.query(file, 3, 0, most=most)),
        (raw.QUERY_DIRECTORY, raw.find(file, "*", most=most)),
        (raw.CHANGE_NOTIFY, raw.notify(file, most=most)),
        (raw.IOCTL, raw.ioctl(file, 0x00140078, most=most)),
    ):
        answer = guest.ask(command, body)
        assert len(answer.raw) < 2000
        assert most < 1 << 16 or answer.status == raw.INVALID_PARAMETER
    guest.echo()


def test_attributes_have_limits_and_only_users_ones_can_be_set(server: Server, rich: Guest) -> None:
    file = rich.open("file")

    def put(name: bytes, value: bytes) -> int:
        body = struct.pack("<IBBH", 0, 0, len(name), len(value)) + name + b"\0" + value
        return rich.ask(raw.SET_INFO, raw.set_info(file, 15, body), charge=2).status

    put(b"mine", b"value")
    for number in range(300):
        put(b"%d" % number, b"v" * 100)
    put(b"large", b"v" * 65535)
    for name in (b"security.capability", b"trusted.x", b"user.x", b"DOSATTRIB", b"", b"a\0b"):
        put(name, b"value")
    names = os.listxattr(server.share / "file")
    assert all(name.startswith("user.") and "DOSATTRIB" not in name for name in names)
    assert len(names) <= 128
    rich.ask(raw.QUERY_INFO, raw.query(file, 1, 15, most=8 * MIB), charge=128)
    rich.echo()


BOMBS = ["*?" * 200, "*a" * 250 + "b", "*" * 30_000, "<" * 500, '?>"<*' * 100, "*" + "?" * 254]


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_no_pattern_is_slow(server: Server, guest: Guest, bomb: str) -> None:
    for number in range(200):
        (server.share / (f"{number:03}" + "a" * 250)).touch()
    directory = guest.open("", disposition=raw.OPEN, options=raw.DIRECTORY)

    def look() -> float:
        before = time.monotonic()
        guest.ask(raw.QUERY_DIRECTORY, raw.find(directory, bomb))
        return time.monotonic() - before

    # A busy host may be late, but not each time.
    assert any(look() < 5 for _ in range(3))


def test_a_large_directory_is_told_in_parts(server: Server, rich: Guest) -> None:
    for number in range(20_000):
        (server.share / f"{number}").touch()
    directory = rich.open("", disposition=raw.OPEN, options=raw.DIRECTORY)
    answers = 0
    while True:
        body = raw.find(directory, "*", most=8 * MIB)
        answer = rich.ask(raw.QUERY_DIRECTORY, body, charge=128)
        if answer.status != raw.SUCCESS:
            break
        answers += 1
        while rich.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
            pass
    assert answer.status == raw.NO_MORE_FILES and answers


def test_credits_that_were_not_granted_end_the_conversation(server: Server) -> None:
    for message, charge in (
        (1 << 40, 1),
        (0, 1),
        (3, 65535),
        (1000, 2),
        ((1 << 64) - 1, 1),
        ((1 << 64) - 3, 65535),
    ):
        guest = server.guest.begin()
        guest.send(guest.message(raw.ECHO, raw.NOTHING, message=message, charge=charge))
        assert guest.is_silent(0.1)
        assert guest.ask(raw.ECHO, raw.NOTHING).status == raw.SESSION_DELETED


def test_a_guest_never_holds_more_credits_than_the_limit(guest: Guest) -> None:
    held = 256
    for _ in range(100):
        granted = guest.done(raw.ECHO, raw.NOTHING, asked=65535).credits
        held += granted - 1
        assert granted <= 256
    guest.echo()


def test_a_length_of_16_mib_reserves_nothing(server: Server) -> None:
    before = server.memory()
    server.guest.begin()
    with pytest.raises(StreamEnded):
        for _ in range(40):
            server.guest.send_raw(b"\0\xff\xff\xff" + b"\xa5" * (1 << 20))
        server.guest.hear()
    assert server.memory() - before < 16 * MIB


def wait_behind_an_oplock(guest: Guest) -> None:
    for size in (16 << 10, MIB):
        for _ in range(60):
            chain = raw.chain(
                guest.message(raw.CREATE, raw.create("held")),
                guest.message(
                    raw.WRITE, raw.write(raw.LAST_FILE, 0, bytes(size)), flags=raw.RELATED
                ),
            )
            guest.send(chain)
    guest.send(guest.message(raw.ECHO, raw.NOTHING))


def test_what_waits_behind_an_oplock_has_a_limit(tmp_path: Path) -> None:
    with serving(tmp_path, leases="all") as server:
        guest = server.guest.begin()
        while guest.done(raw.ECHO, raw.NOTHING, asked=8192).credits > 1:
            pass
        body = bytearray(raw.create("held"))
        body[3] = 9  # a batch oplock, [MS-SMB2] 2.2.13
        answer = guest.done(raw.CREATE, bytes(body))
        assert answer.raw[66] == 9
        with contextlib.suppress(StreamEnded):  # that is enough, too
            wait_behind_an_oplock(guest)
            while (answer := guest.hear()[0]).command != raw.ECHO and answer.command != raw.WRITE:
                if answer.status == raw.SESSION_DELETED:
                    break
            else:
                raise AssertionError("it never had enough")
        server.check()
