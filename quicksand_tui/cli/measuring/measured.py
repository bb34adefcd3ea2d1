"""The sandboxes for measurements, the spares that wait for them, and their use of the host."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand import Sandbox
from quicksand.base.paths import paths
from quicksand.base.settings import OFF, SPARES, USE
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.warm.spares import spare_making
from quicksand.warm.spares.stock import record_for
from quicksand.warm.template_maker import warm

if TYPE_CHECKING:
    from quicksand.guest.execution import ExecuteResult
    from quicksand.records.sandboxes import RunState
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.measuring.figure import Figure

SMALL, LARGE = "512M", "2G"
GUEST_S = 600
"""Seconds that a guest may take to write the bytes asked of it."""

CPU_FIELDS = (11, 12, 13, 14)
"""utime, stime, cutime and cstime in /proc/PID/stat, counted behind the name (proc(5))."""

CALM_S = 0.5
"""Seconds to wait until work in the background has ended, and its memory is free."""


@contextlib.asynccontextmanager
async def warm_sandbox(image: str, memory: str = SMALL) -> AsyncIterator[Sandbox]:
    """Yields a sandbox that started from a template. Making the template is over by then."""
    await make_warm(image, memory)
    async with Sandbox(image=image, memory=memory) as sandbox:
        enlarged = await sandbox.execute("mount -o remount,size=90% /dev/shm")
        require(enlarged, "enlarging /dev/shm")
        yield sandbox


async def make_warm(image: str, memory: str) -> None:
    """Makes the template unless there is one, so that it is not made during a measurement."""
    await warm(Registry(paths()), SandboxConfig(image=image, memory=memory))


def with_mode(sandbox: Sandbox, figures: list[Figure]) -> list[Figure]:
    """Returns the figures with the start mode of their sandbox, where they lack it."""
    if sandbox.boot_timing is not None:
        for figure in figures:
            figure.facts = {"mode": sandbox.boot_timing.mode} | figure.facts
    return figures


def require(result: ExecuteResult, what: str) -> str:
    """Returns the output of a command in the guest. Raises RuntimeError if it has failed."""
    if result.exit_code != 0:
        raise RuntimeError(f"{what} has failed in the guest: {result.stderr.strip()}")
    return result.stdout


async def write_memory(sandbox: Sandbox, mebibytes: int, name: str = "block") -> None:
    """Fills pages of the guest's memory with random bytes; the same pages for the same name."""
    command = (
        f"dd if=/dev/urandom of=/dev/shm/{name} bs=1M count={mebibytes} conv=notrunc status=none"
    )
    require(await sandbox.execute(command, timeout=GUEST_S), f"writing {mebibytes} MiB")


@contextlib.contextmanager
def spares_in_use() -> Iterator[None]:
    """Lets starts take spares within the block, and has none made in the background."""
    os.environ[SPARES.variable] = USE
    try:
        yield
    finally:
        os.environ[SPARES.variable] = OFF


async def make_spare(image: str) -> None:
    """Makes a spare for the usual machine, and waits until the host is calm again."""
    record = record_for(SandboxConfig(image=image, memory=SMALL))
    await spare_making.make_spare(Registry(paths()), record, seconds=spare_making.WAIT_S)
    await asyncio.sleep(CALM_S)


def own_disk(sandbox: Sandbox) -> int:
    """Returns the bytes on disk in files of this sandbox alone, which have no other hard link."""
    files = [p.lstat() for p in Registry(paths()).place(sandbox.id).root.rglob("*") if p.is_file()]
    return sum(found.st_blocks * 512 for found in files if found.st_nlink == 1)


def pss(sandbox: Sandbox) -> int:
    """Returns the host memory of a sandbox's QEMU and its keeper in bytes (PSS, proc(5)): shared
    pages count in part. Raises RuntimeError where the system does not report it, StopIteration if
    the sandbox does not run."""
    run = _run_of(sandbox)
    return _pss_of(run.qemu_pid) + _pss_of(run.keeper_pid)


def processor_seconds(sandbox: Sandbox) -> float:
    """Returns the processor time so far of this process, of a sandbox's keeper and its processes
    that have ended, and of its QEMU (proc(5)). A QEMU that is being ended counts again when the
    keeper has waited for it."""
    run = _run_of(sandbox)
    own = os.times()
    ours = own.user + own.system + own.children_user + own.children_system
    return ours + _cpu_of(run.keeper_pid, CPU_FIELDS) + _cpu_of(run.qemu_pid, CPU_FIELDS[:2])


def _cpu_of(pid: int, fields: Sequence[int]) -> float:
    """Returns some fields of /proc/PID/stat, in seconds. Raises RuntimeError."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise RuntimeError(f"the time of process {pid} cannot be told: {error}") from error
    # The name in brackets may contain anything.
    found = stat[stat.rindex(")") + 2 :].split()
    return sum(int(found[field]) for field in fields) / os.sysconf("SC_CLK_TCK")


def qemu_pid(sandbox: Sandbox) -> int:
    """Returns the process id of a sandbox's QEMU. Raises StopIteration if it does not run."""
    return _run_of(sandbox).qemu_pid


def _run_of(sandbox: Sandbox) -> RunState:
    return next(e.run for e in sandbox.list() if e.id == sandbox.id and e.run)


def _pss_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError as error:
        raise RuntimeError(f"the memory of process {pid} cannot be told: {error}") from error
    return next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:") * 1024
