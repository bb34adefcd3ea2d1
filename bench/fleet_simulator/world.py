"""The truth on the hosts, known or not: machines, their memory, and where each sandbox runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """The state of a sandbox as its owner could describe it."""

    WAITING = "waiting"
    """The sandbox has no place yet, or none any more."""
    STARTING = "starting"
    RUNNING = "running"
    UNREACHABLE = "unreachable"
    """The sandbox's host does not answer; the sandbox may well run."""
    ENDED = "ended"
    """The sandbox ended as its owner wished."""
    GIVEN_UP = "given up"
    """No place was found in time."""
    LOST = "lost"
    """The sandbox ended against its owner's wish."""


OVER = (State.ENDED, State.GIVEN_UP, State.LOST)


@dataclass(slots=True, eq=False)
class Vm:
    """A machine on a host."""

    sandbox: Sandbox
    host: Host
    epoch: int
    is_up: bool = False
    was_seen: bool = False
    """Whether the owner knows that the machine is up."""


@dataclass(slots=True, eq=False)
class Sandbox:
    """A machine that somebody wants to run."""

    number: int
    client: int
    need_mib: int
    """Memory that it takes of a host, with QEMU's own."""
    life_s: float
    attached: bool
    """Whether the sandbox ends with its client."""
    restarts: bool
    """Whether the sandbox is to be started elsewhere if its host is gone."""
    asked_at: float
    state: State = State.WAITING
    placed: bool = False
    """Whether the sandbox has run."""
    epoch: int = 0
    """The number of places that the sandbox has got."""
    attempts: int = 0
    vms: list[Vm] = field(default_factory=list)
    """The sandbox's machines: more than one must never exist."""


@dataclass(slots=True, eq=False)
class Host:
    """A machine of the fleet."""

    number: int
    memory_mib: int
    """MiB that sandboxes may have."""
    starts: list[float]
    """For each processor, the time when it is done with its present starts."""
    promised_mib: int = 0
    vms: set[Vm] = field(default_factory=set)
    is_silent: bool = False
    """Whether the host does not answer: no power, frozen, or cut off."""
    has_power: bool = True
    slowness: float = 1.0
    """The factor by which starts take longer."""
    most_vms: int = 0

    @property
    def free_mib(self) -> int:
        return self.memory_mib - self.promised_mib


class World:
    """All hosts and sandboxes."""

    def __init__(self, hosts: int, memory_mib: int, processors: int) -> None:
        self.hosts = [Host(n, memory_mib, [0.0] * processors) for n in range(hosts)]
        self.sandboxes: list[Sandbox] = []
        self.doubled: set[Sandbox] = set()
        """The sandboxes that run on two hosts now."""

    def admit(self, sandbox: Sandbox, host: Host) -> Vm | None:
        """Give a sandbox its memory on a host; None if that has too little. The host decides, by
        its own promises, whatever others believe."""
        if host.free_mib < sandbox.need_mib:
            return None
        sandbox.epoch += 1
        vm = Vm(sandbox, host, sandbox.epoch)
        host.promised_mib += sandbox.need_mib
        host.vms.add(vm)
        host.most_vms = max(host.most_vms, len(host.vms))
        sandbox.vms.append(vm)
        if len(sandbox.vms) > 1:
            self.doubled.add(sandbox)
        return vm

    def remove(self, vm: Vm) -> None:
        """End a machine. Does nothing if it has ended."""
        if vm not in vm.host.vms:
            return
        vm.host.vms.remove(vm)
        vm.host.promised_mib -= vm.sandbox.need_mib
        vm.sandbox.vms.remove(vm)
        if len(vm.sandbox.vms) <= 1:
            self.doubled.discard(vm.sandbox)

    def check(self) -> None:
        """Raise AssertionError unless everything agrees."""
        for host in self.hosts:
            assert host.promised_mib == sum(vm.sandbox.need_mib for vm in host.vms)
            assert 0 <= host.promised_mib <= host.memory_mib, "more was promised than there is"
            assert host.has_power or not host.vms, "a machine runs without power"
        exist = {vm for host in self.hosts for vm in host.vms}
        assert exist == {vm for sandbox in self.sandboxes for vm in sandbox.vms}
        for sandbox in self.sandboxes:
            if sandbox.state in (State.RUNNING, State.STARTING):
                assert sandbox.vms, f"{sandbox.number} is {sandbox.state} nowhere"
            elif sandbox.state in OVER:
                # Sandboxes whose end a silent host has not learned end when it answers again.
                assert all(vm.host.is_silent for vm in sandbox.vms), f"{sandbox.number} runs on"
