"""A scripted, sometimes hostile agent on a Unix socket, and a session with it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from quicksand.guest.agent import wire
from quicksand.guest.agent.session import Session, connect

Handler = Callable[["FakeAgent", dict[str, Any]], Coroutine[Any, Any, None]]
Connecting = Callable[[Path], Coroutine[Any, Any, Session]]


class FakeAgent:
    """Answers the handshake; everything else is the test's script."""

    def __init__(self, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self.writer = writer
        self.handler = handler
        self.data: list[wire.DataFrame] = []
        self.data_arrived = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        decoder = wire.FrameDecoder()
        async with asyncio.TaskGroup() as tasks:
            while chunk := await reader.read(65536):
                for frame in decoder.feed(chunk):
                    if isinstance(frame, wire.DataFrame):
                        self.data.append(frame)
                        self.data_arrived.set()
                    elif frame.message["method"] == "hello":
                        nonce = bytes.fromhex(frame.message["params"]["nonce"])
                        self.writer.write(wire.MARKER + nonce)
                        self.reply(frame.message, {"protocol": 1})
                    else:
                        tasks.create_task(self.handler(self, frame.message))

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def reply(self, request: dict[str, Any], result: dict[str, Any]) -> None:
        self.writer.write(wire.encode_message({"id": request["id"], "result": result}))

    def refuse(self, request: dict[str, Any], error: dict[str, str]) -> None:
        self.writer.write(wire.encode_message({"id": request["id"], "error": error}))

    def send(self, data: bytes) -> None:
        self.writer.write(data)


@contextlib.asynccontextmanager
async def session_with(
    handler: Handler, *, before: bytes = b"", connecting: Connecting | None = None
) -> AsyncIterator[Session]:
    agents: list[FakeAgent] = []
    serving: list[asyncio.Task[None]] = []

    def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        agent = FakeAgent(writer, handler)
        agents.append(agent)
        serving.append(asyncio.create_task(agent.serve(reader)))

    with tempfile.TemporaryDirectory(prefix="qst-") as directory:
        path = Path(directory) / "agent.sock"
        server = await asyncio.start_unix_server(on_connect, str(path))
        if connecting is None:
            session = await connect(path, "token", timeout=60)
        else:
            session = await connecting(path)
        try:
            yield session
        finally:
            session.close()
            server.close()
            for task in serving:
                task.cancel()
            await asyncio.gather(*serving, return_exceptions=True)
            for agent in agents:
                await agent.close()
            await server.wait_closed()


async def silent(_: FakeAgent, __: dict[str, Any]) -> None:
    """Never answers."""
