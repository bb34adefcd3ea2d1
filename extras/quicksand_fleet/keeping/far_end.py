"""The far end of leases: requests them, and passes them to the keepers of this machine's sandboxes.

It decides nothing. A sandbox whose lease is not renewed is ended by its keeper, whatever happens to
this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from quicksand.errors import QuicksandError, RemoteProtocolError
from quicksand.extending import (
    ForeignValueError,
    KeeperLink,
    LeaseRecord,
    Paths,
    Registry,
    Request,
    SandboxDir,
    Stream,
    best_effort,
    boot_id,
    end_processes,
    is_id,
    keeper_now,
    lease_file,
    read_json,
    read_lease,
    runtime_dir,
    sandbox_dir,
    taken_hint,
    trash_dir,
    why_not_ours,
    write_lease,
)

from quicksand_fleet.keeping.tidying import remove_exported
from quicksand_fleet.keeping.wire import (
    ASK_S,
    HELD_MAX,
    KEEPING,
    LEASES,
    Grant,
    Held,
    Line,
    State,
    Superseded,
    Told,
    decode_told,
    encode_line,
)

NAME_MAX = 63
"""Characters of a sandbox's name (`check_name`)."""
NAMES_TRIED = 100


class MachineOfLeases:
    """This machine, as coordinators know it (an `Offer` of `remote.serving`)."""

    capability = KEEPING
    methods = (LEASES,)
    is_empty = True

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._registry = Registry(paths)
        self._fenced: dict[str, tuple[int, bool]] = {}
        """By sandbox id: the epoch for which the keeper has taken leases from this process, and
        whether it has reported that the sandbox was let go of."""

    def away(self) -> None: ...

    def back(self) -> None: ...

    async def leave(self) -> None: ...

    async def settle(self) -> None: ...

    async def answer(self, request: Request, _: Callable[[], Awaitable[None]]) -> None:
        """Answer one of ``methods``: ask for leases until the coordinator has gone."""
        request.answer()
        before: Line | None = None
        left: list[str] = []
        while True:
            line = replace(await asyncio.to_thread(self.look), left=left)
            await request.channel.send(Stream.STDOUT, encode_line(line))
            match await request.channel.event():
                case {"event": "enough"}:
                    break
                case {"event": "tell", "told": value}:
                    try:
                        told = decode_told(value)
                    except ForeignValueError as error:
                        raise RemoteProtocolError(f"the coordinator: {error}") from error
                    # An answer to an earlier question, over another connection, does not count.
                    if told.asked == line.asked:
                        await self.obey(told)
                        left = await asyncio.to_thread(self._left_of, told.unneeded)
            # Whatever the coordinator waits for is reported at once.
            if before is not None and before.held == line.held:
                await asyncio.sleep(ASK_S)
            before = line
        request.channel.finish(Stream.STDOUT)

    # What there is

    def look(self) -> Line:
        """Return the sandboxes here that have leases, including those in the trash, since these may
        be restored: the coordinator then has them released, or marked as an older epoch. Blocks."""
        asked = keeper_now()
        found = sorted(self._paths.sandboxes.glob("*/lease.json"))
        found += sorted(trash_dir(self._paths).glob("*/lease.json"))
        found = found[:HELD_MAX]
        held = [self._held(path.parent.name) for path in found if is_id(path.parent.name)]
        saves = str(self._paths.saves.absolute())
        return Line(asked=asked, saves=saves, held=[one for one in held if one is not None])

    def _held(self, id_: str) -> Held | None:
        place = self._place(id_)
        with contextlib.suppress(OSError, ValueError):
            lease = read_lease(place)
            entry = self._registry.inspect(id_)
            epoch, is_let_go = self._fenced.get(id_, (0, False))
            is_running = entry is not None and entry.is_live
            if lease is not None and (entry is not None or self._is_trashed(place)):
                return Held(
                    id=id_,
                    name=lease.name,
                    epoch=lease.epoch,
                    state=State.RUNNING if is_running else self._how_it_ended(place, lease),
                    is_fenced=epoch == lease.epoch,
                    is_let_go=epoch == lease.epoch and is_let_go,
                    is_superseded=bool(lease.superseded_by),
                )
        return None

    def _place(self, id_: str) -> SandboxDir:
        """The directory of a sandbox, which may be in the trash."""
        place, trashed = sandbox_dir(self._paths, id_), trash_dir(self._paths) / id_
        is_ours = trashed.is_dir() and not why_not_ours(trashed)
        return SandboxDir(trashed) if is_ours and not place.root.exists() else place

    def _is_trashed(self, place: SandboxDir) -> bool:
        return place.root.parent == trash_dir(self._paths)

    def _how_it_ended(self, place: SandboxDir, lease: LeaseRecord) -> State:
        """Return how a sandbox that does not run has ended. Moving a sandbox to the trash ends
        it."""
        if self._is_trashed(place):
            return State.STOPPED
        if lease.boot != boot_id():
            return State.DOWN
        try:
            ended = read_json(place.exit)
        except (OSError, ValueError, QuicksandError):
            return State.DOWN
        if ended.get("fenced") is True:
            return State.FENCED
        if ended.get("code") is None and not ended.get("asked"):
            return State.DOWN
        return State.STOPPED

    # What is told

    async def obey(self, told: Told) -> None:
        """Do what the coordinator says. Failures are noted, and the next answer asks again."""
        for grant in told.grants:
            with self._trying(grant.id, "take a lease"):
                await self._take(grant, told.asked + grant.seconds)
        for permit in told.permits:
            with self._trying(permit.id, "permit a start"):
                await asyncio.to_thread(self._permit, permit, told.asked + permit.seconds)
        for gone in told.superseded:
            with self._trying(gone.id, "mark an older epoch"):
                await self._supersede(gone)
        for id_ in told.released:
            with self._trying(id_, "release a sandbox"):
                await asyncio.to_thread(self._release, id_)
        for name in told.unneeded:
            with self._trying(name, "remove an exported save"):
                await asyncio.to_thread(remove_exported, self._paths, name)

    def _left_of(self, names: Iterable[str]) -> list[str]:
        """Return those of the exported saves that are still here. Blocks."""
        return [name for name in names if os.path.lexists(self._paths.saves / name)]

    def _trying(self, about: str, what: str) -> contextlib.AbstractContextManager[None]:
        return best_effort(f"{what} ({about})", self._paths.engine_log)

    async def _take(self, grant: Grant, until: float) -> None:
        entry = await asyncio.to_thread(self._registry.inspect, grant.id)
        if entry is None or not entry.is_live:
            return
        place = sandbox_dir(self._paths, grant.id)
        lease = read_lease(place)
        if lease is not None and (lease.superseded_by or lease.epoch > grant.epoch):
            return
        new = LeaseRecord(name=grant.name, epoch=grant.epoch, boot=boot_id())
        if lease != new:
            await asyncio.to_thread(write_lease, place, new)
        async with await KeeperLink.connect(
            runtime_dir(self._paths, grant.id).keeper_socket
        ) as keeper:
            reply = await keeper.ask("lease", epoch=grant.epoch, until=until)
        self._fenced[grant.id] = grant.epoch, reply.get("let_go") is True

    def _permit(self, permit: Grant, until: float) -> None:
        """Let the sandbox be started here, as a new epoch."""
        place = sandbox_dir(self._paths, permit.id)
        lease = read_lease(place)
        entry = self._registry.inspect(permit.id)
        if lease is None or lease.superseded_by or entry is None or entry.is_live:
            return
        if lease.epoch <= permit.epoch:
            new = replace(lease, epoch=permit.epoch, boot=boot_id(), may_start_until=until)
            write_lease(place, new)

    async def _supersede(self, gone: Superseded) -> None:
        """Keep an older epoch as a sandbox that is not started again, under a name that says so."""
        place = self._place(gone.id)
        lease = read_lease(place)
        if lease is None or lease.epoch > gone.epoch:
            return
        if lease.superseded_by != gone.by:
            await asyncio.to_thread(write_lease, place, replace(lease, superseded_by=gone.by))
        # No process is left, unless its keeper was frozen.
        await end_processes(sandbox_dir(self._paths, gone.id))
        await asyncio.to_thread(self._rename, gone)

    def _rename(self, gone: Superseded) -> None:
        entry = self._registry.inspect(gone.id)
        if entry is None or entry.record is None or entry.name != gone.name:
            return
        ending = f"-epoch-{gone.epoch}"
        with self._registry.holding(gone.id):
            for number in range(1, NAMES_TRIED):
                end = ending if number == 1 else f"{ending}-{number}"
                name = gone.name[: NAME_MAX - len(end)] + end
                if self._registry.named(name) is None:
                    with self._registry.giving_name(name, hint=taken_hint(name)):
                        self._registry.save(replace(entry.record, name=name))
                    return

    def _release(self, id_: str) -> None:
        place = self._place(id_)
        lease = read_lease(place)
        if lease is not None and not lease.superseded_by:
            lease_file(place).unlink(missing_ok=True)
        self._fenced.pop(id_, None)
