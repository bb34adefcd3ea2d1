"""Listening at both loopback addresses."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest
from quicksand.base import listening
from quicksand.base.errors import PortInUseError

from tests.each import each


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@contextlib.contextmanager
def listens(port: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(one) for one in listening.listen(port)]


@pytest.mark.skipif(not has_ipv6(), reason="the host has no IPv6")
def test_any_port_is_the_same_on_both_addresses() -> None:
    with listens(0) as sockets:
        first, second = (one.getsockname() for one in sockets)
        assert (first[0], second[0]) == ("127.0.0.1", "::1")
        assert first[1] == second[1] != 0
        for one in sockets:
            socket.create_connection(one.getsockname()[:2], timeout=60).close()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_that_is_taken_on_either_is_named(family: socket.AddressFamily) -> None:
    if family == socket.AF_INET6 and not has_ipv6():
        pytest.skip("the host has no IPv6")
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with socket.create_server((host, 0), family=family) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=rf"^host port {port} cannot be used") as caught:
            listening.listen(port)
    assert f"{host}]:{port}" in str(caught.value) or f"({host}:{port}" in str(caught.value)
    assert "0 for any" in caught.value.hint
    with listens(port):
        pass  # nothing was left listening


@each("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_a_host_without_ipv6_has_the_other_address(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    make = socket.create_server

    def without(place: tuple[str, int], *, family: int, backlog: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(number, "no IPv6")
        return make(place, backlog=backlog)

    monkeypatch.setattr(socket, "create_server", without)
    with listens(0) as sockets:
        assert [one.family for one in sockets] == [socket.AF_INET]


def test_a_port_that_this_user_may_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refused)
    with pytest.raises(PortInUseError, match="host port 80 cannot be used: Permission denied"):
        listening.listen(80)


def test_a_lack_of_descriptors_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refused(place: tuple[str, int], **_: object) -> socket.socket:
        asked.append(place)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "create_server", refused)
    with pytest.raises(PortInUseError, match="Too many open files"):
        listening.listen(0)
    assert len(asked) == 1
