"""Forwards of ports that are made while a sandbox runs. One process for each sandbox carries all
its ports (forwarder.py). If the sandbox was started with forwards, the process is there from the
start (warm/publishing.py), or else it comes with the first forward and ends with the last."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from quicksand.base.errors import (
    ConfigError,
    HostError,
    MachineError,
    PortInUseError,
    QuicksandError,
    StateError,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.guest.carried import require_able
from quicksand.life import machinery
from quicksand.records.dialled import ForwarderFiles, read_dialled
from quicksand.records.layout import runtime_dir
from quicksand.records.port_forwards import PortForward, Protocol, as_protocol, check_port

if TYPE_CHECKING:
    from quicksand.life.sandbox_life import Life

ANSWER_S = 15.0
"""Seconds in which the process must start and answer; it starts within half a second."""

AGAIN_S = 0.05

ANSWER_MAX = 16 * 1024
"""The most bytes of an answer."""

ERRORS: Final[dict[str, type[QuicksandError]]] = {
    "PortInUseError": PortInUseError,
    "ConfigError": ConfigError,
    "StateError": StateError,
    "HostError": HostError,
}
"""Errors that the process reports by name."""


class Forwarding:
    """The forwards of one sandbox. `forward` and `unforward` are methods of `Sandbox`."""

    def __init__(self, life: Life) -> None:
        self._life = life

    @property
    def _files(self) -> ForwarderFiles:
        return ForwarderFiles(runtime_dir(self._life.registry.paths, self._life.id).root)

    async def forward(
        self, guest: int, host: int = 0, *, protocol: Protocol | str = Protocol.TCP
    ) -> PortForward:
        """Forward a port of this host's loopback (127.0.0.1 and ::1) to a port of the guest's,
        until the sandbox ends or `unforward` is called; return it with the port that was chosen if
        ``host`` is 0. It needs no network card, and reaches programs that listen on the guest's own
        127.0.0.1. A revert ends its connections, but not the forward.

        With the protocol "udp" each client has a socket in the guest until it is silent for a
        minute; of more than 256 clients, the one silent for the longest loses it.

        Raises ConfigError for what is no port, PortInUseError, HostError if this user may not
        listen there, StateError if the guest's agent is too old or the port is forwarded already,
        MachineError, AgentError."""
        wanted = PortForward(host, guest, as_protocol(protocol))
        is_udp = wanted.protocol is Protocol.UDP
        session = await self._life.session()
        require_able(session, *(("dial_udp", "datagrams") if is_udp else ("dial", "connections")))
        asked = {"do": _verb("add", wanted.protocol), "host": wanted.host, "guest": wanted.guest}
        answer = await self._ask(asked, starts=True)
        return PortForward(answer.get("host", 0), guest, wanted.protocol)

    async def unforward(self, host: int, *, protocol: Protocol | str = Protocol.TCP) -> None:
        """End the forward from this port of the host, and its connections. Raises StateError if
        `forward` has not made one."""
        check_port("host", host, lowest=1)
        wanted = as_protocol(protocol)
        made = read_dialled(self._files)
        at_port = {one.protocol for one in made.forwards if one.host == host}
        if wanted not in at_port and not made.error:
            shown = f"{host}/udp" if wanted is Protocol.UDP else f"{host}"
            other = ", ".join(f"{host}/{protocol}" for protocol in at_port)
            raise StateError(
                f"port {shown} is not forwarded to {self._life.name!r}",
                hint=f"{other} is"
                if other
                else "those that it was started with last as long as it runs",
            )
        await self._ask({"do": _verb("remove", wanted), "host": host}, starts=False)

    async def _ask(self, request: dict[str, Any], *, starts: bool) -> dict[str, Any]:
        """Ask the process, and start it if it does not run and ``starts`` is true."""
        files = self._files
        try:
            async with asyncio.timeout(ANSWER_S):
                while True:
                    if starts:
                        await machinery.start_forwarder(files, self._life.id)
                    with contextlib.suppress(ConnectionError, FileNotFoundError):
                        return await _ask_once(str(files.socket), request)
                    await asyncio.sleep(AGAIN_S)
                    if not files.root.exists():
                        raise MachineError(f"the sandbox {self._life.name!r} has ended")
        except TimeoutError:
            raise HostError(
                f"the process that forwards ports of {self._life.name!r} does not answer",
                hint=Words(Remedy("list"), " shows the sandbox"),
            ) from None


def _verb(verb: str, protocol: Protocol) -> str:
    """Return the request to the process. A process of an earlier version refuses unknown ones."""
    return verb if protocol is Protocol.TCP else f"{verb}_{protocol}"


async def _ask_once(socket: str, request: dict[str, Any]) -> dict[str, Any]:
    """Raises the process's error, ConnectionError if the process is gone, FileNotFoundError."""
    reader, writer = await asyncio.open_unix_connection(socket, limit=ANSWER_MAX)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        line = await reader.readline()
    finally:
        writer.close()
    if not line:
        raise ConnectionResetError("it has ended")
    answer = json.loads(line)
    if (error := answer.get("error")) is not None:
        kind = ERRORS.get(error.get("kind"), HostError)
        raise kind(str(error.get("message")), hint=str(error.get("hint", "")))
    assert isinstance(answer, dict)
    return answer
