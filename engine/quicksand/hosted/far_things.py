"""Stopped sandboxes, saves and the trash of another machine: `KeptThings` there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import QuicksandError, RemoteProtocolError
from quicksand.base.paths import paths
from quicksand.hosted.calling import call, require_capability
from quicksand.hosted.codec import OF_THINGS, ForeignValueError, decode, hints_of
from quicksand.hosted.life import without_callbacks
from quicksand.hosted.protocol import THINGS
from quicksand.hosted.remote_parts import far
from quicksand.life.kept_things import KeptThings, RemovedSave, RemovedSaves

if TYPE_CHECKING:
    from quicksand.base.progress import Progress
    from quicksand.hosted.remote_host import RemoteHost


class _Calls:
    """Has the methods called there, each once."""

    def __init__(self, host: RemoteHost) -> None:
        self._host = host

    async def call(self, name: str, *args: Any, **keywords: Any) -> Any:
        """Have a method called, and return its result. Raises the method's errors, and
        RemoteError."""
        declared = OF_THINGS[name]
        words, named, report = without_callbacks(declared, args, keywords)
        shared = self._host.sharing()
        params = {
            **{"open": THINGS, "name": name, "args": words, "keywords": named},
            "grace_s": self._host.grace,
        }
        try:
            with shared.use():
                await require_capability(shared)
                answer = await call(shared, params, report)
        finally:
            await shared.ended()
        try:
            return decode(answer.get("value"), hints_of(declared)["return"])
        except ForeignValueError as error:
            raise RemoteProtocolError(
                f"{self._host.name} answered with a value that makes no sense: {error}"
            ) from error


class FarThings(KeptThings):
    """The things of another machine, whose methods are called there. Names and paths are those of
    that machine."""

    def __init__(self, host: RemoteHost) -> None:
        super().__init__(paths())
        self._life = _Calls(host)

    remove_sandbox = far(KeptThings.remove_sandbox)
    restore_sandbox = far(KeptThings.restore_sandbox)
    find_in_trash = far(KeptThings.find_in_trash)
    restore_things = far(KeptThings.restore_things)
    empty_trash = far(KeptThings.empty_trash)
    prune_saves = far(KeptThings.prune_saves)
    verify_saves = far(KeptThings.verify_saves)
    rebase_save = far(KeptThings.rebase_save)

    async def remove_saves(
        self,
        names: Any,
        *,
        now: bool = False,
        progress: Progress | None = None,
        each: Callable[[RemovedSave | QuicksandError], None] | None = None,
    ) -> RemovedSaves:
        """As here, but ``each`` gets the fates of all together."""
        done: RemovedSaves = await self._life.call(
            "remove_saves", names, now=now, progress=progress
        )
        if each is not None:
            for one in done.each:
                each(one)
        return done


def things_of(host: RemoteHost | None) -> KeptThings:
    """Return the things of a machine; None is this one."""
    return KeptThings(paths()) if host is None else FarThings(host)
