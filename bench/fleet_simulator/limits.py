"""Figures that need no events: a fleet's needs on each machine, the limits that it meets, and the
time for an image to reach all hosts."""

from __future__ import annotations

import math
from dataclasses import dataclass

MIB_PER_S = 112
"""The rate of 1 Gbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Measurements of bench/costs.py: MiB of PSS, and counts, for each sandbox or connection."""

    vm_mib: float = 37.2 + 6.0 + 13.5
    """QEMU of an idle guest of 128M from a template, one of eight; keeper; forwarder."""
    vm_threads: float = 7.5 + 1 + 1
    vm_descriptors: int = 128 + 14 + 13
    list_ms: float = 0.28
    """The registry's list, for each sandbox on disk."""

    client_mib: float = 40.0
    """A client without any connection."""
    ssh_mib: float = 1.7
    """A client's ssh, for each connection; its own memory for each was too small to measure."""
    client_descriptors: int = 3
    serve_mib: float = 22.8 + 2.5
    """A host's far end that tells what changes, and its sshd, for each client."""
    image_mib: float = 117.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A resource with a bound."""

    name: str
    takes: float
    has: float
    source: str

    @property
    def is_met(self) -> bool:
        return self.takes > self.has


def client_limits(hosts: int, parts: Parts) -> list[Limit]:
    """Return the limits of a client that is connected to all hosts."""
    descriptors = 20 + parts.client_descriptors * hosts
    memory = parts.client_mib + parts.ssh_mib * hosts
    rows = (
        ("descriptors of the client", descriptors, 1024, "the usual soft RLIMIT_NOFILE"),
        ("processes and threads of its user", 4 + 2 * hosts, 31_000, "RLIMIT_NPROC, 8 GiB"),
        ("MiB for the client and its ssh", memory, 2048, "a quarter of 8 GiB"),
        ("ports to one jump host", hosts, 28_232, "net.ipv4.ip_local_port_range"),
    )
    return [Limit(name=name, takes=takes, has=has, source=why) for name, takes, has, why in rows]


def host_limits(clients: int, sandboxes: int, memory_mib: float, parts: Parts) -> list[Limit]:
    """Return the limits of a host with so many connected ``clients``, and ``sandboxes``."""
    far_ends = parts.serve_mib * clients
    threads = 300 + 4 * clients + parts.vm_threads * sandboxes
    files = 16 * clients + parts.vm_descriptors * sandboxes
    rows = (
        ("clients that connect at once", clients, 10, "MaxStartups 10:30:100 of sshd"),
        ("inotify instances of far ends", clients, 128, "fs.inotify.max_user_instances"),
        ("MiB for far ends", far_ends, 2048, "what is kept from sandboxes"),
        ("MiB for all", far_ends + parts.vm_mib * sandboxes, memory_mib, "idle guests of 128M"),
        ("processes and threads", threads, 32_768, "kernel.pid_max; 4,194,304 with systemd"),
        ("open files", files, 1_000_000, "fs.file-max with 16 GiB"),
        ("ports of forwards", sandboxes, 28_232, "net.ipv4.ip_local_port_range, one each"),
        ("sandboxes that a client is shown", sandboxes, 5000, "door/far_lines.py"),
    )
    return [Limit(name=name, takes=takes, has=has, source=why) for name, takes, has, why in rows]


def first_list_s(hosts: int, on_disk: float, connect_s: float, at_once: int, parts: Parts) -> float:
    """Return the seconds until a client without connections has a list of all: to connect, and each
    host's own list, all hosts at the same time."""
    return math.ceil(hosts / at_once) * connect_s + parts.list_ms * on_disk / 1000


def image_by_star_s(hosts: int, mib: float) -> float:
    """Seconds in which one machine sends an image to all hosts."""
    return hosts * mib / MIB_PER_S


def image_by_tree_s(hosts: int, mib: float) -> float:
    """The same if each host that has it sends it on, to one other at a time."""
    return math.ceil(math.log2(hosts + 1)) * mib / MIB_PER_S
