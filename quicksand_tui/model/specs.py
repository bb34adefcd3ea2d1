"""What forms ask the engine for, and the report that comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from quicksand_tui.model.frozen import frozen


@frozen
class CloneSpec:
    """The clones that a form asks for, as typed."""

    count: int = 1
    at: str | None = None
    """The id or tag of a checkpoint; None for the present."""
    mounts: str = ""
    """"ro" or "rw" for the directories of the source; "" for none."""


@frozen
class MountSpec:
    """The mount that a form asks for, as typed."""

    host: str
    guest: str
    readonly: bool = False
    protect: bool = False
    """What programs of this host run by themselves is read-only."""
    type: str = ""
    """How it is mounted; "" for the usual way."""


@frozen
class CheckpointSpec:
    """The checkpoint that a form asks for, as typed."""

    tag: str | None = None
    """If None, the engine numbers the checkpoint."""
    note: str = ""


@frozen
class NewSpec:
    """The sandbox that a form asks for, as typed; `quicksand_tui.forms.checks` checks it. The
    engine chooses what is not given."""

    image: str
    """The name, for a command, of the image or save that it starts from."""
    name: str
    save: str = ""
    """The key of the save; "" for an image."""
    is_file: bool = False
    """Whether ``image`` is the path of a file, as of a bundle, which may hold either."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """Options of the machine by their keywords, as in {"memory": "1G"}."""
    host: str = ""
    """The name of the machine on which it starts; "" is this one."""
    suggested: Mapping[str, str] = field(default_factory=dict)
    """Those that the image suggests, which apply where ``machine`` has none."""


@frozen
class SaveSpec:
    """The save that a form asks for, as typed."""

    name: str
    note: str = ""
    compress: bool = False


@frozen
class ExportSpec:
    """The exported file that a form asks for, as typed."""

    file: str
    full: bool = False
    """Whether the file contains the image."""
    compress: bool = False
    replace: bool = False
    """Whether an existing file is replaced."""


@frozen
class ImportSpec:
    """The file that a form asks to import, as typed."""

    file: str
    name: str = ""
    """The save's new name; "" keeps its own."""


@frozen
class Told:
    """The result of an operation, in words for people."""

    summary: str
    """One line."""
    lines: tuple[str, ...] = ()
    """Further lines that the user should read."""
