"""The errors of this package::

VncError                      base of all; ``hint`` is a remedy, or ""
└── AskedError (ValueError)   the caller asks for something that makes no sense
"""

from __future__ import annotations


class VncError(Exception):
    """A server cannot be reached, has ended, refuses, or sends what makes no sense; or bytes are no
    picture. ``hint`` is a remedy, or ""."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class AskedError(VncError, ValueError):
    """The caller asks for something that makes no sense."""
