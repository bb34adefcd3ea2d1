"""What `events` sees of a sandbox from look to look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from quicksand.base.paths import Paths

from quicksand_tui.door.event_watch import EventWatch
from quicksand_tui.door.look import Reader
from quicksand_tui.model.sandboxes import SandboxView
from quicksand_tui.model.world import World
from tests.unit.app.fakes import FULL, WEB_PAST


class Looks:
    """A reader that sees one sandbox in one state after the other."""

    def __init__(self, *views: SandboxView) -> None:
        self._views: Iterator[SandboxView] = iter(views)

    def read(self, _: frozenset[str]) -> World:
        return replace(FULL, sandboxes=(next(self._views),))


def test_a_revert_is_told_though_a_look_fell_into_it(places: Paths) -> None:
    before = replace(WEB_PAST, run="r1")
    within = replace(WEB_PAST, run="", name="web")
    after = replace(WEB_PAST, run="r2", origin="clean")
    watch = EventWatch()
    watch._reader = cast(Reader, Looks(before, within, after, after))
    watch.look()
    told = [event.kind.value for _ in range(3) for event in watch.look()]
    assert told == ["reverted"]
