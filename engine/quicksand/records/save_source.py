"""The record in a sandbox of the save with which it started."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from quicksand.base.fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSource:
    """A save as it was when the sandbox was created. It is needed only for the first start."""

    path: str
    """The save's directory or snapshot file."""
    below: tuple[str, ...] = ()
    """The directories of the saves below it, the lowest first."""
    name: str
    id: str
    """The save's id; "" for a save of the published packages."""
    digest: str
    """The digest of all its layers (`layers_digest`); "" if they have no checksums."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: object) -> SaveSource:
        """Parse the record. Raises ValueError naming what is wrong."""
        found = Fields(value, "bad record of a save")
        texts = {name: found.text(name) for name in ("path", "name", "id", "digest")}
        return cls(**texts, below=found.texts("below"))
