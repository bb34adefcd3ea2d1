"""What a sandbox remembers of the save that it began from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A save, as it was when the sandbox was made. It is needed for the first start only."""

    path: str
    """Its directory."""
    below: tuple[str, ...] = ()
    """Those of the saves that it lies on, the lowest first."""
    name: str
    id: str
    """"" for one of the published packages."""
    digest: str
    """Of its layers all together; "" where nothing vouches for them."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Source | None:
        """Raises KeyError, TypeError."""
        if value is None:
            return None
        texts = {name: str(value[name]) for name in ("path", "name", "id", "digest")}
        return cls(**texts, below=tuple(str(path) for path in value["below"]))
