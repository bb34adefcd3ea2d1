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
from quicksand.snapshots.history import INTERNAL, PAGES

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
    refusal = why_unreadable(pid)
    if not refusal:
        # Of a running QEMU the checkpoint itself says it, which looks anyway.
        tracked = pid is not None or tracks_writes()
        hint = "" if tracked else "a kernel with CONFIG_MEM_SOFT_DIRTY makes pauses shorter"
        return Tier(name=PAGES, note="" if tracked else NOT_TRACKED, hint=hint)
    hint = _find_hint()
    if wanted == PAGES:
        raise HostError(f"checkpoints of the tier {PAGES!r} are not possible: {refusal}", hint=hint)
    return Tier(name=INTERNAL, note=refusal, hint=hint)


def why_unreadable(pid: int | None = None) -> str:
    """Why the memory of the QEMU ``pid`` (or of a process that this one starts for it) cannot be
    read from outside; "" if it can. Found out by doing it."""
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} does not let one program read another one's memory"
    try:
        if pid is not None:
            _try_reading(pid)
        else:
            with subprocess.Popen([sys.executable, "-I", "-S"], stdin=subprocess.PIPE) as other:
                try:
                    _try_reading(other.pid)
                finally:
                    other.kill()
    except (OSError, MachineError) as error:
        return f"the memory of QEMU cannot be read ({error})"
    return ""


def _try_reading(pid: int) -> None:
    """Read a page and the page map of the process. Raises OSError, MachineError."""
    for line in Path(f"/proc/{pid}/maps").read_bytes().split(b"\n"):
        addresses, _, rest = line.partition(b" ")
        if rest.startswith(b"r"):
            memory = GuestRam(pid, int(addresses.split(b"-")[0], 16), PAGE)
            memory.written()
            memory.read([(0, 1)], memoryview(bytearray(PAGE)))
            return
    raise MachineError("the process has no memory")


def _find_hint() -> str:
    """What could be changed on this host."""
    try:
        scope = YAMA.read_text(encoding="ascii").strip()
    except OSError:
        return ""
    if scope in ("0", "1"):
        return ""
    return f"kernel.yama.ptrace_scope is {scope} here; with 1 checkpoints take milliseconds"
