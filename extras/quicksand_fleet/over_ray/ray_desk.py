"""Ray as a `Desk`: the calls of it that we need, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import (
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from quicksand_fleet.over_ray.cluster_record import (
    LOOPBACK,
    NAMESPACE,
    ClusterRecord,
    machine_of,
    resource_of,
)
from quicksand_fleet.over_ray.desk import DeskError, Place
from quicksand_fleet.over_ray.host_actor import Host
from quicksand_fleet.over_ray.launching import keep_address

LITTLE = 0.0001
"""The amount of a machine's own resource that each of its places and its actor takes."""
ANSWER_S = 10.0
"""Seconds within which an actor must answer. Calls to a machine that is away would wait for
ever."""
CONCURRENCY = 64


def connect(record: ClusterRecord) -> None:
    """Connect this process to a cluster; its environment must be that of the record. It may wait
    for ever for a head that is gone."""
    keep_address(LOOPBACK)
    ray.init(
        address=record.address,
        namespace=NAMESPACE,
        log_to_driver=False,
        configure_logging=False,
        _node_ip_address=LOOPBACK,
    )


class RayDesk:
    """Ray, once this process is connected to it (`Desk`)."""

    def __init__(self) -> None:
        self._hosts: dict[str, Any] = {}
        self._groups: dict[str, Any] = {}
        """The groups of places that this process has taken."""

    async def machines(self) -> Collection[str]:
        """See `Desk.machines`."""
        nodes = await _in_thread(ray.nodes)
        found = (machine_of(node["Resources"]) for node in nodes if node["Alive"])
        return {machine_id for machine_id in found if machine_id}

    async def places(self) -> Sequence[Place]:
        """See `Desk.places`."""
        table = await _in_thread(placement_group_table)
        return [place for one in table.values() if (place := _place_of(one)) is not None]

    async def take(self, place: Place, *, timeout_s: float) -> bool:
        """See `Desk.take`."""
        bundle: dict[str, float] = {
            "memory": place.memory_bytes,
            "sandbox": 1,
            resource_of(place.machine_id): LITTLE,
        }
        taking = asyncio.ensure_future(_in_thread(_take, place.name, bundle, timeout_s))
        try:
            group = await asyncio.shield(taking)
        except asyncio.CancelledError:
            await asyncio.wait([taking])
            if not taking.exception() and (group := taking.result()) is not None:
                await _in_thread(remove_placement_group, group)
            raise
        if group is not None:
            self._groups[place.id] = group
        return group is not None

    async def give_back(self, id_: str) -> None:
        """See `Desk.give_back`."""
        group = self._groups.pop(id_, None)
        if group is not None:
            await _in_thread(remove_placement_group, group)
            return
        for place in await self.places():
            if place.id == id_:
                await _in_thread(_remove_named, place.name)

    async def ask(self, machine_id: str, method: str, *args: Any) -> Any:
        """See `Desk.ask`."""
        try:
            async with asyncio.timeout(ANSWER_S):
                if machine_id not in self._hosts:
                    self._hosts[machine_id] = await _in_thread(_host_of, machine_id)
                return await getattr(self._hosts[machine_id], method).remote(*args)
        except (RayError, TimeoutError, ValueError) as error:
            self._hosts.pop(machine_id, None)
            why = "its part of Ray does not answer"
            raise DeskError(why) from error


async def _in_thread(function: Any, *args: Any) -> Any:
    """Make a blocking call in a thread. Raises DeskError."""
    try:
        return await asyncio.to_thread(function, *args)
    except (RayError, TimeoutError, ValueError, RuntimeError) as error:
        raise DeskError(f"{type(error).__name__}: {error}") from error


def _take(name: str, bundle: dict[str, float], timeout_s: float) -> Any:
    """Make a group, and wait until it has its place; remove it and return None if it gets none."""
    group = placement_group([bundle], strategy="STRICT_PACK", name=name, lifetime="detached")
    is_placed = False
    try:
        is_placed = group.wait(timeout_s)
    finally:
        if not is_placed:
            remove_placement_group(group)
    return group if is_placed else None


def _remove_named(name: str) -> None:
    try:
        group = get_placement_group(name)
    except ValueError:
        return  # it is gone
    remove_placement_group(group)


def _place_of(told: dict[str, Any]) -> Place | None:
    bundle: dict[str, float] = next(iter(told["bundles"].values()), {})
    machine_id = machine_of(bundle)
    if told["state"] == "REMOVED" or not machine_id:
        return None
    size = int(bundle.get("memory", 0))
    return Place.parse(str(told["name"]), machine_id, size, is_placed=told["state"] == "CREATED")


def _host_of(machine_id: str) -> Any:
    """Return the actor of a machine, made if there is none. It is bound to the machine's own
    resource, not to Ray's id of a node: so Ray restarts it when the machine comes back."""
    actor: Any = ray.remote(Host)
    return actor.options(
        name=f"host-{machine_id}",
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_concurrency=CONCURRENCY,
        num_cpus=0,
        resources={resource_of(machine_id): LITTLE},
    ).remote(RayDesk, machine_id)
