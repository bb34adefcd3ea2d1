"""A fleet over a real Ray: three raylets on this machine, 300 sandboxes that are none, chaos.

Sandboxes are imitated by what a machine counts: a directory whose lock is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths
from quicksand.base.processes import PROC
from quicksand.records.layout import sandbox_dir
from quicksand_fleet.fleet import Fleet
from quicksand_fleet.interface import HostState, Need, Reservation
from quicksand_fleet.nodes import end_fleet, make_nodes
from quicksand_fleet.over_ray.cluster import ray_root, start_seat
from quicksand_fleet.over_ray.cluster_record import ClusterRecord
from quicksand_fleet.over_ray.lifecycle import end_ray, seat_of, start_ray
from quicksand_fleet.over_ray.ray_processes import parent_of, processes_of_cluster
from quicksand_fleet.record import FleetRecord, read_fleet, write_fleet

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="needs the extra `fleet` (Ray, 240 MB): pip install -e '.[fleet]'",
    ),
]

MANY = 300
SMALL = Need(memory_bytes=1)
BUDGET = 64 * 1024**3
WAIT_S = 120.0


@dataclass
class Up:
    """The fleet that is up."""

    record: FleetRecord
    places: Paths

    @property
    def cluster(self) -> ClusterRecord:
        found = read_fleet(self.places)
        assert found is not None
        return ClusterRecord.from_json(found.more)

    def raylet(self, number: int) -> int:
        """The process of the raylet of a node."""
        seat = seat_of(self.record.nodes[number], self.places)
        pids = {pid for pid, _ in processes_of_cluster(self.cluster, having=seat.environment)}
        return next(pid for pid in pids if parent_of(pid) not in pids)

    def start_again(self, number: int) -> None:
        """Start a raylet of a node."""
        start_seat(self.cluster, seat_of(self.record.nodes[number], self.places))


@pytest.fixture
def up(places: Paths) -> Iterator[Up]:
    record = make_nodes(places, 3)
    # So many sandboxes have more memory, by the books, than this machine has.
    nodes = tuple(replace(node, memory_bytes=BUDGET) for node in record.nodes)
    record = replace(record, nodes=nodes)
    write_fleet(places, record)
    try:
        start_ray(places, health_period_s=1)
        yield Up(record, places)
    finally:
        found = read_fleet(places)
        end_ray(places)
        asyncio.run(end_fleet(places, told=lambda _: None))
    if found is not None and found.more:
        cluster = ClusterRecord.from_json(found.more)
        assert not processes_of_cluster(cluster)
        assert not cluster.directory.exists()
    assert not [entry for entry in PROC.iterdir() if _is_worker(entry.name)]


def _is_worker(pid: str) -> bool:
    """Whether a process is one of Ray's with files in our directories."""
    with contextlib.suppress(OSError):
        if pid.isdecimal():
            return (PROC / pid / "fd" / "2").readlink().is_relative_to(ray_root())
    return False


UNEVEN_MAX = 3
"""Sandboxes that one machine may have more than another. They would all have as many if each client
asked the best; of two drawn ones it differs by up to 2."""


class Guests:
    """Sandboxes that are none."""

    def __init__(self, up: Up) -> None:
        self._up = up
        self._locks: dict[str, tuple[str, int]] = {}

    def begin(self, host: str) -> str:
        """Begin one on a node; return its id."""
        id_ = os.urandom(6).hex()
        node = next(one for one in self._up.record.nodes if one.name == host)
        lock = sandbox_dir(node.paths(self._up.places), id_).lock
        lock.parent.mkdir(parents=True, mode=0o700)
        descriptor = try_lock(lock)
        assert descriptor is not None
        self._locks[id_] = (host, descriptor)
        return id_

    def end(self, id_: str) -> None:
        host, descriptor = self._locks.pop(id_)
        os.close(descriptor)
        node = next(one for one in self._up.record.nodes if one.name == host)
        directory = sandbox_dir(node.paths(self._up.places), id_)
        directory.lock.unlink()
        directory.lock.parent.rmdir()


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Fleet]:
    async with Fleet.open() as fleet:
        await until(fleet, lambda: all(one.takes_new for one in fleet.hosts()), "all are ready")
        yield fleet


async def until(fleet: Fleet, condition: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"{what} did not become true: {fleet.hosts()}")


def state_of(fleet: Fleet, number: int) -> HostState:
    return fleet.hosts()[number].state


async def place(fleet: Fleet, count: int) -> Sequence[Reservation]:
    return await asyncio.gather(*(fleet.reserve(SMALL, timeout_s=WAIT_S) for _ in range(count)))


def figure(what: str, began: float) -> None:
    """Print a figure: run with -s to see it."""
    print(f"{what}: {time.monotonic() - began:.2f} s (load {os.getloadavg()[0]:.1f})")


async def test_300_sandboxes_through_the_loss_of_a_node_and_of_the_head(up: Up) -> None:
    guests = Guests(up)
    async with opened() as fleet:
        began = time.monotonic()
        found = await place(fleet, MANY)
        figure(f"{MANY} placed", began)
        # Each has one machine, and none is crowded: the better of two drawn ones was asked.
        assert len({one.id for one in found}) == MANY
        counts = Counter(one.host for one in found)
        assert len(counts) == 3 and max(counts.values()) - min(counts.values()) <= UNEVEN_MAX
        began = time.monotonic()
        fleet.hosts()
        figure("listed", began)
        await until(fleet, lambda: reserved(fleet) == MANY, "Ray tells of all places")

        ids = [guests.begin(one.host) for one in found]
        pairs = zip(found, ids, strict=True)
        await asyncio.gather(*(fleet.confirm(one, id_) for one, id_ in pairs))
        await until(fleet, lambda: reserved(fleet) == 0, "machines count their sandboxes")

        # A machine is lost: that is shown, its places are kept for it, the others go on.
        began = time.monotonic()
        os.kill(up.raylet(0), signal.SIGKILL)
        await until(fleet, lambda: state_of(fleet, 0) is HostState.UNREACHABLE, "it is shown")
        figure("killed node shown", began)
        assert fleet.hosts()[0].memory_bytes == BUDGET
        other = await fleet.reserve(SMALL, timeout_s=WAIT_S)
        assert other.host != "node-1"
        await fleet.release(other)
        await asyncio.to_thread(up.start_again, 0)
        await until(fleet, lambda: state_of(fleet, 0) is HostState.READY, "it is back")

        # The head is lost and replaced: it learns from the machines' disks.
        began = time.monotonic()
        await asyncio.to_thread(start_ray, up.places, health_period_s=1)
        figure("head and all raylets replaced", began)
        await until(fleet, lambda: kept_by_ray(fleet) == MANY, "the new head knows all places")
        figure("all places known again", began)

        # They end, one half while nobody says so.
        for one, id_ in list(zip(found, ids, strict=True))[::2]:
            guests.end(id_)
            await fleet.release(one)
        for id_ in ids[1::2]:
            guests.end(id_)
        began = time.monotonic()
        await until(fleet, lambda: kept_by_ray(fleet) == 0, "the books are balanced")
        figure("balanced", began)


def reserved(fleet: Fleet) -> int:
    """How many places no sandbox has yet, as Ray tells it."""
    state = fleet._back_end._client.state  # type: ignore[attr-defined]
    kept = {id_ for look in state.looks.values() for id_ in look.get("kept", ())}
    return sum(one.id not in kept for one in state.places)


def kept_by_ray(fleet: Fleet) -> int:
    state = fleet._back_end._client.state  # type: ignore[attr-defined]
    return len(state.places) if not state.error else -1


async def test_a_frozen_node_is_shown_and_thaws(up: Up) -> None:
    async with opened() as fleet:
        (one,) = await place(fleet, 1)
        number = int(one.host[-1]) - 1
        raylet = up.raylet(number)
        began = time.monotonic()
        os.kill(raylet, signal.SIGSTOP)
        try:
            await until(
                fleet, lambda: state_of(fleet, number) is HostState.UNREACHABLE, "it is shown"
            )
            figure("frozen node shown", began)
        finally:
            os.kill(raylet, signal.SIGCONT)
        # Ray took it for dead: it ends by itself, and its machine begins another one.
        await until(fleet, lambda: not (PROC / str(raylet)).exists(), "the raylet has ended")
        await asyncio.to_thread(up.start_again, number)
        await until(fleet, lambda: state_of(fleet, number) is HostState.READY, "it is back")
        await fleet.release(one)
        await until(fleet, lambda: kept_by_ray(fleet) == 0, "nothing is kept")
