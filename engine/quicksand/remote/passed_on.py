"""The values of variables that a command passes on to a guest (`-e NAME`), on their way from its
client. They must not be in the command's argv, which all users of the machine can read, nor are
they variables of the command itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping

PASSED_ON = "QUICKSAND_PASSED_ON"
"""The one variable that holds all of them, as JSON."""

BYTES_MAX = 96 * 1024
"""The most bytes of that JSON. Linux allows 128 KiB for one variable (MAX_ARG_STRLEN)."""


def encode_values(values: Mapping[str, str]) -> str:
    """Return the JSON. It is ASCII, also with the surrogates of bytes that are not UTF-8."""
    return json.dumps(dict(values))


def take_values(environ: MutableMapping[str, str]) -> dict[str, str] | None:
    """Remove the variable from ``environ``, and return its values; None if it is missing, or was
    not written by `encode_values`."""
    text = environ.pop(PASSED_ON, None)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_right = isinstance(found, dict) and all(isinstance(one, str) for one in found.values())
    return found if is_right else None
