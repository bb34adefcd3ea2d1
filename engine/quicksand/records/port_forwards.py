"""A forward from a port of the host to one of the guest, as an option of a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from quicksand.base.errors import ConfigError

FORWARDS_MAX = 1000
"""The most port forwards; each is a socket of the host."""

_FORWARD = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(?:/(tcp|udp))?")


class Protocol(StrEnum):
    """What is spoken at a port."""

    TCP = "tcp"
    UDP = "udp"


@dataclass(frozen=True, slots=True)
class PortForward:
    """A port of the host's loopback interface that is forwarded to a port of the guest."""

    host: int
    """The host's port; 0 picks a free one."""
    guest: int
    protocol: Protocol = Protocol.TCP

    def __post_init__(self) -> None:
        check_port("host", self.host, lowest=0)
        check_port("guest", self.guest, lowest=1)
        object.__setattr__(self, "protocol", as_protocol(self.protocol))


def parse_forward(word: str) -> PortForward:
    """Reads a port forward as `run --publish` takes it: a port alone is the guest's, and what has
    no protocol is TCP. Raises ConfigError."""
    match = _FORWARD.fullmatch(word)
    if match is None:
        raise ConfigError(f"{word!r} is not HOST:GUEST, as in 8080:80 or 5353:53/udp")
    return PortForward(int(match[1] or 0), int(match[2]), Protocol(match[3] or Protocol.TCP))


def decode_forward(value: object) -> PortForward:
    if isinstance(value, PortForward):
        return value
    if isinstance(value, Mapping) and set(value) == {"host", "guest"}:
        return PortForward(host=value["host"], guest=value["guest"])
    raise ConfigError(f"{value!r} is not a PortForward", hint="PortForward(host=8080, guest=80)")


def check_forwards(forwards: Sequence[PortForward]) -> None:
    if len(forwards) > FORWARDS_MAX:
        raise ConfigError(f"{len(forwards)} port forwards are too many; {FORWARDS_MAX} is the most")
    seen: set[int] = set()
    for forward in forwards:
        if forward.protocol is not Protocol.TCP:
            raise ConfigError(
                f"port {forward.guest}/{forward.protocol} cannot be forwarded from the start on",
                hint="start it, and forward the port then",
            )
        if forward.host and forward.host in seen:
            raise ConfigError(f"host port {forward.host} is forwarded twice")
        seen.add(forward.host)


def reached_ports(forwards: Sequence[PortForward]) -> str:
    ports = ", ".join(f"{f.host or 'any'}->{f.guest}" for f in forwards)
    return f"ports {ports}" if ports else ""


def as_protocol(value: str) -> Protocol:
    """Raises ConfigError."""
    try:
        return Protocol(value)
    except ValueError:
        raise ConfigError(
            f"{value!r:.80} is no protocol of a port", hint=", ".join(Protocol)
        ) from None


def check_port(which: str, port: int, *, lowest: int) -> None:
    if isinstance(port, bool) or not isinstance(port, int) or not lowest <= port <= 65535:
        raise ConfigError(f"{which} port {port!r} is not a port", hint=f"{lowest} to 65535")
