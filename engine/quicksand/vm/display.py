"""The screen, keyboard and pointer of a sandbox."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from quicksand.errors import NoDisplayError, StateError
from quicksand.layout import MachineDir, runtime_dir
from quicksand.vm.life import Life

if TYPE_CHECKING:
    from quicksand.display.rfb import RfbClient


class Display:
    """The display of one sandbox. Each method raises what its namesake in `Sandbox` raises."""

    def __init__(self, life: Life) -> None:
        self._life = life

    def _machine(self) -> MachineDir:
        """The directory of the QEMU that runs now. Raises NoDisplayError, StateError."""
        name = self._life.name
        if not self._life.config.enable_display:
            raise NoDisplayError(
                f"the sandbox {name!r} has no display",
                hint="make one that has: enable_display=True, or `quicksand-tui run --display`",
            )
        if self._life.entry().run is None:
            raise StateError(f"the sandbox {name!r} is not running")
        return runtime_dir(self._life.registry.paths, self._life.id).current()

    def connect(self) -> AbstractAsyncContextManager[RfbClient]:
        from quicksand.display.rfb import RfbClient

        return RfbClient.open(self._machine().vnc_socket)
