"""The coordinator's grants and decisions, without I/O, and by no clock but the one that it is
given.

The rule on which all rests: a machine gets a lease only for sandboxes that the book places on it,
and the book places a sandbox elsewhere only after the last lease granted for it has run out.
`Judge.granted` is later than the moment from which the machine counts, so the machine's lease ends
before ours does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from quicksand_fleet.keeping.book import Kept, Older, Phase
from quicksand_fleet.keeping.wire import Grant, Held, Line, State, Superseded, Told

MARGIN_S, MARGIN_SHARE = 5.0, 0.1
"""Seconds, and the share of a lease, that are waited beyond its end: clocks may run differently,
and a keeper may get the processor late."""
FRESH_S = 10.0
"""Seconds for which a machine's report counts as the present state."""
MISSED_S = 120.0
"""Seconds for which a machine may answer without having a sandbox; then the sandbox is no longer
kept."""


class Step(Enum):
    """The next step for a sandbox."""

    NOTHING = auto()
    END = auto()
    """The sandbox has ended, and no machine was lost: stop keeping it."""
    REMOVE = auto()
    """All machines know that the sandbox is no longer kept: remove its record."""
    RESTART_ELSEWHERE = auto()
    RESTART_HERE = auto()
    """The sandbox's lease has run out or its machine was down, and it is the only epoch."""
    GO_ON = auto()
    """The sandbox was about to be started when a coordinator was lost: go on."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The last report of a machine."""

    at: float
    held: Mapping[str, Held]


class Judge:
    """The reports that one coordinator has heard, and the leases that it has granted. Times are by
    its own monotonic clock."""

    def __init__(self, now: float) -> None:
        """``now``: a new judge does not know which leases its predecessor has granted up to this
        moment."""
        self._began = now
        self._granted: dict[tuple[str, int], float] = {}
        """The time of the last lease granted, by name and epoch."""
        self._heard: dict[str, Heard] = {}
        self._missed: dict[tuple[str, int], float] = {}
        """The time since when a machine has answered without having a sandbox."""

    def hear(
        self, host: str, line: Line, now: float, book: Iterable[Kept]
    ) -> tuple[Told, list[Kept]]:
        """Take a machine's report; return the answer, and what must be in the book before it is
        sent."""
        held = {one.id: one for one in line.held}
        self._heard[host] = Heard(now, held)
        told = Told(asked=line.asked)
        changed = []
        for kept in book:
            told, new = self._answer_older(host, held, kept, told)
            if kept.host == host and kept.id:
                told, new = self._answer_present(held.get(kept.id), new, told, now)
            if new != kept:
                changed.append(new)
        return told, changed

    def _answer_older(
        self, host: str, held: Mapping[str, Held], kept: Kept, told: Told
    ) -> tuple[Told, Kept]:
        """Tell a machine of its sandboxes that go on elsewhere, until it has confirmed."""
        rest: list[Older] = []
        for old in kept.older:
            one = held.get(old.id)
            if old.host != host:
                rest.append(old)
            elif one is not None and not one.is_superseded:
                rest.append(old)
                by = kept.host or "another machine"
                gone = Superseded(id=old.id, name=kept.name, epoch=old.epoch, by=by)
                told = replace(told, superseded=(*told.superseded, gone))
        return told, replace(kept, older=tuple(rest)) if len(rest) != len(kept.older) else kept

    def _answer_present(
        self, one: Held | None, kept: Kept, told: Told, now: float
    ) -> tuple[Told, Kept]:
        match kept.phase:
            case Phase.STARTING:
                if kept.is_here:
                    told = replace(told, permits=(*told.permits, _grant(kept)))
                return told, kept
            case Phase.ENDED:
                if one is not None:
                    told = replace(told, released=(*told.released, kept.id))
                return told, kept
        runs = one is not None and one.state is State.RUNNING and not one.is_superseded
        is_new = kept.phase is Phase.PLACED and (one is None or one.epoch < kept.epoch)
        if is_new or (runs and one is not None and one.epoch == kept.epoch):
            self._granted[kept.name, kept.epoch] = now  # noted before it is sent
            told = replace(told, grants=(*told.grants, _grant(kept)))
        if runs and one is not None and one.epoch == kept.epoch and one.is_fenced:
            phase = Phase.LEASED if one.is_let_go else kept.phase
            kept = replace(kept, is_fenced=True, phase=phase)
        return told, kept

    def ends_at(self, kept: Kept) -> float:
        """Return the time at which no lease of the sandbox's epoch can be valid any more."""
        granted = self._granted.get((kept.name, kept.epoch), self._began)
        return granted + kept.lease * (1 + MARGIN_SHARE) + MARGIN_S

    def decide(self, kept: Kept, now: float, *, is_ending: bool) -> Step:
        """Return the next step for a sandbox. ``is_ending``: its program ends it."""
        if kept.phase is Phase.STARTING:
            return Step.GO_ON
        heard = self._heard.get(kept.host)
        one = None if heard is None else heard.held.get(kept.id)
        is_fresh = heard is not None and now < heard.at + min(kept.lease, FRESH_S)
        if kept.phase is Phase.ENDED:
            is_told = is_fresh and one is None and not kept.older
            return Step.REMOVE if is_told else Step.NOTHING
        if one is not None and one.epoch == kept.epoch and one.state is not State.RUNNING:
            if is_ending or (one.state is State.STOPPED and not self._was_cut_off(kept)):
                return Step.END
            if is_fresh:
                is_first = kept.phase is Phase.PLACED and kept.epoch == 1
                return Step.END if is_first else _again(kept)
        elif is_fresh and one is None:
            return Step.END if is_ending else self._miss(kept, now)
        else:
            self._missed.pop((kept.name, kept.epoch), None)
        is_over = kept.phase is Phase.LEASED and now >= self.ends_at(kept)
        can_restart = kept.exported is not None and not is_ending
        return Step.RESTART_ELSEWHERE if is_over and can_restart else Step.NOTHING

    @staticmethod
    def _was_cut_off(kept: Kept) -> bool:
        """Whether a coordinator was lost while it restarted the sandbox, which ended with the
        coordinator."""
        return kept.phase is Phase.PLACED and kept.epoch > 1

    def _miss(self, kept: Kept, now: float) -> Step:
        """Return the step for a sandbox that its machine does not have, though it answers."""
        since = self._missed.setdefault((kept.name, kept.epoch), now)
        if now < since + MISSED_S:
            return Step.NOTHING
        return _again(kept) if self._was_cut_off(kept) else Step.END


def _again(kept: Kept) -> Step:
    """Return how to restart a sandbox that runs nowhere, and whose machine answers."""
    if kept.phase is Phase.PLACED and not kept.is_here:
        return Step.RESTART_ELSEWHERE if kept.exported is not None else Step.NOTHING
    return Step.RESTART_HERE


def starting(kept: Kept, step: Step) -> Kept:
    """Return the record that must be in the book before `Step.RESTART_HERE` or
    `RESTART_ELSEWHERE`."""
    if step is Step.RESTART_HERE:
        return replace(
            kept, epoch=kept.epoch + 1, phase=Phase.STARTING, is_here=True, is_fenced=False
        )
    older = kept.older
    if kept.id:
        older = (*older, Older(host=kept.host, id=kept.id, epoch=kept.epoch))
    return replace(
        kept,
        epoch=kept.epoch + 1,
        phase=Phase.STARTING,
        host="",
        id="",
        is_here=False,
        is_fenced=False,
        older=older,
    )


def _grant(kept: Kept) -> Grant:
    return Grant(id=kept.id, name=kept.name, epoch=kept.epoch, seconds=kept.lease)
