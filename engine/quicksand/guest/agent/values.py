"""Bounds texts and numbers from a guest before anything keeps, prints or computes with them."""

from __future__ import annotations

TEXT_MAX = 4096
"""Bytes of UTF-8 that are kept of one text."""

NUMBER_MAX = 2**63
"""No count, size or time of a guest is this large."""


def bounded(text: str, limit: int = TEXT_MAX) -> str:
    """Return ``text``, or its first ``limit`` bytes and a note of how much was cut."""
    if len(text) * 4 <= limit:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= limit:
        return text
    kept = raw[:limit].decode("utf-8", "ignore")
    return f"{kept}… ({len(raw) - len(kept.encode())} bytes more were cut)"


def text(value: object, limit: int = TEXT_MAX) -> str:
    """Return a text, cut to ``limit`` bytes. Raises ValueError for any other type."""
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} instead of a text")
    return bounded(value, limit)


def whole(value: object) -> int:
    """Return a whole number below 2**63. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not abs(value) < NUMBER_MAX:
        raise ValueError("not a whole number that makes sense")
    return value


def real(value: object) -> float:
    """Return a finite number below 2**63. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{type(value).__name__} instead of a number")
    if not abs(value) < NUMBER_MAX:  # NaN fails this too
        raise ValueError("not a number that makes sense")
    return float(value)
