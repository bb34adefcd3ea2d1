"""A sandbox that seems to run, and shows a screen: a VNC server in place of QEMU's."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from quicksand.base.files import try_lock, write_json
from quicksand.base.paths import Paths
from quicksand.records.config import SandboxConfig
from quicksand.records.layout import MachineDir, runtime_dir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record

from tests.unit.records.making import RUN, make


class Running:
    """The sandbox, made by `running`."""

    def __init__(self, places: Paths, record: Record) -> None:
        self._places = places
        self.record = record
        self.id = record.id
        self._machines = 0
        self._lock: int | None = None

    @property
    def machine(self) -> MachineDir:
        return runtime_dir(self._places, self.id).current()

    def start(self) -> Path:
        """Lets another machine run; returns where its screen's server has to be."""
        self._machines += 1
        runtime, name = runtime_dir(self._places, self.id), str(self._machines)
        made = runtime.make(name)
        write_json(made.state, replace(RUN, run=f"r{name}", forwards=()).to_json())
        runtime.current_link.unlink(missing_ok=True)
        runtime.current_link.symlink_to(name)
        if self._lock is None:
            self._lock = try_lock(sandbox_dir(self._places, self.id).lock)
        assert self._lock is not None
        return made.vnc_socket

    def stop(self) -> None:
        """Lets it run no more."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            shutil.rmtree(runtime_dir(self._places, self.id).root)


@contextlib.contextmanager
def running(places: Paths, name: str = "web", *, display: bool = True) -> Iterator[Running]:
    """A sandbox that runs within the block, once it is started."""
    config = SandboxConfig("debian", enable_display=display)
    found = Running(places, make(Registry(places), name, config=config, chain=()))
    try:
        yield found
    finally:
        found.stop()
