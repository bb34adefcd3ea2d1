"""The first words of a connection between two machines: their identities and capabilities."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field
from typing import Any

from quicksand.base.errors import RemoteProtocolError, RemoteRefusedError
from quicksand.base.version import version_text
from quicksand.guest.agent import wire
from quicksand.guest.agent.values import bounded

PROTOCOL = 1
"""The version of the protocol, raised only when the messages of older versions are no longer
understood; additions are capabilities."""

CAPABILITIES = ("agent", "resume")
"""The abilities that this version offers other machines (docs/internals/hosts.md)."""

WATCH = "watch"
"""The capability of a far end to tell an app about changes there."""

HELLO_S = 60.0
"""Seconds within which a client must say hello."""

HELLO_MAX = 4096
"""The most bytes of the frame with the client's hello."""

CAPABILITIES_MAX = 64

SAME_VERSION = "install the same version on both machines"

HEX32 = re.compile(r"[0-9a-f]{32}")
_ASKER = wire.Peer("the other end", RemoteProtocolError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The first message of a client."""

    nonce: str = field(default_factory=lambda: os.urandom(wire.NONCE_BYTES).hex())
    client: str
    """The client's id, 32 hex digits, kept over its connections and known to nobody else."""
    resume: bool = False
    """Whether the client had an earlier connection to this machine, which broke."""
    protocol: int = PROTOCOL
    version: str = field(default_factory=version_text)

    @property
    def marker(self) -> bytes:
        """Return the beginning of the answer; bytes before it are not ours."""
        return wire.MARKER + bytes.fromhex(self.nonce)

    def encode(self) -> bytes:
        params = {
            "nonce": self.nonce,
            "client": self.client,
            "resume": self.resume,
            "protocol": self.protocol,
            "version": self.version,
        }
        return wire.encode_message({"id": 0, "method": "hello", "params": params})


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The other machine's answer to a hello."""

    protocol: int
    version: str
    capabilities: frozenset[str]
    resumed: bool
    """Whether the work that the client began over its last connection is still known."""

    def encode(self, hello: Hello) -> bytes:
        result = {
            "protocol": self.protocol,
            "version": self.version,
            "capabilities": sorted(self.capabilities),
            "resumed": self.resumed,
        }
        return hello.marker + wire.encode_message({"id": 0, "result": result})


def welcome(*more: str, resumed: bool) -> Welcome:
    """Return this version's answer; ``more`` are further capabilities."""
    return Welcome(
        protocol=PROTOCOL,
        version=version_text(),
        capabilities=frozenset((*CAPABILITIES, *more)),
        resumed=resumed,
    )


def encode_refusal(hello: Hello) -> bytes:
    """Return the answer to a client whose protocol this version does not speak."""
    message = f"quicksand-tui {version_text()} speaks the protocol {PROTOCOL} only"
    error = {"code": "unsupported", "message": message, "protocol": PROTOCOL}
    return hello.marker + wire.encode_message({"id": 0, "error": error})


async def read_frame(reader: asyncio.StreamReader, peer: wire.Peer, limit: int) -> bytes:
    """Read one JSON frame of at most ``limit`` bytes, and return it with its length in front.
    Raises the peer's error, and EOFError at the end of the connection."""
    word = await reader.readexactly(4)
    length = int.from_bytes(word)
    if length > limit:
        raise peer.error(f"{peer.name} did not begin with a hello")
    return word + await reader.readexactly(length)


async def read_hello(reader: asyncio.StreamReader) -> tuple[Hello, bytes]:
    """Read a client's hello; return it, and its frame. Raises RemoteProtocolError, also if none
    comes within `HELLO_S`, and EOFError."""
    try:
        async with asyncio.timeout(HELLO_S):
            frame = await read_frame(reader, _ASKER, HELLO_MAX)
    except TimeoutError:
        raise RemoteProtocolError(f"nobody said hello within {HELLO_S:g} s") from None
    match wire.parse_message(frame[4:], _ASKER):
        case {
            "method": "hello",
            "params": {
                "nonce": str(nonce),
                "client": str(client),
                "protocol": int(protocol),
                **more,
            },
        } if HEX32.fullmatch(nonce) and HEX32.fullmatch(client):
            hello = Hello(
                nonce=nonce,
                client=client,
                resume=more.get("resume") is True,
                protocol=protocol,
                version=bounded(str(more.get("version", "")), 64),
            )
            return hello, frame
    raise RemoteProtocolError("the other end did not begin with a hello")


async def read_welcome(reader: asyncio.StreamReader, name: str) -> Welcome:
    """Read the answer, which follows its marker. Raises RemoteProtocolError, EOFError, and
    RemoteRefusedError if the other machine does not speak this protocol."""
    peer = wire.Peer(name, RemoteProtocolError)
    frame = await read_frame(reader, peer, wire.SMALL_MAX)
    answer: dict[str, Any] = wire.parse_message(frame[4:], peer)
    match answer:
        case {"error": {"code": str(code), "message": str(message)}}:
            raise RemoteRefusedError(
                f"{name}: {bounded(message)}; here is quicksand-tui {version_text()}, which speaks "
                f"{PROTOCOL}",
                code=bounded(code, 64),
                hint=SAME_VERSION,
            )
        case {
            "result": {
                "protocol": int(protocol),
                "version": str(version),
                "capabilities": list(capabilities),
                **more,
            }
        } if len(capabilities) <= CAPABILITIES_MAX:
            if protocol != PROTOCOL:
                raise RemoteRefusedError(
                    f"{name}: quicksand-tui {bounded(version, 64)} speaks the protocol {protocol}; "
                    f"here is {version_text()}, which speaks {PROTOCOL}",
                    code="unsupported",
                    hint=SAME_VERSION,
                )
            return Welcome(
                protocol=protocol,
                version=bounded(version, 64),
                capabilities=frozenset(bounded(str(one), 64) for one in capabilities),
                resumed=more.get("resumed") is True,
            )
    raise RemoteProtocolError(f"{name} answered the hello with something else")
