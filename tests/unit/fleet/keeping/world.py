"""A world without machines: nodes with clocks of their own, a network that delivers late, and a
coordinator that may be lost at any step. The rules are the real ones: `Judge` and `Lease`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from quicksand.qemu.keeper_parts import owner as lease_module
from quicksand.qemu.keeper_parts.owner import Lease
from quicksand_fleet.keeping.book import Exported, Kept, Phase
from quicksand_fleet.keeping.judging import Judge, Step, starting
from quicksand_fleet.keeping.wire import ASK_S, Held, Line, State, Told

LEASE_S = 20.0
TICK_S = 0.5
GRACE_S = 30.0
"""Seconds after which a node ends a sandbox whose program is away, if it is not frozen."""


def set_clock(time: float) -> None:
    """Have leases see that it is so late at their machine."""
    vars(lease_module)["now"] = lambda: time


@contextlib.contextmanager
def own_clock() -> Iterator[None]:
    """Leases see the clocks of a world in the block."""
    before = vars(lease_module)["now"]
    try:
        yield
    finally:
        vars(lease_module)["now"] = before


@dataclass
class Machine:
    """A sandbox on a node, with its keeper."""

    id: str
    name: str
    epoch: int = 0
    """That of its lease.json; 0 without one."""
    state: State = State.RUNNING
    lease: Lease = field(default_factory=Lease)
    owner: object | None = None
    """The coordinator with which it still ends."""
    orphaned_at: float | None = None
    is_fenced: bool = False
    is_superseded: bool = False
    permitted: tuple[int, float] | None = None


class Node:
    """A machine of the fleet. ``rate``: how fast its clock goes."""

    def __init__(self, world: World, name: str, rate: float) -> None:
        self.world, self.name, self.rate = world, name, rate
        self.is_cut = self.is_frozen = self.is_down = False
        self.is_mute = False
        """Nothing comes from it, and it hears what is said."""
        self.machines: dict[str, Machine] = {}
        self.saves: set[str] = set()
        self.needed: set[str] = set()
        """Those of them that cannot be removed."""
        self.left: list[str] = []
        self.asked = -1.0
        self.ask_at = 0.0
        self.boots = 0

    @property
    def clock(self) -> float:
        return 1000.0 + self.world.time * self.rate

    @property
    def answers(self) -> bool:
        return not (self.is_cut or self.is_frozen or self.is_down or self.is_mute)

    def work(self) -> None:
        """What keepers and the machine's program do in a moment."""
        if self.is_frozen or self.is_down:
            return
        set_clock(self.clock)
        for one in self.machines.values():
            if one.state is not State.RUNNING:
                continue
            if one.lease.has_ended():
                one.lease.is_over = True
                one.state = State.FENCED
            elif one.owner is not None and one.owner is not self.world.coordinator:
                one.orphaned_at = one.orphaned_at or self.world.time
                if self.world.time >= one.orphaned_at + GRACE_S:
                    one.state = State.STOPPED
        if not self.is_cut and self.world.time >= self.ask_at:
            self.ask()

    def ask(self) -> None:
        self.asked, self.ask_at = self.clock, self.world.time + ASK_S
        held = [
            Held(
                id=one.id,
                name=one.name,
                epoch=one.epoch,
                state=one.state,
                is_fenced=one.is_fenced,
                is_let_go=one.is_fenced and one.owner is None,
                is_superseded=one.is_superseded,
            )
            for one in self.machines.values()
            if one.epoch
        ]
        line = Line(asked=self.asked, saves="/saves", held=held, left=self.left)
        if not self.is_mute:
            self.world.send_line(self.name, line)

    def obey(self, told: Told) -> None:
        """As `MachineOfLeases.obey`."""
        if told.asked != self.asked:
            return
        set_clock(self.clock)
        for grant in told.grants:
            one = self.machines.get(grant.id)
            if one is None or one.state is not State.RUNNING or one.is_superseded:
                continue
            if one.epoch <= grant.epoch:
                one.epoch = grant.epoch
                try:
                    one.lease.grant(grant.epoch, told.asked + grant.seconds)
                    one.is_fenced = True
                except ValueError:
                    pass  # it is over
        for permit in told.permits:
            one = self.machines.get(permit.id)
            if one is not None and one.state is not State.RUNNING and not one.is_superseded:
                one.epoch, one.permitted = permit.epoch, (permit.epoch, told.asked + permit.seconds)
        for gone in told.superseded:
            if (one := self.machines.get(gone.id)) is not None and one.epoch <= gone.epoch:
                one.is_superseded = True
                if one.state is State.RUNNING:
                    one.state = State.FENCED
        for id_ in told.released:
            self.machines.pop(id_, None)
        self.saves -= set(told.unneeded) - self.needed
        self.left = [name for name in told.unneeded if name in self.saves]

    def go_down(self) -> None:
        self.is_down, self.asked = True, -1.0
        for one in self.machines.values():
            if one.state is State.RUNNING:
                one.state = State.DOWN if one.epoch else State.STOPPED
            one.is_fenced = False

    def thaw(self) -> None:
        """The first thing is the look at the lease."""
        self.is_frozen = False
        self.work()


class World:
    """All of it. ``late``: how late each message is delivered, in turn."""

    def __init__(self, rates: list[float], late: list[float]) -> None:
        self.time = 0.0
        self.nodes = {f"n{i}": Node(self, f"n{i}", rate) for i, rate in enumerate(rates)}
        self.late, self._sent = late or [0.0], 0
        self._wires: list[tuple[float, str, Line | Told]] = []
        self.disk: dict[str, Kept] = {}
        """The book, as it outlives a coordinator."""
        self.coordinator: Any = None
        """With which sandboxes end that were not let go of."""
        self._ids = 0

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:012x}"

    def begin(self, name: str, host: str) -> None:
        """A sandbox was started, fenced, let go of, and exported."""
        one = Machine(id=self.new_id(), name=name, epoch=1, is_fenced=True)
        set_clock(self.nodes[host].clock)
        one.lease.grant(1, self.nodes[host].clock + LEASE_S)
        self.nodes[host].machines[one.id] = one
        self.disk[name] = Kept(
            name=name,
            epoch=1,
            phase=Phase.LEASED,
            host=host,
            id=one.id,
            lease=LEASE_S,
            every=None,
            make="{}",
            is_fenced=True,
            exported=Exported(name=f"{name}.kept-0123456789ab", at=0.0, hosts=()),
        )

    def send_line(self, host: str, line: Line) -> None:
        self._send(host, line)

    def _send(self, host: str, what: Line | Told) -> None:
        late = self.late[self._sent % len(self.late)]
        self._sent += 1
        self._wires.append((self.time + late, host, what))

    def _deliver(self) -> None:
        due = [one for one in self._wires if one[0] <= self.time]
        for one in due:
            _, host, what = one
            node = self.nodes[host]
            if isinstance(what, Line):
                self._wires.remove(one)
                if self.coordinator is not None and not self.coordinator.is_frozen:
                    self._send(host, self.coordinator.hear(host, what))
            elif not (node.is_cut or node.is_frozen or node.is_down):
                # What a network that is cut has taken is delivered once it is whole again.
                self._wires.remove(one)
                node.obey(what)

    def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK_S)):
            self.time += TICK_S
            for node in self.nodes.values():
                node.work()
            self._deliver()
            if self.coordinator is not None and not self.coordinator.is_frozen:
                self.coordinator.work()
            self.check()

    def running(self, name: str) -> list[tuple[str, Machine]]:
        """Where it runs: on a frozen machine nothing does."""
        return [
            (node.name, one)
            for node in self.nodes.values()
            if not node.is_frozen and not node.is_down
            for one in node.machines.values()
            if one.name == name and one.state is State.RUNNING
        ]

    def check(self) -> None:
        for name in self.disk:
            found = self.running(name)
            assert len(found) <= 1, f"{name} runs twice at {self.time}: {found}"


class Coordinator:
    """A coordinator as `keeping.coordinator` is one, a step at a time: it may be lost after any."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_frozen = False
        self.kept = dict(world.disk)
        self.judge = Judge(world.time)
        self._works: dict[str, Iterator[None]] = {}

    def hear(self, host: str, line: Line) -> Told:
        told, changed = self.judge.hear(host, line, self.world.time, self.kept.values())
        for kept in changed:
            self.write(kept)
        return told

    def write(self, kept: Kept) -> None:
        self.kept[kept.name] = self.world.disk[kept.name] = kept

    def work(self) -> None:
        for name, kept in list(self.kept.items()):
            if name not in self._works:
                step = self.judge.decide(kept, self.world.time, is_ending=False)
                if step in (Step.RESTART_HERE, Step.RESTART_ELSEWHERE):
                    self.kept[name] = starting(kept, step)
                elif step is not Step.GO_ON:
                    assert step is Step.NOTHING, step
                    continue
                self._works[name] = self._restart(name)
            try:
                next(self._works[name])
            except StopIteration:
                del self._works[name]

    def _restart(self, name: str) -> Iterator[None]:
        yield
        self.write(self.kept[name])
        yield
        kept = self.kept[name]
        if kept.is_here:
            node = self.world.nodes[kept.host]
            one = node.machines[kept.id]
            if not node.answers or one.permitted is None or one.state is State.RUNNING:
                return
            epoch, until = one.permitted
            if epoch != kept.epoch or node.clock >= until:
                return
            one.permitted = None
            one.state, one.lease, one.is_fenced = State.RUNNING, Lease(), False
            one.owner, one.orphaned_at = self, None
            yield
        else:
            if kept.host:
                node = self.world.nodes[kept.host]
                if not node.answers:
                    return
                left = [one for one in node.machines.values() if one.name == name]
                left = [one for one in left if not one.is_superseded]
                if any(one.state is State.RUNNING for one in left):
                    return
                id_ = left[0].id if left else ""
                self.write(starting(replace(kept, id=id_), Step.RESTART_ELSEWHERE))
                yield
            lost = self.kept[name].older[-1].host if self.kept[name].older else ""
            ready = [one for one in self.world.nodes.values() if one.answers and one.name != lost]
            taken = [one for one in ready if self._has(one, name)]
            ready = [one for one in ready if one not in taken]
            if not ready:
                return
            node = ready[0]
            self.write(replace(self.kept[name], host=node.name))
            yield
            if not node.answers:
                return
            one = Machine(id=self.world.new_id(), name=name, owner=self)
            node.machines[one.id] = one
            yield
            self.kept[name] = replace(self.kept[name], id=one.id)
        self.write(replace(self.kept[name], phase=Phase.PLACED))
        while not self.kept[name].is_fenced:
            if one.state is not State.RUNNING:
                return
            yield
        if not node.answers or one.state is not State.RUNNING:
            return
        one.owner = None
        yield
        self.write(replace(self.kept[name], phase=Phase.LEASED))

    @staticmethod
    def _has(node: Node, name: str) -> bool:
        return any(one.name == name and not one.is_superseded for one in node.machines.values())
