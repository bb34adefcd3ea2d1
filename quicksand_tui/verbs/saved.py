"""A save that was made, and the words about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from quicksand_tui.model.amounts import size_text
from quicksand_tui.model.shown_sandboxes import split_host
from quicksand_tui.model.specs import Told
from quicksand_tui.model.text import clean, sanitise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quicksand.saves.save_manifest import SaveManifest
    from quicksand.saves.store import Save

    from quicksand_tui.model.keymap import Keymap

VOLATILE_SHOWN = 5
UNSYNCED = (
    "not in it: what the guest had not yet written to its disk, since it was paused or did not "
    "answer; `quicksand-tui resume` lets it, then save again"
)
"""The loss told when a save or a snapshot could not be synced first."""


class Saved(NamedTuple):
    """A save that was made."""

    save: Save
    size: int
    """Its allocated bytes, as in the list of saves; the lengths of its sparse files are larger."""
    seconds: float


def tell_saved(name: str, saved: Saved, keymap: Keymap) -> Told:
    """Returns words about a save that was made, and about all that is not in it."""
    manifest = saved.save.require()
    if split_host(name)[1]:
        summary = f"{sanitise(saved.save.name)} is saved on the machine of {name}"
    else:
        summary = f"{sanitise(saved.save.name)} is saved: {size_text(saved.size)}"
    if manifest.unsynced:
        summary += (
            "; what its guest had not yet written to its disk is missing: resume it, save again"
        )
    if not manifest.volatile:
        return Told(summary=summary)
    shown = [sanitise(path) for path in manifest.volatile[:VOLATILE_SHOWN]]
    more = len(manifest.volatile) - len(shown)
    names = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return Told(summary=f"{summary}; not in it, since only in the guest's memory: {names}")


def lines_of_saved(manifest: SaveManifest) -> Iterator[str]:
    """Yields the command's words about all that is not in a save."""
    if manifest.unsynced:
        yield UNSYNCED
    if manifest.volatile:
        some = ", ".join(clean(path) for path in manifest.volatile[:VOLATILE_SHOWN])
        more = len(manifest.volatile) - VOLATILE_SHOWN
        more_text = f" and {more} more" if more > 0 else ""
        yield f"not in it, since only in the guest's memory: {some}{more_text}"
