"""The place where a build finds apt and the programs of e2fsprogs: this host, or another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from quicksand.base.arch import Architecture

from quicksand_images.disk import Makers
from quicksand_images.packages import Packages, open_packages
from quicksand_images.recipe import System
from quicksand_images.sources import find_keyring, find_mirrors


class Opened(Protocol):
    """The programs that a build can use while its bench is open."""

    @property
    def makers(self) -> Makers:
        """The programs that make file systems."""
        ...

    async def packages(
        self, system: System, arch: Architecture, root: Path, *, status: bytes = b""
    ) -> Packages:
        """Set up the new directory ``root`` for the packages of ``system``. ``status`` is dpkg's
        status of those already there. Raises HostError, AgentError, OSError."""
        ...


class Bench(Protocol):
    """The place where a build works."""

    @property
    def has_apt(self) -> bool:
        """Whether this host's apt is used, with which mmdebstrap also works."""
        ...

    def opened(self, *, apt: bool) -> AbstractAsyncContextManager[Opened]:
        """Make the programs available, with apt on request. Raises HostError, ImageError,
        MachineError, AgentError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBench:
    """This host, which has all necessary programs."""

    place: Path
    makers: Makers
    has_apt: bool = True

    @contextlib.asynccontextmanager
    async def opened(self, *, apt: bool) -> AsyncIterator[HostBench]:
        assert self.has_apt or not apt
        yield self

    async def packages(
        self, system: System, arch: Architecture, root: Path, *, status: bytes = b""
    ) -> Packages:
        keyring = await find_keyring(system, self.place)
        mirrors = await asyncio.to_thread(find_mirrors, system)
        return await open_packages(
            system, arch, root, keyring=keyring, mirrors=mirrors, status=status
        )
