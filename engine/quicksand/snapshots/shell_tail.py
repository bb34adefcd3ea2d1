"""The last output of a terminal, kept beside a checkpoint so that people recognise it.

It is the program's output just before the pause, unchanged: a terminal's size and bytes. A
checkpoint without it is valid, like all older ones.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import HistoryError
from quicksand.base.fields import Fields
from quicksand.base.files import read_json, write_json
from quicksand.records.layout import SandboxDir

OUTPUT_MAX = 16 * 1024
"""The most bytes of output that are kept: enough for a large screen."""
SIDE_MAX = 1000
"""The most columns or rows of a terminal."""
PROGRAM_MAX = 200
"""The most characters of its program's command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellTail:
    """The end of a terminal's output. All of it comes from the guest."""

    program: str
    """The command line of the terminal's foreground program."""
    columns: int
    rows: int
    output: bytes

    def to_json(self) -> dict[str, object]:
        return {
            "program": self.program[:PROGRAM_MAX],
            "columns": self.columns,
            "rows": self.rows,
            "output_b64": base64.b64encode(self.output[-OUTPUT_MAX:]).decode(),
        }

    @classmethod
    def from_json(cls, value: object) -> ShellTail:
        """Parse a stored one. Raises ValueError."""
        found = Fields(value, "bad end of a shell")
        columns, rows = found.whole("columns"), found.whole("rows")
        if not (0 < columns <= SIDE_MAX and 0 < rows <= SIDE_MAX):
            raise ValueError("a terminal cannot have that size")
        encoded = found.text("output_b64")
        if len(encoded) > 2 * OUTPUT_MAX:
            raise ValueError("the end of a shell is too long")
        try:
            output = base64.b64decode(encoded, validate=True)
        except binascii.Error as error:
            raise ValueError("the end of a shell is not base64") from error
        return cls(
            program=found.text("program")[:PROGRAM_MAX], columns=columns, rows=rows, output=output
        )


def keep_shell(tail: ShellTail, place: SandboxDir, checkpoint: str) -> None:
    """Write it beside the checkpoint with that id. Blocks. Raises HostError."""
    path = _path(place, checkpoint)
    write_json(path, tail.to_json(), read=ShellTail.from_json, durable=False)


def read_shell(place: SandboxDir, checkpoint: str) -> ShellTail | None:
    """Return the tail beside the checkpoint with that id; None if it has none. Blocks. Raises
    HistoryError if it is there but cannot be read."""
    path = _path(place, checkpoint)
    try:
        return ShellTail.from_json(read_json(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from error


def _path(place: SandboxDir, checkpoint: str) -> Path:
    return place.checkpoints / checkpoint / "shell.json"
