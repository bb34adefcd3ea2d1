"""A kernel of Jupyter as a process of ours."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import secrets
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from jupyter_client import AsyncKernelClient, AsyncKernelManager

from quicksand_interpreter.cells import at_start
from quicksand_interpreter.contexts import KernelGoneError
from quicksand_interpreter.messages import Line, line_of

START_S = 120.0
"""Seconds that a kernel has to come up, on a host that emulates and is busy."""

LOOK_S = 1.0
"""Seconds of silence after which it is looked whether the kernel lives."""

INTERRUPT_S = 10.0
"""Seconds that an interrupted cell has to end before its kernel is ended."""

OPTIONS = ("--HistoryManager.enabled=False",)


class JupyterKernel:
    """Its sockets are files in ``place``."""

    def __init__(self, cwd: str, place: Path, env: Mapping[str, str]) -> None:
        self._cwd = cwd
        self._place = place
        self._env = dict(env)
        self._manager: AsyncKernelManager | None = None
        self._client: AsyncKernelClient | None = None

    async def start(self) -> None:
        """Raises KernelGoneError."""
        await self.end()
        name = secrets.token_hex(8)
        # Sockets as files: no port of the guest's loopback leads to a kernel.
        manager = AsyncKernelManager(
            kernel_name="python3",
            transport="ipc",
            ip=str(self._place / name),
            connection_file=str(self._place / f"{name}.json"),
        )
        self._manager = manager
        try:
            await manager.start_kernel(
                cwd=self._cwd,
                env=self._env,
                extra_arguments=list(OPTIONS),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            client = manager.client()
            client.start_channels(stdin=False, hb=False)
            self._client = client
            await client.wait_for_ready(timeout=START_S)
            await self.run_silently(at_start())
        except (OSError, RuntimeError) as error:
            await self.end()
            raise KernelGoneError(str(error)) from error
        except BaseException:
            await self.end()
            raise

    @property
    def is_up(self) -> bool:
        return self._client is not None

    async def kill(self) -> None:
        if self._manager is not None and self._manager.has_kernel:
            await self._manager.signal_kernel(signal.SIGKILL)

    async def end(self) -> None:
        manager, self._manager = self._manager, None
        client, self._client = self._client, None
        if client is not None:
            client.stop_channels()
        if manager is not None and manager.has_kernel:
            await manager.shutdown_kernel(now=True)

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
        client = self._require()
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
        """The output of a cell until it has ended."""
        is_replied = False
        while True:
            try:
                message = await client.get_iopub_msg(timeout=LOOK_S)
            except queue.Empty:
                if is_replied:
                    return  # the end was among what a full queue has dropped
                is_replied = await self._has_reply(client, id_)
                await self._require_alive()
                continue
            if message["parent_header"].get("msg_id") != id_:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                while not is_replied and not await self._has_reply(client, id_, LOOK_S):
                    await self._require_alive()
                return
            yield message

    async def _has_reply(self, client: AsyncKernelClient, id_: str, timeout: float = 0.0) -> bool:
        with contextlib.suppress(queue.Empty):
            while True:
                reply = await client.get_shell_msg(timeout=timeout)
                if reply["parent_header"].get("msg_id") == id_:
                    return True
        return False

    async def _require_alive(self) -> None:
        if self._manager is None or not await self._manager.is_alive():
            raise KernelGoneError("the kernel has ended")

    async def _break_off(self, client: AsyncKernelClient, id_: str) -> None:
        """Interrupt the cell; if it goes on all the same, end the kernel."""
        try:
            async with asyncio.timeout(INTERRUPT_S):
                await self._require_alive()
                assert self._manager is not None
                await self._manager.interrupt_kernel()
                async for _ in self._messages(client, id_):
                    pass
        except (KernelGoneError, TimeoutError):
            await self.end()

    def _require(self) -> AsyncKernelClient:
        if self._client is None:
            raise KernelGoneError("the kernel has ended")
        return self._client
