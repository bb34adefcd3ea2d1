"""Every decoder of what a guest may send is total: garbage is a ProtocolError and nothing else."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import quicksand_smb
from hypothesis import given
from hypothesis import strategies as st
from quicksand_smb import access, fscc, header, names, ntlm, posix, spnego
from quicksand_smb.commands import ioctl as ioctl_command
from quicksand_smb.credits import MOST, Window
from quicksand_smb.messages import create, ioctl, lock, negotiate, query, readwrite, session
from quicksand_smb.store_errors import StoreError
from quicksand_smb.wire import ProtocolError, decode_text

from tests.each import each
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Client


def of_view(decode: Callable[[memoryview], object]) -> Callable[[bytes], object]:
    """A decoder that reads a part of a message where it lies."""

    @functools.wraps(decode)
    def run(data: bytes) -> object:
        return decode(memoryview(data))

    return run


def reparse(data: memoryview) -> object:
    return ioctl_command._decode_reparse(data, is_posix=False)


WHOLE: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "negotiate": (negotiate.decode_request, struct.pack("<HHHH", 36, 1, 1, 0)),
    "setup": (session.decode_setup, struct.pack("<H", 25)),
    "tree": (session.decode_tree, struct.pack("<H", 9)),
    "empty": (session.decode_empty, struct.pack("<H", 4)),
    "create": (create.decode_request, struct.pack("<H", 57)),
    "close": (create.decode_close, struct.pack("<H", 24)),
    "read": (readwrite.decode_read, struct.pack("<H", 49)),
    "write": (readwrite.decode_write, struct.pack("<H", 49)),
    "flush": (readwrite.decode_flush, struct.pack("<H", 24)),
    "lock": (lock.decode_lock, struct.pack("<H", 48)),
    "break": (lock.decode_ack, struct.pack("<H", 36)),
    "ioctl": (ioctl.decode_request, struct.pack("<H", 57)),
    "directory": (query.decode_directory, struct.pack("<H", 33)),
    "notify": (query.decode_notify, struct.pack("<H", 32)),
    "query": (query.decode_query, struct.pack("<H", 41)),
    "set": (query.decode_set, struct.pack("<H", 33)),
}
PARTS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "header": (header.decode_header, b"\xfeSMB\x40\0"),
    "error": (header.decode_error, b"\x09\0"),
    "frame": (of_view(header.split), bytes(20) + b"\x48\0\0\0"),
    "preauth": (negotiate.decode_preauth, b"\1\0"),
    "signing": (negotiate.decode_signing, b"\1\0"),
    "contexts": (create.decode_contexts, struct.pack("<IHH", 32, 16, 4)),
    "lease": (create.decode_lease, bytes(32)),
    "posix": (posix.decode_create, b""),
    "text": (decode_text, b"a\0"),
    "validate": (ioctl.decode_validate, b""),
    "copy": (ioctl.decode_copy, bytes(24) + b"\2\0\0\0"),
    "duplicate": (ioctl.decode_duplicate, b""),
    "range": (ioctl.decode_range, b""),
    "basic": (of_view(fscc.decode_basic), b""),
    "rename": (of_view(fscc.decode_rename), bytes(16)),
    "attributes": (of_view(fscc.decode_attributes), b""),
    "security": (
        of_view(access.decode),
        struct.pack("<BBHIIII", 1, 0, 4, 0, 0, 0, 20),
    ),
    "reparse": (
        of_view(reparse),
        b"\x0c\0\0\xa0",
    ),
    "spnego first": (spnego.unwrap, b"\x60"),
    "spnego second": (spnego.unwrap, b"\xa1"),
    "ntlm 1": (ntlm.decode_negotiate, b"NTLMSSP\0\1\0\0\0"),
    "ntlm 3": (ntlm.decode_authenticate, b"NTLMSSP\0\3\0\0\0"),
}


def decoders() -> Iterator[tuple[str, object]]:
    """Every function of the server that reads what a client has sent, by the name that those
    have."""
    for found in pkgutil.walk_packages(quicksand_smb.__path__, "quicksand_smb."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == found.name and name.startswith(("decode", "unwrap")):
                yield f"{found.name}.{name}", function


def test_every_decoder_gets_garbage() -> None:
    known = [inspect.unwrap(decode) for decode, _ in (*WHOLE.values(), *PARTS.values())]
    found = list(decoders())
    assert len(found) > 30
    assert [name for name, function in found if function not in known] == []


@pytest.mark.parametrize("posix", [False, True])
@given(text=st.text() | st.text("./\\:?*\0 \uf022\uf080\ud800a", max_size=20))
def test_any_text_is_a_name_or_none(posix: bool, text: str) -> None:
    """One that is taken comes back as it was, and leads nowhere else."""
    try:
        found = names.from_wire(text, posix=posix, separator="/" if posix else "\\")
        path = names.host_path(found)
    except StoreError:
        return
    assert not {b"", b".", b".."} & set(path)
    assert not any(b"/" in part or b"\0" in part for part in path)
    again = [names.to_wire(names.from_host(part), posix=posix) for part in path]
    told = ("/" if posix else "\\").join(again)
    assert names.from_wire(told, posix=posix, separator="/" if posix else "\\") == found


@pytest.mark.parametrize("name", WHOLE)
@given(body=st.binary(max_size=200))
def test_garbage_for_a_message_is_one_error(name: str, body: bytes) -> None:
    decode, start = WHOLE[name]
    for message in (bytes(64) + body, bytes(64) + start + body):
        try:
            decode(message)
        except ProtocolError:
            continue


@pytest.mark.parametrize("name", PARTS)
@given(body=st.binary(max_size=200))
def test_garbage_for_a_record_is_one_error(name: str, body: bytes) -> None:
    decode, start = PARTS[name]
    for record in (body, start + body):
        try:
            decode(record)
        except (ProtocolError, StoreError):
            continue


@given(
    command=st.integers(0, 20),
    body=st.binary(max_size=300),
    size=st.sampled_from([4, 9, 24, 25, 33, 41, 48, 49, 57]),
)
def test_a_hostile_request_is_answered_and_the_next_one_too(
    tmp_path_factory: pytest.TempPathFactory, command: int, body: bytes, size: int
) -> None:
    client = _client(tmp_path_factory)
    before = client.message_id
    try:
        answers = client.frame(client.message(command, struct.pack("<H", size) + body))
    except ProtocolError:
        # Only a second NEGOTIATE ends the connection; what is cancelled has no number.
        assert command == c.NEGOTIATE
        client.message_id = before
        return
    if command == c.CANCEL:
        client.message_id = before
        assert not answers
    assert all(len(one.body) < 70_000 for one in answers)
    assert client.ask(c.ECHO, struct.pack("<HH", 4, 0)).status == 0


def _client(factory: pytest.TempPathFactory) -> Client:
    root = factory.mktemp("share")
    (root / "a").write_text("a")
    return Client(c.server(root)).begin()


def test_a_window_takes_each_number_once() -> None:
    window = Window()
    assert window.take(0, 1)
    assert not window.take(0, 1)
    assert not window.take(1, 1)
    assert window.grant(1, 10) == 10
    assert window.take(5, 2)
    assert not window.take(6, 1)
    assert window.take(1, 4)
    assert window.take(7, 4)
    assert not window.take(11, 1)


@given(st.lists(st.tuples(st.integers(0, 70_000), st.integers(0, 70_000), st.integers(0, 65535))))
def test_a_window_never_grows_beyond_its_limit(requests: list[tuple[int, int, int]]) -> None:
    window = Window()
    for first, count, asked in requests:
        window.take(first, count)
        assert window.grant(count, asked) >= 0
        assert 0 <= window.held <= MOST


@each("following", [1, 7, 8, 63, 65, 0xFFFFFFFF])
def test_a_next_message_that_lies_nowhere_ends_the_connection(
    tmp_path: Path, following: int
) -> None:
    client = Client(c.server(tmp_path)).begin()
    with pytest.raises(ProtocolError):
        client.frame(client.message(c.ECHO, struct.pack("<HH", 4, 0), following=following))


def test_a_conversation_begins_with_negotiate(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path))
    with pytest.raises(ProtocolError):
        client.ask(c.ECHO, struct.pack("<HH", 4, 0))


def test_a_stream_without_an_end_begins_anew_with_negotiate(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path, resync=True)).begin()
    file = client.open("a")
    client.message_id = client.session = client.tree = 0
    assert client.negotiate(0x311).status == 0
    client.log_in()
    client.connect()
    assert client.close(file).status == 0xC0000128


def test_a_session_that_nobody_knows_is_deleted(tmp_path: Path) -> None:
    client = Client(c.server(tmp_path)).begin()
    client.session = 12345
    assert client.connect().status == 0xC0000203


@each(("trailing", "status"), [(0, 0), (8, 0), (9, 0xC000000D), (5000, 0xC000000D)])
def test_a_request_may_be_padded_and_no_more(tmp_path: Path, trailing: int, status: int) -> None:
    client = Client(c.server(tmp_path)).begin()
    body = struct.pack("<HH", 4, 0) + bytes(trailing)
    assert client.ask(c.ECHO, body).status == status
    assert client.ask(c.ECHO, struct.pack("<HH", 4, 0)).status == 0
