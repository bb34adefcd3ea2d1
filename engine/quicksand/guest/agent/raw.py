"""Texts that stand for bytes, as `os.fsdecode` makes them. A guest's system takes commands,
variables, paths and input as bytes, which need not be UTF-8."""

from __future__ import annotations

import base64

from quicksand.base.errors import ConfigError


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
