"""The engine's errors on their way between machines, identified by the names of their classes,
never by their texts. The receiver makes only classes of `quicksand.base.errors`."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from quicksand.base import errors
from quicksand.base.effort import note_fault
from quicksand.base.errors import (
    AgentCode,
    AgentRefusedError,
    CommandFailedError,
    HostError,
    MachineError,
    QuicksandError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
)
from quicksand.base.paths import paths
from quicksand.base.remedies import Words
from quicksand.guest.agent.values import bounded
from quicksand.remote.peer_link import read_hint

LOG_MAX = 16 * 1024
"""Bytes of the log of a `MachineError`."""

CODES = frozenset(typing.get_args(AgentCode))
KNOWN = MappingProxyType(
    {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, QuicksandError)
    }
)
"""The classes by their names."""


def encode_error(error: Exception) -> dict[str, Any]:
    """Return an error as JSON. Any other than the engine's is a bug, or the host's."""
    if isinstance(error, OSError) and not isinstance(error, QuicksandError):
        error = HostError(str(error))
    if not isinstance(error, QuicksandError):
        note_fault(error, paths().engine_log)
        error = RemoteError(
            "the program there has made a mistake",
            hint=f"please report it, with the last lines of {paths().engine_log} there",
        )
    advice = error.advice
    return {
        "kinds": [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in KNOWN],
        "message": bounded(str(error.args[0]) if error.args else ""),
        "hint": advice.to_json() if isinstance(advice, Words) else bounded(advice),
        "log": bounded(getattr(error, "log", ""), LOG_MAX),
        "code": getattr(error, "code", None),
        "errno": getattr(error, "errno", None),
        "parameter": getattr(error, "parameter", ""),
    }


def decode_error(found: object, machine: str) -> QuicksandError:
    """Return the error that ``machine`` sent, as the first of its classes that is known here.
    Raises RemoteProtocolError."""
    match found:
        case {"kinds": list(kinds), "message": str(message), **more}:
            kind = next((KNOWN[one] for one in map(str, kinds) if one in KNOWN), RemoteError)
            hint = read_hint(more.get("hint"))
            return _make(kind, bounded(message), hint, more)
    raise RemoteProtocolError(f"{machine} sent an error that makes no sense")


def _make(
    kind: type[QuicksandError], message: str, hint: str | Words, more: Mapping[Any, Any]
) -> QuicksandError:
    code, errno, log = more.get("code"), more.get("errno"), more.get("log")
    if issubclass(kind, CommandFailedError):
        return RemoteError(message, hint=hint)
    if issubclass(kind, MachineError):
        return kind(message, hint=hint, log=bounded(str(log or ""), LOG_MAX))
    if issubclass(kind, RemoteRefusedError):
        return kind(message, code=bounded(str(code), 64), hint=hint)
    if issubclass(kind, AgentRefusedError):
        return kind(
            message,
            code=typing.cast("AgentCode", code if str(code) in CODES else "internal"),
            errno=errno if type(errno) is int else None,
            parameter=bounded(str(more.get("parameter", "")), 64),
            hint=hint,
        )
    return kind(message, hint=hint)
