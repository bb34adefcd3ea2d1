"""The near end of `desk_process`: runs Ray in a process of its own, and restarts it when it
ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from quicksand.errors import QuicksandError
from quicksand.extending import best_effort, paths, printable

from quicksand_fleet.over_ray.cluster_record import ClusterRecord
from quicksand_fleet.over_ray.desk import DeskError, Place

PROGRAM = ("-P", "-m", "quicksand_fleet.over_ray.desk_process")
LINE_MAX = 32 * 1024 * 1024
"""The most bytes of a state: 10,000 places are 2 MB."""
CONNECT_S = 60.0
"""Seconds within which Ray must have answered; it takes 1.5 s, and far more under load."""
AGAIN_S = 2.0
SAID_MAX = 4096
WHY_MAX = 300
END_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Ray's state at one moment."""

    alive: frozenset[str] = frozenset()
    """The ids of the machines that are alive."""
    places: tuple[Place, ...] = ()
    looks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The last result of each machine's `Host.look`."""
    error: str = "Ray has not answered yet"
    """Why Ray does not answer; "" if it does."""

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> State:
        """Parse a report of our own process."""
        return cls(
            alive=frozenset(told["alive"]),
            places=tuple(Place(**one) for one in told["places"]),
            looks=told["looks"],
            error=printable(told["error"])[:WHY_MAX],
        )


class DeskClient:
    """Ray, by way of its process."""

    def __init__(self, read: Callable[[], ClusterRecord], changed: Callable[[], None]) -> None:
        """``read`` returns where Ray is, and is called for each connection: the head may have been
        replaced. ``changed`` is called when `state` has changed. Raises what ``read`` raises."""
        self.state = State()
        self._read = read
        self._record = read()
        self._changed = changed
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keep the process running until cancelled."""
        while True:
            why = await self._run_once()
            self._note(State(places=self.state.places, looks=self.state.looks, error=why))
            await asyncio.sleep(AGAIN_S)

    async def _run_once(self) -> str:
        """Follow one process to its end, and return why it has ended."""
        try:
            self._record = await asyncio.to_thread(self._read)
        except QuicksandError as error:
            return printable(str(error))[:WHY_MAX]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, *PROGRAM),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**os.environ, **self._record.environment()},
            limit=LINE_MAX,
            start_new_session=True,
        )
        said = bytearray()
        assert process.stderr is not None
        listening = asyncio.create_task(_keep_end(process.stderr, said), name="quicksand-said")
        try:
            why = await self._follow(process)
            last = said.decode("utf-8", "replace").strip().splitlines()[-1:]
            return ": ".join([why, *map(printable, last)])[:WHY_MAX]
        finally:
            self._process = None
            for one in self._waiting.values():
                if not one.done():
                    one.set_exception(DeskError("Ray is gone"))
            self._waiting.clear()
            await _end(process)
            listening.cancel()
            await asyncio.wait([listening])

    async def _follow(self, process: asyncio.subprocess.Process) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(self._record.to_json()).encode() + b"\n")
        try:
            async with asyncio.timeout(CONNECT_S):
                line = await process.stdout.readline()
        except TimeoutError:
            return f"Ray at {self._record.address} did not answer within {CONNECT_S:g} s"
        self._process = process
        while line:
            self._take(json.loads(line))
            line = await process.stdout.readline()
        return f"Ray at {self._record.address} cannot be reached"

    def _take(self, told: Mapping[str, Any]) -> None:
        if "state" in told:
            self._note(State.parse(told["state"]))
        elif (waiting := self._waiting.pop(told["id"], None)) is not None and not waiting.done():
            if "error" in told:
                waiting.set_exception(DeskError(printable(told["error"])[:WHY_MAX]))
            else:
                waiting.set_result(told["value"])

    def _note(self, state: State) -> None:
        self.state = state
        self._changed()

    async def _request(self, do: str, **more: Any) -> Any:
        """Make a request, and return its result. Raises DeskError."""
        process = self._process
        if process is None or process.stdin is None:
            raise DeskError(self.state.error or "Ray is gone")
        id_ = next(self._ids)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[id_] = answer
        try:
            process.stdin.write(json.dumps({"id": id_, "do": do, **more}).encode() + b"\n")
            return await answer
        finally:
            self._waiting.pop(id_, None)

    async def take(self, place: Place, *, timeout_s: float) -> bool:
        """See `Desk.take`; after a cancellation the place is given back as soon as Ray has
        answered."""
        taking = asyncio.ensure_future(
            self._request("take", place=asdict(place), timeout_s=timeout_s)
        )
        try:
            return bool(await asyncio.shield(taking))
        except asyncio.CancelledError:
            await asyncio.wait([taking])
            if not taking.exception() and taking.result():
                with best_effort("give back a place", paths().engine_log):
                    await self.give_back(place.id)
            raise

    async def give_back(self, id_: str) -> None:
        """See `Desk.give_back`."""
        await self._request("give_back", place_id=id_)

    async def ask(self, machine_id: str, method: str, *args: Any) -> Any:
        """See `Desk.ask`."""
        return await self._request("ask", machine_id=machine_id, method=method, args=[*args])


async def _keep_end(stderr: asyncio.StreamReader, said: bytearray) -> None:
    while data := await stderr.read(SAID_MAX):
        said += data
        del said[:-SAID_MAX]


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process: it ends by itself when its stdin closes."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_S):
            await process.wait()
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
