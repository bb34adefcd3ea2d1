"""The exceptions that the engine raises, and whose fault each is.

::

    QuicksandError
    ├── ConfigError (ValueError)          the caller: a value that makes no sense
    │   └── UnknownOptionError (TypeError)  the caller: a keyword that does not exist
    ├── SandboxNotFoundError (LookupError) the caller: no sandbox of that name or id
    ├── NameTakenError                    the caller: another sandbox has the name
    ├── StateError                        the caller: not possible in this state (stopped, busy)
    │   ├── NoDisplayError                the caller: the machine has no screen
    │   └── AgentTooOldError              the guest's agent, out of a checkpoint, cannot do it
    ├── HostError                         the host lacks something
    │   ├── QemuNotFound, QemuTooOld, QemuLacksDevice
    │   ├── AcceleratorError              the accelerator asked for does not work here
    │   ├── MemoryBudgetError, DiskSpaceError, PortInUseError
    │   ├── PathError                     a directory is missing, unwritable or not ours
    │   ├── UnreachableError              a server cannot be reached, or answers with an error
    │   └── MountError                    a directory of the host cannot be served or mounted
    ├── HistoryError                      a checkpoint is damaged, unfit, or its history is busy
    │   └── CheckpointNotFoundError (ValueError)  the caller: no checkpoint of that tag
    ├── SaveError (ValueError)            a save is damaged, newer than we know, or unfit
    │   ├── SaveNotFoundError (FileNotFoundError)
    │   └── BundleError                   a file to be imported is damaged, or not harmless
    ├── ImageError                        an image is damaged or unfit
    │   └── ImageNotFound (RuntimeError)
    ├── MachineError                      the VM failed
    │   ├── QemuDiedError                 QEMU ended by itself
    │   ├── UnfitGuestError               others were to start from it, and it is unfit
    │   ├── GuestPanicError               the guest's kernel panicked
    │   ├── BootTimeoutError (TimeoutError)
    │   └── DisplayError                  its screen cannot be reached, or says what makes no sense
    │       └── DisplayTimeoutError (TimeoutError)  what was waited for did not happen on it
    ├── AgentError                        the guest's agent failed or refused
    │   ├── AgentUnreachableError         no answer, or the connection broke; outcome unknown
    │   │   └── RevertedError             the sandbox went back to a checkpoint meanwhile
    │   ├── AgentProtocolError            it sent something that it must not send
    │   └── AgentRefusedError             it refused: ``code`` says why
    │       ├── GuestFileNotFoundError (FileNotFoundError)    a file of the guest is not there,
    │       ├── GuestFileExistsError (FileExistsError)        is there already,
    │       ├── GuestPermissionError (PermissionError)        must not be touched,
    │       ├── GuestIsADirectoryError (IsADirectoryError)    is a directory,
    │       └── GuestNotADirectoryError (NotADirectoryError)  is none
    ├── RemoteError                       another machine, or our program there, failed or refused
    │   ├── RemoteUnreachableError        no connection, or it broke; outcome unknown
    │   ├── RemoteProtocolError           it sent something that it must not send
    │   ├── RemoteRefusedError            it refused: ``code`` says why
    │   └── RemoteUnansweredError         ssh asked the user, who gave up
    ├── FleetError                        a fleet of machines: none is up, or it cannot be used
    │   ├── FleetFullError                no machine of it has room; ``lacks`` says why not
    │   └── FleetHostNotFoundError (LookupError)  it has no machine of that name
    └── CommandFailedError                a command of the guest failed, and was to be checked
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from quicksand.base.remedies import FREE_SPACE, Say, Words, shorten

AgentCode = Literal[
    "bad_request", "unauthorized", "forbidden", "not_found", "no_such_method", "exists", "busy",
    "too_many", "frozen", "not_frozen", "too_large", "no_space", "io", "unsupported", "unavailable",
    "internal",
]  # fmt: skip
"""The error codes of the agent's protocol (docs/internals/agent-protocol.md)."""


class QuicksandError(Exception):
    """Base of all errors of this package.

    ``str(error)`` states the fact with the real name or value; very long ones are shortened.
    ``hint`` is one thing to do next, or "". Where there are remedies in them (base/remedies.py),
    both speak Python; `text_in` and `hint_in` let another face say those in its own words.
    """

    def __init__(self, message: str | Words, *, hint: str | Words = "") -> None:
        super().__init__(shorten(str(message)))
        self.advice = hint
        self._worded = message if isinstance(message, Words) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and send it to other processes with its keywords, which ``args`` alone lack."""
        return _as_it_was, (type(self), self.args), self.__dict__

    @property
    def hint(self) -> str:
        return shorten(str(self.advice))

    @hint.setter
    def hint(self, hint: str | Words) -> None:
        self.advice = hint

    @property
    def words(self) -> str | Words:
        """``str(error)``, as a part of another error's message."""
        return str(self) if self._worded is None else self._worded

    def text_in(self, say: Say) -> str:
        """``str(error)`` with each remedy in the words of ``say``."""
        return str(self) if self._worded is None else shorten(self._worded.said(say))

    def hint_in(self, say: Say) -> str:
        """``hint`` with each remedy in the words of ``say``."""
        return shorten(self.advice.said(say)) if isinstance(self.advice, Words) else self.hint


def _as_it_was(kind: type[QuicksandError], args: tuple[Any, ...]) -> QuicksandError:
    """Return an error of that kind, whose attributes are set afterwards."""
    # By the base that defines the layout: of two, Python takes the first one's, and refuses it.
    make = OSError if issubclass(kind, OSError) else Exception
    error: QuicksandError = make.__new__(kind, *args)
    error.args = args
    return error


class ConfigError(QuicksandError, ValueError):
    """The caller passed a value that is not valid."""


class UnknownOptionError(ConfigError, TypeError):
    """The caller passed a keyword that does not exist."""


class SandboxNotFoundError(QuicksandError, LookupError):
    """No sandbox has that name or id."""


class NameTakenError(QuicksandError):
    """Another sandbox has that name."""


class StateError(QuicksandError, RuntimeError):
    """The operation is not possible in the sandbox's present state (stopped, busy …)."""


class NoDisplayError(StateError):
    """The machine has no screen, keyboard and pointer."""


class AgentTooOldError(StateError):
    """The guest's agent is of an older version, from a checkpoint or of a sandbox that has run for
    long, and cannot do what is requested."""


class HostError(QuicksandError, RuntimeError):
    """The host lacks something that is needed."""


class QemuNotFound(HostError):  # noqa: N818 - reads as a fact, like FileNotFound
    """There is no QEMU on this host."""


class QemuTooOld(HostError):  # noqa: N818
    """QEMU is older than the oldest version that works."""


class QemuLacksDevice(HostError):  # noqa: N818
    """QEMU was built without a device that a sandbox needs, or the package that has it is not
    installed."""


class AcceleratorError(HostError):
    """The accelerator that was asked for does not work on this host."""


class MemoryBudgetError(HostError):
    """The host does not have enough memory left for this sandbox."""


class DiskSpaceError(HostError):
    """The host does not have enough disk space left."""

    def __init__(self, message: str | Words, *, hint: str | Words = FREE_SPACE) -> None:
        super().__init__(message, hint=hint)


class PortInUseError(HostError):
    """A host port that is to be forwarded is in use."""


class PathError(HostError):
    """A directory of quicksand is missing, cannot be written or belongs to another user."""


class UnreachableError(HostError):
    """A server could not be reached, or answered with an error."""


class MountError(HostError):
    """A directory of the host cannot be served, or the guest cannot mount it."""


class HistoryError(QuicksandError):
    """A checkpoint is damaged or does not fit this machine, or another client is changing the
    sandbox's checkpoints."""


class CheckpointNotFoundError(HistoryError, ValueError):
    """No checkpoint has that tag or id."""


class SaveError(QuicksandError, ValueError):
    """A save is damaged, has an unknown version, or needs an image that is not here."""


class SaveNotFoundError(SaveError, FileNotFoundError):
    """There is no save of that name or at that path."""


class BundleError(SaveError):
    """A file to be imported is damaged, truncated, of a newer version, or not plainly harmless."""


class ImageError(QuicksandError, RuntimeError):
    """An image is damaged or cannot be used."""


class ImageNotFound(ImageError):  # noqa: N818
    """No image has that name. The message starts with "Image not found"."""


class MachineError(QuicksandError, RuntimeError):
    """The VM failed. ``log`` is the end of QEMU's messages or of the guest's console."""

    def __init__(self, message: str | Words, *, hint: str | Words = "", log: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{self.log.rstrip()}" if self.log.strip() else text


class UnfitGuestError(MachineError):
    """A guest from which others were to start has a fault."""


class QemuDiedError(MachineError):
    """QEMU ended by itself, at its start or while the sandbox ran."""


class GuestPanicError(MachineError):
    """The guest's kernel panicked."""


class BootTimeoutError(MachineError, TimeoutError):
    """The agent did not answer within ``boot_timeout`` seconds."""


class DisplayError(MachineError):
    """The machine's screen cannot be reached, its connection has ended, or it says what makes no
    sense."""


class DisplayTimeoutError(DisplayError, TimeoutError):
    """The screen did not change in time as a caller waited for."""


class AgentError(QuicksandError, RuntimeError):
    """The guest's agent failed or refused. Only a refusal has a ``code``, and perhaps an
    ``errno``."""

    code: AgentCode | None = None
    errno: int | None = None


class AgentUnreachableError(AgentError):
    """The agent does not answer or the connection broke.

    It is unknown whether a command that was in flight has run; nothing is retried.
    """


class RevertedError(AgentUnreachableError):
    """The sandbox was reverted to a checkpoint, and with it the effects of requests in flight."""


class AgentProtocolError(AgentError):
    """The agent sent something that its protocol forbids. The connection is closed."""


class AgentRefusedError(AgentError):
    """The agent refused a request. ``code`` is the error code of its protocol. ``errno`` is the
    number that the guest's Linux gave, if it gave one, and ``parameter`` the name of the request's
    parameter that is at fault, or ""."""

    code: AgentCode

    def __init__(
        self,
        message: str | Words,
        *,
        code: AgentCode,
        errno: int | None = None,
        parameter: str = "",
        hint: str | Words = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.errno = errno
        self.parameter = parameter


class GuestFileNotFoundError(AgentRefusedError, FileNotFoundError):
    """There is no such file in the guest."""


class GuestFileExistsError(AgentRefusedError, FileExistsError):
    """The guest has a file there already."""


class GuestPermissionError(AgentRefusedError, PermissionError):
    """The guest does not allow it."""


class GuestIsADirectoryError(AgentRefusedError, IsADirectoryError):
    """The path in the guest is a directory."""


class GuestNotADirectoryError(AgentRefusedError, NotADirectoryError):
    """The path in the guest is no directory."""


class RemoteError(QuicksandError, RuntimeError):
    """Another machine, or our program there, failed or refused."""


class RemoteUnreachableError(RemoteError):
    """Another machine cannot be reached, or the connection to it broke. It is then unknown whether
    the requests under way there were carried out."""


class RemoteProtocolError(RemoteError):
    """Our program at another machine sent something that its protocol forbids. The connection
    is closed."""


class RemoteRefusedError(RemoteError):
    """Our program at another machine refused a request. ``code`` is a word of its protocol
    (docs/internals/hosts.md)."""

    def __init__(self, message: str | Words, *, code: str, hint: str | Words = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code


class RemoteUnansweredError(RemoteError):
    """ssh asked the user something on the way to another machine, and got no answer. Trying again
    by itself would ask again."""


class FleetError(QuicksandError, RuntimeError):
    """There is no fleet, or it cannot be used."""


class FleetFullError(FleetError):
    """No machine of a fleet has room for a sandbox. ``lacks`` holds a `quicksand.HostLack`
    for each machine."""

    def __init__(
        self, message: str | Words, *, lacks: Sequence[object] = (), hint: str | Words = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.lacks: tuple[Any, ...] = tuple(lacks)


class FleetHostNotFoundError(FleetError, LookupError):
    """A fleet has no machine of that name."""


class CommandFailedError(QuicksandError, RuntimeError):
    """A command of the guest did not exit with 0. The attributes are those of its result; the text
    of this error ends with ``output``, the last lines that it wrote, fit to be shown."""

    def __init__(
        self,
        message: str,
        *,
        exit_code: int,
        stdout: str = "",
        stderr: str = "",
        signal: int | None = None,
        timed_out: bool = False,
        output: str = "",
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr
        self.signal = signal
        self.timed_out = timed_out
        self.output = output

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{self.output}" if self.output else text
