"""Finds the QEMUs and keepers of sandboxes on this host, without relying on any file of ours.

They are recognized by their command lines: our keeper program or our monitor, and the directory of
a sandbox, whose name is an id. A process is identified by its process id and its start time, so
that another process that reuses the id is never mistaken for it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

PROC = Path("/proc")
START_FIELD = 22
"""The field of /proc/PID/stat, counted from 1, with the start time in clock ticks since boot
(proc_pid_stat(5))."""

KEEPER = "quicksand/qemu/keeper.py"
MONITOR = "socket,id=keeper,fd="
"""The beginning of the QEMU argument for the keeper's monitor (qemu/keeper_parts/launch.py)."""

PS_WORDS_BEFORE = 6
"""The words that ``ps -o pid=,lstart=,command=`` prints before the command: the process id, and a
time of five words."""

_PLACE = re.compile(r"/(?:.*/)?sandboxes/[0-9a-f]{12}", re.DOTALL)
"""The directory of a sandbox (layout.py)."""


class ProcessKind(StrEnum):
    """The kinds of processes that a sandbox has."""

    QEMU = "QEMU"
    KEEPER = "keeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A QEMU or a keeper of this user."""

    pid: int
    started: str
    """The start time as the system writes it; with the id it identifies the process."""
    kind: ProcessKind
    of: str
    """The sandbox's directory."""

    def send(self, number: int) -> None:
        """Send a signal to this process and no other; do nothing if it has ended. Raises
        PermissionError."""
        send_signal(self.pid, self.started, number)

    @property
    def is_there(self) -> bool:
        """Whether it still runs."""
        return is_process(self.pid, self.started)


def send_signal(pid: int, started: str, number: int) -> None:
    """Send a signal to the process ``pid`` that started at ``started`` and to no other; do nothing
    if it has ended. Raises PermissionError."""
    with contextlib.suppress(ProcessLookupError):
        if not hasattr(os, "pidfd_open"):
            if is_process(pid, started):
                os.kill(pid, number)
            return
        descriptor = os.pidfd_open(pid)
        try:
            # Checked after opening: the descriptor keeps naming the same process.
            if is_process(pid, started):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def is_process(pid: int, started: str) -> bool:
    """Whether the process ``pid`` that started at ``started`` (see `start_of`) still runs."""
    return started != "" and start_of(pid) == started


def list_processes() -> list[Process]:
    """List the QEMUs and keepers of all sandboxes of this user, in any data directory."""
    found = []
    for pid, started, words in _proc() if PROC.joinpath("self").exists() else _ps():
        if (told := _kind_and_place(words)) is not None:
            found.append(Process(pid=pid, started=started, kind=told[0], of=told[1]))
    return found


def running_modules(modules: Collection[str]) -> list[tuple[int, str]]:
    """List the processes of this user that run one of these Python ``modules``, or are about to:
    (process id, module)."""
    found = []
    for pid, _, words in _commands(modules) if PROC.joinpath("self").exists() else _ps():
        for before, word in itertools.pairwise(words):
            if before == "-m" and word in modules:
                found.append((pid, word))
    return found


def processes_of(place: str | Path) -> list[Process]:
    """List the processes of the sandbox in ``place``, which they may name differently."""
    return [process for process in list_processes() if is_same_place(process.of, place)]


def is_same_place(one: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to the same sandbox's directory, perhaps through links."""
    if str(one) == str(other):
        return True
    if Path(one).name != Path(other).name:
        return False
    with contextlib.suppress(OSError):
        return Path(one).samefile(other)
    return False


def holders_of(lock: Path) -> list[int]:
    """List the processes of this user that have ``lock`` open; empty on other systems than
    Linux."""
    try:
        wanted = lock.stat()
    except OSError:
        return []
    found = []
    for pid in _own_pids():
        with contextlib.suppress(OSError):
            for link in (PROC / str(pid) / "fd").iterdir():
                opened = link.stat()
                if (opened.st_dev, opened.st_ino) == (wanted.st_dev, wanted.st_ino):
                    found.append(pid)
                    break
    return found


def command_of(pid: int) -> str:
    """Return the first 100 characters of a process's command line; "" if it has ended."""
    with contextlib.suppress(OSError):
        line = (PROC / str(pid) / "cmdline").read_bytes().decode("utf-8", "replace")
        return " ".join(line.split("\0")).strip()[:100]
    return ""


def program_of(pid: int) -> str:
    """Return the path of the program that a process runs; "" if it has ended or that is hidden."""
    with contextlib.suppress(OSError):
        return str((PROC / str(pid) / "exe").readlink())
    return next((words[0] for one, _, words in _ps() if one == pid and words), "")


def _kind_and_place(words: list[str]) -> tuple[ProcessKind, str] | None:
    if "-name" in words[:-1] and any(word.startswith(MONITOR) for word in words):
        place = words[words.index("-name") + 1].replace(",,", ",")
        return (ProcessKind.QEMU, place) if _PLACE.fullmatch(place) else None
    keeper = next((number for number, word in enumerate(words) if word.endswith(KEEPER)), None)
    if keeper is None:
        return None
    place = next((word for word in words[keeper + 1 :] if word.startswith("/")), "")
    return (ProcessKind.KEEPER, place) if _PLACE.fullmatch(place) else None


def _own_pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(PROC):
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                    yield int(entry.name)


def _proc() -> Iterator[tuple[int, str, list[str]]]:
    return _commands((MONITOR, KEEPER))


def _commands(parts: Collection[str]) -> Iterator[tuple[int, str, list[str]]]:
    """List the processes whose command line has one of these ``parts``."""
    wanted = [part.encode() for part in parts]
    for pid in _own_pids():
        with contextlib.suppress(OSError):
            line = (PROC / str(pid) / "cmdline").read_bytes()
            if any(part in line for part in wanted):
                yield pid, start_of(pid), os.fsdecode(line).split("\0")


def start_of(pid: int) -> str:
    """Return when a process started, as the system writes it; "" if it has ended or is a zombie."""
    if not PROC.joinpath("self").exists():
        return next((started for found, started, _ in _ps() if found == pid), "")
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The second field is the program's name in parentheses, which may contain anything.
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[START_FIELD - 3]


def _ps() -> Iterator[tuple[int, str, list[str]]]:
    """Yield processes where there is no /proc; arguments with spaces come apart there."""
    done = subprocess.run(
        ["ps", "-ww", "-x", "-o", "pid=,lstart=,command="],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) > PS_WORDS_BEFORE:
            yield int(words[0]), " ".join(words[1:PS_WORDS_BEFORE]), words[PS_WORDS_BEFORE:]


def boot_id() -> str:
    """Return a text that changes only with a reboot (random(4), boot_id); it can be a file name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"up-{round(time.time() - time.monotonic(), -2):.0f}"


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
