"""Reads and changes the devices' state that QEMU writes with ``xen-save-devices-state``.

Such a state is a migration stream without RAM (QEMU docs/devel/migration, "Stream structure"): a
head, sections that each end with a footer that repeats the section's number, and an end. Sections
have no length field, so a section ends where such a footer is followed by another section, or by
the end of the stream. The guest controls much of the contents: if a section could end at two
places, the state is refused, since QEMU might take the guest's bytes for sections.

The fields are those of x86 machines, at the places where QEMU 7.2 to 10 write them
(target/i386/machine.c, hw/intc/apic_common.c, softmmu/cpu-timers.c, hw/core/cpu).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from quicksand.base.errors import HistoryError

HEAD = b"QEVM" + struct.pack(">I", 3)
END = 0
SECTION_START, SECTION_FULL = 1, 4
FOOTER_BYTES = 5
"""A footer: the byte 0x7e, and the section's number."""

_END = re.compile(rb"(?=\x7e(.{4})(?:[\x01\x04]|\x00\Z))", re.DOTALL)

TIMER, TIMER_VERSION = "timer", 2
CPU, CPU_VERSION = "cpu", 12
CPU_COMMON, CPU_COMMON_VERSION = "cpu_common", 1
APIC, APIC_VERSION = "apic", 3

TSC_OFFSET_AT = 896
"""The offset of ``env.tsc_offset`` in the section of a processor."""
PAT_AT = 868
"""The offset of its page attribute table, whose few usual values prove the later fields' places."""
USUAL_PATS = frozenset({0x0407050600070106, 0x0007040600070406})
"""The values that Linux sets and that a processor has after a reset (Intel SDM 3A, 12.12.4)."""
RFLAGS_AT = 136
INTERRUPTS_ENABLED = 0x200
"""The flag IF in ``rflags``."""
HARD = 0x2
EXIT_TB = 0x10
HARMLESS = HARD | EXIT_TB
"""The pending interrupts that QEMU finds again by itself: an external one, which the APIC has, and
the request that a processor look for others."""
IRR_AT, TMR_AT, ID_AT = 77, 45, 4
"""The offsets in an APIC of pending vectors, of those that are level-triggered, and of its id."""
RESCHEDULE = 0xFD
"""Linux's vector that only makes a processor look for work (arch/x86/include/asm/irq_vectors.h)."""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    instance: int
    version: int
    start: int
    """The offset of its head in the stream."""
    data: int
    """The offset of its fields."""
    end: int
    """The offset of the next section."""


@dataclass(frozen=True, slots=True)
class Processor:
    number: int
    apic_id: int
    is_halted: bool
    interrupts: int
    """QEMU's ``interrupt_request``."""
    takes_interrupts: bool
    vector: int | None
    """The highest vector that is pending in its APIC; with bit 15, if it is level-triggered."""


class DeviceState:
    """The state of a machine's devices. ``data`` is not changed."""

    def __init__(self, data: bytes, sections: Sequence[Section] | None = None) -> None:
        """``sections``: its sections, if known. Raises HistoryError if ``data`` is not such a
        state."""
        self.data = data
        self.sections = tuple(_sections(data) if sections is None else sections)

    def find(self, name: str, version: int) -> list[Section]:
        """The sections of that name, by instance. Raises HistoryError if one of them has another
        version, or if there is none."""
        found = [section for section in self.sections if section.name == name]
        if not found or any(section.version != version for section in found):
            versions = sorted({section.version for section in found})
            raise HistoryError(
                f"the devices' state has {name!r} in the versions {versions}, not {version}"
            )
        return sorted(found, key=lambda section: section.instance)

    def without(self, name: str) -> DeviceState:
        """The same state without the sections of that name."""
        data, sections, at = bytearray(), [], 0
        for section in self.sections:
            data += self.data[at : section.start]
            at = section.start
            if section.name == name:
                at = section.end
            else:
                by = len(data) - at
                sections.append(
                    replace(
                        section,
                        start=section.start + by,
                        data=section.data + by,
                        end=section.end + by,
                    )
                )
        return DeviceState(bytes(data + self.data[at:]), sections)

    def tsc_offsets_at(self) -> list[int]:
        """The offsets of each processor's TSC offset, 8 bytes long. Raises HistoryError if a place
        cannot be proven."""
        found = []
        for section in self.find(CPU, CPU_VERSION):
            (pat,) = self._read(">Q", section, PAT_AT)
            if pat not in USUAL_PATS:
                raise HistoryError(f"the devices' state of processor {section.instance} is unusual")
            self._read(">q", section, TSC_OFFSET_AT)
            found.append(section.data + TSC_OFFSET_AT)
        return found

    def processors(self) -> list[Processor]:
        """The state of each processor. Raises HistoryError."""
        apics = {section.instance: section for section in self.find(APIC, APIC_VERSION)}
        units = {section.instance: section for section in self.find(CPU, CPU_VERSION)}
        found = []
        for section in self.find(CPU_COMMON, CPU_COMMON_VERSION):
            number = section.instance
            if number not in apics or number not in units:
                raise HistoryError(f"the devices' state has no APIC of processor {number}")
            halted, interrupts = self._read(">II", section, 0)
            (rflags,) = self._read(">Q", units[number], RFLAGS_AT)
            (apic_id,) = self._read(">B", apics[number], ID_AT)
            found.append(
                Processor(
                    number=number,
                    apic_id=apic_id,
                    is_halted=bool(halted),
                    interrupts=interrupts,
                    takes_interrupts=bool(rflags & INTERRUPTS_ENABLED),
                    vector=self._pending(apics[number]),
                )
            )
        return found

    def _pending(self, apic: Section) -> int | None:
        pending = self._read(">8I", apic, IRR_AT)
        level = self._read(">8I", apic, TMR_AT)
        for word in reversed(range(8)):
            if pending[word]:
                bit = pending[word].bit_length() - 1
                return 32 * word + bit | (level[word] >> bit & 1) << 15
        return None

    def _read(self, form: str, section: Section, at: int) -> tuple[int, ...]:
        start = section.data + at
        if start + struct.calcsize(form) > section.end:
            raise HistoryError(f"the devices' state has too short a section {section.name!r}")
        return struct.unpack_from(form, self.data, start)


def ticks_of(data: bytes) -> int:
    """QEMU's offset of its ticks in a state, which is in the first section. Raises HistoryError."""
    head = _head(data, len(HEAD), after=-1) if data.startswith(HEAD) else None
    if head is None or head[1] != TIMER or head[2] + 8 > len(data):
        raise HistoryError("the devices' state does not begin with QEMU's clocks")
    version, ticks = struct.unpack_from(">Iq", data, head[2] - 4)
    if version != TIMER_VERSION:
        raise HistoryError(f"QEMU's clocks have the version {version}, not {TIMER_VERSION}")
    return int(ticks)


def rewound(saved: DeviceState, present: bytes) -> list[tuple[int, bytes]]:
    """The changes to ``saved``, as offsets and bytes, with which a QEMU whose state is ``present``
    can load it without a jump of the guest's clock.

    TCG never lets its ticks go back (``cpu_ticks_prev``), so they stay as they are, and each
    processor's TSC gets the difference as its offset. Raises HistoryError.
    """
    at = saved.find(TIMER, TIMER_VERSION)[0].data
    before, now = ticks_of(saved.data), ticks_of(present)
    changes = [(at, struct.pack(">q", now))]
    for place in saved.tsc_offsets_at():
        (offset,) = struct.unpack_from(">q", saved.data, place)
        changes.append((place, struct.pack(">q", _wrapped(offset - (now - before)))))
    return changes


def wakings(processors: list[Processor]) -> list[tuple[int, int]] | None:
    """The interrupts, as APIC ids and vectors, that make each processor look at its APIC again
    after a load without the sections `CPU_COMMON`. None if the load needs these sections.

    A vector that is already pending there changes nothing; a processor other than the first that
    was not halted is woken by `RESCHEDULE`.
    """
    found = []
    for one in processors:
        if one.interrupts & ~HARMLESS:
            return None
        must_wake = one.number > 0 and not one.is_halted
        if must_wake and not one.takes_interrupts:
            return None
        vector = RESCHEDULE if one.vector is None and must_wake else one.vector
        if one.interrupts and vector is None:
            return None
        if vector is not None and (one.interrupts or must_wake):
            found.append((one.apic_id, vector))
    return found


def _wrapped(value: int) -> int:
    """The value as a signed number of 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def _sections(data: bytes) -> Iterator[Section]:
    if not data.startswith(HEAD):
        raise HistoryError("the devices' state does not begin as QEMU's does")
    ends = _possible_ends(data)
    at, last = len(HEAD), -1
    while (head := _head(data, at, after=last)) is not None:
        number, name, fields = head
        instance, version = struct.unpack_from(">II", data, fields - 8)
        found = [
            end
            for end in ends.get(number, ())
            if end - FOOTER_BYTES >= fields
            and (end == len(data) - 1 or _head(data, end, after=number))
        ]
        if len(found) != 1:
            raise HistoryError(
                f"the devices' state has {len(found)} places where section {number} may end"
            )
        yield Section(name, instance, version, at, fields, found[0])
        at, last = found[0], number
    if at != len(data) - 1 or data[at] != END:
        raise HistoryError(f"the devices' state cannot be read from byte {at} on")


def _possible_ends(data: bytes) -> dict[int, list[int]]:
    """The possible ends of sections, by section number: after an apparent footer, and before an
    apparent beginning of another section or the end of the stream."""
    found: dict[int, list[int]] = {}
    for match in _END.finditer(data):
        (number,) = struct.unpack(">I", match[1])
        found.setdefault(number, []).append(match.start() + FOOTER_BYTES)
    return found


def _head(data: bytes, at: int, *, after: int) -> tuple[int, str, int] | None:
    """The number and the name of the section that begins there, and the offset of its fields; None
    if none begins there. Numbers rise."""
    if at + 6 > len(data) or data[at] not in (SECTION_START, SECTION_FULL):
        return None
    number, length = struct.unpack_from(">IB", data, at + 1)
    name, fields = data[at + 6 : at + 6 + length], at + 6 + length + 8
    if number <= after or fields > len(data) or not length or not _is_name(name):
        return None
    return number, name.decode("ascii"), fields


def _is_name(name: bytes) -> bool:
    return all(0x20 < byte < 0x7F for byte in name)
