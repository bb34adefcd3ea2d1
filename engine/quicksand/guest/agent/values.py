"""Bounds texts and numbers from a guest before anything keeps, prints or computes with them."""

from __future__ import annotations

import base64

from quicksand.base.errors import ConfigError

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


def encode(text: str, what: str) -> bytes:
    """Return the bytes that ``text`` stands for: UTF-8, and bytes that are not UTF-8 where
    `os.fsdecode` has put its surrogates. Raises ConfigError, which names ``what``, for any other
    half of a pair of surrogates: no bytes stand for that."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise no_bytes(what, error) from None


def no_bytes(what: str, error: UnicodeEncodeError) -> ConfigError:
    """The error for a text that cannot be encoded."""
    return ConfigError(
        f"{what} has U+{ord(error.object[error.start]):04X}, half of a pair of surrogates, which "
        "UTF-8 cannot encode",
        hint="pass whole characters, or the text that os.fsdecode makes of bytes",
    )


def is_utf8(text: str) -> bool:
    """Whether ``text`` can be encoded as UTF-8."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def coded(text: str, what: str) -> str:
    """Return the bytes that ``text`` stands for in base64. Raises as `encode`."""
    return base64.b64encode(encode(text, what)).decode("ascii")


def parameter(key: str, text: str) -> dict[str, str]:
    """Return a parameter of a request: as text, or in base64 if it is not UTF-8. Raises as
    `encode`."""
    return {key: text} if is_utf8(text) else {f"{key}_b64": coded(text, key)}
