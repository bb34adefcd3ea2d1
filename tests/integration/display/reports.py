"""What a guest's kernel says of its keyboard and its pointer (Linux, input-event-codes.h)."""

from __future__ import annotations

import asyncio
import struct
from typing import NamedTuple, Self

from quicksand import Command, Sandbox
from quicksand.base.errors import RevertedError

from tests.integration.guests import say

FIND = "grep -l {name} /sys/class/input/event*/device/name | cut -d/ -f5"
DEVICES = {"keyboard": "Keyboard", "pointer": "Tablet"}

EVENT = struct.Struct("<qqHHi")
"""struct input_event: seconds, microseconds, kind, code, value."""

EV_SYN, EV_KEY, EV_REL, EV_ABS = range(4)
LEFTSHIFT = 42
BUTTONS = {272: "left", 273: "right", 274: "middle"}

ROWS = {
    2: ("1234567890-=", "!@#$%^&*()_+"),
    16: ("qwertyuiop[]\n", "QWERTYUIOP{}\n"),
    30: ("asdfghjkl;'`", 'ASDFGHJKL:"~'),
    43: ("\\zxcvbnm,./", "|ZXCVBNM<>?"),
    57: (" ", " "),
    14: ("\b\t", "\b\t"),
}
"""The characters on a US keyboard without and with shift, by the code of the first."""

CODES = {
    first + place: (plain, upper)
    for first, rows in ROWS.items()
    for place, (plain, upper) in enumerate(zip(*rows, strict=True))
}


class Report(NamedTuple):
    """One event."""

    device: str
    kind: int
    code: int
    value: int


class Reports:
    """The events that a guest has seen since it was asked last. They are read by `cat` to a file,
    since a slow program, or one whose output is not taken at once, would lose some."""

    def __init__(self, vm: Sandbox) -> None:
        self._vm = vm
        self._seen: list[Report] = []
        self._more = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for device, word in DEVICES.items():
            name = await say(self._vm, FIND.format(name=word))
            # What is written first tells that the device is open.
            script = (
                f"exec 3</dev/input/{name} && file=$(mktemp) && echo >$file && "
                "{ cat <&3 >>$file & exec tail -f -c +1 $file; }"
            )
            command = await self._vm.spawn(script, timeout=None)
            ready = asyncio.Event()
            self._readers.append(asyncio.ensure_future(self._read(device, command, ready)))
            async with asyncio.timeout(60):
                await ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.cancel()
        await asyncio.wait(self._readers)
        for reader in self._readers:
            if not reader.cancelled() and not isinstance(reader.exception(), RevertedError):
                reader.result()

    async def _read(self, device: str, command: Command, ready: asyncio.Event) -> None:
        rest = b""
        async for _, data in command.output():
            rest += data
            if not ready.is_set():
                rest = rest.removeprefix(b"\n")
                ready.set()
            whole = len(rest) // EVENT.size * EVENT.size
            events, rest = rest[:whole], rest[whole:]
            for *_, kind, code, value in EVENT.iter_unpack(events):
                if kind or code:  # not the end of a report
                    self._seen.append(Report(device, kind, code, value))
            self._more.set()

    async def until(self, last: tuple[int, int, int]) -> list[Report]:
        """All events of one device up to the one with this kind, code and value. Those of the other
        stay: they come in an order of their own."""
        async with asyncio.timeout(60):
            while True:
                for number, report in enumerate(self._seen):
                    if report[1:] == last:
                        return self._take(number)
                self._more.clear()
                await self._more.wait()

    def _take(self, last: int) -> list[Report]:
        """The events of that one's device, up to it."""
        device = self._seen[last].device
        found = [report for report in self._seen[: last + 1] if report.device == device]
        others = [report for report in self._seen[: last + 1] if report.device != device]
        self._seen = others + self._seen[last + 1 :]
        assert not any(report.kind == EV_SYN for report in found), "events are lost"
        return found


def text_of(reports: list[Report]) -> str:
    """What the keys have typed on a US layout."""
    shift, text = 0, ""
    for report in reports:
        if report.kind == EV_KEY and report.code == LEFTSHIFT:
            shift = report.value
        elif report.kind == EV_KEY and report.value and report.code in CODES:
            assert report.value == 1, "a key was repeated"
            text += CODES[report.code][shift]
    return text


def places_of(reports: list[Report]) -> list[tuple[int, int]]:
    """Where the pointer was: the kernel does not say again what has not changed."""
    x = y = 0
    places = []
    for report in reports:
        if report.kind == EV_ABS:
            x, y = (report.value, y) if report.code == 0 else (x, report.value)
            places.append((x, y))
    return places
