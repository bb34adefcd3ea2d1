"""Using a machine's keyboard and pointer: one client at a time, in whole gestures, no faster than
the guest takes them.

The state as clients have left it (the pointer's place, and what is held down) is in a file of the
machine, so that all clients know it and a checkpoint can release everything.

A virtio-input device silently drops events when the guest has no buffer for them (QEMU,
hw/input/virtio-input.c). So its queue is asked for its free buffers (QMP x-query-virtio-queue-
element), and events wait for them here. The program that reads the events in the guest has a
buffer, too, which only time empties: see `Pace`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from quicksand_vnc import STROKES, Key, is_whole, parse_key

from quicksand.base.error_text import choose
from quicksand.base.errors import ConfigError, DisplayError, QuicksandError, StateError
from quicksand.base.files import read_json, try_lock, write_json
from quicksand.base.hypervisor import Hypervisor
from quicksand.base.limits import BUTTONS
from quicksand.base.threads import to_the_end
from quicksand.qemu.command import KEYBOARD, TABLET
from quicksand.qemu.qemu_hypervisor import monitor_of
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import MachineDir

ABS_MAX = 0x7FFF
"""The right and lower edge of the screen (QEMU, INPUT_EVENT_ABS_MAX)."""

KEYS_MAX = 64


@dataclass(slots=True)
class Held:
    """The state of keyboard and pointer, as far as clients have changed it."""

    position: tuple[int, int] | None = None
    """The place to which the pointer was moved; None if nobody has moved it."""
    buttons: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()

    @classmethod
    def read(cls, machine: MachineDir) -> Held:
        """The contents of the machine's file; nothing held if there is none."""
        try:
            return cls._parse(read_json(machine.input_record))
        except (OSError, ValueError, KeyError, TypeError, QuicksandError):
            return cls()

    @classmethod
    def _parse(cls, value: dict[str, Any]) -> Held:
        x, y = value["position"] or (0, 0)
        return cls(
            position=(check_place(x), check_place(y)) if value["position"] else None,
            buttons=tuple(check_button(button) for button in value["buttons"][: len(BUTTONS)]),
            keys=tuple(parse_key(key) for key in value["keys"][:KEYS_MAX]),
        )

    def write(self, machine: MachineDir) -> None:
        """Write the machine's file. Raises PathError, DiskSpaceError."""
        value = {"position": self.position, "buttons": self.buttons, "keys": self.keys}
        write_json(machine.input_record, value, read=self._parse, durable=False)


def check_place(value: object) -> int:
    """``value`` if it is a coordinate from 0 to ABS_MAX. Raises ConfigError."""
    if not is_whole(value) or not 0 <= value <= ABS_MAX:
        raise ConfigError(
            f"{value!r} is no place of the pointer",
            hint=f"0 is the left or upper edge of the screen, {ABS_MAX} the right or lower one",
        )
    return value


def place_on(size: tuple[int, int], x: int, y: int) -> tuple[int, int]:
    """Return the place to which the pointer must be moved to be at the pixel (x, y) of a screen of
    this size. Raises ConfigError if it has no such pixel."""
    for value, side in zip((x, y), size, strict=True):
        if not is_whole(value) or not 0 <= value < side:
            raise ConfigError(
                f"({x!r}, {y!r}) is no pixel of the screen",
                hint=f"it has {size[0]}x{size[1]}: 0,0 to {size[0] - 1},{size[1] - 1}",
            )
    # The middle of the pixel, so that it is met however the guest rounds.
    across, down = (
        (2 * v + 1) * (ABS_MAX + 1) // (2 * s) for v, s in zip((x, y), size, strict=True)
    )
    return across, down


def pixel_on(size: tuple[int, int], place: tuple[int, int]) -> tuple[int, int]:
    """Return the pixel of a screen of this size at which the pointer is after a move to a place."""
    across, down = (v * s // (ABS_MAX + 1) for v, s in zip(place, size, strict=True))
    return across, down


def check_button(value: object) -> str:
    """``value`` if it is a button of the pointer. Raises ConfigError."""
    if not isinstance(value, str) or value.lower() not in BUTTONS:
        raise ConfigError(f"{value!r} is no button: {choose(BUTTONS)}")
    return value.lower()


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


TURN_S = 120.0
"""Seconds to wait while other clients type and point."""

CHECKPOINT_TURN_S = 5.0
"""Seconds that a checkpoint waits for its turn. Clients that type give up their turn more often."""

PIECE = 240
"""Characters that are typed in one turn, most of a second; a longer text takes several."""

TURN_POLL_S = 0.005
CHARACTERS_PER_S = 300.0
AT_ONCE = 6
"""Characters in one report, of four events each at most: the X server's evdev driver keeps 32 until
a report ends (xf86-input-evdev, EVDEV_MAXQUEUE)."""

READ_S = 0.012
"""The least seconds that the guest's programs have to read a report, once its kernel has taken it.
Where nothing holds the guest up, that is within the time that CHARACTERS_PER_S gives."""

MOVES_PER_S = 200.0

TAP_S = 0.02
"""Seconds that a key or a button is held. Some programs look only now and then."""

BETWEEN_CLICKS_S = 0.05
"""Seconds between two clicks of a double click; desktops take up to 0.25 or 0.4 s for one."""

DRAG_STEP = ABS_MAX // 64
"""The most by which the pointer is dragged at once, so that programs see a movement."""

LIFT_S = 2.0
"""Seconds for a guest that has just been resumed to take the release of all keys."""

MODIFIERS = ("shift", "shift_r", "ctrl", "ctrl_r", "alt", "alt_r", "meta_l", "meta_r")
OTHER_KEYS = ("compose", "kp_equals", "kp_comma", "ro", "yen", "henkan", "muhenkan", "hiragana")
"""Keys of QEMU's that only viewers press."""

LIFTED = tuple(dict.fromkeys((*MODIFIERS, *map(str, Key), *OTHER_KEYS)))
"""Modifiers first: they change what is typed."""

LIFTED_AT_ONCE = 40
"""Keys in one report; the guest's queue has 64 places."""

WHEEL = {True: "wheel-down", False: "wheel-up"}


class Hands:
    """The keyboard and the pointer of one machine, for one turn (see `turn`). Its methods raise
    StateError if the guest does not use the device or the VM is paused, DisplayError if it takes no
    input, MachineError."""

    def __init__(self, machine: MachineDir, monitor: Monitor, held: Held) -> None:
        self._machine = machine
        self._queues = Queues(monitor)
        self.held = held

    @classmethod
    @asynccontextmanager
    async def turn(
        cls, machine: MachineDir, monitor: Monitor | None = None, *, patience_s: float | None = None
    ) -> AsyncIterator[Self]:
        """Wait for this client's turn with the machine's keyboard and pointer, and yield them. A
        given ``monitor`` is used, and left open. Raises StateError if other clients use them for
        ``patience_s`` (TURN_S), or if the machine has ended; MachineError."""
        lock = await _take_lock(machine, TURN_S if patience_s is None else patience_s)
        try:
            own = await Monitor.connect(machine) if monitor is None else monitor
            try:
                yield cls(machine, own, Held.read(machine))
            finally:
                if monitor is None:
                    await own.close()
        finally:
            os.close(lock)

    # Keys

    async def type(self, text: str) -> None:
        """Type characters, all of which are in STROKES."""
        keyboard, pace = await self._queues.keyboard(), Pace(CHARACTERS_PER_S)
        for start in range(0, len(text), AT_ONCE):
            some = text[start : start + AT_ONCE]
            await pace.step(len(some))
            # In one report, so that no key stays held, and repeats, while this process waits.
            await keyboard.send([event for character in some for event in _stroke(character)])
            # A guest that a busy host has held up takes all waiting reports at once, and its
            # programs have no room for three.
            await keyboard.until_taken()
            pace.rest(READ_S)

    async def press(self, keys: Sequence[str], *, hold_s: float = TAP_S) -> None:
        """Press keys together, the first one first, hold them, and release them. Keys that were
        held before stay held."""
        fresh = [key for key in keys if key not in self.held.keys]
        await self.hold(fresh)
        try:
            await asyncio.sleep(hold_s)
        finally:
            await to_the_end(self.let_go(fresh))

    async def hold(self, keys: Sequence[str]) -> None:
        """Press keys and keep them pressed."""
        keyboard = await self._queues.keyboard()
        self.held.keys = tuple(dict.fromkeys((*self.held.keys, *keys)))
        self._remember()
        for key in keys:
            await keyboard.send([key_event(key, True)])

    async def let_go(self, keys: Sequence[str]) -> None:
        """Release keys, the last one first."""
        keyboard = await self._queues.keyboard()
        for key in reversed(keys):
            await keyboard.send([key_event(key, False)])
        self.held.keys = tuple(key for key in self.held.keys if key not in keys)
        self._remember()

    # The pointer

    async def move(self, x: int, y: int) -> None:
        """Move the pointer to (x, y), each from 0 to ABS_MAX."""
        tablet = await self._queues.tablet()
        await tablet.send(move_events(x, y))
        self.held.position = (x, y)
        self._remember()

    async def click(self, button: str, *, count: int = 1) -> None:
        """Click ``count`` times where the pointer is."""
        for number in range(count):
            if number:
                await asyncio.sleep(BETWEEN_CLICKS_S)
            await self.hold_button(button)
            try:
                await asyncio.sleep(TAP_S)
            finally:
                await to_the_end(self.let_go_button(button))

    async def hold_button(self, button: str) -> None:
        """Press a button and keep it pressed."""
        tablet = await self._queues.tablet()
        self.held.buttons = tuple(dict.fromkeys((*self.held.buttons, button)))
        self._remember()
        await tablet.send([button_event(button, True)])

    async def let_go_button(self, button: str) -> None:
        """Release a button."""
        await (await self._queues.tablet()).send([button_event(button, False)])
        self.held.buttons = tuple(other for other in self.held.buttons if other != button)
        self._remember()

    async def drag(self, path: Sequence[tuple[int, int]], button: str) -> None:
        """Press a button at the first place of ``path``, move along it, release it at the last."""
        tablet, pace = await self._queues.tablet(), Pace(MOVES_PER_S)
        await self.move(*path[0])
        await self.hold_button(button)
        try:
            for start, end in pairwise(path):
                for place in _steps(start, end):
                    await pace.step()
                    await tablet.send(move_events(*place))
                    self.held.position = place
        finally:
            await to_the_end(self.let_go_button(button))

    async def scroll(self, notches: int) -> None:
        """Turn the wheel, down if ``notches`` is positive."""
        tablet, pace = await self._queues.tablet(), Pace(MOVES_PER_S)
        wheel = WHEEL[notches > 0]
        for _ in range(abs(notches)):
            await pace.step()
            await tablet.send([button_event(wheel, True)])
            await tablet.send([button_event(wheel, False)])

    async def let_go_all(self) -> None:
        """Release every key and button that any client holds."""
        if self.held.keys:
            await self.let_go(self.held.keys)
        for button in self.held.buttons:
            await self.let_go_button(button)

    def _remember(self) -> None:
        self.held.write(self._machine)


async def let_others() -> None:
    """Wait between two turns of one text: long enough for another client, which looks every
    TURN_POLL_S, to take its turn."""
    await asyncio.sleep(4 * TURN_POLL_S)


async def let_go_all(machine: MachineDir, hypervisor: Hypervisor) -> None:
    """Release all keys and buttons that clients hold, so that a checkpoint does not keep them held.
    Raises as `Hands`."""
    held = Held.read(machine)
    if held.keys or held.buttons:
        monitor = monitor_of(hypervisor)
        async with Hands.turn(machine, monitor, patience_s=CHECKPOINT_TURN_S) as hands:
            await hands.let_go_all()


async def may_hold(machine: MachineDir, hypervisor: Hypervisor) -> bool:
    """Whether a key or button may be held: by a client (`let_go_all` failed), or by a connected
    viewer. When a viewer disconnects, QEMU releases its keys. Raises MachineError."""
    held = Held.read(machine)
    if held.keys or held.buttons:
        return True
    try:
        servers = await monitor_of(hypervisor).execute("query-vnc-servers")
        return any(server["clients"] for server in servers)
    except (StateError, KeyError, TypeError):
        return True  # a QEMU that does not tell


async def lift_all(hypervisor: Hypervisor) -> None:
    """Release every key and button of a machine that has just gone on from a checkpoint: viewers,
    which may be any program, may have held some when it was taken, and are not connected to this
    machine. Linux ignores the release of a key that is not pressed. A guest that drives no
    keyboard, or takes no input within LIFT_S, is left as it is. Raises MachineError."""
    queues = Queues(monitor_of(hypervisor))
    with contextlib.suppress(StateError, DisplayError, TimeoutError):
        async with asyncio.timeout(LIFT_S):
            tablet = await queues.tablet()
            await tablet.send([button_event(button, False) for button in BUTTONS])
            keyboard = await queues.keyboard()
            for start in range(0, len(LIFTED), LIFTED_AT_ONCE):
                some = LIFTED[start : start + LIFTED_AT_ONCE]
                await keyboard.send([key_event(key, False) for key in some])


def _stroke(character: str) -> list[Event]:
    key, shift = STROKES[character]
    names = ["shift", key] if shift else [key]
    down = [key_event(name, True) for name in names]
    return [*down, *(key_event(name, False) for name in reversed(names))]


def _steps(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the places on the way from ``start`` to ``end``, which is the last."""
    count = max(1, *(-(-abs(b - a) // DRAG_STEP) for a, b in zip(start, end, strict=True)))
    (x, y), (to_x, to_y) = start, end
    return [
        (round(x + (to_x - x) * n / count), round(y + (to_y - y) * n / count))
        for n in range(1, count + 1)
    ]


async def _take_lock(machine: MachineDir, patience_s: float) -> int:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while True:
        if not machine.root.is_dir():
            raise StateError("the sandbox is not running")
        lock = try_lock(machine.input_lock)
        if lock is not None:
            return lock
        if loop.time() > deadline:
            raise StateError(
                f"another client has used the keyboard and the pointer for {patience_s:g} s",
                hint="wait until it has ended, or end it",
            )
        await asyncio.sleep(TURN_POLL_S)
