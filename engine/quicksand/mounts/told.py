"""The files written by a guest that programs of the host run or obey, such as git's hooks
(quicksand_smb/triggers.py), as reported by the mount's server (quicksand_smb/trigger_report.py)."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from quicksand.base.error_text import printable
from quicksand.base.regular import open_file
from quicksand.records.layout import MachineDir

ENTRIES = 31
ENTRY = 512
_SIZE = ENTRY * (1 + ENTRIES)
_NUMBER = struct.Struct("=Q")
_HEAD = struct.Struct("=QH")
_TRIES = 8
"""The most attempts to read a file that is being changed; a change takes microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that the guest wrote, or renamed to that name."""

    path: str
    """The printable path below the mounted directory; the end of a very long one."""
    time: float
    """The time of its last writing, in seconds since 1970."""


def read_told(machine: MachineDir, number: int) -> tuple[Written, ...]:
    """Return the files of a stream's mount, the last written first; the last 31 different ones.
    Empty if there is no report. Blocks for I/O."""
    for _ in range(_TRIES):
        try:
            with open_file(machine.share_told(number)) as file:
                content = os.pread(file.fileno(), _SIZE, 0)
                again = os.pread(file.fileno(), _NUMBER.size, 0)
        except OSError:
            return ()
        if len(content) != _SIZE:
            return ()
        before = _NUMBER.unpack_from(content)[0]
        if before % 2 == 0 and before == _NUMBER.unpack(again)[0]:
            return _parse(content)
    return ()


def _parse(content: bytes) -> tuple[Written, ...]:
    found = []
    for start in range(ENTRY, _SIZE, ENTRY):
        seconds, length = _HEAD.unpack_from(content, start)
        if seconds and length <= ENTRY - _HEAD.size:
            path = content[start + _HEAD.size : start + _HEAD.size + length]
            found.append(Written(path=printable(os.fsdecode(path)), time=float(seconds)))
    return tuple(sorted(found, key=lambda written: -written.time))
