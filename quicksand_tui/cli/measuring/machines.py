"""The sandboxes in which things are measured, whether a QEMU waits for them, and what they take of
the host."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand import Sandbox
from quicksand.base.paths import paths
from quicksand.base.settings import OFF, SPARES, STANDBY, USE
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.warm.spares import making
from quicksand.warm.spares.stock import record_for
from quicksand.warm.template_maker import warm

if TYPE_CHECKING:
    from quicksand.guest.execution import ExecuteResult
    from quicksand.records.sandboxes import RunState
    from quicksand.sandbox import Sandbox

    from quicksand_tui.cli.measuring.figure import Figure

SMALL, LARGE = "512M", "2G"
GUEST_S = 600
"""Seconds that a guest may take to write what is asked of it."""

WAITS_S = 30.0
"""Seconds to wait for a QEMU that is prepared for the next revert."""
CALM_S = 0.5
"""Seconds to wait after that, until the client has let go of that QEMU."""


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
    """Returns the figures with what their sandbox started from, where they say nothing of it."""
    if sandbox.boot_timing is not None:
        for figure in figures:
            figure.facts = {"mode": sandbox.boot_timing.mode} | figure.facts
    return figures


def require(result: ExecuteResult, what: str) -> str:
    """Returns what a command in the guest has printed. Raises RuntimeError if it has failed."""
    if result.exit_code != 0:
        raise RuntimeError(f"{what} has failed in the guest: {result.stderr.strip()}")
    return result.stdout


async def write_memory(sandbox: Sandbox, mebibytes: int, name: str = "block") -> None:
    """Fills pages of the guest's memory with random bytes; the same pages for the same name."""
    command = (
        f"dd if=/dev/urandom of=/dev/shm/{name} bs=1M count={mebibytes} conv=notrunc status=none"
    )
    require(await sandbox.execute(command, timeout=GUEST_S), f"writing {mebibytes} MiB")


def is_standby_off() -> bool:
    """Whether the user wants no QEMU to wait for a start or a revert."""
    return STANDBY.is_off


@contextlib.contextmanager
def standby(value: str) -> Iterator[None]:
    """Has QEMUs wait for the next revert within the block ("on"), or none ("off")."""
    variable = STANDBY.variable
    before = os.environ.get(variable)
    os.environ[variable] = value
    try:
        yield
    finally:
        os.environ.pop(variable)
        if before is not None:
            os.environ[variable] = before


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
    await making.make_spare(Registry(paths()), record, seconds=making.WAIT_S)
    await asyncio.sleep(CALM_S)


async def until_one_waits(sandbox: Sandbox) -> None:
    """Returns when a QEMU waits for the next revert. Raises TimeoutError."""
    root = Registry(paths()).machine(sandbox.id).root.parent
    async with asyncio.timeout(WAITS_S):
        while not any(root.glob("*/waiting.json")):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await asyncio.sleep(CALM_S)


def own_disk(sandbox: Sandbox) -> int:
    """Returns the bytes on disk in files that only this sandbox uses, which have no other hard
    link."""
    files = [p.lstat() for p in Registry(paths()).place(sandbox.id).root.rglob("*") if p.is_file()]
    return sum(found.st_blocks * 512 for found in files if found.st_nlink == 1)


def pss(sandbox: Sandbox) -> int:
    """Returns the host memory of a sandbox's QEMU and its keeper in bytes (PSS, proc(5)): shared
    pages count in part. Raises RuntimeError where the system does not report it, StopIteration if
    the sandbox does not run."""
    run = _run_of(sandbox)
    return _pss_of(run.qemu_pid) + _pss_of(run.keeper_pid)


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
