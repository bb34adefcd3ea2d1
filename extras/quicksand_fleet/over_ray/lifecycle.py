"""Brings a fleet over Ray up and down, and opens it."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from quicksand.errors import FleetError
from quicksand.extending import (
    NODE_SCHEME,
    Paths,
    Remedy,
    Words,
    describe_error,
    fleet_dir,
    machine_id,
    make_private_dir,
    note,
)

from quicksand_fleet.interface import BackEnd
from quicksand_fleet.node import NodeDestination
from quicksand_fleet.over_ray.back_end import Member, OverRay
from quicksand_fleet.over_ray.cluster import (
    Seat,
    end_cluster,
    new_cluster,
    require_ray,
    start_head,
    start_seat,
)
from quicksand_fleet.over_ray.cluster_record import (
    ADDRESS_VARIABLE,
    HEALTH_PERIOD_S,
    NAME_VARIABLE,
    ClusterRecord,
)
from quicksand_fleet.over_ray.desk_client import DeskClient
from quicksand_fleet.record import (
    RAY,
    FleetRecord,
    NodeRecord,
    changing_fleet,
    read_fleet,
    set_drained,
    write_fleet,
)


def open_back_end(record: FleetRecord, ours: Paths) -> BackEnd:
    """Open a fleet over Ray. An event loop must run. Raises FleetError."""
    require_ray()
    return OverRay(
        lambda changed: DeskClient(lambda: _cluster_of(ours), changed),
        [_member_of(node, ours) for node in record.nodes],
        read_drained=lambda: (read_fleet(ours) or FleetRecord()).drained,
        write_drained=lambda name, on: set_drained(ours, name, on=on),
        place=make_private_dir(fleet_dir(ours)),
    )


def _cluster_of(ours: Paths) -> ClusterRecord:
    """Return the cluster of the fleet that is up. Raises FleetError."""
    record = read_fleet(ours)
    if record is None or record.back_end != RAY:
        raise FleetError(
            "the fleet is down",
            hint=Words(
                Words(Remedy("fleet_up_ray"), python="the command `fleet up`"), " brings one up"
            ),
        )
    return ClusterRecord.from_json(record.more)


def _member_of(node: NodeRecord, ours: Paths) -> Member:
    node.require_ours(ours)
    return Member(
        machine_id=machine_id(node.paths(ours)),
        name=node.name,
        address=f"{NODE_SCHEME}{node.name}",
    )


def seat_of(node: NodeRecord, ours: Paths) -> Seat:
    """Return the facts that the raylet of a local node needs. Raises PathError."""
    node.require_ours(ours)
    environment = NodeDestination.of(node, ours).environment()
    address = f"{NODE_SCHEME}{node.name}"
    return Seat(
        machine_id=machine_id(node.paths(ours)),
        memory_bytes=node.memory_bytes,
        environment={**environment, NAME_VARIABLE: node.name, ADDRESS_VARIABLE: address},
    )


def start_ray(ours: Paths, *, health_period_s: float = HEALTH_PERIOD_S) -> FleetRecord:
    """Start a head, and a raylet for each local node of the fleet that is up, so that Ray keeps
    places on them. A Ray that runs, or has run, is replaced; no sandbox is touched. Blocks. Raises
    FleetError, HostError; nothing of Ray runs then. If this process is killed, `end_ray` ends what
    it has begun."""
    require_ray()
    with changing_fleet(ours):
        record = read_fleet(ours)
        if record is None or not record.nodes:
            raise FleetError(
                "there are no local nodes for Ray to keep",
                hint=Words(
                    Words(Remedy("fleet_up_ray_local"), python="the command `fleet up`"),
                    " makes some",
                ),
            )
        end_ray(ours)
        cluster = new_cluster(health_period_s=health_period_s)
        with contextlib.ExitStack() as undo:
            undo.callback(end_cluster, cluster)
            record = replace(record, back_end=RAY, more=cluster.to_json())
            write_fleet(ours, record)
            start_head(cluster)
            for node in record.nodes:
                start_seat(cluster, seat_of(node, ours))
            undo.pop_all()
    return record


def end_ray(ours: Paths) -> None:
    """End Ray on this machine, if it carries the fleet that is up. Blocks. Raises FleetError,
    HostError."""
    record = read_fleet(ours)
    if record is None or record.back_end != RAY:
        return
    try:
        cluster = ClusterRecord.from_json(record.more)
    except FleetError as error:
        note(ours.engine_log, f"Ray is not ended: {describe_error(error)}")
        return
    end_cluster(cluster)
