"""Making a template: boot a machine, let it settle, take its checkpoint. As a program it makes the
one of the sandbox whose record is on its stdin, for `make_in_background`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from quicksand.agent.session import Session
from quicksand.config import SandboxConfig
from quicksand.errors import MachineError, QuicksandError, StateError
from quicksand.host.files import map_os_errors, sync_dir, try_lock
from quicksand.host.paths import make_private_dir, paths
from quicksand.host.threads import in_thread_to_the_end, to_the_end
from quicksand.layout import sandbox_dir
from quicksand.lifecycle import Progress, boot
from quicksand.planning import gather_parts, identity
from quicksand.registry import Record, Registry, new_id
from quicksand.snapshots.history import History
from quicksand.snapshots.operations import take_checkpoint
from quicksand.snapshots.origins import Origin
from quicksand.templates import TAG, Templates, prune

NICENESS = 10
"""Of the program: whoever waits for something goes first."""

SETTLE_S = 30.0
"""The longest wait for a guest to become idle."""

IDLE_WINDOW_S = 0.5
IDLE = 0.9
"""Of the guest's CPU time in a window, to call it idle."""

WAIT_POLL_S = 0.1
COMMAND_S = 20

WARM_UP = ("true", "cat /etc/hostname", "ls /")
"""Commands that leave a shell and the common libraries in the guest's page cache."""


async def warm(
    registry: Registry, config: SandboxConfig, *, progress: Progress | None = None
) -> tuple[Origin, bool]:
    """The template that the first start of a sandbox of ``config`` goes on from, and whether it
    was made now. Raises as `make_template`."""
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
    """Make the template of the machine of ``record``, whose image is resolved (committed); return
    it, or the one that is there. Somebody else who is at it is waited for, or not.

    Raises StateError if such a machine can have none or ``wait`` is false and another process is
    at it; HostError, ImageError, MachineError, AgentError.
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
        making = templates.root / f".making-{templates.key}"
        await in_thread_to_the_end(lambda: shutil.rmtree(making, ignore_errors=True))
        try:
            await _make(registry, record, making, templates, progress)
        finally:
            await in_thread_to_the_end(lambda: shutil.rmtree(making, ignore_errors=True))
        await in_thread_to_the_end(lambda: prune(templates.root))
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


async def _make(
    registry: Registry,
    record: Record,
    making: Path,
    templates: Templates,
    progress: Progress | None,
) -> None:
    """Boot a sandbox whose data directory is ``making``, and publish it as the template."""
    own = Registry(replace(registry.paths, data=making, memory=None))
    config = replace(record.config, port_forwards=())
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
        await _settle(await machine.link.session(), identity(template))
        # While its client is there: whoever goes on from here is taken for that one (`wake`).
        node = await take_checkpoint(own, template, TAG)
    finally:
        machine.link.close()
        machine.process.cut()
        await to_the_end(machine.process.wait())
    place = sandbox_dir(own.paths, template.id)

    def publish() -> None:
        History(place).commit(replace(node, hidden=True))
        with map_os_errors(templates.place.root):
            shutil.rmtree(templates.place.root, ignore_errors=True)
            place.root.rename(templates.place.root)
            sync_dir(templates.root)

    await in_thread_to_the_end(publish)


async def _settle(session: Session, names: dict[str, str]) -> None:
    """Return when the guest has nothing left to do of its boot; its memory holds little else than
    what the next start and the next command need."""
    deadline = time.monotonic() + SETTLE_S
    while await _idle_share(session) < IDLE and time.monotonic() < deadline:
        pass
    await session.request("sync", {})
    await session.request("drop_caches", {})
    # What is renewed at each start: the files are in the cache then, and written over in place.
    await session.request("set_identity", {**names, "boot_id": "if_read"})
    for command in WARM_UP:
        await _say(session, command)


async def _idle_share(session: Session) -> float:
    """Which part of the next window the guest's CPUs were idle."""
    before = await _cpu_times(session)
    await asyncio.sleep(IDLE_WINDOW_S)
    after = await _cpu_times(session)
    spent = [b - a for a, b in zip(before, after, strict=True)]
    return spent[3] / max(1, sum(spent))


async def _cpu_times(session: Session) -> list[int]:
    """The first line of /proc/stat (proc(5)): user, nice, system, idle, ..."""
    text = await _say(session, "head -n 1 /proc/stat")
    return [int(word) for word in text.split()[1:9]]


async def _say(session: Session, command: str) -> str:
    reply = await session.request("execute", {"command": command, "timeout": COMMAND_S})
    return str(reply.get("stdout", ""))


def main() -> int:
    """Make the template of the record on stdin. Says nothing: nobody listens."""
    os.nice(NICENESS)
    try:
        record = Record.from_json(json.loads(sys.stdin.buffer.read()))
        asyncio.run(make_template(Registry(paths()), record, wait=False))
    except (QuicksandError, ValueError):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
