"""Listening at this host's loopback: for connections, and for datagrams."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from quicksand.base.errors import HostError, PortInUseError

BACKLOG = 1024
"""Connections that wait until they are taken; the kernel's own limit is 4096 (listen(2))."""

TRIES = 50
"""Attempts to find a port that is free on both addresses."""

NOT_OURS = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)
"""Errors of a port that others use, or that this user may not use."""

FULL = (errno.EMFILE, errno.ENFILE)


def listen(port: int) -> list[socket.socket]:
    """Listen at a port of 127.0.0.1 and of ::1, or of 127.0.0.1 only where there is no IPv6; port 0
    is any that is free. Raises PortInUseError, naming the port."""
    for _ in range(TRIES):
        first = _listen("127.0.0.1", port, socket.AF_INET)
        try:
            return [first, _listen("::1", first.getsockname()[1], socket.AF_INET6)]
        except PortInUseError as error:
            number = getattr(error.__cause__, "errno", None)
            if number not in (*NOT_OURS, *FULL):
                return [first]
            first.close()
            if port or number in FULL:
                raise
        except BaseException:
            first.close()
            raise
    raise PortInUseError("no port is free on both 127.0.0.1 and ::1")


def _listen(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise PortInUseError(
            f"host port {port} cannot be used: {reason} ({shown}:{port})",
            hint="choose another host port, or 0 for any free one",
        ) from error


def bind(port: int) -> list[socket.socket]:
    """Sockets for UDP at both loopback addresses, or only at that of IPv4 where there is no IPv6;
    port 0 is any that is free. Raises PortInUseError, HostError."""
    for _ in range(TRIES):
        first = _bind("127.0.0.1", port, socket.AF_INET)
        try:
            return [first, _bind("::1", first.getsockname()[1], socket.AF_INET6)]
        except PortInUseError:
            first.close()
            if port:
                raise
        except HostError:
            return [first]
    raise PortInUseError("no UDP port is free on both 127.0.0.1 and ::1")


def _bind(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    shown = f"[{host}]:{port}/udp" if family == socket.AF_INET6 else f"{host}:{port}/udp"
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            made.setblocking(False)
            made.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError(
                    f"{shown} is in use", hint="choose another port, or 0 for any that is free"
                ) from error
            why = os.strerror(error.errno or 0)
            raise HostError(f"cannot receive at {shown}: {why}") from error
        stack.pop_all()
        return made
