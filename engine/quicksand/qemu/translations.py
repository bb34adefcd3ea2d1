"""Makes a running QEMU forget its translations of some of the guest's memory.

TCG keeps translated code until the guest or QEMU writes to the page from which it was made. It does
not notice writes from outside. QEMU's server for its own tests (object ``qtest``,
docs/devel/testing/qtest.rst) writes memory as QEMU does, and drops the page's translations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from quicksand.base.errors import MachineError, QemuDiedError
from quicksand.base.hypervisor import Translations
from quicksand.qemu.qmp import Monitor

ANSWER_S = 20.0
"""Seconds within which QEMU answers."""

GREETING_S = 2.0
"""Seconds within which its server answers for the first time, while the guest still runs."""

PIECE = 64 * 1024
"""The most bytes of one command. For each, QEMU takes a buffer of that size, which stays in the
processor's cache and is too small to be mapped anew each time (mallopt(3), M_MMAP_THRESHOLD)."""

ANSWERS_MAX = 64 * 1024
"""Bytes of answers that are read at once."""

LOW_MAX, LOW_OF_LARGE = 0xB0000000, 0x80000000
"""Bytes of a q35 machine's memory below 4 GiB: all memory up to the first number; the second number
for a machine with as much or more (QEMU, hw/i386/pc_q35.c, ``lowmem``)."""

HIGH_START = 1 << 32
"""Guest address of the memory above."""

APIC = 0xFEE00000
"""The address to which a message to a processor's APIC is written (Intel SDM 3A, 11.11.1); the
APIC's id is in the bits from `APIC_ID_SHIFT` on."""
APIC_ID_SHIFT = 12


NAME = "qtest"
"""The name of the server and of its socket in QEMU."""

NOTHING = "memset 0x0 0x0 0x0"
"""A command that does nothing."""


class QtestTranslations(Translations):
    """A connection to the test server of one QEMU, for an x86 machine; a context manager.

    The server is made once for each QEMU and stays: QEMU would send the answers of a second server
    to the first one's connection (softmmu/qtest.c, ``qtest_server_send_opaque``).
    """

    def __init__(self, monitor: Monitor, path: Path) -> None:
        """``path``: the place of the server's socket, present or future."""
        self._monitor = monitor
        self._path = path
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        await self._make()
        try:
            self._reader, self._writer = await asyncio.open_unix_connection(self._path)
        except OSError as error:
            raise MachineError(f"QEMU's test server cannot be used: {error.strerror}") from error
        try:
            await self._say([NOTHING], timeout=GREETING_S)
        except BaseException:
            self._writer.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._writer is not None
        self._writer.close()

    async def _make(self) -> None:
        """Make the server, or its missing parts: a client may have died in between."""
        if not self._path.exists():
            address = {"type": "unix", "data": {"path": str(self._path)}}
            backend = {"type": "socket", "data": {"addr": address, "server": True, "wait": False}}
            await self._monitor.execute("chardev-add", id=NAME, backend=backend)
        objects = await self._monitor.execute("qom-list", path="/objects")
        if not any(found["name"] == NAME for found in objects):
            # Otherwise the server writes each command to QEMU's messages.
            server = {"qom-type": "qtest", "id": NAME, "chardev": NAME, "log": "none"}
            await self._monitor.execute("object-add", **server)

    async def forget(self, runs: Sequence[tuple[int, int]], memory: int, filler: int) -> None:
        """See `Translations.forget`."""
        await self._say(
            [
                f"memset {address:#x} {min(PIECE, end - address):#x} {filler:#x}"
                for start, size in runs
                for begin, end in _guest_ranges(start, size, memory)
                for address in range(begin, end, PIECE)
            ]
        )

    async def interrupt(self, vectors: Sequence[tuple[int, int]]) -> None:
        """See `Translations.interrupt`."""
        await self._say(
            [f"writel {APIC | apic << APIC_ID_SHIFT:#x} {vector:#x}" for apic, vector in vectors]
        )

    async def _say(self, lines: Sequence[str], timeout: float = ANSWER_S) -> None:
        """Have the server carry out these commands. All are sent at once: the server does not wait
        for its answers to be read."""
        assert self._reader is not None
        assert self._writer is not None
        self._writer.write("".join(f"{line}\n" for line in lines).encode("ascii"))
        answers, left = b"", len(lines)
        try:
            async with asyncio.timeout(timeout):
                while left:
                    data = await self._reader.read(ANSWERS_MAX)
                    if not data:
                        raise QemuDiedError("QEMU ended while it forgot translations")
                    *whole, answers = (answers + data).split(b"\n")
                    for answer in whole:
                        if not answer.startswith(b"OK"):
                            raise MachineError(f"QEMU's test server answered {answer[:80]!r}")
                    left -= len(whole)
        except (OSError, TimeoutError) as error:
            raise MachineError(f"QEMU's test server did not answer: {error}") from error


def _guest_ranges(start: int, size: int, memory: int) -> list[tuple[int, int]]:
    """The guest addresses (begin, end) of ``size`` bytes from ``start`` on in a machine's memory of
    ``memory`` bytes, which has a hole below 4 GiB if it is large."""
    low = memory if memory < LOW_MAX else LOW_OF_LARGE
    end = start + size
    found = []
    if start < low:
        found.append((start, min(end, low)))
    if end > low:
        shift = HIGH_START - low
        found.append((max(start, low) + shift, end + shift))
    return found
