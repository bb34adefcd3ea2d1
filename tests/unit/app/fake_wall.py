"""Watched terminals that write what a test says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from quicksand_tui.model.wall_plan import NOTHING_HEARD, Heard, WatchedTerminal


class FakeWall:
    """Terminals that write what a test says."""

    def __init__(self) -> None:
        self.wanted: frozenset[str] = frozenset()
        self.listed: dict[str, tuple[WatchedTerminal, ...]] = {}
        self.whys: dict[str, str] = {}
        self.said: dict[tuple[str, str], Heard] = {}
        self.closed = False

    def put(self, sandbox_id: str, *terminals: WatchedTerminal) -> None:
        self.listed[sandbox_id] = terminals

    def say(self, sandbox_id: str, data: bytes, session: str = "p1") -> None:
        before = self.said.get((sandbox_id, session), NOTHING_HEARD)
        self.said[sandbox_id, session] = replace(before, fresh=before.fresh + data)

    # As the app asks it

    def want(self, sandbox_ids: Collection[str]) -> None:
        self.wanted = frozenset(sandbox_ids)

    def terminals(self, sandbox_id: str) -> tuple[WatchedTerminal, ...] | None:
        return self.listed.get(sandbox_id)

    def why(self, sandbox_id: str) -> str:
        return self.whys.get(sandbox_id, "")

    def take(self, sandbox_id: str, session: str, birth: str) -> Heard:
        return self.said.pop((sandbox_id, session), NOTHING_HEARD)

    def close(self) -> None:
        self.closed = True
        self.want(())
