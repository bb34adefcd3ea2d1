"""Connections to QEMU's monitor (QMP), against a script that stands for QEMU."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import QemuDiedError
from quicksand.qemu.qmp import NEGOTIATIONS, Monitor
from quicksand.records.layout import QMP_MONITORS, MachineDir

GREETING = {"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""},
                    "capabilities": ["oob"]}}  # fmt: skip
EVENT = {"event": "VNC_CONNECTED", "data": {}, "timestamp": {"seconds": 1, "microseconds": 0}}


class Qemu:
    """Sends an event before its answer to the first commands of the first ``early`` clients."""

    def __init__(self, early: int) -> None:
        self.early = early
        self.clients = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(value: dict[str, Any]) -> None:
            writer.write(json.dumps(value).encode() + b"\r\n")

        self.clients += 1
        is_early = self.clients <= self.early
        say(GREETING)
        while data := await reader.read(4096):  # each command in one piece
            if is_early:
                say(EVENT)
                is_early = False
            command = json.loads(data)
            say({"return": {"said": command["execute"]}, "id": command.get("id")})
        writer.close()


@contextlib.asynccontextmanager
async def running(root: Path, early: int) -> AsyncIterator[tuple[MachineDir, Qemu]]:
    machine, qemu = MachineDir(root), Qemu(early)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(QMP_MONITORS):
            path = str(machine.qmp_socket(number))
            await stack.enter_async_context(await asyncio.start_unix_server(qemu.serve, path))
        yield machine, qemu


async def test_an_event_that_comes_before_the_answer_costs_another_connection(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, NEGOTIATIONS - 1) as (machine, qemu):
        monitor = await Monitor.connect(machine)
        assert await monitor.execute("query-status") == {"said": "query-status"}
        await monitor.close()
        assert qemu.clients == NEGOTIATIONS


async def test_a_qemu_that_never_answers_in_order_is_given_up(tmp_path: Path) -> None:
    async with running(tmp_path, NEGOTIATIONS) as (machine, qemu):
        with pytest.raises(QemuDiedError, match="before it answered"):
            await Monitor.connect(machine)
        assert qemu.clients == NEGOTIATIONS
