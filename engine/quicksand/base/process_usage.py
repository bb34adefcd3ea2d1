"""Reads the processor time and memory of a process from /proc."""

from __future__ import annotations

import os
from pathlib import Path


def process_usage(pid: int) -> tuple[float, int]:
    """(CPU seconds, resident bytes) of a process, from /proc (proc(5)); zeros if it is gone or
    there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0.0, 0
    # The name in brackets may contain anything, so fields are counted from its end.
    fields = stat[stat.rindex(")") + 2 :].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger (state T or t, proc(5)); False if it
    is gone or there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(")") + 2 :][:1] in ("T", "t")


def memory_of(pid: int) -> int:
    """Bytes of memory of a process; pages that it shares with others count in part (PSS, proc(5)).
    Where the system does not tell, its resident bytes; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:") * 1024
    except (OSError, StopIteration):
        return process_usage(pid)[1]
