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
    """The transport protocol of a port."""

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

    @property
    def word(self) -> str:
        """As `parse_forward` takes it, as in 8080:80 or 5353:53/udp."""
        return f"{self.host}:{self.guest}{self._suffix}"

    def between(self, arrow: str) -> str:
        """Both ports for people, as in 8080->80 or any->53/udp."""
        return f"{self.host or 'any'}{arrow}{self.guest}{self._suffix}"

    @property
    def _suffix(self) -> str:
        return "" if self.protocol is Protocol.TCP else f"/{self.protocol}"


def parse_forward(word: str) -> PortForward:
    """Reads a port forward as `run --publish` takes it: a single port is the guest's, and the
    default protocol is TCP. Raises ConfigError."""
    match = _FORWARD.fullmatch(word)
    if match is None:
        raise ConfigError(f"{word!r} is not HOST:GUEST, as in 8080:80 or 5353:53/udp")
    return PortForward(int(match[1] or 0), int(match[2]), Protocol(match[3] or Protocol.TCP))


def decode_forward(value: object) -> PortForward:
    if isinstance(value, PortForward):
        return value
    if isinstance(value, Mapping) and {"host", "guest"} == set(value) - {"protocol"}:
        return PortForward(value["host"], value["guest"], value.get("protocol", Protocol.TCP))
    raise ConfigError(f"{value!r} is not a PortForward", hint="PortForward(host=8080, guest=80)")


def encode_forward(forward: PortForward) -> dict[str, object]:
    """Encodes a forward. TCP is not named: earlier versions know nothing else."""
    ports: dict[str, object] = {"host": forward.host, "guest": forward.guest}
    if forward.protocol is not Protocol.TCP:
        ports["protocol"] = forward.protocol.value
    return ports


def check_forwards(forwards: Sequence[PortForward]) -> None:
    if len(forwards) > FORWARDS_MAX:
        raise ConfigError(f"{len(forwards)} port forwards are too many; {FORWARDS_MAX} is the most")
    seen: set[tuple[int, Protocol]] = set()
    for forward in forwards:
        port = forward.host, forward.protocol
        if forward.host and port in seen:
            raise ConfigError(f"host port {forward.host} is forwarded twice")
        seen.add(port)


def reached_ports(forwards: Sequence[PortForward]) -> str:
    ports = ", ".join(forward.between("->") for forward in forwards)
    return f"ports {ports}" if ports else ""


def as_protocol(value: str) -> Protocol:
    """Raises ConfigError."""
    try:
        return Protocol(value)
    except (ValueError, TypeError):
        raise ConfigError(
            f"{value!r:.80} is no protocol of a port", hint=", ".join(Protocol)
        ) from None


def check_port(which: str, port: int, *, lowest: int) -> None:
    if isinstance(port, bool) or not isinstance(port, int) or not lowest <= port <= 65535:
        raise ConfigError(f"{which} port {port!r} is not a port", hint=f"{lowest} to 65535")
