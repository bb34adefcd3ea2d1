"""Ports of the host that are free at this moment. Whoever asks may find a port taken when it is
used; a forward of host port 0 takes one without that gap (`quicksand.PortForward`)."""

from __future__ import annotations

import socket
from collections.abc import Iterable

__all__ = ["find_free_port", "find_free_vnc_port"]

LOCALHOST = "127.0.0.1"
VNC_PORTS = range(5900, 6000)
"""The ports of VNC's displays 0 to 99."""


def find_free_port() -> int:
    """A TCP port of the loopback interface at which nothing listens. Raises RuntimeError if none is
    free."""
    return _first_free((0,), "no port")


def find_free_vnc_port() -> int:
    """The same, of the ports that VNC uses. Raises RuntimeError if none is free."""
    return _first_free(VNC_PORTS, f"none of the ports {VNC_PORTS.start} to {VNC_PORTS.stop - 1}")


def _first_free(ports: Iterable[int], none: str) -> int:
    for port in ports:
        with socket.socket() as one:
            try:
                one.bind((LOCALHOST, port))
            except OSError:
                continue  # it is taken
            found: int = one.getsockname()[1]
            return found
    raise RuntimeError(f"{none} of {LOCALHOST} is free")
