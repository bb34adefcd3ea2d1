"""Which tier of checkpoints is possible here, and why no better one."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import ConfigError, HostError, MachineError
from quicksand.snapshots.copying import NOT_TRACKED, tracks_writes
from quicksand.snapshots.guest_ram import PAGE, GuestRam
from quicksand.snapshots.records import INTERNAL, PAGES

VARIABLE = "QUICKSAND_TIER"
"""Environment: the tier to use, for tests and for people with trouble."""

TIERS = (PAGES, INTERNAL)

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """How checkpoints are made on this host."""

    name: str
    """PAGES or INTERNAL."""
    note: str
    """Why not in a better way; "" for the best."""
    hint: str
    """What would make it faster; "" if nothing is known."""


def choose_tier(pid: int | None = None, *, asked: str | None = None) -> Tier:
    """The tier for checkpoints of the QEMU ``pid``; without one, of a QEMU of this user. ``asked``
    or the environment decides, where it can.

    Raises ConfigError for a tier that there is not, HostError for one that is not possible here.
    """
    source = "it was asked for" if asked else f"{VARIABLE} is set"
    wanted = asked or os.environ.get(VARIABLE) or None
    if wanted is not None and wanted not in TIERS:
        raise ConfigError(
            f"there is no tier {wanted!r} of checkpoints", hint=f"choose {' or '.join(TIERS)}"
        )
    if wanted == INTERNAL:
        return Tier(name=INTERNAL, note=source, hint="")
    refusal, hint = _why_not_pages(pid)
    if not refusal:
        # Of a running QEMU the checkpoint itself says it, which looks anyway.
        tracked = pid is not None or tracks_writes()
        return Tier(name=PAGES, note="" if tracked else NOT_TRACKED, hint="")
    if wanted == PAGES:
        raise HostError(f"checkpoints of the tier {PAGES!r} are not possible: {refusal}", hint=hint)
    return Tier(name=INTERNAL, note=refusal, hint=hint)


def _why_not_pages(pid: int | None) -> tuple[str, str]:
    """Why the tier PAGES is not possible, "" if it is, and what would make it so."""
    if not sys.platform.startswith("linux"):
        return f"the tier {PAGES!r} needs Linux, and this is {sys.platform}", ""
    problem = why_not_readable(pid)
    if not problem:
        return "", ""
    return f"the memory of QEMU cannot be read: {problem}", _how_to_trace()


def why_not_readable(pid: int | None = None) -> str:
    """Why this process may not read the memory of the QEMU ``pid``, or of one that it has started;
    "" if it may. Tries it: security modules, containers' filters and kernels differ."""
    if pid is not None:
        return _try_reading(pid)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        # Once it answers its program is mapped: exec has told us before.
        child.stdin.write(b"?")
        child.stdin.flush()
        child.stdout.read(1)
        return _try_reading(child.pid)


def _try_reading(pid: int) -> str:
    """Read a page and its entry in the page map: the first one, where a program begins."""
    page = memoryview(bytearray(PAGE))
    try:
        line = Path(f"/proc/{pid}/maps").read_bytes().split(b"\n", 1)[0]
        ram = GuestRam(pid, int(line.split(b"-")[0], 16), PAGE)
        ram.written()
        ram.read([(0, 1)], page)
    except (MachineError, OSError, ValueError) as error:
        return str(error)
    return "" if bytes(page[:4]) == b"\x7fELF" else "something else was read"


def _how_to_trace() -> str:
    try:
        scope = YAMA.read_text(encoding="ascii").strip()
    except OSError:
        scope = ""
    if scope in ("2", "3"):
        return f"{YAMA} is {scope}: it must be 0 or 1 (`sysctl kernel.yama.ptrace_scope=1`)"
    return "a container's filter must allow process_vm_readv and process_vm_writev"
