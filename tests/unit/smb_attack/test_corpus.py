"""Every decoder on what real clients have said (`sessions/`, `said/`), spoiled: it is understood,
or refused by the one error. Garbage from nothing seldom gets behind a decoder's first field."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_smb import access, fscc, header, ntlm, posix, spnego
from quicksand_smb.commands import ioctl as ioctl_command
from quicksand_smb.messages import create, ioctl, lock, negotiate, query, readwrite, session
from quicksand_smb.messages.negotiate import POSIX_TAG
from quicksand_smb.status import Refusal
from quicksand_smb.store_errors import StoreError
from quicksand_smb.wire import PADDING_MAX, ProtocolError

from tests.unit.smb_attack import raw
from tests.unit.smb_attack.hostile import ODD, RECORDED, messages, put, requests

Message = bytes


def read_negotiate(message: Message) -> None:
    negotiate.decode_request(message)


def read_setup(message: Message) -> None:
    blob = bytes(session.decode_setup(message).token)
    read_login(blob if blob.startswith(raw.NTLMSSP) else spnego.unwrap(blob).token)


def read_login(token: bytes) -> None:
    (ntlm.decode_negotiate if token[8:9] == b"\1" else ntlm.decode_authenticate)(token)


def read_create(message: Message) -> None:
    found = create.decode_request(message)
    for name, data in found.contexts.items():
        if name == POSIX_TAG:
            posix.decode_create(data)
        elif name == create.LEASE_NAME:
            create.decode_lease(data)
        elif name == create.EXTENDED_ATTRIBUTES:
            fscc.decode_attributes(memoryview(data))


def read_ioctl(message: Message) -> None:
    wanted = ioctl.decode_request(message)
    data = bytes(wanted.input)
    for decode in (ioctl.decode_validate, ioctl.decode_copy, ioctl.decode_duplicate,
                   ioctl.decode_range):  # fmt: skip
        total(lambda: decode(data))  # noqa: B023 - called at once
    for is_posix in (False, True):
        total(lambda: ioctl_command._decode_reparse(wanted.input, is_posix=is_posix))  # noqa: B023


def read_set(message: Message) -> None:
    wanted = query.decode_set(message)
    for decode in (fscc.decode_basic, fscc.decode_rename, fscc.decode_attributes, access.decode):
        total(lambda: decode(wanted.input))  # noqa: B023 - called at once


READERS: dict[int, Callable[[Message], object]] = {
    raw.NEGOTIATE: read_negotiate,
    raw.SESSION_SETUP: read_setup,
    raw.LOGOFF: session.decode_empty,
    raw.TREE_CONNECT: session.decode_tree,
    raw.TREE_DISCONNECT: session.decode_empty,
    raw.CREATE: read_create,
    raw.CLOSE: create.decode_close,
    raw.FLUSH: readwrite.decode_flush,
    raw.READ: readwrite.decode_read,
    raw.WRITE: readwrite.decode_write,
    raw.LOCK: lock.decode_lock,
    raw.IOCTL: read_ioctl,
    raw.ECHO: session.decode_empty,
    raw.QUERY_DIRECTORY: query.decode_directory,
    raw.CHANGE_NOTIFY: query.decode_notify,
    raw.QUERY_INFO: query.decode_query,
    raw.SET_INFO: read_set,
    raw.OPLOCK_BREAK: lock.decode_ack,
}


def total(read: Callable[[], object]) -> bool:
    """Whether it was understood. What is raised but for refusals is an error of ours."""
    try:
        read()
    except (ProtocolError, StoreError, Refusal):
        return False
    return True


def corpus() -> Iterator[Message]:
    """What was said, each kind and form once."""
    seen = set()
    for recording in RECORDED:
        for frame in requests(recording):
            for message in messages(frame):
                form = message[12:14], message[64:66], len(message), message[64:72]
                if form not in seen:
                    seen.add(form)
                    yield message


CORPUS = list(corpus())


@pytest.mark.parametrize("command", sorted({one[12] for one in CORPUS}))
def test_what_was_said_is_understood(command: int) -> None:
    for message in CORPUS:
        if message[12] == command:
            READERS[command](message)


@pytest.mark.parametrize("command", sorted({one[12] for one in CORPUS} - {raw.NEGOTIATE}))
def test_a_request_with_more_than_padding_behind_it_is_refused(command: int) -> None:
    for message in CORPUS:
        if message[12] == command:
            with pytest.raises(ProtocolError, match="follow the end of a request"):
                READERS[command](message + bytes(PADDING_MAX + 1))


@st.composite
def spoiled(draw: st.DrawFn) -> Message:
    """A message with some fields changed, and perhaps an end that is missing or too much."""
    message = draw(st.sampled_from(CORPUS))
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.sampled_from([1, 2, 4, 8]))
        at = 64 + draw(st.integers(0, max(len(message) - 64 - count, 0)))
        value = draw(st.sampled_from([*ODD, len(message), len(message) - at]) | st.integers(0))
        message = put(message, at, value, count)
    return message[: len(message) - draw(st.integers(0, 20))] + draw(st.binary(max_size=20))


@given(message=spoiled())
def test_what_was_said_spoiled_is_one_error(message: Message) -> None:
    total(lambda: header.decode_header(message))
    total(lambda: READERS[message[12]](message))
