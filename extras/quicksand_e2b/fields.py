"""Reads the messages of clients: JSON of bounded size and depth, each member with its type."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from quicksand_e2b.errors import ApiError

BODY_MAX = 1024 * 1024
"""The most bytes of a JSON body, and of one message of a stream."""

MEMBERS_MAX = 1000
TEXT_MAX = 128 * 1024
"""The most characters of one text: as many as Linux takes for one word of a command line."""

_UPPER = re.compile("[A-Z]")


def parse_json(data: bytes) -> dict[str, Any]:
    """Returns the object in ``data``, empty if there is no data. Raises ApiError (400)."""
    if len(data) > BODY_MAX:
        raise ApiError(413, f"the body has {len(data)} bytes; {BODY_MAX} is the most")
    if not data.strip():
        return {}
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is no JSON: {error!s:.200}") from None
    if not isinstance(value, dict):
        raise ApiError(400, f"the body must be a JSON object, not {type(value).__name__}")
    return value


class Body:
    """The members of a JSON object. Each method raises ApiError (400) that names the member for a
    value of another type; a member that is null counts as missing. A name is also found as
    protobuf's JSON may spell it: ``symlinkTarget`` as ``symlink_target``."""

    def __init__(self, value: Mapping[str, Any], where: str = "") -> None:
        self._value = value
        self._where = where

    def any(self, name: str) -> Any:
        found = self._value.get(name)
        return found if found is not None else self._value.get(_snake(name))

    def has(self, name: str) -> bool:
        return self.any(name) is not None

    def text(self, name: str, default: str | None = None, *, most: int = TEXT_MAX) -> str:
        value = self.any(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        if len(value) > most:
            raise ApiError(400, f"{self._where}{name} is longer than {most} characters")
        return checked_text(value, self._where + name)

    def maybe_text(self, name: str) -> str | None:
        return self.text(name) if self.has(name) else None

    def flag(self, name: str, default: bool) -> bool:
        value = self.any(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def whole(self, name: str, default: int | None = None, *, least: int = 0, most: int) -> int:
        """Returns a whole number, which may be given as text, as protobuf's JSON does."""
        value = self.any(name)
        if value is None and default is not None:
            return default
        return whole(value, self._where + name, least=least, most=most)

    def maybe_whole(self, name: str, *, least: int = 0, most: int) -> int | None:
        return self.whole(name, least=least, most=most) if self.has(name) else None

    def texts(self, name: str) -> list[str]:
        value = self.any(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MEMBERS_MAX:
            raise self._wrong(name, f"a list of at most {MEMBERS_MAX} texts", value)
        for item in value:
            if not isinstance(item, str) or len(item) > TEXT_MAX:
                raise self._wrong(name, "a list of texts", item)
            checked_text(item, self._where + name)
        return value

    def text_map(self, name: str) -> dict[str, str]:
        value = self.any(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > MEMBERS_MAX:
            raise self._wrong(name, f"an object of at most {MEMBERS_MAX} texts", value)
        for key, item in value.items():
            if not isinstance(item, str) or len(item) > TEXT_MAX:
                raise self._wrong(f"{name}.{key:.80}", "a text", item)
            checked_text(key, self._where + name)
            checked_text(item, self._where + name)
        return value

    def part(self, name: str) -> Body:
        """Returns the object of that name; an empty one if it is missing."""
        value = self.any(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self._wrong(name, "an object", value)
        return Body(value, f"{self._where}{name}.")

    def data(self, name: str) -> bytes:
        """Returns bytes, which are given in base64."""
        value = self.any(name)
        if not isinstance(value, str):
            raise self._wrong(name, "bytes in base64", value)
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise ApiError(400, f"{self._where}{name} is no base64") from None

    def _wrong(self, name: str, wanted: str, value: object) -> ApiError:
        found = "missing" if value is None else f"{type(value).__name__}"
        return ApiError(400, f"{self._where}{name} must be {wanted}; it is {found}")


def whole(value: object, name: str, *, least: int, most: int) -> int:
    """Returns a whole number, which may be written as text. Raises ApiError (400)."""
    number: int | None = None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if number is None or not least <= number <= most:
        raise ApiError(400, f"{name} must be a whole number from {least} to {most}")
    return number


def checked_text(text: str, name: str) -> str:
    """Returns ``text``, if it can be encoded and has no NUL. Raises ApiError (400)."""
    if "\0" in text:
        raise ApiError(400, f"{name} contains a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ApiError(400, f"{name} is not Unicode text") from None
    return text


def _snake(name: str) -> str:
    return _UPPER.sub(lambda found: f"_{found[0].lower()}", name)
