"""Runs in the guest: paints the screen in the colour that it is told, RRGGBB.

The default image's kernel has no driver of a screen, so this is one: of virtio-gpu (Virtual I/O
Device 1.2, 4.1.4 and 5.7), through the files in /sys, with no interrupts.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import struct
import time
from pathlib import Path

PAGE = 4096
WIDTH, HEIGHT = 128, 64
FRAME = WIDTH * HEIGHT * 4

GPU = ("0x1af4", "0x1050")
"""Vendor and device."""

COMMON, NOTIFY = 1, 2
"""Kinds of virtio's capabilities (4.1.4)."""

STATUS, QUEUE, SIZE, VECTOR, ENABLE, NOTIFY_OFF = 20, 22, 24, 26, 28, 30
DESCRIPTORS_AT, AVAILABLE_AT, USED_AT = 32, 40, 48
"""Of the common configuration (4.1.4.3)."""

ENTRIES = 8
"""Of the queue."""

CREATE_2D, SET_SCANOUT, FLUSH, TRANSFER, ATTACH = 0x101, 0x103, 0x104, 0x105, 0x106
OK = 0x1100
BGRX = 2
RECT = struct.pack("<4I", 0, 0, WIDTH, HEIGHT)


class Memory:
    """Pages, with where they are for the device."""

    def __init__(self, pages: int) -> None:
        self.data = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = ctypes.c_char.from_buffer(self.data)
        address = ctypes.addressof(first)
        self.data.write(bytes(pages * PAGE))
        ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t(pages * PAGE))
        with open("/proc/self/pagemap", "rb") as pagemap:
            pagemap.seek(address // PAGE * 8)
            numbers = struct.unpack(f"<{pages}Q", pagemap.read(pages * 8))
        self.places = [(number & ((1 << 55) - 1)) * PAGE for number in numbers]


class Gpu:
    """The device, and the queue of its commands."""

    def __init__(self) -> None:
        place = find_gpu()
        take(place)
        self._capabilities = capabilities(place)
        bar, self._common, _ = self._capabilities[COMMON]
        with (place / f"resource{bar}").open("r+b") as file:
            self._registers = mmap.mmap(file.fileno(), 0)
        self._queue = Memory(1)
        self._command = Memory(1)
        self._sent = 0
        self._begin()

    def _write(self, kind: type[ctypes.c_uint8 | ctypes.c_uint16], at: int, value: int) -> None:
        kind.from_buffer(self._registers, self._common + at).value = value

    def _write_place(self, at: int, value: int) -> None:
        for half in range(2):
            register = ctypes.c_uint32.from_buffer(self._registers, self._common + at + 4 * half)
            register.value = value >> 32 * half & 0xFFFFFFFF

    def _begin(self) -> None:
        byte, word = ctypes.c_uint8, ctypes.c_uint16
        self._write(byte, STATUS, 0)
        self._write(byte, STATUS, 3)  # a driver has seen it
        self._write_place(8, 1)  # the features from 32 on
        self._write_place(8, 1 | 1 << 32)  # and of those: version 1
        self._write(byte, STATUS, 11)
        self._write(word, QUEUE, 0)
        self._write(word, SIZE, ENTRIES)
        self._write(word, VECTOR, 0xFFFF)
        (base,) = self._queue.places
        for register, at in ((DESCRIPTORS_AT, 0), (AVAILABLE_AT, 1024), (USED_AT, 2048)):
            self._write_place(register, base + at)
        self._write(word, ENABLE, 1)
        self._write(byte, STATUS, 15)
        off = ctypes.c_uint16.from_buffer(self._registers, self._common + NOTIFY_OFF).value
        _, at, multiplier = self._capabilities[NOTIFY]
        self._bell = ctypes.c_uint16.from_buffer(self._registers, at + off * multiplier)

    def do(self, kind: int, data: bytes) -> None:
        """Carry out a command, and wait for that."""
        command = struct.pack("<IIQII", kind, 0, 0, 0, 0) + data
        (place,) = self._command.places
        self._command.data[: len(command)] = command
        ring = self._queue.data
        answer = PAGE // 2
        # Two descriptors: what the device reads, and what it writes.
        ring[:16] = struct.pack("<QIHH", place, len(command), 1, 1)
        ring[16:32] = struct.pack("<QIHH", place + answer, 24, 2, 0)
        at = 1024 + 4 + self._sent % ENTRIES * 2
        ring[at : at + 2] = struct.pack("<H", 0)
        self._sent += 1
        ring[1026:1028] = struct.pack("<H", self._sent & 0xFFFF)
        self._bell.value = 0
        while struct.unpack_from("<H", ring, 2050)[0] != self._sent & 0xFFFF:
            time.sleep(0.0005)
        (said,) = struct.unpack_from("<I", self._command.data, answer)
        if said != OK:
            raise OSError(f"the device answers {said:#x} to {kind:#x}")


def find_gpu() -> Path:
    for place in Path("/sys/bus/pci/devices").iterdir():
        if tuple((place / name).read_text().strip() for name in ("vendor", "device")) == GPU:
            return place
    raise FileNotFoundError("there is no virtio-gpu")


def take(place: Path) -> None:
    """Have the kernel let go of it, and the device answer and reach memory."""
    if (place / "driver").exists():
        (place / "driver" / "unbind").write_text(place.name)
    with (place / "config").open("r+b", buffering=0) as config:
        config.seek(4)
        (command,) = struct.unpack("<H", config.read(2))
        config.seek(4)
        config.write(struct.pack("<H", command | 6))


def capabilities(place: Path) -> dict[int, tuple[int, int, int]]:
    """Where each kind of registers is: the number of a resource, its offset, and a factor."""
    config = (place / "config").read_bytes()
    found: dict[int, tuple[int, int, int]] = {}
    at = config[0x34]
    while at:
        kind = config[at + 3]
        if config[at] == 9 and kind not in found:
            offset, _, factor = struct.unpack_from("<3I", config, at + 8)
            found[kind] = (config[at + 4], offset, factor)
        at = config[at + 1]
    return found


class Screen:
    """A picture of one colour."""

    def __init__(self) -> None:
        self._gpu = Gpu()
        self._frame = Memory(FRAME // PAGE)
        self._gpu.do(CREATE_2D, struct.pack("<4I", 1, BGRX, WIDTH, HEIGHT))
        entries = b"".join(struct.pack("<QII", place, PAGE, 0) for place in self._frame.places)
        self._gpu.do(ATTACH, struct.pack("<2I", 1, len(self._frame.places)) + entries)
        self._gpu.do(SET_SCANOUT, RECT + struct.pack("<2I", 0, 1))

    def paint(self, colour: int) -> None:
        self._frame.data[:FRAME] = struct.pack("<I", colour) * (WIDTH * HEIGHT)
        self._gpu.do(TRANSFER, RECT + struct.pack("<QII", 0, 1, 0))
        self._gpu.do(FLUSH, RECT + struct.pack("<2I", 1, 0))


def wanted() -> str:
    """The colour; "" if none is told, or one is about to be."""
    try:
        with open("/dev/shm/painting.wanted") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def main() -> None:
    screen = Screen()
    colour = ""
    rounds = 0
    while True:
        asked = wanted()
        if asked not in ("", colour):
            colour = asked
            screen.paint(int(colour, 16))
        rounds += 1
        with open("/dev/shm/painting.new", "w") as file:
            json.dump({"rounds": rounds, "wrong": [], "colour": colour}, file)
        os.rename("/dev/shm/painting.new", "/dev/shm/painting")
        time.sleep(0.005)


if __name__ == "__main__":
    main()
