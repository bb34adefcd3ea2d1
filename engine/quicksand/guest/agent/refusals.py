"""Decodes the errors of an agent.

The errors of an agent with the capability `TELLS` have fields for programs. An older agent, which a
checkpoint may hold in its memory, has only a message. The function `_read_message` is the one place
of the engine that reads such a message.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any, get_args

from quicksand.base.errors import AgentCode, AgentProtocolError, AgentRefusedError
from quicksand.guest.agent.values import bounded, text, whole

TELLS = "errors"
"""The capability of an agent whose errors have the fields ``errno`` and ``parameter``, and which
has the code "no_such_method"."""

ERRNO_MAX = 4095
"""The largest error number of Linux (MAX_ERRNO of include/linux/err.h)."""

PARAMETER_MAX = 64
"""Bytes of the name of a parameter; those of the protocol have at most 13."""

_CODES: dict[str, AgentCode] = {code: code for code in get_args(AgentCode)}
_OS_ERROR = re.compile(r"\(os error (\d{1,4})\)\Z")


class LinuxErrno(IntEnum):
    """Error numbers of a Linux guest (errno(3)). Other hosts have other numbers for them."""

    ENOENT = 2
    EAGAIN = 11
    EINVAL = 22
    ECONNREFUSED = 111
    EHOSTDOWN = 112


def decode(error: object, *, tells: bool, otherwise: str = "") -> AgentRefusedError:
    """Decode the agent's error. ``tells``: whether the agent has the capability `TELLS`;
    ``otherwise``: the message for an error that has none. Raises AgentProtocolError if the agent
    sent no object."""
    if not isinstance(error, dict):
        raise AgentProtocolError("the agent sent an error that is not an object")
    fields = error if tells else _read_message(error)
    message = fields.get("message")
    return AgentRefusedError(
        bounded(message) if isinstance(message, str) and message else otherwise or _NO_MESSAGE,
        code=_CODES.get(str(fields.get("code")), "internal"),
        errno=_errno(fields.get("errno")),
        parameter=_parameter(fields.get("parameter")),
    )


_NO_MESSAGE = "the agent refused the request"


def _read_message(error: dict[str, Any]) -> dict[str, Any]:
    """Return the error of an older agent with the fields that a newer agent would have added."""
    fields = dict(error)
    message = str(error.get("message"))
    is_missing = error.get("code") == "not_found"
    if is_missing and message.startswith("no such method"):
        fields["code"] = "no_such_method"
    if found := _OS_ERROR.search(message):
        fields["errno"] = int(found[1])
    if message.startswith("command "):
        fields["parameter"] = "argv"
        if is_missing:
            fields["errno"] = int(LinuxErrno.ENOENT)
    return fields


def _errno(value: object) -> int | None:
    try:
        number = whole(value)
    except ValueError:
        return None
    return number if 0 < number <= ERRNO_MAX else None


def _parameter(value: object) -> str:
    return text(value, PARAMETER_MAX) if isinstance(value, str) else ""
