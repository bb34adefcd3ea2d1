"""A forward from a port of the host to one of the guest, as an option of a machine; and the
specification's other words for it: ``Forward(Host(8080), Guest(80))``.

Connections are accepted at the first end and go to the second. A host's port is one of its loopback
interface, since nothing of ours listens where other machines reach it; and the guest's end is
always its own address. A forward from the guest to the host is refused: mounts aside, no guest
reaches a program of the host through a port without being given the network (`NetworkMode.FULL`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from quicksand.base.errors import ConfigError
from quicksand.things.frozen import frozen

FORWARDS_MAX = 1000
"""The most port forwards; each is a socket of the host."""

_FORWARD = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(?:/(tcp|udp))?")


class Protocol(StrEnum):
    """The transport protocol of a port."""

    TCP = "tcp"
    UDP = "udp"


@frozen(kw_only=False)
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


GUEST_ADDRESS = "10.0.2.15"


@dataclass(frozen=True, slots=True, init=False)
class End:
    """An end of a forward: a port, and perhaps an address: ``Host(8080)``, ``Host("127.0.0.1",
    8080)``, ``Host("127.0.0.1:8080")``, ``Host(port=8080)``."""

    port: int
    address: str
    """The address; "" for the usual one."""

    usual: ClassVar[tuple[str, ...]] = ()
    """The possible addresses, the usual one first."""

    def __init__(
        self,
        first: int | str | None = None,
        second: int | str | None = None,
        *,
        port: int | None = None,
        address: str | None = None,
    ) -> None:
        """Raises ConfigError."""
        address = address or ""
        for value in (first, second):
            if isinstance(value, str):
                found, colon, number = value.rpartition(":")
                address = found if colon else value
                if colon:
                    port = _port_of(value, number)
            elif value is not None:
                port = value
        if port is None:
            raise ConfigError(f"{type(self).__name__} needs a port", hint="as in Host(8080)")
        if address not in ("", *self.usual):
            raise ConfigError(
                f"a port cannot be forwarded at {address!r}",
                hint=f"{type(self).__name__} has the address {self.usual[0]}",
            )
        object.__setattr__(self, "port", port)
        object.__setattr__(self, "address", address)


class Host(End):
    """The host's end."""

    __slots__ = ()
    usual = ("127.0.0.1", "localhost")


class Guest(End):
    """The guest's end."""

    __slots__ = ()
    usual = (GUEST_ADDRESS,)


class Forward(PortForward):
    """A forward of a port of the host to one of the guest."""

    __slots__ = ()

    def __init__(self, src: Host, dst: Guest) -> None:
        """Raises ConfigError."""
        if not isinstance(src, Host) or not isinstance(dst, Guest):
            raise ConfigError(  # pyright: ignore[reportUnreachable]  # for callers without types
                "a port can be forwarded from the host to the guest only",
                hint='Forward(Host(8080), Guest(80)); network_mode="full" lets a guest reach hosts',
            )
        super().__init__(src.port, dst.port)

    @property
    def src(self) -> Host:
        """The address at which connections are accepted."""
        return Host(self.host)

    @property
    def dst(self) -> Guest:
        """The address to which connections go."""
        return Guest(self.guest)

    @property
    def host_to_guest(self) -> bool:
        """Always true."""
        return True


def _port_of(text: str, number: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) <= 5):
        raise ConfigError(f"{text!r} is no address and port", hint='as in Host("127.0.0.1:8080")')
    return int(number)
