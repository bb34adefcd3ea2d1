"""The way of input events into the guest: QMP input-send-event, no faster than the guest takes
them.

A virtio-input device silently drops events when the guest has no buffer for them (QEMU,
hw/input/virtio-input.c). So its queue is asked for its free buffers (QMP
x-query-virtio-queue-element), and events wait for them here. The program that reads the events in
the guest has a buffer, too, which only time empties: see `Pace`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from quicksand.base.errors import DisplayError, StateError
from quicksand.qemu.command import KEYBOARD, TABLET
from quicksand.qemu.qmp import Monitor

Event = Mapping[str, Any]
"""An InputEvent of QMP (qapi/ui.json)."""

DRIVER_OK = "VIRTIO_CONFIG_S_DRIVER_OK"
EVENT_QUEUE = 0
"""The queue of a virtio-input device that carries events to the guest (virtio 1.2, 5.8.2)."""

COUNTER = 0x1_0000
"""The range of the queue's counters, which have 16 bits."""

WAIT_S = 10.0
"""Seconds that a guest may leave its queue full."""

POLL_S = 0.002


def key_event(key: str, down: bool) -> Event:
    """A key, by its QKeyCode, is pressed or released."""
    return {"type": "key", "data": {"down": down, "key": {"type": "qcode", "data": key}}}


def button_event(button: str, down: bool) -> Event:
    """A button of the pointer, by its InputButton, is pressed or released; the wheel is turned by
    pressing one of its own."""
    return {"type": "btn", "data": {"down": down, "button": button}}


def move_events(x: int, y: int) -> list[Event]:
    """The pointer is moved to a place, each coordinate from 0 to 32767."""
    return [{"type": "abs", "data": {"axis": a, "value": v}} for a, v in (("x", x), ("y", y))]


class EventQueue:
    """The queue of one device, ``KEYBOARD`` or ``TABLET``."""

    def __init__(self, monitor: Monitor, device: str) -> None:
        self._monitor = monitor
        self._device = device
        self._path = f"/machine/peripheral/{device}/virtio-backend"
        self._free = 0
        """Buffers that were free at the last query, less those used since."""
        self._most = 0
        """The most buffers that ever were free."""
        self._counts = True
        """Whether this QEMU can be asked."""

    async def require_driver(self) -> None:
        """Raise StateError if nothing in the guest drives the device: QEMU would drop all events,
        and some versions end when asked for such a device's queue."""
        try:
            is_driven = await drives(self._monitor, self._path)
        except (StateError, KeyError, TypeError):
            self._counts = False
            return
        if not is_driven:
            what = "keyboard" if self._device == KEYBOARD else "pointer"
            raise StateError(
                f"the guest does not use its {what}",
                hint="its kernel needs the driver virtio_input, and time to boot",
            )

    async def send(self, events: Sequence[Event]) -> None:
        """Send events that belong together, as one report. Raises DisplayError if the guest takes
        nothing for WAIT_S, StateError, MachineError."""
        needed = len(events) + 1  # and the one that ends a report
        if self._counts and self._free < needed:
            await self._wait_for(needed)
        await self._monitor.execute("input-send-event", events=list(events))
        self._free -= needed

    async def until_taken(self) -> None:
        """Wait until the guest's kernel has taken all events, if this QEMU can be asked. Raises as
        `send`."""
        if self._counts:
            await self._wait_for(self._most)

    async def _wait_for(self, needed: int) -> None:
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while (free := await self._count_free()) < needed:
            if not self._counts:
                return
            if asyncio.get_running_loop().time() > deadline:
                raise DisplayError(
                    f"the guest has taken no input for {WAIT_S:g} s",
                    hint="its kernel hangs, or has too much to do",
                )
            await asyncio.sleep(POLL_S)
        self._free = free
        self._most = max(free, self._most)

    async def _count_free(self) -> int:
        try:
            used, offered = await asyncio.gather(
                self._ask("x-query-virtio-queue-status"), self._ask("x-query-virtio-queue-element")
            )
            return int(offered["avail"]["idx"] - used["last-avail-idx"]) % COUNTER
        except (StateError, KeyError, TypeError):
            self._counts = False
            return 0

    async def _ask(self, command: str) -> Any:
        return await self._monitor.execute(command, path=self._path, queue=EVENT_QUEUE)


async def drives(monitor: Monitor, path: str) -> bool:
    """Whether the guest's kernel drives the virtio device at ``path``. Raises StateError, KeyError
    or TypeError if this QEMU does not tell; MachineError."""
    status = await monitor.execute("x-query-virtio-status", path=path)
    return any(str(word).startswith(DRIVER_OK) for word in status["status"]["statuses"])


class Pace:
    """Spreads events over time, some per second. Linux keeps 64 events for a program that reads
    them (drivers/input/evdev.c), such as the X server, which loses any others."""

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._next = 0.0

    async def step(self, count: int = 1) -> None:
        """Wait until the next ``count`` events may be sent."""
        now = asyncio.get_running_loop().time()
        if now < self._next:
            await asyncio.sleep(self._next - now)
        self._next = max(now, self._next) + count * self._interval

    def rest(self, seconds: float) -> None:
        """Send nothing for so long from now on."""
        self._next = max(self._next, asyncio.get_running_loop().time() + seconds)


class Queues:
    """The queues of both devices, each made when it is first used."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._made: dict[str, EventQueue] = {}

    async def keyboard(self) -> EventQueue:
        """The keyboard's. Raises StateError if the guest does not use it."""
        return await self._of(KEYBOARD)

    async def tablet(self) -> EventQueue:
        """The pointer's. Raises as `keyboard`."""
        return await self._of(TABLET)

    async def _of(self, device: str) -> EventQueue:
        queue = self._made.get(device)
        if queue is None:
            queue = EventQueue(self._monitor, device)
            await queue.require_driver()
            self._made[device] = queue
        return queue
