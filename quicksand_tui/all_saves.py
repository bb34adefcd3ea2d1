"""All saves, as the app's snapshot has them. Apart from `saved`, for the first paint has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand_tui.saved import SaveView, TrashedView


@dataclass(frozen=True, slots=True, kw_only=True)
class SavesView:
    """All saves at one moment."""

    loaded: bool = True
    """False before the first look at them."""
    saves: tuple[SaveView, ...] = ()
    trash: tuple[TrashedView, ...] = ()
    """The latest first."""
    error: str = ""
    """Why they cannot be read, or ""."""
    size: int = 0
    """Bytes of all saves, each file counted once."""
    trash_frees: int = 0
    """Bytes that are free when the trash is empty."""


NO_SAVES = SavesView(loaded=False)
