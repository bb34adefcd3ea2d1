"""What needs no events: what a fleet of some size takes of each machine, which limit that meets, and
how long an image takes to reach all hosts."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB_PER_S = 112
"""What 1 Gbit/s carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What bench/costs.py measured: MiB of PSS, and counts, for each sandbox or connection."""

    vm_mib: float = 37.2 + 6.0 + 13.5
    """QEMU of an idle guest of 128M from a template, one of eight; keeper; forwarder."""
    vm_processes: int = 3
    vm_threads: float = 7.5 + 1 + 1
    vm_descriptors: int = 128 + 14 + 13
    vm_sockets: int = 51 + 2 + 7
    list_ms: float = 0.28
    """The registry's list, for each sandbox on disk."""

    client_mib: float = 40.0
    """A client without any connection."""
    ssh_mib: float = 1.7
    """A client's ssh, for each connection; its own memory for each was too little to be seen."""
    client_descriptors: int = 3
    client_threads: int = 1
    serve_mib: float = 22.8 + 2.5
    """A host's far end that tells what changes, and its sshd, for each client."""
    serve_processes: int = 2
    image_mib: float = 117.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """Something that there is only so much of."""

    name: str
    takes: float
    has: float
    source: str

    @property
    def is_met(self) -> bool:
        return self.takes > self.has


def client_limits(hosts: int, parts: Parts) -> list[Limit]:
    """What a client meets that is connected to all hosts."""
    return [
        Limit(name="descriptors of the client (soft limit)", takes=20 + parts.client_descriptors * hosts,
              has=1024, source="the usual soft RLIMIT_NOFILE"),
        Limit(name="processes of its user", takes=hosts, has=15_000,
              source="a usual RLIMIT_NPROC, 8 GiB of memory"),
        Limit(name="threads of the client", takes=4 + parts.client_threads * hosts, has=15_000,
              source="the same"),
        Limit(name="MiB for the client and its ssh", takes=parts.client_mib + parts.ssh_mib * hosts,
              has=2048, source="a quarter of a machine of 8 GiB"),
        Limit(name="connections through one address", takes=hosts, has=28_232,
              source="net.ipv4.ip_local_port_range, to one jump host"),
    ]  # fmt: skip


def host_limits(clients: int, sandboxes: int, memory_mib: float, parts: Parts) -> list[Limit]:
    """What a host meets with so many ``clients`` that are connected, and ``sandboxes``."""
    vms = parts.vm_descriptors * sandboxes
    return [
        Limit(name="clients that connect at once", takes=clients, has=10,
              source="sshd's MaxStartups 10:30:100; from 100 on none gets in"),
        Limit(name="MiB for far ends", takes=parts.serve_mib * clients, has=2048,
              source="what is kept from sandboxes"),
        Limit(name="MiB for far ends and idle sandboxes",
              takes=parts.serve_mib * clients + parts.vm_mib * sandboxes, has=memory_mib,
              source="the host's memory"),
        Limit(name="processes and threads",
              takes=300 + clients * 4 + parts.vm_threads * sandboxes, has=32_768,
              source="kernel.pid_max of a small kernel; 4,194,304 with systemd"),
        Limit(name="open files of all", takes=vms + 16 * clients, has=1_000_000,
              source="fs.file-max is more on any machine of 16 GiB"),
        Limit(name="inotify watches' owners", takes=clients, has=128,
              source="fs.inotify.max_user_instances, all clients one user"),
        Limit(name="ports of forwards", takes=sandboxes, has=28_232,
              source="net.ipv4.ip_local_port_range, one each"),
        Limit(name="sandboxes that a client can be shown of it", takes=sandboxes, has=5000,
              source="door/far_wire.py"),
    ]  # fmt: skip


def first_list_s(hosts: int, on_disk: float, connect_s: float, at_once: int, parts: Parts) -> float:
    """Seconds until a client without connections has a list of all: to connect, and each host's
    own list, all hosts at the same time."""
    return math.ceil(hosts / at_once) * connect_s + parts.list_ms * on_disk / 1000


def image_by_star_s(hosts: int, mib: float) -> float:
    """Seconds in which one machine sends an image to all hosts."""
    return hosts * mib / MIB_PER_S


def image_by_tree_s(hosts: int, mib: float) -> float:
    """The same if each host that has it sends it on, to one other at a time."""
    return math.ceil(math.log2(hosts + 1)) * mib / MIB_PER_S
