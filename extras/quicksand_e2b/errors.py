"""The answers to a client whose request cannot be done.

The control plane and the plain routes of a sandbox answer ``{"code": status, "message": text}``
(`ApiError`); its procedures answer ``{"code": word, "message": text}`` (`RpcError`), where the word
is one of the Connect protocol. The client's library decides by these and, for a sandbox that is
gone, by two texts: `NOT_FOUND` and `PORT_CLOSED` are part of the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from quicksand import (
    AgentError,
    AgentRefusedError,
    AgentTooOldError,
    AgentUnreachableError,
    CheckpointNotFoundError,
    ConfigError,
    DiskSpaceError,
    FleetError,
    FleetFullError,
    ImageNotFound,
    MachineError,
    MemoryBudgetError,
    QuicksandError,
    RemoteError,
    SandboxNotFoundError,
    SaveNotFoundError,
    StateError,
)

from quicksand_tui.plugins import hint_of, text_of

NOT_FOUND = "The sandbox was not found"
PORT_CLOSED = "The sandbox is running but port is not open"

STATUS_OF_CODE: Mapping[str, int] = {
    "canceled": 499,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "unauthenticated": 401,
}
"""The HTTP status of each code of the Connect protocol that is used here
(https://connectrpc.com/docs/protocol#error-codes)."""

RETRY_LATER: Mapping[str, str] = {"Retry-After": "5"}
DO_NOT_RETRY: Mapping[str, str] = {"Should-Retry": "false"}


class HostAwayError(RemoteError):
    """A host of the fleet cannot be asked now: nothing was done, and nobody knows whether its
    sandboxes run."""


class ApiError(Exception):
    """An answer with an HTTP status and a message."""

    def __init__(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        """``more`` are further members of the body."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}
        self.more = more

    def body(self) -> dict[str, Any]:
        return {**self.more, "code": self.status, "message": self.message}


class RpcError(Exception):
    """The failure of a procedure. ``code`` is one of `STATUS_OF_CODE`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        return STATUS_OF_CODE[self.code]

    def body(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message}


def not_running(id_: str) -> ApiError:
    """Returns the answer to any request for a sandbox that does not run."""
    return ApiError(502, NOT_FOUND, sandboxId=id_)


def no_such_sandbox(id_: str) -> ApiError:
    return ApiError(404, f"there is no sandbox {id_!r:.80}")


def is_too_old(error: QuicksandError) -> bool:
    """Whether the guest's agent, which a snapshot or a running sandbox may have of an older version
    than this server's, cannot do what it was asked to do."""
    if isinstance(error, AgentRefusedError):
        return error.code == "no_such_method"
    return isinstance(error, AgentTooOldError)


def told(error: QuicksandError) -> str:
    """Returns the message of an error of the engine, with its advice in the words of the commands:
    clients of this server do not use the engine's Python."""
    said, hint = text_of(error), hint_of(error)
    if is_too_old(error):
        return f"{said}. {_OLDER}"
    return said if hint in said else f"{said} ({hint})"


_OLDER = (
    "The agent in this sandbox is older than this server: pause the sandbox without its memory and "
    "connect to it again, which gives it a new agent, or make a new sandbox"
)


def api_error(error: QuicksandError) -> ApiError:
    """Returns the control plane's answer to an error of the engine."""
    if is_too_old(error):
        return ApiError(501, told(error))
    for kinds, status, headers in _ANSWERS:
        if isinstance(error, kinds):
            return ApiError(status, told(error), headers=headers)
    return ApiError(500, told(error))


_ANSWERS: Sequence[tuple[tuple[type[QuicksandError], ...], int, Mapping[str, str]]] = (
    ((HostAwayError,), 503, RETRY_LATER),
    ((FleetFullError,), 429, DO_NOT_RETRY),
    ((MemoryBudgetError, DiskSpaceError, FleetError), 503, DO_NOT_RETRY),
    # It may have been done: a client that does it again must look first.
    ((RemoteError, AgentUnreachableError), 502, DO_NOT_RETRY),
    (
        (ImageNotFound, SaveNotFoundError, CheckpointNotFoundError, SandboxNotFoundError),
        404,
        MappingProxyType({}),
    ),
    ((ConfigError,), 400, MappingProxyType({})),
    ((StateError,), 409, MappingProxyType({})),
)
"""The answers to errors; the first that fits counts."""


_CODES: Mapping[str, str] = {
    "bad_request": "invalid_argument",
    "forbidden": "permission_denied",
    "not_found": "not_found",
    "exists": "already_exists",
    "busy": "failed_precondition",
    "too_large": "resource_exhausted",
    "too_many": "resource_exhausted",
    "no_space": "resource_exhausted",
    "unsupported": "unimplemented",
    "unavailable": "unavailable",
}
"""The codes of our agent (docs/internals/agent-protocol.md); a missing one is "internal"."""


def rpc_error(error: QuicksandError) -> RpcError:
    """Returns a procedure's answer to an error of the engine."""
    match error:
        case _ if is_too_old(error):
            return RpcError("unimplemented", told(error))
        case AgentRefusedError():
            return RpcError(_CODES.get(error.code, "internal"), told(error))
        case ConfigError():
            return RpcError("invalid_argument", told(error))
        case AgentError() | MachineError() | RemoteError():
            return RpcError("unavailable", told(error))
        case StateError():
            return RpcError("resource_exhausted", told(error))
        case _:
            return RpcError("internal", told(error))


_STATUS_OF_REFUSAL: Mapping[str, int] = {
    "bad_request": 400,
    "forbidden": 403,
    "not_found": 404,
    "exists": 409,
    "no_space": 507,
    "too_many": 429,
    "unsupported": 501,
}


def file_error(error: QuicksandError) -> ApiError:
    """Returns the answer of `/files` to an error of the engine."""
    if is_too_old(error):
        return ApiError(501, told(error))
    if isinstance(error, IsADirectoryError | NotADirectoryError):
        return ApiError(400, told(error))
    if isinstance(error, AgentRefusedError):
        return ApiError(_STATUS_OF_REFUSAL.get(error.code, 500), told(error))
    if isinstance(error, ConfigError):
        return ApiError(400, told(error))
    if isinstance(error, AgentUnreachableError | RemoteError):
        return ApiError(503, told(error), headers=DO_NOT_RETRY)
    return ApiError(500, told(error))
