"""One stream of bytes carries connections that begin anywhere: in step again at a NEGOTIATE."""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_smb.config import Config, ShareConfig
from quicksand_smb.connection import Connection, Frame
from quicksand_smb.credits import FEWER as MOST
from quicksand_smb.credits import SPARE
from quicksand_smb.frames import LARGEST_FRAME, find_negotiate
from quicksand_smb.sender import Sender
from quicksand_smb.server_state import ServerState
from quicksand_smb.session import Session

from tests.conftest import examples
from tests.unit.smb_attack import raw
from tests.unit.smb_attack.guest import Guest, Server, StreamEnded, serving

GREETING = raw.frame(raw.header(raw.NEGOTIATE) + raw.negotiate(0x311))


def greet(guest: Guest, *, tries: int = 1) -> None:
    """Begin anew, whatever is still on its way; each try is a connection of its own."""
    guest.session = guest.tree = 0
    guest.number = 1
    guest.key = b""
    commands = [-1]
    for left in reversed(range(tries)):
        guest.send_raw(GREETING)
        while raw.NEGOTIATE not in commands and not guest.is_silent(2 if left else 10):
            (answer,) = guest.hear()
            commands.append(answer.command if answer.status == raw.SUCCESS else -1)
    assert commands[-1] == raw.NEGOTIATE, "no answer"
    guest.log_in()
    guest.connect()


WRITE = raw.frame(raw.header(raw.WRITE, message=9) + raw.write(bytes(16), 0, b"w" * 3000))
LARGE = raw.frame(raw.header(raw.WRITE, message=9) + raw.write(bytes(16), 0, bytes(1 << 20)))


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(WRITE[:1], id="one byte"),
        pytest.param(WRITE[:3], id="half a length"),
        pytest.param(WRITE[:6], id="half a magic"),
        pytest.param(WRITE[:40], id="half a header"),
        pytest.param(LARGE[:400_000], id="half a large frame"),
        pytest.param(WRITE[:-1] + b"\0\0\0\0", id="too much"),
        pytest.param(b"\x85\0\0\0", id="keep-alive of NetBIOS"),
        pytest.param(b"\0\0\0\x23\xffSMBr" + bytes(30), id="SMB1"),
        pytest.param(b"\0\0\0\x50\xfcSMB" + b"\x5a" * 76, id="compressed"),
        pytest.param(b"\0\0\0\x50\xfdSMB" + b"\x5a" * 76, id="encrypted"),
        pytest.param(b"\xff" * 5000, id="ones"),
        pytest.param(bytes(5000), id="zeroes"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
        pytest.param(raw.frame(raw.header(raw.ECHO, following=7) + raw.NOTHING), id="a bad chain"),
        pytest.param(b"\0\xff\xff\xff\xfeSMB", id="a length of 16 MiB"),
    ],
)
def test_what_a_dead_connection_left_is_recovered_from(server: Server, left: bytes) -> None:
    server.guest.begin().open("held")
    server.guest.send_raw(left)
    greet(server.guest)
    server.guest.open("again")
    server.guest.echo()


@pytest.mark.parametrize("whole", [WRITE, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("missing", [1, 3, 100])
def test_a_beginning_that_completes_another_frame_is_said_again(
    server: Server, whole: bytes, missing: int
) -> None:
    """Nobody can tell that those were no data; the second connection is in step."""
    server.guest.begin()
    server.guest.send_raw(whole[:-missing])
    greet(server.guest, tries=2)
    server.guest.echo()


def test_without_a_stream_that_goes_on_garbage_ends_it(tmp_path: Path) -> None:
    with serving(tmp_path, resynchronise=False) as server:
        server.guest.begin()
        server.guest.send_raw(b"\0\0\0\x50\xfdSMB" + b"\x5a" * 76)
        assert server.guest.is_cut_off()
        server.check()


def test_garbage_without_an_end_ends_the_stream(server: Server) -> None:
    server.guest.begin()
    with pytest.raises(StreamEnded):
        for _ in range(LARGEST_FRAME // 65536 + 10):
            server.guest.send_raw(b"\xa5" * 65536)
        server.guest.hear()


def test_data_that_look_like_a_beginning_are_data(server: Server) -> None:
    """A file that holds a NEGOTIATE is written as it is, wherever the stream pauses."""
    guest = server.guest.begin()
    file = guest.open("capture")
    data = b"before" + GREETING + b"after"
    whole = raw.frame(guest.message(raw.WRITE, raw.write(file, 0, data)))
    at = whole.index(GREETING)
    for end in (at, at + 20, at + len(GREETING) + 2):
        guest.send_raw(whole[:end])
        assert guest.is_silent(1.3)
        guest.send_raw(whole[end:])
        (answer,) = guest.hear()
        assert answer.status == raw.SUCCESS
        whole = raw.frame(guest.message(raw.WRITE, raw.write(file, 0, data)))
    assert (server.share / "capture").read_bytes() == data


def test_who_speaks_of_an_earlier_server_is_told_to_begin_anew(server: Server) -> None:
    """After a restart or a restore the guest goes on as if nothing had been."""
    guest = server.guest
    guest.session, guest.tree, guest.number = 77, 1, 4711
    answer = guest.ask(raw.ECHO, raw.NOTHING)
    assert answer.status == raw.SESSION_DELETED
    assert answer.message == 4711
    guest.begin()


def test_a_new_conversation_closes_what_the_last_one_had_open(server: Server) -> None:
    server.guest.begin()
    before = server.descriptors()
    for _ in range(5):
        for name in "abc":
            server.guest.open(name)
        greet(server.guest)
    assert server.descriptors() == before


def test_replies_of_a_conversation_are_not_for_the_next(server: Server) -> None:
    guest = server.guest.begin()
    (server.share / "big").write_bytes(bytes(8 << 20))
    file = guest.open("big")
    guest.send(*[guest.message(raw.READ, raw.read(file, 0, 1 << 20), charge=16) for _ in range(6)])
    server.wait_until(server.is_idle)  # it cannot send more than fits
    guest.number = 0
    guest.send_raw(GREETING)
    server.wait_until(server.is_idle)
    # Of the first reply a part is already on its way; its rest is never sent.
    guest.stream.settimeout(2)
    heard = bytearray()
    try:
        while part := guest.stream.recv(1 << 20):
            heard += part
    except TimeoutError:
        pass
    assert len(heard) < 6 << 20
    found = find_negotiate_response(bytes(heard))
    assert found == len(heard)


def test_while_a_conversation_ends_nothing_of_it_is_sent_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing its files takes a while, and all the time somebody sends."""
    state = ServerState(Config((ShareConfig("RW", str(tmp_path), False),), resynchronise=True))
    connection = Connection(state)
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.settimeout(60)
    sender = Sender(theirs, connection, memoryview(bytearray(16)).cast("Q"), is_patient=True)
    size, count = 20_000, 100

    def queue(mark: bytes) -> None:
        connection.queue(Frame([mark * size], size, None, size))

    is_closing, may_close = threading.Event(), threading.Event()

    def close_files(_: Session) -> None:
        is_closing.set()
        queue(b"c")  # an answer of the ended conversation
        assert may_close.wait(60)

    monkeypatch.setattr(Session, "end", close_files)
    connection.conversation.sessions[1] = Session(1, connection, state.ledger, b"")
    for _ in range(count):
        queue(b"o")

    def send() -> None:
        sender.drain(waits=True)
        theirs.send(b"!")

    sending = threading.Thread(target=send)
    sending.start()
    heard = bytearray(ours.recv(1))  # it sends, and waits for its client to read
    ending = threading.Thread(target=connection.end)
    ending.start()
    try:
        assert is_closing.wait(60)
        while not heard.endswith(b"!"):
            heard += ours.recv(1 << 20)
        sending.join()
    finally:
        may_close.set()
        ending.join()
    assert len(heard) < 3 * size, "what was on its way, and the frame that was being sent"
    assert b"c" not in heard
    queue(b"n")
    sending = threading.Thread(target=send)
    sending.start()
    expected = size.to_bytes(4, "big") + b"n" * size + b"!"
    heard.clear()
    while len(heard) < len(expected):
        heard += ours.recv(1 << 20)
    sending.join()
    assert heard == expected
    assert sender.unsent == 0
    state.end()
    ours.close()
    theirs.close()


def find_negotiate_response(heard: bytes) -> int:
    """Where the last frame ends, if it is the response to a NEGOTIATE."""
    at = heard.rfind(b"\xfeSMB")
    assert struct.unpack_from("<H", heard, at + 12)[0] == raw.NEGOTIATE
    return at + int.from_bytes(heard[at - 4 : at], "big")


@given(st.binary(max_size=300), st.integers(0, len(GREETING)))
@settings(max_examples=examples(200))
def test_only_a_whole_negotiate_at_the_end_is_one(before: bytes, cut: int) -> None:
    whole = b"\0\0\x10\0\xfeSMB" + before + GREETING
    assert find_negotiate(memoryview(whole)) == len(whole) - len(GREETING)
    if cut < len(GREETING):
        assert find_negotiate(memoryview(whole[: len(whole) - len(GREETING) + cut])) is None
    assert find_negotiate(memoryview(GREETING)) is None, "that is the frame being read"


def test_who_has_made_another_connection_since_gets_no_answer(server: Server) -> None:
    """While a server does not come to it, Linux connects anew, and asks each time."""
    guest = server.guest.begin()
    guest.send_raw(b"".join([LARGE[:700], *[GREETING] * 5]))
    (answer,) = guest.hear()
    assert (answer.command, answer.status) == (raw.NEGOTIATE, raw.SUCCESS)
    assert guest.is_silent()
    guest.session = guest.tree = 0
    guest.number = 1
    guest.log_in()
    guest.connect()


def test_an_answer_that_comes_too_late_is_as_good_as_the_next_ones(server: Server) -> None:
    """The keys of a session are made of it, and the next connection gets it as its own."""
    guest = server.guest
    answers = set()
    for _ in range(3):
        guest.send_raw(GREETING)
        answers.add(guest.hear()[0].raw)
    assert len(answers) == 1
    # The client counts a credit for each of them.
    guest.number = 1
    guest.log_in()
    guest.connect()
    for _ in range(4):
        guest.echo()
    beyond = guest.number + MOST
    guest.send(guest.message(raw.ECHO, raw.NOTHING, message=beyond + SPARE - 1))
    assert guest.hear()[0].status == raw.SUCCESS
    guest.send(guest.message(raw.ECHO, raw.NOTHING, message=beyond + 2 * SPARE))
    assert guest.ask(raw.ECHO, raw.NOTHING).status == raw.SESSION_DELETED


@pytest.mark.parametrize("resynchronise", [True, False])
def test_who_has_other_keys_is_told_to_begin_anew_where_he_can(
    tmp_path: Path, resynchronise: bool
) -> None:
    with serving(tmp_path, resynchronise=resynchronise, secret="secret") as server:
        guest = server.guest
        guest.negotiate(0x210)
        guest.log_in("secret")
        guest.connect()
        guest.key = bytes(16)
        answer = guest.ask(raw.TREE_CONNECT, raw.tree_connect("RW"))
        wanted = raw.SESSION_DELETED if resynchronise else raw.ACCESS_DENIED
        assert answer.status == wanted
