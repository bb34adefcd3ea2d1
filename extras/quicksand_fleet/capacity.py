"""The report of a machine to a fleet: one line with a JSON object, sent whenever it has changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from quicksand.extending import HEX32, ForeignValueError, decode, encode

FLEET = "fleet"
"""The capability of a machine that can be part of a fleet."""
CAPACITY, CLAIM = "capacity", "claim"
"""The requests of this capability (docs/internals/fleet.md)."""

LINE_MAX = 512 * 1024
IMAGES_MAX = 500
NAME_MAX = 200
CLAIMS_MAX = 5000
AMOUNT_MAX = 2**60
STEP = 16 * 1024**2
"""Bytes to which free memory is rounded down, so that a change of a few pages is not reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The state of a machine now."""

    machine_id: str
    """32 hex digits."""
    cpus: int
    memory_bytes: int
    """Bytes that all its sandboxes together may have."""
    free_bytes: int
    """Bytes of that which are free, less the claims, as far as the machine really has them."""
    sandboxes: int
    """The number of sandboxes that run or start."""
    images: Sequence[str] = ()
    """Names of images, without versions."""
    claims: Sequence[str] = ()
    """The claims that are deducted, each 32 hex digits."""


def encode_capacity(capacity: Capacity) -> bytes:
    """Return its line."""
    return json.dumps(encode(capacity), separators=(",", ":")).encode() + b"\n"


def decode_capacity(line: bytes) -> Capacity:
    """Read a line of another machine. Raises ForeignValueError."""
    try:
        found: Capacity = decode(json.loads(line), Capacity)
    except (ValueError, RecursionError) as error:
        raise ForeignValueError(f"no capacity: {error}") from None
    amounts = (found.cpus, found.memory_bytes, found.free_bytes, found.sandboxes)
    if not HEX32.fullmatch(found.machine_id) or not all(0 <= one < AMOUNT_MAX for one in amounts):
        raise ForeignValueError("a capacity makes no sense")
    if len(found.images) > IMAGES_MAX or len(found.claims) > CLAIMS_MAX:
        raise ForeignValueError("a capacity has too many items")
    if not all(one.isprintable() and len(one) <= NAME_MAX for one in found.images):
        raise ForeignValueError("a capacity names an image that cannot be")
    return found
