"""What forms were last filled in with, kept for the next time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from quicksand_tui.state_files import state_dir
from quicksand_tui.text import sanitise

FILE = "last-used.json"
SCHEMA_VERSION = 1
VALUE_MAX = 4096
"""Characters of one value: a path is the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """What a sandbox was last started with, as typed."""

    begin: str = ""
    """As `quicksand_tui.new_form` has it."""
    image: str = ""
    """What a command calls that."""
    memory: str = ""
    cpus: str = ""
    network: str = ""
    ports: str = ""


def state_file() -> Path:
    """Where they are kept."""
    return state_dir() / FILE


class LastUsed:
    """Remembered in the file that ``find_file`` tells, or only as long as this lives. A file that
    cannot be read or written is as none: nothing but a convenience is lost with it."""

    def __init__(self, find_file: Callable[[], Path] | None) -> None:
        self.value: Last | None = None
        self._find_file = find_file

    def read(self) -> None:
        """Blocks; called in a thread."""
        if self._find_file is None:
            return
        from quicksand.host.files import read_json

        with contextlib.suppress(OSError, ValueError):
            found = read_json(self._find_file())
            if found.get("schema_version") == SCHEMA_VERSION and self.value is None:
                self.value = _parse(found.get("new_sandbox"))

    def write(self) -> None:
        """Blocks; called in a thread. A crash leaves the old file or the new one."""
        if self._find_file is None or self.value is None:
            return
        from quicksand.errors import QuicksandError
        from quicksand.host.files import write_json
        from quicksand.host.paths import make_private_dir

        with contextlib.suppress(OSError, QuicksandError):
            file = self._find_file()
            make_private_dir(file.parent)
            write_json(
                file,
                {"schema_version": SCHEMA_VERSION, "new_sandbox": asdict(self.value)},
                durable=False,
            )


def _parse(found: object) -> Last | None:
    """What is no text counts as not given."""
    if not isinstance(found, dict):
        return None
    values = {field.name: found.get(field.name) for field in fields(Last)}
    texts = {key: value for key, value in values.items() if isinstance(value, str)}
    # A key is a path, exactly; the others are shown.
    begin = texts.pop("begin", "")[:VALUE_MAX]
    return Last(begin=begin, **{k: sanitise(v, limit=200) for k, v in texts.items()})
