"""What is true on the hosts, whoever knows of it: machines, their memory, and who runs where."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class State(StrEnum):
    """What its owner could say of a sandbox."""

    WAITING = "waiting"
    """It has no place yet, or none any more."""
    STARTING = "starting"
    RUNNING = "running"
    UNREACHABLE = "unreachable"
    """Its host does not answer; it may well run."""
    ENDED = "ended"
    """As it was wished."""
    GIVEN_UP = "given up"
    """No place was found in time."""
    LOST = "lost"
    """It ended against its owner's wish."""


OVER = (State.ENDED, State.GIVEN_UP, State.LOST)


@dataclass(slots=True, eq=False)
class Vm:
    """A machine on a host."""

    sandbox: Sandbox
    host: Host
    epoch: int
    is_up: bool = False
    was_seen: bool = False
    """Its owner knows that it is up."""


@dataclass(slots=True, eq=False)
class Sandbox:
    """Something that somebody wants to run."""

    number: int
    client: int
    need_mib: int
    """Memory that it takes of a host, with QEMU's own."""
    life_s: float
    attached: bool
    """It ends with its client."""
    restarts: bool
    """It is to be started elsewhere if its host is gone."""
    asked_at: float
    state: State = State.WAITING
    placed: bool = False
    """It has run."""
    epoch: int = 0
    """How often it has got a place."""
    attempts: int = 0
    vms: list[Vm] = field(default_factory=list)
    """Those that exist: more than one is what must never be."""


@dataclass(slots=True, eq=False)
class Host:
    """A machine of the fleet."""

    number: int
    memory_mib: int
    """What sandboxes may have."""
    starts: list[float]
    """For each processor, when it is done with the starts that it has been given."""
    promised_mib: int = 0
    vms: set[Vm] = field(default_factory=set)
    is_silent: bool = False
    """It does not answer: no power, frozen, or cut off."""
    has_power: bool = True
    slowness: float = 1.0
    """How many times longer starts take."""
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
        """Those that run on two hosts now."""

    def admit(self, sandbox: Sandbox, host: Host) -> Vm | None:
        """Give a sandbox its memory on a host; None if that has too little. The host decides, by
        what it has promised, whatever others believe."""
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
        """Raise AssertionError unless all of it agrees."""
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
                # Those that a silent host has not been told of end when it answers again.
                assert all(vm.host.is_silent for vm in sandbox.vms), f"{sandbox.number} runs on"
