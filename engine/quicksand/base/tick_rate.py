"""The rate of the counter that emulated x86 guests read as their time stamp counter (TSC).

QEMU's TCG passes its host's counter through (QEMU include/qemu/timer.h, cpu_get_host_ticks): the
TSC where there is one, else the nanoseconds of the monotonic clock. A guest that measures the rate
itself, against a timer of QEMU's, finds a wrong rate when the host is busy, and its clock is wrong
by as much until it ends. So the rate is measured here, and the guest is told.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import platform
import time
from collections.abc import Callable
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.processes import boot_id
from quicksand.base.tools import Findings

NANOSECONDS_KHZ = 1_000_000
"""The rate, in kHz, where QEMU counts nanoseconds: it reads no counter of ARM processors."""

MEASURE_S = 0.02
"""Seconds over which the rate is measured: two readings of a tenth of a microsecond each make that
exact to some millionths."""

TRIES = 200
"""Readings at each end, of which the fastest counts: no other program has run during that one."""

STEP_KHZ = 10
"""The step to which the rate is rounded, a few millionths, so that equal hosts get equal templates.
"""

SAME = 1e-4
"""The share by which a newly measured rate, after a reboot, may differ from the known one and still
count as the same: the host's own clock is adjusted by less."""

_FILE, _KEY = "tick-rate.json", "khz"

_RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")
"""rdtsc; shl rdx,32; or rax,rdx; ret."""


def tick_rate_khz() -> int | None:
    """The rate in kHz, measured once in each boot of the host; None if it cannot be measured, or is
    not constant. Blocks for `MEASURE_S` then. Raises DiskSpaceError, PathError."""
    machine = platform.machine().lower()
    if machine in ("arm64", "aarch64"):
        return NANOSECONDS_KHZ
    if machine not in ("x86_64", "amd64"):
        return None
    findings, boot = Findings(_FILE), boot_id()
    match findings.get(_KEY):
        case [str(measured_in), int(known)] if known > 0:
            if measured_in == boot:
                return known
        case _:
            known = 0
    rate = _measure() if _is_constant() else None
    if rate is None:
        return None
    if abs(rate - known) <= known * SAME:
        rate = known
    with contextlib.suppress(HostError):  # it is measured again at the next start
        findings.put(_KEY, [boot, rate])
    return rate


def forget_tick_rate() -> None:
    """Have the rate measured anew at the next start. Raises DiskSpaceError, PathError."""
    Findings(_FILE).put(_KEY, None)


def _is_constant() -> bool:
    """Whether the TSC ticks at one rate in all states of the processor (/proc/cpuinfo, flags).
    Systems other than Linux do not tell; all processors since 2008 have it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return " constant_tsc" in text


def _measure() -> int | None:
    """The rate of the TSC in kHz; None where no code can be made executable."""
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except (OSError, AttributeError):
        return None
    page.write(_RDTSC)
    code = ctypes.c_char.from_buffer(page)
    # PYFUNCTYPE keeps the interpreter's lock, so that no other thread comes between.
    rdtsc = ctypes.PYFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(code))
    began_ns, began = _read(rdtsc)
    time.sleep(MEASURE_S)
    ended_ns, ended = _read(rdtsc)
    khz = (ended - began) * 1e6 / (ended_ns - began_ns)
    return round(khz / STEP_KHZ) * STEP_KHZ or None


def _read(rdtsc: Callable[[], int]) -> tuple[int, int]:
    """The monotonic clock, in nanoseconds, and the counter at the same moment."""
    best = (1 << 62, 0, 0)
    for _ in range(TRIES):
        before, ticks, after = time.monotonic_ns(), rdtsc(), time.monotonic_ns()
        best = min(best, (after - before, (before + after) // 2, ticks))
    return best[1:]
