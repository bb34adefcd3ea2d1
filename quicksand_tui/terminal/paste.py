"""Pasted text as the bytes that a terminal sends for it."""

from __future__ import annotations

import re
from typing import Final

_START: Final = b"\x1b[200~"
_END: Final = b"\x1b[201~"

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""All control characters but tab, line feed and carriage return."""


def encode_paste(text: str, *, bracketed: bool) -> bytes:
    """Line ends are what Enter sends. Control characters are left out: with ESC, a text could end
    the brackets that tell it from typing, and without brackets, press any key."""
    lines = text.replace("\r\n", "\n").replace("\n", "\r")
    data = _CONTROLS.sub("", lines).encode("utf-8", "replace")
    return _START + data + _END if bracketed else data
