"""Metadata that clients note about files as they upload them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from quicksand_e2b.errors import ApiError

PREFIX = "x-metadata-"
"""The beginning of the headers that carry it; the rest, in lower case, are the keys."""

KEY_MAX = 246
"""The most bytes of a key; Linux's limit for the name of an attribute, less the bytes before it."""

TOTAL_MAX = 4096
"""The most bytes of all keys and values of a file."""

_PRINTABLE = re.compile(r"[ -~]*")


def noted(headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the metadata in the headers of an upload. Raises ApiError (400)."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower().removeprefix(PREFIX)
        if key == name.lower():
            continue
        if not 0 < len(key) <= KEY_MAX:
            raise ApiError(400, f"a key of metadata has 1 to {KEY_MAX} characters: {key!r:.80}")
        if not _PRINTABLE.fullmatch(key) or not _PRINTABLE.fullmatch(value):
            raise ApiError(400, f"metadata must be printable ASCII: {key!r:.80}")
        found[key] = value
    if sum(len(key) + len(value) for key, value in found.items()) > TOTAL_MAX:
        raise ApiError(400, f"metadata has at most {TOTAL_MAX} bytes")
    return found
