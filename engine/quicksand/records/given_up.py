"""The present that a revert in place gives up, until it is a checkpoint: where everything is that
its checkpoint needs. Whoever finds such a record later stores it (snapshots/keeping.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

from quicksand.base.errors import HistoryError
from quicksand.base.fields import JsonRecord, read_by
from quicksand.base.files import read_json, write_json
from quicksand.base.processes import boot_id
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import SCHEMA, File, Head, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp(JsonRecord):
    """A present whose disk is frozen, and whose pages are in a file that may not be synced."""

    WHAT = "bad record of a present that was given up"
    VERSION = SCHEMA

    node: Node = field(metadata=read_by(Node.from_json))
    """The present's checkpoint without the memory, of the tier "disk"."""
    head: Head = field(metadata=read_by(Head.from_json))
    """The head before its disk was frozen."""
    run: str
    """The present's run of QEMU."""
    size: int
    """Bytes of its guest's memory."""
    since: str | None
    """The checkpoint since which the held pages were written; None for the whole run of QEMU."""
    firmware: File | None = field(metadata=read_by(File.from_json))
    boot: str
    """The boot of the host (`boot_id`): held pages exist only as long as that."""

    @property
    def is_held(self) -> bool:
        """Whether the host has not been rebooted since, so that its pages are still held."""
        return self.boot == boot_id()

    def write(self, place: SandboxDir) -> None:
        """Write it to the disk. Raises DiskSpaceError, PathError."""
        write_json(place.given_up, self.to_json(), read=GivenUp.from_json)


def read_given_up(place: SandboxDir) -> GivenUp | None:
    """Read the present that was given up and is not a checkpoint yet, if there is one. Raises
    HistoryError if it cannot be read."""
    try:
        return GivenUp.from_json(read_json(place.given_up))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HistoryError(f"{place.given_up} cannot be read: {error}") from error
