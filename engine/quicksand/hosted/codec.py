"""Values of the methods of `Sandbox` as JSON, and back, by the types that the methods declare."""

from __future__ import annotations

from quicksand.base.typed_values import Decoder, ForeignValueError, encode
from quicksand.hosted.type_names import NAMES

__all__ = ["ForeignValueError", "decode", "encode", "hints_of"]

_DECODER = Decoder(NAMES)
decode, hints_of = _DECODER.decode, _DECODER.hints_of
