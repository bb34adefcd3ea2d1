"""What a revert would lose, asked of a sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quicksand.guest.shell import ShellInfo
from quicksand.snapshots.comparison import Difference

from quicksand_tui.door.diff_reader import losing


@dataclass
class Made:
    id: str
    created: float


class WithShells:
    """A running sandbox: a shell from before its checkpoint, one from after it, and one that has
    ended."""

    def checkpoints(self) -> list[Made]:
        return [Made("clean", 100.0)]

    async def compare(self, checkpoint: str, *, lines: bool) -> Difference:
        return Difference(before=checkpoint, after="now", changes=(), read=120.0, is_live=True)

    async def shells(self) -> list[ShellInfo]:
        return [self._shell("vi", 50.0), self._shell("make", 110.0), self._shell("sh", 1.0, False)]

    def _shell(self, program: str, created: float, alive: bool = True) -> ShellInfo:
        return ShellInfo(
            session=program,
            pid=1,
            argv=("/bin/bash",),
            columns=80,
            rows=24,
            attached=1,
            created=created,
            alive=alive,
            foreground=(program, "\x1b[31mx"),
        )


async def test_open_shells_are_named_by_whether_a_revert_ends_them() -> None:
    sandbox: Any = WithShells()
    found = await losing(sandbox, "clean")
    assert [name.partition(" ")[0] for name in found.ending] == ["make"]
    assert [name.partition(" ")[0] for name in found.staying] == ["vi"]
    assert "\x1b" not in str(found)
