"""Starts and ends Ray's processes on this machine: the head, and one raylet for each machine of a
fleet that is here. Blocks."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from quicksand.errors import FleetError, HostError
from quicksand.extending import (
    TEMPORARY,
    append_to_file,
    create_file,
    is_process,
    make_marked,
    make_private_dir,
    map_os_errors,
    printable,
    read_file,
    remove_tree,
    send_signal,
)

from quicksand_fleet.over_ray.cluster_record import (
    HEALTH_PERIOD_S,
    LOOPBACK,
    MARK,
    ClusterRecord,
    resource_of,
)
from quicksand_fleet.over_ray.ray_processes import processes_of_cluster
from quicksand_fleet.remedies import GET_RAY

LAUNCHING = "quicksand_fleet.over_ray.launching"
OBJECT_STORE = 80_000_000
"""Bytes of shared memory for Ray's objects, of which we have none. By default Ray takes a third of
the machine's memory, and it refuses less than 78,643,200."""

SANDBOXES_MAX = 10_000
"""The most sandboxes that Ray counts on one machine; memory is the real bound."""

HEAD = {"quicksand_head": 1.0}
"""The resource of Ray that only the head has."""

START_S = 60.0
"""Seconds that Ray may take to start; it takes 2 to 5 here, and longer under load."""

END_S = 5.0
"""Seconds from SIGTERM to SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """The facts that the raylet of a local machine of the fleet needs."""

    machine_id: str
    memory_bytes: int
    """Bytes that its sandboxes together may have."""
    environment: Mapping[str, str]
    """Variables besides our own: its directories, its budget."""


def require_ray() -> None:
    """Raise FleetError if Ray is not installed."""
    if find_spec("ray") is None:
        raise FleetError(
            "Ray is not installed, which this fleet stands on",
            hint=GET_RAY,
        )


def ray_root() -> Path:
    """Return the directory of all clusters of this user. It is near the root because Ray's sockets
    have paths of 64 characters in it, and 107 are allowed (unix(7))."""
    return TEMPORARY / f"quicksand-ray-{os.getuid()}"


def new_cluster(*, health_period_s: float = HEALTH_PERIOD_S) -> ClusterRecord:
    """Make the directory and the secret of a cluster. Raises HostError, FleetError without Ray."""
    require_ray()
    id_ = secrets.token_hex(6)
    directory = make_private_dir(ray_root()) / id_
    record = ClusterRecord(
        id=id_,
        address=f"{LOOPBACK}:{_free_port()}",
        directory=directory,
        health_period_s=health_period_s,
    )
    with map_os_errors(directory):
        make_marked(directory)
        with create_file(record.token) as file:
            file.write(secrets.token_hex(32).encode("ascii"))
    return record


def _free_port() -> int:
    """Return a port that is free now; Ray does not start if it is taken meanwhile."""
    with socket.socket() as trial:
        trial.bind((LOOPBACK, 0))
        port: int = trial.getsockname()[1]
        return port


def start_head(record: ClusterRecord) -> None:
    """Start the head, which takes no sandboxes. Raises FleetError; then nothing of it is left."""
    _, _, port = record.address.rpartition(":")
    words = ["--head", "--port", port, "--temp-dir", str(record.directory)]
    words += ["--include-dashboard", "false", "--resources", json.dumps(HEAD)]
    _launch(record, words, {})


def start_seat(record: ClusterRecord, seat: Seat) -> None:
    """Start the raylet of a local machine. Raises FleetError. The caller must not start two at
    once: now and then both take the same port and fail."""
    resources = {"sandbox": SANDBOXES_MAX, resource_of(seat.machine_id): 1}
    words = ["--address", record.address, "--resources", json.dumps(resources)]
    words += ["--memory", str(seat.memory_bytes)]
    _launch(record, words, seat.environment)


def _launch(record: ClusterRecord, words: Sequence[str], environment: Mapping[str, str]) -> None:
    argv = [
        *(sys.executable, "-P", "-m", LAUNCHING, LOOPBACK, "start"),
        *("--node-ip-address", LOOPBACK, "--num-cpus", "0", "--num-gpus", "0"),
        *("--object-store-memory", str(OBJECT_STORE), "--include-log-monitor", "false"),
        *("--disable-usage-stats", "--log-style", "record", "--log-color", "false", *words),
    ]
    # Ray's processes keep our output open: it must be a file, or reading it would never end.
    log = record.directory / "start.log"
    with map_os_errors(log), append_to_file(log) as output:
        began = output.tell()
        try:
            done = subprocess.run(
                argv,
                env={**os.environ, **record.environment(), **environment, MARK: record.id},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                timeout=START_S,
                start_new_session=True,
            )
        except subprocess.TimeoutExpired:
            raise _not_started(f"it took longer than {START_S:g} s", log, began) from None
    if done.returncode:
        raise _not_started(f"exit code {done.returncode}", log, began)


def _not_started(why: str, log: Path, began: int) -> FleetError:
    said = read_file(log)[began:].decode("utf-8", "replace").strip().splitlines()
    last = printable(said[-1])[:300] if said else "it said nothing"
    return FleetError(f"Ray did not start ({why}): {last}", hint=f"{log} has all that it said")


# Ending


def end_processes(record: ClusterRecord, *, of: Seat | None = None) -> None:
    """End the processes of `processes_of_cluster`, and wait until they are gone. Raises HostError
    if some stay."""
    having = None if of is None else of.environment
    found = processes_of_cluster(record, having=having)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + END_S
        for pid, started in found:
            send_signal(pid, started, number)
            send_signal(pid, started, signal.SIGCONT)
        while found and time.monotonic() < deadline:
            time.sleep(0.05)
            # This includes children that have lost their parents.
            found = [one for one in found if is_process(*one)] or processes_of_cluster(
                record, having=having
            )
        if not found:
            return
    raise HostError(f"processes of Ray did not end: {', '.join(str(pid) for pid, _ in found)}")


def end_cluster(record: ClusterRecord) -> None:
    """End all processes of a cluster on this machine, and remove its directory. Sandboxes run on.
    Idempotent. Raises HostError."""
    end_processes(record)
    with map_os_errors(record.directory):
        remove_tree(record.directory)
