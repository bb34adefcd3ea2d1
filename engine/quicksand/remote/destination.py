"""The address of another machine, as written by the user and checked before ssh sees it, or of a
local node (`records.local_nodes`), which needs no ssh."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from quicksand.base.entering import entered
from quicksand.base.errors import ConfigError
from quicksand.base.remedies import Remedy, Words
from quicksand.records.fleet_files import GROUP

SCHEME = "ssh://"
UNPRIVILEGED = 1024
"""The first port that any user may have (ip(7))."""

HINT = "write ssh://HOST, ssh://USER@HOST or ssh://USER@HOST:PORT, where HOST is what ssh takes"

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+\\-]{0,255}")
_HOST = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}|\[[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9_.-]+)?\]"
)
"""Names and addresses, and the aliases of the user's ssh config. None begins with "-", which ssh
would take for an option, and none has a character that is special to a shell: ssh passes host and
user to the user's ProxyCommand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Another machine, as ssh needs to know it."""

    host: str
    """The host, without the brackets of an IPv6 address."""
    user: str = ""
    """The user; "" leaves it to ssh."""
    port: int = 0
    """The port; 0 leaves it to ssh."""

    @classmethod
    def parse(cls, text: str, *, bare: bool = False) -> Self:
        """Read ``ssh://[USER@]HOST[:PORT]``; ``bare``: without the scheme. Raises ConfigError."""
        if (not text.startswith(SCHEME) and not bare) or (bare and "://" in text):
            raise ConfigError(f"{text!r:.300} is no address of a machine", hint=HINT)
        place = text.removeprefix(SCHEME).removesuffix("/")
        user, at, rest = place.rpartition("@")
        host, colon, port = rest, "", ""
        if not rest.endswith("]"):
            host, colon, port = rest.rpartition(":") if ":" in rest else (rest, "", "")
        if at and not _USER.fullmatch(user):
            raise ConfigError(f"{text!r:.300} has no valid user before the @", hint=HINT)
        if not _HOST.fullmatch(host):
            raise ConfigError(f"{text!r:.300} has no valid host", hint=HINT)
        is_number = port.isascii() and port.isdecimal() and len(port) <= 5
        if colon and not (is_number and 0 < int(port) < 65536):
            raise ConfigError(f"{text!r:.300} has no valid port after the colon", hint=HINT)
        return cls(host=host.strip("[]"), user=user, port=int(port) if colon else 0)

    def __str__(self) -> str:
        """Return the address that `parse` reads."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        user = f"{self.user}@" if self.user else ""
        return f"{SCHEME}{user}{host}{f':{self.port}' if self.port else ''}"

    @property
    def short(self) -> str:
        """The name of the machine in messages."""
        return str(self).removeprefix(SCHEME)

    @property
    def trial(self) -> str:
        """Return a command that shows whether ssh gets there."""
        return f"ssh {self._words} true"

    def tunnel(self, port: int) -> str:
        """Return a command that brings a TCP port of the machine's loopback to this machine until
        Ctrl-C: to the same port, or to one above 8000 where the port is only for root."""
        here = port if port >= UNPRIVILEGED else port + 8000
        return f"ssh -N -L {here}:127.0.0.1:{port} {self._words}"

    @property
    def _words(self) -> str:
        port = f"-p {self.port} " if self.port else ""
        user = f"{self.user}@" if self.user else ""
        return f"{port}{user}{self.host}"


NODE_SCHEME = "node://"


@runtime_checkable
class NodeDestination(Protocol):
    """A local node, as `Connection` needs to know it. Its text is its address."""

    @property
    def short(self) -> str:
        """Return the name of the node in messages."""

    @property
    def trial(self) -> str:
        """Return a command that shows whether the node can be reached."""

    async def start(
        self,
        *words: str,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        start_new_session: bool = True,
    ) -> asyncio.subprocess.Process:
        """Start the program of the node with ``words``; its streams are those of `subprocess`.
        Raises OSError, PathError, RemoteUnreachableError."""


def find_node(name: str) -> NodeDestination | None:
    """Return the way to the node of that name; None if there is none. Raises FleetError."""
    return one.load()(name) if (one := entered(GROUP).get("way")) else None


def parse_address(text: str) -> Destination | NodeDestination:
    """Parse an address: ``ssh://…``, or ``node://NAME`` for a local node that is up. Raises
    ConfigError, FleetError."""
    if not text.startswith(NODE_SCHEME):
        return Destination.parse(text)
    name = text.removeprefix(NODE_SCHEME)
    if (node := find_node(name)) is not None:
        return node
    raise ConfigError(
        f"there is no local node {name!r:.100}",
        hint=Words(Remedy("fleet_status"), " lists the machines of the fleet"),
    )
