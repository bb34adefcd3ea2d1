"""A look at a file is answered as by the three commands that it consists of."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_smb import dispatch, fscc
from quicksand_smb.signing import Algorithm, Signer
from quicksand_smb.wire import ProtocolError

from tests.conftest import examples
from tests.unit.smb_protocol import client as c
from tests.unit.smb_protocol.client import Answer, Client

NAMES = (
    "", "file", "empty", "unreadable", "dir", "dir/deep", "dir/deep/file", "hard", "link",
    "to-dir/deep", "fifo", "socket", "missing", "dir/missing", "file/below", "open", "Ünïcode",
    "..", "/file", "file:stream",
)  # fmt: skip
LEVELS = (*fscc.FILE_LEVELS, 15, 21, 22, 99)
ASK = (c.CREATE, c.QUERY, c.CLOSE)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    (root / "dir" / "deep").mkdir(parents=True)
    for name in ("file", "dir/deep/file", "open", "Ünïcode", "unreadable"):
        (root / name).write_bytes(b"some bytes")
    (root / "empty").touch()
    (root / "unreadable").chmod(0)
    os.link(root / "file", root / "hard")
    (root / "link").symlink_to("file")
    (root / "to-dir").symlink_to("dir")
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket"))
    return root


def told(answers: list[Answer]) -> list[tuple[int, int, int, int, int, int, bytes]]:
    """All of an answer but the numbers of the message and of the handle, which are others."""
    return [
        (
            one.command, one.status, one.credits, one.flags, one.session, one.tree,
            one.body[:64] + one.body[80:] if one.command == c.CREATE else one.body,
        )
        for one in answers
    ]  # fmt: skip


def asked(name: str, level: int, *, posix: bool, access: int, most: int, flags: int) -> tuple[
    tuple[int, bytes], ...
]:  # fmt: skip
    path = name if posix else name.replace("/", "\\")
    contexts = c.posix_context(0xFFFF) if posix else b""
    opened = c.create(path, disposition=1, access=access, options=0, contexts=contexts)
    close = bytearray(c.close(c.SAME))
    close[2] = flags
    bodies = (opened, c.query(c.SAME, 1, level, most), bytes(close))
    return tuple(zip(ASK, bodies, strict=True))


@settings(max_examples=examples(200))
@given(
    name=st.sampled_from(NAMES),
    level=st.sampled_from(LEVELS),
    posix=st.booleans(),
    read_only=st.booleans(),
    access=st.sampled_from((0x80, 0x100080, 0x81, 0x100, 0x20080, 0x100000, 0x2000000)),
    most=st.sampled_from((0, 8, 40, 104, 300, 4096, 65536, 65537)),
    flags=st.integers(0, 1),
)
def test_it_says_what_the_commands_say(
    tree: Path, name: str, level: int, posix: bool, read_only: bool, access: int, most: int,
    flags: int,
) -> None:  # fmt: skip
    server = c.server(tree, read_only=read_only)
    client = Client(server).begin(0x311, posix=posix)
    client.open("open", disposition=1, access=0x81)
    question = asked(name, level, posix=posix, access=access, most=most, flags=flags)
    said = told(client.chain(*question))
    with mock.patch.object(dispatch, "answer_stat_compound", lambda *_: None):
        assert said == told(client.chain(*question))
    server.end()


@pytest.mark.parametrize("name", ["", "file", "dir/deep/file", "Ünïcode"])
@pytest.mark.parametrize("level", [18, 100])
def test_a_look_opens_nothing(tree: Path, name: str, level: int) -> None:
    client = Client(c.server(tree)).begin(0x311, posix=True)
    question = asked(name, level, posix=True, access=0x80, most=4096, flags=0)
    with mock.patch.object(dispatch.Dispatcher, "_run") as ran:
        answers = client.chain(*question)
    assert [one.status for one in answers] == [0, 0, 0]
    assert not ran.called


def test_a_number_that_was_used_is_refused(tree: Path) -> None:
    client = Client(c.server(tree)).begin(0x311)
    question = asked("file", 18, posix=False, access=0x80, most=4096, flags=0)
    client.chain(*question)
    client.message_id -= 1
    with pytest.raises(ProtocolError):
        client.chain(*question)


def test_who_must_sign_is_not_heard_without(tree: Path) -> None:
    client = Client(c.server(tree)).begin(0x311)
    (session,) = client.server.sessions.values()
    session.signer = Signer(b"k" * 16, Algorithm.HMAC_SHA256, is_required=True)
    question = asked("file", 18, posix=False, access=0x80, most=4096, flags=0)
    assert client.chain(*question)[0].status == 0xC0000022
