"""The parts of a `Sandbox`. `LocalParts` are those of a sandbox of this machine; a sandbox of
another machine has others with the same methods (quicksand.hosted)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from quicksand.base.effort import best_effort
from quicksand.base.threads import to_the_end
from quicksand.life import machinery
from quicksand.life.ending import Ending
from quicksand.life.facts import Facts
from quicksand.life.forwarding import Forwarding
from quicksand.life.guest import InGuest
from quicksand.life.host_directories import HostDirectories
from quicksand.life.pausing import Pausing
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.life.sandbox_desktop import Desktop
from quicksand.life.sandbox_life import Life
from quicksand.life.sandbox_saves import Saves

if TYPE_CHECKING:
    from quicksand.guest.guest_files import GuestFiles


class Parts(Protocol):
    """The parts of one sandbox, which carry out its methods. They are looked up at each call."""

    @property
    def life(self) -> Life: ...
    @property
    def guest(self) -> InGuest: ...
    @property
    def directories(self) -> HostDirectories: ...
    @property
    def desktop(self) -> Desktop: ...
    @property
    def checkpoints(self) -> Checkpoints: ...
    @property
    def saves(self) -> Saves: ...
    @property
    def pausing(self) -> Pausing: ...
    @property
    def ending(self) -> Ending: ...
    @property
    def forwarding(self) -> Forwarding: ...
    @property
    def facts(self) -> Facts: ...
    @property
    def files(self) -> GuestFiles: ...

    async def clone(
        self,
        n: int,
        *,
        concurrency: int | None,
        at: str | None,
        names: Sequence[str | None] | None,
        mounts: str | None,
    ) -> Sequence[Parts]:
        """Clone the sandbox, or raise why a clone did not start; then none of them is left."""

    async def fork(
        self, count: int, *, concurrency: int | None, at: str | None, mounts: str | None
    ) -> Sequence[Parts | Exception]:
        """Return for each clone its parts, or the error that kept it from starting."""

    async def leave(self) -> None:
        """Note that the ``async with`` block of the sandbox has ended."""


class LocalParts:
    """The parts of a sandbox of this machine."""

    def __init__(self, life: Life, workspace: Path | None = None) -> None:
        """``workspace`` is the directory for its saves."""
        self.life = life
        self.guest = InGuest(life)
        self.directories = HostDirectories(life, self.guest)
        self.desktop = Desktop(life)
        self.pausing = Pausing(life)
        self.forwarding = Forwarding(life)
        self.facts = Facts(life)
        self._workspace = workspace

    # Most commands are over before these are needed.

    @cached_property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.life, self.guest, self.directories.mounts)

    @cached_property
    def saves(self) -> Saves:
        return Saves(self.life, self.guest, self.checkpoints, self._workspace)

    @property
    def ending(self) -> Ending:
        return Ending(self.life, self.directories, self.saves)

    @property
    def files(self) -> GuestFiles:
        return machinery.GuestFiles(self.life.session)

    async def clone(
        self,
        n: int,
        *,
        concurrency: int | None,
        at: str | None,
        names: Sequence[str | None] | None,
        mounts: str | None,
    ) -> Sequence[Parts]:
        """See `Parts.clone`."""
        made = await self.checkpoints.clone(
            n, concurrency=concurrency, at=at, names=names, mounts=mounts
        )
        lives = [one for one in made if isinstance(one, Life)]
        for failure in made:
            if isinstance(failure, Exception):
                await to_the_end(_remove_all(lives))
                raise failure
        return [LocalParts(life) for life in lives]

    async def fork(
        self, count: int, *, concurrency: int | None, at: str | None, mounts: str | None
    ) -> Sequence[Parts | Exception]:
        """See `Parts.fork`."""
        made = await self.checkpoints.clone(
            count, concurrency=concurrency, at=at, names=None, mounts=mounts
        )
        return [LocalParts(one) if isinstance(one, Life) else one for one in made]

    async def leave(self) -> None:
        """See `Parts.leave`."""


async def _remove_all(lives: Sequence[Life]) -> None:
    for life in lives:
        # A clone that cannot be removed must not keep the next from being ended.
        with best_effort("remove a clone", life.registry.paths.engine_log):
            await life.remove()
