"""Makes sandboxes from an image, a save, a snapshot, or a running sandbox."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass, replace

from quicksand import AgentRefusedError, Sandbox
from quicksand.extending import to_the_end

from quicksand_e2b import interpreter, not_here
from quicksand_e2b.asked import Asked
from quicksand_e2b.errors import ApiError
from quicksand_e2b.live import Live
from quicksand_e2b.machines import Made
from quicksand_e2b.network import Egress, changed, require_kept
from quicksand_e2b.records import SandboxRecord, SnapshotRecord, State, new_id, new_token
from quicksand_e2b.sandboxes import Sandboxes

BASE = "base"
ALIASES = (BASE, interpreter.TEMPLATE)
"""Templates that clients ask for if their users name none: the usual image, and that with the code
interpreter."""

USER = "user"
ROOT = "root"
FORKS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """The properties of a new sandbox if nothing says otherwise."""

    image: str
    memory_mb: int
    cpus: int
    internet: bool
    """Whether sandboxes may have the internet; if not, no sandbox has it."""


class Making:
    """Makes sandboxes and snapshots. Methods raise ApiError and QuicksandError. After an error
    nothing is left."""

    def __init__(self, sandboxes: Sandboxes, usual: Usual) -> None:
        self._sandboxes = sandboxes
        self._machines = sandboxes.machines
        self._usual = usual

    async def create(self, owner: str, asked: Asked, request: tuple[str, str] = ("", "")) -> Live:
        """Makes a sandbox. ``request`` is the idempotency key and the digest of its request: a
        second request with both gets the sandbox of the first."""
        key, digest = request
        if key and (earlier := self._made_by(owner, key)) is not None:
            if earlier.record.request_digest != digest:
                raise ApiError(409, "that idempotency key was used for another request")
            async with earlier.lock:  # until the sandbox is made
                if not earlier.is_listed:
                    raise ApiError(409, "the sandbox of that idempotency key is gone")
                return earlier
        snapshot = self.find_snapshot(owner, asked.template)
        if snapshot is None:
            await self.require_alias(asked.template)
        record = self._record(owner, asked, snapshot)
        live = self._sandboxes.add(replace(record, request_key=key, request_digest=digest))
        async with live.lock:
            try:
                await live.save()
                made = await self._start(live, snapshot)
                await self._settle(live, made)
                live.adopt(made.sandbox)
                await self._sandboxes.begin(live, asked.timeout_s)
            except BaseException:
                await to_the_end(self._sandboxes.undo(live))
                raise
        if asked.template in (interpreter.TEMPLATE, interpreter.IMAGE):
            # After a boot it does not run yet: later clients wait less.
            self._sandboxes.tasks.start(_prepare(live), f"api-interpreter-{live.id}")
        return live

    async def require_alias(self, template: str) -> None:
        """Checks a template that clients' libraries name by themselves. Raises ApiError if it is
        not here: 404 if it is an alias for an image that can be built, 501 for others."""
        if template != interpreter.TEMPLATE and template not in not_here.TEMPLATES:
            return
        image = self._image_of(template)
        if not await self._machines.has_image(image):
            if template == interpreter.TEMPLATE:
                raise interpreter.no_image()
            raise not_here.not_here(not_here.TEMPLATES[template])

    def _image_of(self, template: str) -> str:
        return {BASE: self._usual.image, interpreter.TEMPLATE: interpreter.IMAGE}.get(
            template, template
        )

    async def _start(self, live: Live, snapshot: SnapshotRecord | None) -> Made:
        if snapshot is None:

            async def placed(host: str, machine_id: str) -> None:
                # The next server finds it there, if this one is killed now.
                await live.save(host=host, machine_id=machine_id)

            return await self._machines.start(
                live.record, self._image_of(live.record.template), placed
            )
        source = self._sandboxes.of_snapshot(snapshot).record
        await live.save(host=source.host, machine_id=source.machine_id)
        made = await self._machines.clone(
            source, [live.record], at=snapshot.tag, memory=snapshot.has_memory
        )
        return made[0]

    async def _settle(self, live: Live, made: Made) -> None:
        """Sees to the user of a sandbox, and notes the size of its disk."""
        user = await _require_user(made.sandbox)
        info = await made.sandbox.request("info")
        disk = info.get("disk")
        total = disk.get("total") if isinstance(disk, dict) else 0
        disk_mb = total >> 20 if isinstance(total, int) else 0
        await live.save(user=user, disk_mb=min(disk_mb, 2**40), sandbox_id=made.id)

    async def fork(self, live: Live, count: int, timeout_s: float) -> list[Live]:
        """Makes sandboxes that go on from the present state of a running one: all or none."""
        if not 1 <= count <= FORKS_MAX:
            raise ApiError(400, f"count must be from 1 to {FORKS_MAX}")
        self._inherited(live)
        made: list[Live] = []
        for _ in range(count):
            record = replace(
                live.record,
                id=new_id(),
                state=State.MAKING,
                created=time.time(),
                token=new_token(),
                traffic_token=new_token(),
                request_key="",
                request_digest="",
                shows_id=False,
                sandbox_id="",
            )
            made.append(self._sandboxes.add(record))
        async with contextlib.AsyncExitStack() as locks:
            for clone in made:
                await locks.enter_async_context(clone.lock)
            try:
                await self._clone(live, made, timeout_s)
            except BaseException:
                for clone in made:
                    await to_the_end(self._sandboxes.undo(clone))
                raise
        return made

    async def _clone(self, live: Live, made: list[Live], timeout_s: float) -> None:
        for clone in made:
            await clone.save()
        records = [clone.record for clone in made]
        async with live.lock:
            clones = await self._machines.clone(live.record, records, at=None, memory=True)
        for clone, one in zip(made, clones, strict=True):
            await clone.save(sandbox_id=one.id)
            clone.adopt(one.sandbox)
            await self._sandboxes.begin(clone, timeout_s)

    async def snapshot(self, live: Live, name: str, *, memory: bool) -> SnapshotRecord:
        """Keeps the present state of a running sandbox, which goes on."""
        record = SnapshotRecord(
            id=new_id(),
            owner=live.record.owner,
            name=name,
            source=live.id,
            created=time.time(),
            is_whole=False,
            has_memory=memory,
            template=live.record.template,
            user=live.record.user,
            cpus=live.record.cpus,
            memory_mb=live.record.memory_mb,
            disk_mb=live.record.disk_mb,
        )
        self._sandboxes.snapshots[record.id] = record
        try:
            await self._sandboxes.records.save(record)
            async with live.lock:
                await self._machines.checkpoint(live.record, record.tag)
            whole = replace(record, is_whole=True)
            await self._sandboxes.records.save(whole)
        except BaseException:
            await to_the_end(self._sandboxes.undo_snapshot(record))
            raise
        self._sandboxes.snapshots[record.id] = whole
        return whole

    def find_snapshot(self, owner: str, name: str) -> SnapshotRecord | None:
        """Returns the snapshot of that id, or else the latest of that name."""
        whole = [
            found
            for found in self._sandboxes.snapshots.values()
            if found.is_whole and found.owner == owner and name in (found.id, found.name)
        ]
        return max(whole, key=lambda found: found.created, default=None)

    def _made_by(self, owner: str, key: str) -> Live | None:
        for live in self._sandboxes:
            if live.record.owner == owner and live.record.request_key == key:
                return live
        return None

    def _record(self, owner: str, asked: Asked, snapshot: SnapshotRecord | None) -> SandboxRecord:
        size = snapshot or self._usual
        return SandboxRecord(
            id=new_id(),
            owner=owner,
            template=asked.template,
            state=State.MAKING,
            created=time.time(),
            ends=time.time() + asked.timeout_s,
            on_timeout=asked.on_timeout,
            auto_resume=asked.auto_resume,
            pauses_memory=asked.pauses_memory,
            token=new_token(),
            traffic_token=new_token(),
            is_public=asked.network.is_public,
            internet=self._internet(asked.network.egress, snapshot),
            cpus=size.cpus,
            memory_mb=size.memory_mb,
            disk_mb=0,
            metadata=asked.metadata,
            env=asked.env,
            network=asked.network.told(),
            host_mask=asked.network.host_mask,
        )

    def _internet(self, egress: Egress, snapshot: SnapshotRecord | None) -> bool:
        """Whether a new sandbox has the internet. Raises ApiError (501) for rules it would not
        keep."""
        if snapshot is None:
            has_internet = egress.internet and self._usual.internet
        else:
            has_internet = self._inherited(self._sandboxes.of_snapshot(snapshot))
        require_kept(egress, has_internet=has_internet)
        return has_internet

    def _inherited(self, source: Live) -> bool:
        """Whether a descendant of a sandbox, which has its machine, has the internet. Raises
        ApiError (403) if no new sandbox of this server may have it."""
        if source.record.internet and not self._usual.internet:
            raise ApiError(
                403,
                "what that is made of has the internet, which this server gives to none: it was "
                "started without --internet",
            )
        return source.record.internet

    async def set_egress(self, live: Live, egress: Egress) -> None:
        """Replaces the rules for the addresses that a sandbox may reach. Raises ApiError (501) for
        rules that it would not keep."""
        async with live.lock:
            record = live.record
            require_kept(egress, has_internet=record.internet)
            if self._usual.internet and not record.internet and egress.internet:
                raise ApiError(501, "a sandbox that has no internet gets none: make one that has")
            await live.save(network=changed(record.network, egress))


async def _require_user(sandbox: Sandbox) -> str:
    """Makes the user whom clients expect, if the guest lacks that user; returns the user for
    requests that name none."""
    try:
        await sandbox.find_user(USER)
        return USER
    except AgentRefusedError as error:
        if error.code != "not_found":
            raise
    for sudo in (True, False):
        try:
            await sandbox.create_user(USER, sudo=sudo)
            return USER
        except AgentRefusedError:
            continue
    return ROOT


async def _prepare(live: Live) -> None:
    live.enter()
    try:
        await live.guest().interpreter.prepare()
    finally:
        live.leave()


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
