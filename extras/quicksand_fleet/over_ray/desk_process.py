"""The process in which a program's Ray runs: ``python -m quicksand_fleet.over_ray.desk_process``.

It reads lines: a JSON object with the cluster's record, then requests. It writes lines: ``{"id",
"value"}`` or ``{"id", "error"}`` for each request, and ``{"state"}`` after a change. It ends with
its stdin.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any

from quicksand.extending import no_core_files, note, paths

from quicksand_fleet.over_ray.cluster_record import ClusterRecord
from quicksand_fleet.over_ray.desk import DeskError, Place
from quicksand_fleet.over_ray.ray_desk import RayDesk, connect

LOOK_S = 0.5
"""Seconds between two looks at Ray's state."""


class DeskProcess:
    """Answers the program that has started this process."""

    def __init__(self, output: int) -> None:
        self._output = output
        self._desk = RayDesk()
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks: dict[str, Any] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}

    async def serve(self, reader: asyncio.StreamReader, first: Awaitable[bytes]) -> None:
        """Answer until the program has gone. ``first`` is the first request."""
        state = asyncio.create_task(self._tell_state(), name="quicksand-state")
        try:
            line = await first
            while line:
                task = asyncio.create_task(self._answer(json.loads(line)), name="quicksand-answer")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                line = await reader.readline()
        finally:
            for one in (state, *self._tasks, *self._looking.values()):
                one.cancel()
            await asyncio.wait([state, *self._tasks])

    def _write(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode() + b"\n"
        while data:
            data = data[os.write(self._output, data) :]

    async def _answer(self, request: dict[str, Any]) -> None:
        try:
            value = await self._carry_out(request)
        except DeskError as error:
            self._write({"id": request["id"], "error": str(error)})
        else:
            self._write({"id": request["id"], "value": value})

    async def _carry_out(self, request: dict[str, Any]) -> Any:
        match request:
            case {"do": "take", "place": dict(place), "timeout_s": timeout_s}:
                return await self._desk.take(Place(**place), timeout_s=timeout_s)
            case {"do": "give_back", "place_id": str(id_)}:
                return await self._desk.give_back(id_)
            case {"do": "ask", "machine_id": str(machine_id), "method": str(name), "args": args}:
                return await self._desk.ask(machine_id, name, *args)
        raise DeskError("no such request")

    async def _tell_state(self) -> None:
        """Report Ray's state when it has changed."""
        before: Any = None
        while True:
            try:
                alive = sorted(await self._desk.machines())
                places = [asdict(one) for one in await self._desk.places()]
                error = ""
            except DeskError as failed:
                alive, places, error = [], [], str(failed)
            for machine_id in alive:
                if machine_id not in self._looking or self._looking[machine_id].done():
                    self._looking[machine_id] = asyncio.create_task(
                        self._look(machine_id), name="quicksand-look"
                    )
            state = {"alive": alive, "places": places, "looks": {**self._looks}, "error": error}
            if state != before:
                self._write({"state": state})
            before = state
            await asyncio.sleep(LOOK_S)

    async def _look(self, machine_id: str) -> None:
        try:
            self._looks[machine_id] = await self._desk.ask(machine_id, "look")
        except DeskError as error:
            note(paths().engine_log, f"ask {machine_id}: {error}")
            before = self._looks.get(machine_id, {})
            self._looks[machine_id] = {**before, "error": str(error)[:300]}


async def _main(output: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    record = ClusterRecord.from_json(json.loads(await reader.readline()))
    connecting = asyncio.create_task(asyncio.to_thread(connect, record), name="quicksand-connect")
    reading = asyncio.create_task(reader.readline(), name="quicksand-first")
    # The program may leave or be killed while this waits for a lost head.
    await asyncio.wait([connecting, reading], return_when=asyncio.FIRST_COMPLETED)
    if not connecting.done() and not reading.result():
        return
    await connecting
    await DeskProcess(output).serve(reader, reading)


if __name__ == "__main__":
    no_core_files()
    # Ray's own output must not come between the lines.
    mine = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(_main(mine))
    # Ray's own ending takes seconds and changes nothing: all our actors and places are detached.
    os._exit(0)
