"""The state of a machine's devices: read, and changed for a QEMU that has gone on meanwhile."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import HistoryError
from quicksand.snapshots.device_state import (
    APIC,
    CPU,
    CPU_COMMON,
    EXIT_TB,
    HARD,
    HEAD,
    IRR_AT,
    PAT_AT,
    RESCHEDULE,
    RFLAGS_AT,
    TIMER,
    TSC_OFFSET_AT,
    DeviceState,
    Processor,
    rewound,
    ticks_of,
    wakings,
)

from tests.each import each


def section(number: int, name: str, fields: bytes, *, instance: int = 0, version: int = 1) -> bytes:
    head = struct.pack(">BIB", 4, number, len(name)) + name.encode()
    return head + struct.pack(">II", instance, version) + fields + footer(number)


def footer(number: int) -> bytes:
    return b"\x7e" + struct.pack(">I", number)


def timer(ticks: int) -> bytes:
    return section(0, TIMER, struct.pack(">qqq", ticks, 0, 0), version=2)


def cpu(
    number: int, *, tsc_offset: int = 0, interruptible: bool = True, instance: int = 0
) -> bytes:
    fields = bytearray(1945)
    struct.pack_into(">Q", fields, RFLAGS_AT, 0x200 if interruptible else 0)
    struct.pack_into(">Q", fields, PAT_AT, 0x0407050600070106)
    struct.pack_into(">q", fields, TSC_OFFSET_AT, tsc_offset)
    return section(number, CPU, bytes(fields), version=12, instance=instance)


def common(number: int, *, halted: int = 1, interrupts: int = 0, instance: int = 0) -> bytes:
    return section(number, CPU_COMMON, struct.pack(">II", halted, interrupts), instance=instance)


def apic(number: int, *, ident: int = 0, pending: int | None = None, instance: int = 0) -> bytes:
    fields = bytearray(181)
    fields[4] = ident
    if pending is not None:
        struct.pack_into(">I", fields, IRR_AT + 4 * (pending // 32), 1 << pending % 32)
    return section(number, APIC, bytes(fields), version=3, instance=instance)


def state(*sections: bytes) -> bytes:
    return HEAD + b"".join(sections) + b"\0"


def one_processor(**how: int) -> bytes:
    return state(timer(7), common(5, **how), cpu(6), apic(8))


def test_what_is_cut_out_leaves_a_stream_without_it() -> None:
    rest = DeviceState(one_processor()).without(CPU_COMMON)
    assert rest.sections == DeviceState(rest.data).sections
    assert [found.name for found in rest.sections] == [TIMER, CPU, APIC]


def test_a_guest_that_writes_sections_of_its_own_is_refused() -> None:
    forged = b"x" * 9 + footer(9) + section(10, CPU, b"y" * 1945, version=12)
    hostile = section(9, "slirp", forged)
    with pytest.raises(HistoryError, match="2 places where section 9 may end"):
        DeviceState(state(timer(7), hostile, section(11, "serial", b"z")))


def test_bytes_that_look_like_a_footer_alone_do_no_harm() -> None:
    read = DeviceState(state(timer(7), section(9, "slirp", b"a" + footer(9) + b"b")))
    assert [found.name for found in read.sections] == [TIMER, "slirp"]


@given(st.binary(max_size=200), st.integers(0, 3))
def test_what_is_no_state_is_refused(data: bytes, kept: int) -> None:
    with pytest.raises(HistoryError):
        DeviceState(HEAD[: 2 * kept] + data + b"\x05")


@given(st.integers(0, len(one_processor()) - 1))
def test_a_state_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(HistoryError):
        DeviceState(one_processor()[:length]).processors()


def test_another_version_of_a_section_is_refused() -> None:
    with pytest.raises(HistoryError, match=r"'cpu_common' in the versions \[2\], not 1"):
        DeviceState(
            state(timer(7), section(5, CPU_COMMON, bytes(8), version=2), cpu(6), apic(8))
        ).processors()


def test_an_unusual_processor_is_left_alone() -> None:
    strange = section(6, CPU, bytes(1945), version=12)
    with pytest.raises(HistoryError, match="processor 0 is unusual"):
        rewound(DeviceState(state(timer(7), strange)), state(timer(9)))


@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62), st.integers(-(2**63), 2**63 - 1))
def test_the_ticks_stay_and_the_guests_counter_gets_the_difference(
    before: int, now: int, offset: int
) -> None:
    data = bytearray(state(timer(before), cpu(6, tsc_offset=offset)))
    for at, change in rewound(DeviceState(bytes(data)), state(timer(now), cpu(6))):
        data[at : at + len(change)] = change
    read = DeviceState(bytes(data))
    (at,) = read.tsc_offsets_at()
    (shown,) = struct.unpack_from(">q", data, at)
    assert ticks_of(bytes(data)) == now
    assert (now + shown - before - offset) % 2**64 == 0


def processor(**how: object) -> Processor:
    usual: dict[str, object] = {
        "number": 0,
        "apic_id": 0,
        "is_halted": True,
        "interrupts": 0,
        "takes_interrupts": True,
        "vector": None,
    }
    return Processor(**{**usual, **how})  # type: ignore[arg-type]


def test_an_idle_processor_needs_nothing() -> None:
    assert wakings([processor()]) == []


def test_a_pending_interrupt_is_found_again_by_its_own_vector() -> None:
    assert wakings([processor(interrupts=HARD | EXIT_TB, vector=0x31)]) == [(0, 0x31)]


def test_a_second_processor_that_ran_is_woken() -> None:
    second = processor(number=1, apic_id=1, is_halted=False)
    assert wakings([processor(), second]) == [(1, RESCHEDULE)]


@each(
    "how",
    [
        {"interrupts": 0x4},
        {"interrupts": HARD, "vector": None},
        {"number": 1, "is_halted": False, "takes_interrupts": False},
    ],
    ids=["another interrupt", "none in the APIC", "a second one that takes none"],
)
def test_what_cannot_be_found_again_needs_the_whole_state(how: dict[str, object]) -> None:
    assert wakings([processor(**how)]) is None


def test_the_processors_are_read_by_instance() -> None:
    read = DeviceState(
        state(
            timer(7),
            common(5),
            cpu(6),
            apic(8, pending=0x31),
            common(9, halted=0, interrupts=HARD, instance=1),
            cpu(10, interruptible=False, instance=1),
            apic(11, ident=1, pending=0xFB, instance=1),
        )
    )
    assert read.processors() == [
        processor(vector=0x31),
        processor(
            number=1,
            apic_id=1,
            is_halted=False,
            interrupts=HARD,
            takes_interrupts=False,
            vector=0xFB,
        ),
    ]
