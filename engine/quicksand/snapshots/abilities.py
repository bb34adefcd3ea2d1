"""How checkpoints are taken on this host, and why not in a better way. For `doctor`: the engine
finds it out anew each time, by doing it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import MachineError
from quicksand.host.files import map_os_errors
from quicksand.host.sharing import FICLONE
from quicksand.snapshots.capture import PAGES
from quicksand.snapshots.copying import NOT_TRACKED, tracks_writes
from quicksand.snapshots.guest_ram import PAGE, GuestRam

YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """What checkpoints are like here."""

    tier: str
    """"pages"; "" if there can be no checkpoints."""
    copied: str
    """What each pause copies."""
    why: str
    """Why nothing better; "" if there is nothing better."""
    hint: str = ""
    """What would make it better."""


def find_ability() -> Ability:
    """The best that this host can do. Blocks for some milliseconds."""
    if sys.platform != "linux":
        return Ability(tier="", copied="", why=f"they need Linux, and this is {sys.platform}")
    problem = why_not_readable()
    if problem:
        return Ability(
            tier="",
            copied="",
            why=f"the memory of QEMU cannot be read: {problem}",
            hint=_how_to_trace(),
        )
    if tracks_writes():
        return Ability(
            tier=PAGES, copied="what the guest has written since the last checkpoint", why=""
        )
    return Ability(
        tier=PAGES,
        copied="all that the guest has written since its QEMU started",
        why=NOT_TRACKED,
    )


def why_not_readable() -> str:
    """Why this process may not read the memory of one that it has started, as QEMU is; "" if it
    may. Tries it: security modules, containers' filters and kernels differ."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            # Once it answers its program is mapped: exec has told us before.
            child.stdin.write(b"?")
            child.stdin.flush()
            child.stdout.read(1)
            line = Path(f"/proc/{child.pid}/maps").read_text(encoding="utf-8").split("\n", 1)[0]
            ram = GuestRam(child.pid, int(line.split("-")[0], 16), PAGE)
            page = memoryview(bytearray(PAGE))
            ram.written()
            ram.read([(0, 1)], page)
        except (MachineError, OSError, ValueError) as error:
            return str(error)
    return "" if bytes(page[:4]) == b"\x7fELF" else "something else was read"


def _how_to_trace() -> str:
    try:
        scope = YAMA.read_text(encoding="ascii").strip()
    except OSError:
        return "a container's filter must allow process_vm_readv and process_vm_writev"
    if scope in ("2", "3"):
        return f"{YAMA} is {scope}: it must be 0 or 1 (`sysctl kernel.yama.ptrace_scope=1`)"
    return "a container's filter must allow process_vm_readv and process_vm_writev"


def can_reflink(directory: Path) -> bool:
    """Whether files of this directory's file system can share their blocks (ioctl_ficlone(2)).

    Tries it with two files of a page each. Raises DiskSpaceError, PathError.
    """
    if sys.platform != "linux":
        return False
    with (
        map_os_errors(directory),
        tempfile.TemporaryFile(dir=directory) as old,
        tempfile.TemporaryFile(dir=directory) as new,
    ):
        os.write(old.fileno(), bytes(PAGE))
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError:
            return False
    return True
