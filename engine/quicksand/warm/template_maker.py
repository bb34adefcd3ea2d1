"""Making a template: boot a machine, wait until its user could use it (the agent answers long
before a desktop is there) and until it is idle, take its checkpoint. Run as a program (by
`make_in_background`), this makes the template that is ordered on its stdin.

Background work waits until a machine in use needs the host less: the first start of a desktop took
five minutes beside the boot of its own template.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from quicksand.base.errors import (
    AgentError,
    AgentRefusedError,
    MachineError,
    QuicksandError,
    StateError,
    UnfitGuestError,
)
from quicksand.base.faults import noting_faults
from quicksand.base.files import map_os_errors, sync_dir, try_lock
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.processes import is_process, process_usage
from quicksand.base.progress import COLD, STAGES, Progress
from quicksand.base.removal import make_marked, mark, remove
from quicksand.base.threads import in_thread_to_the_end
from quicksand.guest.agent.session import Session
from quicksand.guest.fitness import read_clock, require_fit
from quicksand.guest.guest_files import files_of
from quicksand.qemu.keeper_parts.bounds import no_core_files
from quicksand.qemu.planning import gather_parts, identity
from quicksand.qemu.process import StartedMachine, remove_quietly
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.snapshots.history import History, Origin
from quicksand.snapshots.taking import take_checkpoint
from quicksand.warm.starting import boot
from quicksand.warm.templates import TAG, TemplateOrder, Templates, note_checked, prune

READY = "/usr/lib/quicksand/ready"
"""A program that an image may have; it ends with 0 when the guest is ready for its user."""

START_S = 180.0
"""Seconds that a start waits for READY. A desktop takes a minute on a busy host that emulates."""

COMMAND_S = 20
"""Seconds for the agent to start a program, and to report its end."""

DESKTOP = "desktop"
"""The stage of a start, after those of `Stopwatch`."""


async def run_if_there(session: Session, program: str, limit_s: float) -> object:
    """Run a program that an image may have; returns its exit code, 0 if there is none, or None if
    it did not end within ``limit_s``. Raises AgentError."""
    params = {"command": f"[ ! -x {program} ] || exec {program}", "timeout": limit_s}
    try:
        reply = await session.request("execute", params, timeout=limit_s + COMMAND_S)
    except AgentRefusedError as error:
        if error.parameter != "shell":
            raise
        return 0  # an image without a shell has no such program either
    return None if reply.get("timed_out") else reply.get("exit_code") or 0


async def with_desktop(
    machine: StartedMachine, progress: Progress | None = None, *, limit_s: float = START_S
) -> StartedMachine:
    """Wait until the desktop of a machine that has just booted is there; at once if the machine has
    no display or did not boot. Returns the machine, with a notice if the desktop did not come
    within ``limit_s``. Raises MachineError if it has ended."""
    if not machine.record.config.enable_display or machine.timing.mode != COLD:
        return machine
    if progress is not None:
        progress(DESKTOP, len(STAGES), len(STAGES) + 1)
    began = time.monotonic()
    try:
        session = await machine.link.session()
        code = await run_if_there(session, READY, limit_s)
        why = _why_not(code, limit_s)
    except AgentError as error:
        why = f"the guest cannot be asked whether its desktop is there: {error}"
    took = time.monotonic() - began
    return replace(
        machine,
        timing=replace(machine.timing, post_boot_s=machine.timing.post_boot_s + took),
        notices=(*machine.notices, why) if why else machine.notices,
    )


def _why_not(code: object, limit_s: float) -> str:
    """Return the notice for the user when READY ended with ``code``; "" if the desktop is there."""
    if code is None:
        return (
            f"the desktop was not there after {limit_s:g} s; the sandbox runs, and `screenshot` "
            "shows how far it is"
        )
    if code:
        return f"it is not known whether the desktop is there: {READY} ended with {code!r}"
    return ""


WINDOW_S = 1.0
BUSY = 0.25
"""The share of a window above which a machine counts as busy, if it wants a processor for that."""

QUIET_S = 3.0
"""Seconds for which it must not be busy: a booting guest waits for something at times."""

PATIENCE_S = 600.0
"""Seconds after which work no longer waits for its user."""


async def until_idle(pid: int, started: str) -> None:
    """Wait until the QEMU with the process id ``pid``, which started at ``started``, has not been
    busy for `QUIET_S`, or has ended; for at most `PATIENCE_S`. Where the system does not tell how
    busy it is, it counts as idle."""
    deadline = time.monotonic() + PATIENCE_S
    quiet_since, wanted, at = time.monotonic(), _wanted(pid), time.monotonic()
    while is_process(pid, started) and time.monotonic() < deadline:
        if time.monotonic() - quiet_since >= QUIET_S:
            return
        await asyncio.sleep(WINDOW_S)
        before, since = wanted, at
        wanted, at = _wanted(pid), time.monotonic()
        if wanted - before > BUSY * (at - since):
            quiet_since = at


def _wanted(pid: int) -> float:
    """Return the seconds for which threads of a process have used a processor, or waited for one:
    on a busy host a booting guest gets little. From /proc/PID/task/TID/schedstat, in nanoseconds
    (Linux, Documentation/scheduler/sched-stats); without that, the seconds used."""
    try:
        threads = [*Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return 0.0
    total = 0
    for thread in threads:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            try:
                used, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
            except ValueError:
                return process_usage(pid)[0]
            total += int(used) + int(waited)
    return total / 1e9


NICENESS = 10
"""The nice(2) value of the program, so that it slows nothing else down."""

READY_S = 600.0
"""Seconds that READY may take. A desktop takes a minute on a busy host that emulates."""

WARM = "/usr/lib/quicksand/warm"
"""A program that an image may have; it uses the programs that will be used first, so that they are
in the guest's page cache and their first use's files exist."""

WARM_S = 600.0
"""Seconds that WARM may take. Firefox takes half a minute to start on a host that emulates, and
works on for as long."""

SETTLE_S = 30.0
"""Seconds to wait for a guest to become idle, at most."""

IDLE_WINDOW_S = 0.5
IDLE = 0.9
"""The idle share of the guest's CPU time in a window above which the guest counts as idle."""

WAIT_POLL_S = 0.1

ATTEMPTS = 2
"""The number of attempts to make a template whose guest proves unfit (fitness.py)."""

STAT_MAX = 4096
"""Bytes of /proc/stat that are read; its first line has some 80."""

WARM_UP = ("true", "cat /etc/hostname", "ls /")
"""Commands that leave a shell and the common libraries in the guest's page cache."""


async def warm(
    registry: Registry, config: SandboxConfig, *, progress: Progress | None = None
) -> tuple[Origin, bool]:
    """Return the template for the first start of a sandbox with ``config``, and whether it was made
    just now. Raises as `make_template`."""
    new = Record(
        id=new_id(),
        name=TAG,
        config=config,
        image_digest="",
        chain=(),
        created=time.time(),
        committed=False,
        discard=False,
    )
    templates = Templates(registry.paths, new, await gather_parts(registry, new))
    found = await asyncio.to_thread(templates.find)
    if found is not None:
        return found, False
    return await make_template(registry, templates.record, progress=progress), True


async def make_template(
    registry: Registry, record: Record, *, progress: Progress | None = None, wait: bool = True
) -> Origin:
    """Make the template of the machine of ``record``, whose image is resolved (committed); returns
    it, or the one that exists. With ``wait``, waits for another process that is making it.

    Raises StateError if such a machine can have no template, or if another process is making it
    and ``wait`` is false; HostError, ImageError, MachineError, AgentError.
    """
    parts = await gather_parts(registry, record)
    templates = Templates(registry.paths, record, parts)
    if templates.refusal:
        raise StateError(f"there can be no template: {templates.refusal}")
    make_private_dir(templates.root)
    async with _locked(templates, wait):
        found = await asyncio.to_thread(templates.find)
        if found is not None:
            return found
        for attempt in range(ATTEMPTS):
            try:
                await _attempt(registry, record, templates, progress)
                break
            except UnfitGuestError:
                if attempt == ATTEMPTS - 1:
                    await asyncio.to_thread(templates.note_unfit)
                    raise
        await in_thread_to_the_end(lambda: prune(templates.root, registry.paths.engine_log))
        found = await asyncio.to_thread(templates.find)
    if found is None:
        raise MachineError("the template that was just made cannot be read")
    return found


@contextlib.asynccontextmanager
async def _locked(templates: Templates, wait: bool) -> AsyncIterator[None]:
    with map_os_errors(templates.lock):
        while (lock := try_lock(templates.lock)) is None:
            if not wait:
                raise StateError("the template is being made already")
            await asyncio.sleep(WAIT_POLL_S)
    try:
        yield
    finally:
        os.close(lock)


async def _attempt(
    registry: Registry, record: Record, templates: Templates, progress: Progress | None
) -> None:
    """Make the template, and leave nothing else. Raises as `make_template`."""
    making = templates.root / f".making-{templates.key}"
    await in_thread_to_the_end(lambda: remove_quietly(making))
    make_marked(making)
    try:
        await _make(registry, record, making, templates, progress)
    finally:
        await in_thread_to_the_end(lambda: remove_quietly(making))


async def _make(
    registry: Registry,
    record: Record,
    making: Path,
    templates: Templates,
    progress: Progress | None,
) -> None:
    """Boot a sandbox whose data directory is ``making``, and publish it as the template."""
    own = Registry(replace(registry.paths, data=making, memory=None))
    config = record.config.without_host(port_forwards=(), vnc_port=None)
    template = replace(
        record,
        id=new_id(),
        name=TAG,
        config=config,
        created=time.time(),
        committed=True,
        discard=False,
    )
    lock = own.create(template)
    try:
        machine = await boot(own, template, lock, progress=progress)
    finally:
        os.close(lock)
    try:
        if machine.clock:
            raise UnfitGuestError(machine.clock)
        session = await machine.link.session()
        clock = await read_clock(session)
        await _wait_until_ready(session)
        await _settle(session, identity(template))
        await _warm_up(session)
        await require_fit(session, clock, config.network_mode)
        # Taken while a client is connected: later clients take its place (`restore.wake`).
        node = await take_checkpoint(own, template, TAG)
    finally:
        await machine.end()
    place = sandbox_dir(own.paths, template.id)

    def publish() -> None:
        History(place).commit(replace(node, hidden=True))
        with map_os_errors(templates.place.root):
            note_checked(place.root)
            mark(place.root, as_=templates.key)
            remove(templates.place.root)
            place.root.rename(templates.place.root)
            sync_dir(templates.root)

    await in_thread_to_the_end(publish)


async def _wait_until_ready(session: Session, limit_s: float = READY_S) -> None:
    """Run the image's READY, if it has one. Raises MachineError if that fails or takes longer than
    ``limit_s``, AgentError."""
    if (code := await run_if_there(session, READY, limit_s)) is None:
        raise MachineError(f"the guest was not ready after {limit_s:g} s: {READY} did not end")
    if code:
        raise MachineError(f"the guest did not become ready: {READY} ended with {code!r}")


async def _warm_up(session: Session, limit_s: float = WARM_S) -> None:
    """Run the image's WARM, if it has one, and wait until the guest is idle after it. Raises
    MachineError if that fails or takes longer than ``limit_s``, AgentError."""
    if (code := await run_if_there(session, WARM, limit_s)) is None:
        raise MachineError(f"the guest was not warm after {limit_s:g} s: {WARM} did not end")
    if code:
        raise MachineError(f"the guest did not become warm: {WARM} ended with {code!r}")
    await _wait_until_idle(session)
    await session.request("sync", {})


async def _settle(session: Session, names: dict[str, str]) -> None:
    """Wait until the guest is idle after its boot, and keep in its memory little more than the next
    start and the next command need."""
    await _wait_until_idle(session)
    await session.request("sync", {})
    await session.request("drop_caches", {})
    # Each start renews the identity; doing it now brings the files into the page cache.
    await session.request("set_identity", {**names, "boot_id": "if_read"})
    with contextlib.suppress(AgentRefusedError):  # an image without the kernel's SMB client
        await session.request("load_share_client", {})
    for command in WARM_UP:
        with contextlib.suppress(AgentRefusedError):  # an image without a shell
            await session.request("execute", {"command": command, "timeout": COMMAND_S})


async def _wait_until_idle(session: Session) -> None:
    """Wait until the guest is idle, but for no longer than SETTLE_S."""
    deadline = time.monotonic() + SETTLE_S
    while await _idle_share(session) < IDLE and time.monotonic() < deadline:
        pass


async def _idle_share(session: Session) -> float:
    """The idle share (0 to 1) of the guest's CPUs in the next window."""
    before = await _cpu_times(session)
    await asyncio.sleep(IDLE_WINDOW_S)
    after = await _cpu_times(session)
    spent = [b - a for a, b in zip(before, after, strict=True)]
    return spent[3] / max(1, sum(spent))


async def _cpu_times(session: Session) -> list[int]:
    """The first line of /proc/stat (proc(5)): user, nice, system, idle, ..."""
    # Read, not printed by a command, which an image need not have.
    text = (await files_of(session).read("/proc/stat", length=STAT_MAX)).decode("ascii", "replace")
    return [int(word) for word in text.splitlines()[0].split()[1:9]]


async def _fulfil(order: TemplateOrder) -> None:
    if order.beside is None:
        await make_template(Registry(paths()), order.record, wait=False)
        return
    waiting = Path(order.waiting)
    make_private_dir(waiting.parent)
    lock = try_lock(waiting)
    if lock is None:
        return  # another process waits for the same
    try:
        await until_idle(*order.beside)
        await make_template(Registry(paths()), order.record, wait=False)
    finally:
        waiting.unlink(missing_ok=True)
        os.close(lock)


def main() -> int:
    """Make the template that is ordered on stdin. Prints nothing; returns the exit code."""
    os.nice(NICENESS)
    try:
        asyncio.run(_fulfil(TemplateOrder.from_json(json.loads(sys.stdin.buffer.read()))))
    except (QuicksandError, ValueError):
        return 1
    return 0


if __name__ == "__main__":
    no_core_files()
    with noting_faults():
        sys.exit(main())
