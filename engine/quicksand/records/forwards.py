"""The specification's other words for a port forward: ``Forward(Host(8080), Guest(80))``.

Connections are accepted at the first end and go to the second. A host's port is one of its loopback
interface, since nothing of ours listens where other machines reach it; and the guest's end is
always its own address. A forward from the guest to the host is refused: mounts aside, no guest
reaches a program of the host through a port without being given the network (`NetworkMode.FULL`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from quicksand.base.errors import ConfigError
from quicksand.records.port_forwards import PortForward

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
            raise ConfigError(
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
