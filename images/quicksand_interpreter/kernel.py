"""A kernel of Jupyter as a process of ours."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import zmq.asyncio
from jupyter_client import AsyncKernelClient
from jupyter_client.connect import write_connection_file

from quicksand_interpreter.cells import at_start
from quicksand_interpreter.contexts import KernelGoneError
from quicksand_interpreter.forking import Process, Zygote
from quicksand_interpreter.messages import Line, line_of

START_S = 120.0
"""Seconds that a kernel has to come up, on a host that emulates and is busy."""

LOOK_S = 1.0
"""Seconds of silence after which the kernel is checked for life."""

INTERRUPT_S = 30.0
"""Seconds that an interrupted cell has to end before its kernel is ended. A cell that floods still
has much to write, which takes an emulated guest on a busy host more than ten."""


class JupyterKernel:
    """A kernel of Jupyter. Its sockets are files in ``place``: no port of the guest leads to it."""

    def __init__(self, cwd: str, place: Path, zygote: Zygote) -> None:
        self._cwd = cwd
        self._place = place
        self._zygote = zygote
        self._name = ""
        self._process: Process | None = None
        self._client: AsyncKernelClient | None = None

    @property
    def is_up(self) -> bool:
        return self._client is not None

    async def start(self) -> None:
        """Raises KernelGoneError."""
        await self.end()
        self._name = secrets.token_hex(8)
        connection = str(self._place / f"{self._name}.json")
        try:
            write_connection_file(
                connection,
                transport="ipc",
                ip=str(self._place / self._name),
                key=secrets.token_hex(32).encode(),
            )
            self._process = await self._zygote.fork(connection, self._cwd)
            client = AsyncKernelClient(
                connection_file=connection, context=zmq.asyncio.Context.instance()
            )
            client.load_connection_file()
            client.start_channels(stdin=False, hb=False)
            self._client = client
            await self._until_ready(client, self._process)
            await self.run_silently(at_start())
        except (OSError, RuntimeError) as error:
            await self.end()
            raise KernelGoneError(str(error)) from error
        except BaseException:
            await self.end()
            raise

    async def _until_ready(self, client: AsyncKernelClient, process: Process) -> None:
        """Raises KernelGoneError, RuntimeError."""
        ready = asyncio.create_task(client.wait_for_ready(timeout=START_S))
        gone = asyncio.create_task(process.gone.wait())
        try:
            await asyncio.wait({ready, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not ready.done():
                raise KernelGoneError("the kernel has ended")
            await ready
        finally:
            ready.cancel()
            gone.cancel()
            await asyncio.gather(ready, gone, return_exceptions=True)

    async def kill(self) -> None:
        if self._process is not None:
            self._process.signal(signal.SIGKILL)

    async def end(self) -> None:
        process, self._process = self._process, None
        client, self._client = self._client, None
        name, self._name = self._name, ""
        if client is not None:
            client.stop_channels()
        if process is not None:
            process.signal(signal.SIGKILL)
            await process.gone.wait()
        if name:
            for path in self._place.glob(f"{name}*"):
                path.unlink(missing_ok=True)

    async def execute(self, code: str) -> AsyncGenerator[Line]:
        """Raises KernelGoneError."""
        async with contextlib.aclosing(self._run(code, silent=False)) as found:
            async for message in found:
                line = line_of(message["msg_type"], message["content"])
                if line is not None:
                    yield line

    async def run_silently(self, code: str) -> None:
        """Raises KernelGoneError."""
        async with contextlib.aclosing(self._run(code, silent=True)) as found:
            async for _ in found:
                pass

    async def _run(self, code: str, *, silent: bool) -> AsyncGenerator[dict[str, Any]]:
        client = self._client
        if client is None:
            raise KernelGoneError("the kernel has ended")
        id_ = client.execute(code, silent=silent, store_history=not silent, allow_stdin=False)
        is_over = False
        try:
            async for message in self._messages(client, id_):
                yield message
            is_over = True
        except KernelGoneError:
            is_over = True
            await self.end()
            raise
        finally:
            if not is_over:
                await self._break_off(client, id_)

    async def _messages(self, client: AsyncKernelClient, id_: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the output of a cell until it has ended."""
        is_replied = False
        while True:
            try:
                message = await client.get_iopub_msg(timeout=LOOK_S)
            except queue.Empty:
                if is_replied:
                    return  # the end was among the messages that a full queue has dropped
                is_replied = await self._has_reply(client, id_)
                self._require_alive()
                continue
            if message["parent_header"].get("msg_id") != id_:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                while not is_replied and not await self._has_reply(client, id_, LOOK_S):
                    self._require_alive()
                return
            yield message

    async def _has_reply(self, client: AsyncKernelClient, id_: str, timeout: float = 0.0) -> bool:
        with contextlib.suppress(queue.Empty):
            while True:
                reply = await client.get_shell_msg(timeout=timeout)
                if reply["parent_header"].get("msg_id") == id_:
                    return True
        return False

    def _require_alive(self) -> None:
        if self._process is None or self._process.gone.is_set():
            raise KernelGoneError("the kernel has ended")

    async def _break_off(self, client: AsyncKernelClient, id_: str) -> None:
        """Interrupt the cell; if it goes on anyway, end the kernel."""
        try:
            async with asyncio.timeout(INTERRUPT_S):
                self._require_alive()
                assert self._process is not None
                self._process.signal(signal.SIGINT)
                async for _ in self._messages(client, id_):
                    pass
        except (KernelGoneError, TimeoutError):
            await self.end()
