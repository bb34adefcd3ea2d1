"""The record of the process that is having a guest mount something, and the look that ends it. The
record names that process until the guest was seen to have the mount, so that nobody is told of a
mount that is not there yet, or for ever of one that is under way."""

from __future__ import annotations

import os
from dataclasses import dataclass

from quicksand.base.errors import AgentRefusedError, MountError
from quicksand.base.fields import JsonRecord
from quicksand.base.processes import is_process, start_of
from quicksand.guest.agent.session import Ask
from quicksand.records.mount import Mount

LOOK_S = 30.0
"""Seconds for the guest's first look at its new mount."""


@dataclass(frozen=True, slots=True)
class Mounter(JsonRecord):
    """A process that is having a guest mount something."""

    WHAT = "bad record of who mounts"

    pid: int
    started: str
    """The time of its start, as the system writes it."""

    @classmethod
    def me(cls) -> Mounter:
        """This process."""
        return cls(os.getpid(), start_of(os.getpid()))

    @property
    def is_at_it(self) -> bool:
        """Whether it lives. If not, only the guest knows the state of the mount."""
        return is_process(self.pid, self.started)


NOBODY = Mounter(pid=0, started="")
"""The mounter of mounts that were given up, and that may exist."""


async def look(mount: Mount, ask: Ask) -> None:
    """Have the guest look at its new mount. Raises MountError if it does not see a directory there,
    AgentError."""
    try:
        seen = (await ask("file_stat", {"path": mount.guest}, LOOK_S)).get("type")
    except AgentRefusedError as error:
        raise MountError(
            f"{mount.host} was mounted, and the guest cannot see it: {error}"
        ) from error
    if seen != "dir":
        raise MountError(f"{mount.host} was mounted, and the guest sees none at {mount.guest}")
