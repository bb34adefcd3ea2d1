"""Suggestions of an image for its machines: values for a few options that the user does not give.

A desktop needs more memory than the default, and a display. Options by which a guest could reach
further cannot be suggested, since images come from elsewhere too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KINDS: Mapping[str, type] = {"memory": str, "cpus": int, "enable_display": bool}
"""The options that an image may suggest, and the types of their values in JSON."""


def check_suggested(values: object) -> Mapping[str, Any]:
    """Return the suggestions among ``values``, without those that a later version may have added.
    Raises ValueError for a value of the wrong type; whether a machine can have it is checked with
    the rest of its config."""
    if not isinstance(values, Mapping):
        raise ValueError(f"machine is not a table: {values!r}")
    known = {name: value for name, value in values.items() if name in KINDS}
    for name, value in known.items():
        if type(value) is not KINDS[name]:
            raise ValueError(f"machine.{name} cannot be {value!r}")
    return known
