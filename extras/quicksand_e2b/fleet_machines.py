"""The engine of a fleet, as the API uses it (`Machines`): each sandbox is on the host that its
record names. A sandbox without a host is of this machine, from a server without a fleet, and goes
on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any

from quicksand import (
    Checkpoint,
    CheckpointNotFoundError,
    Fleet,
    FleetEventKind,
    FleetFullError,
    HostLack,
    HostState,
    Lack,
    QuicksandError,
    RemoteError,
    Sandbox,
    SandboxConfig,
    SandboxNotFoundError,
    StateError,
)
from quicksand.extending import (
    NODE_SCHEME,
    FarLife,
    StandingSandbox,
    StandingTable,
    describe,
    life_of,
)
from quicksand_fleet import FleetLife, PlacedLife

from quicksand_e2b.errors import HostAwayError
from quicksand_e2b.machines import (
    PAUSE_TAG,
    Figures,
    HostFigures,
    Machines,
    Made,
    Placed,
    Usage,
    network_mode,
)
from quicksand_e2b.records import SandboxRecord
from quicksand_e2b.tasks import Tasks, words_of

WAIT_S = 45.0
"""Seconds for which a new sandbox waits for a place. The SDK gives a request 60; a host that has
fallen silent takes 30 until the next one is asked (`over_ssh.ANSWER_S`)."""
HEARD_S, OTHERS_S = 40.0, 10.0
"""Seconds that the hosts have to answer when the server starts; and the seconds for the others
after the first answer."""


class FleetMachines:
    """`Machines` on the hosts of a fleet. Each host tells by itself which sandboxes run there;
    nobody is asked. An ``async with`` block follows the hosts."""

    def __init__(self, fleet: Fleet, here: Machines, tell: Callable[[str], None]) -> None:
        """``here`` has the sandboxes of this machine. ``tell`` is told when a host is away or
        back."""
        self._fleet = fleet
        self._here = here
        self._tell = tell
        self._tasks = Tasks(lambda name, error: tell(f"{name}: {words_of(error)}"))
        self._tables: dict[str, StandingTable] = {}
        self._told_away: set[str] = set()

    async def __aenter__(self) -> FleetMachines:
        self._tasks.start(self._follow_hosts(), "api-hosts")
        for host in self._fleet.hosts():
            self._add(host.name)
        try:
            await self._hear()
        except BaseException:
            await self._tasks.end()
            raise
        for name, table in sorted(self._tables.items()):
            if not table.heard.is_set():
                self._tell_of(name, table)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.end()

    async def _hear(self) -> None:
        """Waits for the hosts. Sandboxes of a late host are taken over when it answers."""
        late = {asyncio.ensure_future(one.heard.wait()) for one in self._tables.values()}
        if late:
            _, late = await asyncio.wait(late, timeout=HEARD_S, return_when=asyncio.FIRST_COMPLETED)
        if late:
            _, late = await asyncio.wait(late, timeout=OTHERS_S)
        for one in late:
            one.cancel()

    async def _follow_hosts(self) -> None:
        """Keeps a table of each host, also of hosts that come later."""
        async for event in self._fleet.watch():
            if event.host is not None and event.kind is FleetEventKind.HOST:
                self._add(event.host.name)

    def _add(self, name: str) -> None:
        if name not in self._tables:
            table = StandingTable(self._fleet.host(name), lambda: self._tell_of(name, table))
            self._tables[name] = table
            self._tasks.start(table.run(), f"api-host-{name}")

    def _tell_of(self, name: str, table: StandingTable) -> None:
        if table.away is None:
            if name in self._told_away:
                self._told_away.remove(name)
                self._tell(f"the host {name} is back")
        else:
            self._told_away.add(name)
            self._tell(
                f"the host {name} is away: {table.away}. Requests for its sandboxes get 503 until "
                "it is back; `quicksand-tui fleet status` shows the hosts"
            )

    # Known facts

    def _table(self, record: SandboxRecord) -> StandingTable | None:
        """Returns the standing of a sandbox, as its host tells it; None if the host is gone with
        its sandboxes. Raises HostAwayError."""
        table = self._tables.get(record.host)
        if table is None:
            raise HostAwayError(f"the fleet has no host {record.host!r} now, where the sandbox is")
        if table.away is not None:
            # Without the reason: every client of a port of the sandbox reads this.
            raise HostAwayError(f"the host {record.host!r} of the sandbox is away")
        if record.machine_id in ("", table.machine_id):
            return table
        if table.remote.address.startswith(NODE_SCHEME):
            return None  # a node is removed with its sandboxes before another gets its name
        raise HostAwayError(
            f"the fleet's host {record.host!r} is another machine now than that of the sandbox"
        )

    def _require_any(self) -> None:
        """Checks that a host answers: otherwise a new sandbox would wait for a place in vain.
        Raises HostAwayError."""
        if not any(table.away is None for table in self._tables.values()):
            why = "; ".join(f"{name}: {one.away}" for name, one in sorted(self._tables.items()))
            raise HostAwayError(f"no host of the fleet answers ({why or 'it has none'})")

    def _find(self, record: SandboxRecord) -> StandingSandbox | None:
        """Returns a sandbox as its host tells it; None if there is none. Raises HostAwayError."""
        table = self._table(record)
        sandboxes = {} if table is None else table.sandboxes
        if record.sandbox_id:
            return sandboxes.get(record.sandbox_id)
        return next((one for one in sandboxes.values() if one.name == record.name), None)

    def is_live(self, record: SandboxRecord) -> bool:
        """See `Machines.is_live`."""
        if not record.host:
            return self._here.is_live(record)
        found = self._find(record)
        return found is not None and found.is_live

    def exists(self, record: SandboxRecord) -> bool:
        """See `Machines.exists`."""
        if not record.host:
            return self._here.exists(record)
        return self._find(record) is not None

    async def running(self, records: Collection[SandboxRecord]) -> Collection[str]:
        """See `Machines.running`."""
        found = {one.id for one in records if one.host and self._may_run(one)}
        ours = [one for one in records if not one.host]
        return found.union(await self._here.running(ours)) if ours else found

    def _may_run(self, record: SandboxRecord) -> bool:
        try:
            return self.is_live(record)
        except HostAwayError:
            return True

    async def figures(self) -> Figures:
        """See `Machines.figures`. The last figures of a host that is away are left out."""
        usage = [*(await self._here.figures()).usage]
        for name, table in self._tables.items():
            if table.away is None:
                usage += [
                    Usage(
                        host=name,
                        name=one.name,
                        memory_bytes=one.memory_bytes,
                        cpu_seconds=one.cpu_seconds,
                    )
                    for one in table.sandboxes.values()
                    if one.is_live
                ]
        hosts = [
            HostFigures(
                name=host.name,
                is_up=host.name in self._tables and self._tables[host.name].away is None,
                memory_bytes=host.memory_bytes,
                free_bytes=host.free_bytes if host.takes_new else 0,
                sandboxes=host.sandboxes,
            )
            for host in self._fleet.hosts()
        ]
        return Figures(usage=usage, hosts=hosts)

    async def has_image(self, name: str) -> bool:
        """See `Machines.has_image`. Saves of the hosts are not known; making a sandbox finds a host
        that has the save."""
        return any(name in host.images for host in self._fleet.hosts())

    # Actions

    def _require(self, record: SandboxRecord) -> StandingSandbox:
        """Returns a sandbox that exists on its host. Raises HostAwayError, SandboxNotFoundError."""
        found = self._find(record)
        if found is None:
            raise SandboxNotFoundError(f"{record.host} has no sandbox {record.name!r}")
        return found

    def _life(self, record: SandboxRecord) -> PlacedLife:
        """Returns the life of a sandbox on its host. Raises as `_require`."""
        found = self._require(record)
        config = SandboxConfig(image="unknown", memory=f"{record.memory_mb}M", cpus=record.cpus)
        return PlacedLife(self._fleet, record.host, found.id, config)

    @contextlib.asynccontextmanager
    async def _using(self, record: SandboxRecord) -> AsyncIterator[PlacedLife]:
        """Opens a sandbox for the block. After it, however it ends, the host's news are newer. If
        the block fails because the host is away, the host is not waited for."""
        life = self._life(record)
        try:
            yield life
        except BaseException:
            with contextlib.suppress(QuicksandError):
                if self._tables[record.host].away is None:
                    await self._leave(life, record.host)
                else:
                    await life.leave()
            raise
        await self._leave(life, record.host)

    async def _leave(self, life: FarLife, host: str) -> None:
        """Lets go of a sandbox, and waits for its host's news after that. Raises HostAwayError."""
        await life.leave()
        self._add(host)  # the host may have come into the fleet just now
        try:
            await self._tables[host].look()
        except RemoteError as error:
            raise HostAwayError(str(error)) from error

    def attach(self, record: SandboxRecord) -> Sandbox:
        """See `Machines.attach`."""
        if not record.host:
            return self._here.attach(record)
        found = self._require(record)
        if not found.is_live:
            raise StateError(f"the sandbox {record.name!r} is {found.status}")
        return self._sandbox(record.host, found.id)

    def _sandbox(self, host: str, id_: str) -> Sandbox:
        return Sandbox.attach(id_, host=self._fleet.host(host))

    async def start(self, record: SandboxRecord, image: str, placed: Placed) -> Made:
        """See `Machines.start`."""
        self._require_any()
        own = {
            **{"image": image, "name": record.name, "ephemeral": False, "warm": True},
            **{"build": False, "save": None, "workspace": None, "base_dir": None},
            **{"trust": False, "progress_callback": None},
        }
        options = {
            "memory": f"{record.memory_mb}M",
            "cpus": record.cpus,
            "network_mode": network_mode(record),
        }
        known, opening = describe(own, options)

        async def prepare(host: str) -> None:
            table = self._tables.get(host)
            await placed(host, "" if table is None else table.machine_id)

        life = FleetLife(self._fleet, known, opening, prepare=prepare)
        try:
            await life.start(None)
            # Waited for: a life that is not let go of ends with the connection.
            await life.call("detach")
        except BaseException:
            await life.leave()
            raise
        host, id_ = str(life.last_place), life.known.id
        await self._leave(life, host)
        return Made(sandbox=self._sandbox(host, id_), id=id_)

    async def pause(self, record: SandboxRecord, *, memory: bool) -> None:
        """See `Machines.pause`."""
        if not record.host:
            return await self._here.pause(record, memory=memory)
        async with self._using(record) as life:
            if memory:
                await life.call("checkpoint", PAUSE_TAG, replace=True)
                await life.call("stop", grace=0)
                return
            # As on this machine: it would be taken for the checkpoint of this pause.
            for found in await _checkpoints(life):
                if found.tag == PAUSE_TAG:
                    await life.call("delete_checkpoint", found.id)
            await life.call("stop")

    async def resume(self, record: SandboxRecord, *, memory: bool) -> Sandbox:
        """See `Machines.resume`."""
        if not record.host:
            return await self._here.resume(record, memory=memory)
        async with self._using(record) as life:
            before = {found.id for found in await _checkpoints(life)}
        async with self._using(record) as life:
            await life.start(PAUSE_TAG if memory else None)
            await life.call("detach")
            for found in await _checkpoints(life):
                if found.tag == PAUSE_TAG or (found.auto and found.id not in before):
                    with contextlib.suppress(QuicksandError):  # the next pause replaces it
                        await life.call("delete_checkpoint", found.id)
        return self._sandbox(record.host, self._require(record).id)

    async def has_pause(self, record: SandboxRecord) -> bool:
        """See `Machines.has_pause`."""
        if not record.host:
            return await self._here.has_pause(record)
        async with self._using(record) as life:
            return any(found.tag == PAUSE_TAG for found in await _checkpoints(life))

    async def end(self, record: SandboxRecord) -> None:
        """See `Machines.end`."""
        if not record.host:
            return await self._here.end(record)
        if (found := self._find(record)) is not None:
            life = life_of(self._fleet.host(record.host), found.id, to_end_it=True)
            with contextlib.suppress(SandboxNotFoundError):
                await life.call("stop", grace=0)
            await self._leave(life, record.host)

    async def remove(self, record: SandboxRecord) -> None:
        """See `Machines.remove`. A sandbox that is still being made is known by its name alone."""
        if not record.host:
            return await self._here.remove(record)
        if (table := self._table(record)) is not None:
            await table.remove(record.sandbox_id or record.name)
            await table.look()

    async def checkpoint(self, record: SandboxRecord, tag: str) -> None:
        """See `Machines.checkpoint`."""
        if not record.host:
            return await self._here.checkpoint(record, tag)
        async with self._using(record) as life:
            await life.call("checkpoint", tag)

    async def delete_checkpoint(self, record: SandboxRecord, tag: str) -> None:
        """See `Machines.delete_checkpoint`."""
        if not record.host:
            return await self._here.delete_checkpoint(record, tag)
        with contextlib.suppress(SandboxNotFoundError, CheckpointNotFoundError):
            async with self._using(record) as life:
                await life.call("delete_checkpoint", tag)

    async def clone(
        self,
        source: SandboxRecord,
        records: Sequence[SandboxRecord],
        *,
        at: str | None,
        memory: bool,
    ) -> list[Made]:
        """See `Machines.clone`. Clones stay on the host of their source."""
        if not source.host:
            return await self._here.clone(source, records, at=at, memory=memory)
        self._require_not_drained(source.host)
        ids = []
        async with self._using(source) as life:
            found = await life.call(
                "clone",
                len(records),
                names=[record.name for record in records],
                at=at,
                concurrency=None,
                mounts=None,
                wanted=list[Any],
            )
            made = [life.new(one) for one in found]
            try:
                for one in made:
                    if isinstance(one, QuicksandError):
                        raise one
                    await one.call("detach")
                    ids.append(one.known.id)
            finally:
                for one in made:
                    if isinstance(one, FarLife):
                        await one.leave()
        if not memory:
            for id_ in ids:
                await self._start_anew(source, id_)
        return [Made(sandbox=self._sandbox(source.host, id_), id=id_) for id_ in ids]

    def _require_not_drained(self, name: str) -> None:
        """Checks that a host takes new sandboxes. Raises FleetFullError."""
        host = next((one for one in self._fleet.hosts() if one.name == name), None)
        if host is not None and host.state in (HostState.DRAINING, HostState.DRAINED):
            raise FleetFullError(
                f"the host {name!r} is drained, and what is made of a sandbox stays on its host",
                lacks=[HostLack(host=name, lack=Lack.DRAINED)],
            )

    async def _start_anew(self, source: SandboxRecord, id_: str) -> None:
        """Boots a clone from its disk."""
        config = SandboxConfig(image="unknown", memory=f"{source.memory_mb}M", cpus=source.cpus)
        life = PlacedLife(self._fleet, source.host, id_, config)
        try:
            await life.call("stop", grace=0)
            await life.start(None)
            await life.call("detach")
        finally:
            await self._leave(life, source.host)

    async def console(self, record: SandboxRecord) -> list[str]:
        """See `Machines.console`."""
        if not record.host:
            return await self._here.console(record)
        id_ = self._require(record).id
        return (await self._fleet.host(record.host).logs(id_)).splitlines()


@contextlib.asynccontextmanager
async def open_fleet(here: Machines, tell: Callable[[str], None]) -> AsyncIterator[FleetMachines]:
    """Opens the fleet that is up, or that of the config's hosts, for the block. Raises FleetError,
    ConfigError."""
    async with Fleet.open(wait_s=WAIT_S) as fleet, FleetMachines(fleet, here, tell) as machines:
        yield machines


async def _checkpoints(life: FarLife) -> list[Checkpoint]:
    found: list[Checkpoint] = await life.call("checkpoints")
    return found
