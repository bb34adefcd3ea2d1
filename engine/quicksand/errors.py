"""What can go wrong, and whose move it is.

::

    QuicksandError
    ├── ConfigError (ValueError)          the caller: a value that makes no sense
    │   └── UnknownOptionError (TypeError)  the caller: a keyword that does not exist
    ├── SandboxNotFoundError (LookupError) the caller: no sandbox of that name or id
    ├── NameTakenError                    the caller: another sandbox has the name
    ├── StateError                        the caller: not possible in this state (stopped, busy)
    ├── HostError                         the host lacks something
    │   ├── QemuNotFound, QemuTooOld
    │   ├── AcceleratorError              the accelerator asked for does not work here
    │   ├── MemoryBudgetError, DiskSpaceError, PortInUseError
    │   └── PathError                     a directory is missing, unwritable or not ours
    ├── HistoryError                      a checkpoint is damaged, unfit, or its history is busy
    │   └── CheckpointNotFoundError (ValueError)  the caller: no checkpoint of that tag
    ├── SaveError (ValueError)            a save is damaged, newer than we know, or unfit
    │   ├── SaveNotFoundError (FileNotFoundError)
    │   └── BundleError                   a file to be imported is damaged, or not harmless
    ├── ImageError                        an image is damaged or unfit
    │   └── ImageNotFound (RuntimeError)
    ├── MachineError                      the VM failed
    │   ├── QemuDiedError                 QEMU ended by itself
    │   ├── GuestPanicError               the guest's kernel panicked
    │   └── BootTimeoutError (TimeoutError)
    └── AgentError                        the guest's agent failed or refused
        ├── AgentUnreachableError         no answer, or the connection broke; outcome unknown
        │   └── RevertedError             the sandbox went back to a checkpoint meanwhile
        ├── AgentProtocolError            it sent something that it must not send
        └── AgentRefusedError             it refused: ``code`` says why
"""

from __future__ import annotations


class QuicksandError(Exception):
    """Base of all errors of this package.

    ``str(error)`` states the fact with the real name or value. ``hint`` is one thing to do next,
    or empty.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class ConfigError(QuicksandError, ValueError):
    """A value that the caller gave makes no sense."""


class UnknownOptionError(ConfigError, TypeError):
    """A keyword that does not exist."""


class SandboxNotFoundError(QuicksandError, LookupError):
    """No sandbox has that name or id."""


class NameTakenError(QuicksandError):
    """Another sandbox has that name."""


class StateError(QuicksandError):
    """The operation is not possible in the sandbox's present state."""


class HostError(QuicksandError):
    """The host lacks something."""


class QemuNotFound(HostError):  # noqa: N818 - reads as a fact, like FileNotFound
    """No QEMU on this host."""


class QemuTooOld(HostError):  # noqa: N818
    """QEMU is there, but older than the oldest version that works."""


class AcceleratorError(HostError):
    """The accelerator that was asked for does not work on this host."""


class MemoryBudgetError(HostError):
    """The host has not enough memory left for this sandbox."""


class DiskSpaceError(HostError):
    """The host has not enough disk space left."""


class PortInUseError(HostError):
    """A host port to be forwarded is taken."""


class PathError(HostError):
    """A directory of ours is missing, cannot be written or belongs to somebody else."""


class HistoryError(QuicksandError):
    """A checkpoint is damaged or does not fit, or another client changes the history."""


class CheckpointNotFoundError(HistoryError, ValueError):
    """No checkpoint has that tag or id."""


class SaveError(QuicksandError, ValueError):
    """A save is damaged, of a version that we do not know, or lies on another image."""


class SaveNotFoundError(SaveError, FileNotFoundError):
    """There is no save of that name or at that path."""


class BundleError(SaveError):
    """A file to be imported is damaged, cut off, newer than we know, or not plainly harmless."""


class ImageError(QuicksandError):
    """An image is damaged or unfit."""


class ImageNotFound(ImageError, RuntimeError):  # noqa: N818
    """No image of that name. The message starts with "Image not found"."""


class MachineError(QuicksandError):
    """The VM failed. ``log`` is the end of what QEMU or the guest's console said."""

    def __init__(self, message: str, *, hint: str = "", log: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n{self.log.rstrip()}" if self.log.strip() else text


class QemuDiedError(MachineError):
    """QEMU ended by itself: at start, or while the sandbox ran."""


class GuestPanicError(MachineError):
    """The guest's kernel panicked."""


class BootTimeoutError(MachineError, TimeoutError):
    """The agent did not answer within ``boot_timeout``."""


class AgentError(QuicksandError):
    """The guest's agent failed."""


class AgentUnreachableError(AgentError):
    """The agent does not answer or the connection broke.

    Whether a command that was under way has run is unknown; nothing is retried.
    """


class RevertedError(AgentUnreachableError):
    """The sandbox went back to a checkpoint: what ran has never been."""


class AgentProtocolError(AgentError):
    """The agent sent something that the protocol forbids. The connection is closed."""


class AgentRefusedError(AgentError):
    """The agent refused a request. ``code`` is the protocol's error code."""

    def __init__(self, message: str, *, code: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
