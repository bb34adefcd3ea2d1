"""What the app remembers, such as the theme: small files of JSON, which it can do without."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from quicksand_tui.places import APP, base_dir

SIZE_MAX = 256 * 1024
"""Bytes; a larger file is none of ours."""


def state_dir() -> Path:
    """Where it lies: ``QUICKSAND_STATE_DIR``, or where the system has such things."""
    if place := os.environ.get("QUICKSAND_STATE_DIR"):
        return Path(place).absolute()
    return base_dir("XDG_STATE_HOME", ".local/state") / APP


class StateFile:
    """One JSON object on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""
        """Why it could not be read the last time; "" if it could, or is not there."""

    def read(self) -> dict[str, Any]:
        """The object; an empty one if there is none. Never raises."""
        self.problem = ""
        try:
            with self.path.open("rb") as file:
                text = file.read(SIZE_MAX + 1)
            if len(text) > SIZE_MAX:
                raise ValueError(f"it is larger than {SIZE_MAX} bytes")
            value = json.loads(text)
            if not isinstance(value, dict):
                raise ValueError("it is not a JSON object")
        except FileNotFoundError:
            return {}
        except OSError as error:
            self.problem = error.strerror or str(error)
            return {}
        except (ValueError, RecursionError) as error:
            self.problem = str(error)
            return {}
        return value

    def write(self, value: dict[str, Any]) -> None:
        """Put ``value`` there; a crash leaves the old file or the new one. Raises OSError."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path.with_name(f".{self.path.name}.{os.urandom(4).hex()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(value, file, indent=1)
                file.write("\n")
            temporary.replace(self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
