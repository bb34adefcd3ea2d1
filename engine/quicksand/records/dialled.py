"""Forwards that were made while a sandbox runs, and the files of the process that carries them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.fields import Fields
from quicksand.base.files import is_locked, read_json
from quicksand.records.layout import RuntimeDir
from quicksand.records.sandboxes import read_forwards


@dataclass(frozen=True, slots=True)
class ForwarderFiles:
    """The files of that process in the sandbox's runtime directory."""

    root: Path

    @property
    def forwards(self) -> Path:
        """The ports that are forwarded at this moment, as JSON."""
        return self.root / "forwards.json"

    @property
    def socket(self) -> Path:
        return self.root / "forwarder.sock"

    @property
    def lock(self) -> Path:
        """Flock'ed by the process while it lives."""
        return self.root / "forwarder.lock"


def dialled_forwards(runtime: RuntimeDir) -> tuple[tuple[int, int], ...]:
    """(host port, guest port) of the forwards that were made while a sandbox runs."""
    files = ForwarderFiles(runtime.root)
    with contextlib.suppress(OSError, ValueError):  # there are none
        found = read_forwards(Fields(read_json(files.forwards), "bad forwards"))
        # A forwarder that was killed leaves its file behind, and nobody listens there.
        return found if is_locked(files.lock) else ()
    return ()
