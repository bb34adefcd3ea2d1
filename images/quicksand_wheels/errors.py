"""The errors of this package::

    WheelsError                   base of all; ``hint`` is a remedy, or ""
    ├── RefusedError              what was fetched or given is not right: damaged, too large …
    ├── NoAnswerError             a server cannot be reached, or answers with an error
    ├── CertificatesError         a file with certificates of this host cannot be read
    └── AskedError (ValueError)   the caller asks for something that makes no sense

Where a file cannot be written, an OSError says so.
"""

from __future__ import annotations


class WheelsError(Exception):
    """Base of all errors of this package. ``hint`` is a remedy, or ""."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class RefusedError(WheelsError):
    """What was fetched or given is not right; the message names it."""


class NoAnswerError(WheelsError):
    """A server cannot be reached, or answers with an error."""


class CertificatesError(WheelsError):
    """A file with certificates of this host cannot be read."""


class AskedError(WheelsError, ValueError):
    """The caller asks for something that makes no sense."""
