"""The end of a sandbox's last run: exit.json, and the guest's console."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any

from quicksand.base.error_text import printable
from quicksand.base.errors import DiskSpaceError
from quicksand.base.files import map_os_errors, read_json, tail, write_json
from quicksand.base.regular import open_regular
from quicksand.records.layout import SandboxDir

NOBODY_TOLD = "it is unknown how it ended: the host went down, or all its processes were killed"
PANIC_MARK = "Kernel panic - not syncing"


def crash_reason(place: SandboxDir) -> str:
    """Return why the last run ended without being asked to; "" if it ended well."""
    try:
        ended = read_json(place.exit)
        panic = find_panic(place)
    except FileNotFoundError:
        # Every run creates logs, and its keeper finally writes exit.json.
        return NOBODY_TOLD if place.qemu_log.exists() else ""
    except (OSError, ValueError) as error:
        return f"how it ended cannot be read: {error}"
    return panic or _how_it_ended(ended)


def write_end(place: SandboxDir, ended: dict[str, Any]) -> None:
    """Write exit.json; on a full disk into the space that the keeper has reserved for it. Raises
    DiskSpaceError, PathError."""
    try:
        write_json(place.exit, ended)
    except DiskSpaceError:
        with map_os_errors(place.exit):
            descriptor = open_regular(place.reserved_exit, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                os.truncate(descriptor, os.write(descriptor, json.dumps(ended).encode()))
            finally:
                os.close(descriptor)
            place.reserved_exit.replace(place.exit)


def _how_it_ended(ended: dict[str, Any]) -> str:
    """Return why QEMU ended, from the keeper's exit.json; "" if it was asked to or was normal."""
    code = ended.get("code")
    if ended.get("asked") or code == 0:
        return ""
    if code is None:
        return "QEMU ended with an unknown status, since its keeper was killed"
    if isinstance(code, int) and code < 0:
        with contextlib.suppress(ValueError):
            return f"QEMU was ended by {signal.Signals(-code).name}"
    return f"QEMU ended with status {code}"


def find_panic(place: SandboxDir) -> str:
    """The guest kernel's panic message on the console, or "" if there is none."""
    log = tail(place.console_log, limit=16 * 1024)
    if PANIC_MARK not in log:
        return ""
    line = log[log.rindex(PANIC_MARK) :].splitlines()[0]
    return printable(line[:200])
