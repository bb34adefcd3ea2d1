"""What somebody has typed into a form; `quicksand_tui.spec` checks it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSpec:
    """Clones to be made, as typed."""

    count: int = 1
    at: str = ""
    """The id of a checkpoint; "" for the present."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSpec:
    """A checkpoint to be taken, as typed."""

    tag: str = ""
    """ "" lets the engine number it."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSpec:
    """A sandbox to be made, as typed; `quicksand_tui.spec` checks it. What is "" is the engine's to
    choose."""

    image: str
    """What a command calls the image, or the save that it begins with."""
    name: str
    save: str = ""
    """The key of that save."""
    memory: str = "512M"
    cpus: str = "1"
    network: str = "mounts_only"
    ports: str = ""
    """Of this host and of the guest, as in "8080:80, 0:22"."""
