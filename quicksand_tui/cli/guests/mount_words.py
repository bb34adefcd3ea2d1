"""HOST:GUEST, as the commands take it, and the probable meaning of a wrong one."""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.base.errors import ConfigError
from quicksand.records.mount import Mount, parse_mount

ORDER = "the directory of this host comes first"


def read_mount(word: str) -> Mount:
    """Reads HOST:GUEST[:ro|:protect]. Raises ConfigError, with a hint at the probable meaning."""
    try:
        return parse_mount(word)
    except ConfigError as error:
        raise ConfigError(error.words, hint=_meant(word) or error.advice) from None


def _meant(word: str) -> str:
    """Returns the probable meaning of a word that is no mount; "" if that is unclear."""
    host, colon, guest = word.partition(":")
    guest, _, mode = guest.partition(":")
    mode = f":{mode}" if mode else ""
    if not colon:
        absolute = os.path.abspath(host)  # noqa: PTH100 - a text to be shown
        return f"say where it is to be in the sandbox, as in {host}:/mnt/{Path(absolute).name}"
    if not guest:
        return ""
    if is_directory(guest) and host.startswith("/") and not is_directory(host):
        return f"{ORDER}: {guest}:{host}{mode}"
    if not guest.startswith("/"):
        return f"the path in the sandbox must be absolute: {host}:/{guest.removeprefix('./')}{mode}"
    return ""


def is_directory(path: str) -> bool:
    try:
        return Path(path).expanduser().is_dir()
    except (OSError, RuntimeError, ValueError):
        return False
