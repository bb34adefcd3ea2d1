"""Values of the methods that another machine carries out as JSON, and back, by the types that the
methods declare."""

from __future__ import annotations

from typing import Any

from quicksand.base.errors import QuicksandError, RemoteProtocolError
from quicksand.base.typed_values import DEPTH_MAX, Decoder, ForeignValueError
from quicksand.base.typed_values import encode as encode_plain
from quicksand.hosted.errors import decode_error, encode_error
from quicksand.hosted.type_names import NAMES

__all__ = ["ForeignValueError", "decode", "encode", "hints_of"]


def encode(value: Any) -> Any:
    """Return a value as JSON has it. Raises ForeignValueError if JSON cannot hold it."""
    return encode_plain(value, DEPTH_MAX, _encode_error)


def _encode_error(value: Any) -> Any:
    if isinstance(value, QuicksandError):
        return encode_error(value)
    raise ForeignValueError(f"{type(value).__name__} is not for another machine")


def _decode_error(value: Any, name: str) -> QuicksandError:
    try:
        return decode_error(value, "it")
    except RemoteProtocolError as error:
        raise ForeignValueError(f"{name}: {error}") from None


_DECODER = Decoder(NAMES, others={QuicksandError: _decode_error})
decode, hints_of = _DECODER.decode, _DECODER.hints_of
