"""The knowledge of both ends: the methods that another machine carries out, and their arguments,
results and errors as JSON, by the types that they declare.

An error is identified by the names of its classes, never by its text. The receiver makes only
classes of `quicksand.base.errors`.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from quicksand_disks.changes import ChangeKind, FileChange, FileType
from quicksand_disks.comparing import FileVersions, PackageChange, Patch, Version

from quicksand.base import errors
from quicksand.base.arch import Architecture
from quicksand.base.errors import (
    AgentCode,
    AgentRefusedError,
    CommandFailedError,
    HostError,
    MachineError,
    QuicksandError,
    RemoteError,
    RemoteProtocolError,
    RemoteRefusedError,
)
from quicksand.base.faults import note_fault
from quicksand.base.progress import BootTiming, Progress
from quicksand.base.remedies import Words
from quicksand.base.typed_values import DEPTH_MAX, Decoder, ForeignValueError
from quicksand.base.typed_values import encode as encode_plain
from quicksand.guest.agent.values import bounded
from quicksand.life.guest import InGuest
from quicksand.life.host_directories import HostDirectories
from quicksand.life.kept_things import KeptThings
from quicksand.life.parts import Ending, LocalParts, Pausing
from quicksand.life.qmp_events import Event, EventKind
from quicksand.life.sandbox_checkpoints import Checkpoints
from quicksand.life.sandbox_desktop import Desktop
from quicksand.life.sandbox_display import Region
from quicksand.life.sandbox_life import Life
from quicksand.life.sandbox_mounts import MountHandle
from quicksand.life.sandbox_saves import Saves
from quicksand.mounts.known_mounts import Written
from quicksand.records.config import Accelerator, NetworkMode, SandboxConfig
from quicksand.records.mount import Mount
from quicksand.records.port_forwards import PortForward
from quicksand.remote.peer_link import read_hint
from quicksand.saves.save_manifest import Base, Parent, Save, SavedLayer, SaveManifest
from quicksand.snapshots.comparison import Difference
from quicksand.snapshots.recognition import ShellTail
from quicksand.things.checkpoint import Checkpoint
from quicksand.things.sandbox_facts import GuestTraffic, HostUsage, SandboxStats

__all__ = ["ForeignValueError", "decode", "encode", "hints_of"]

LOG_MAX = 16 * 1024
"""Bytes of the log of a `MachineError`."""

CODES = frozenset(typing.get_args(AgentCode))
KNOWN = MappingProxyType(
    {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, QuicksandError)
    }
)
"""The classes by their names."""


def encode_error(error: Exception) -> dict[str, Any]:
    """Return an error as JSON. Any other than the engine's is a bug, or the host's."""
    if isinstance(error, OSError) and not isinstance(error, QuicksandError):
        error = HostError(str(error))
    if not isinstance(error, QuicksandError):
        error = RemoteError(
            "the program there has made a mistake", hint=f"{note_fault(error)} there"
        )
    advice = error.advice
    return {
        "kinds": [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in KNOWN],
        "message": bounded(str(error.args[0]) if error.args else ""),
        "words": error.words.to_json() if isinstance(error.words, Words) else None,
        "hint": advice.to_json() if isinstance(advice, Words) else bounded(advice),
        "log": bounded(getattr(error, "log", ""), LOG_MAX),
        "code": getattr(error, "code", None),
        "errno": getattr(error, "errno", None),
        "parameter": getattr(error, "parameter", ""),
    }


def decode_error(found: object, machine: str) -> QuicksandError:
    """Return the error that ``machine`` sent, as the first of its classes that is known here.
    Raises RemoteProtocolError."""
    match found:
        case {"kinds": list(kinds), "message": str(message), **more}:
            kind = next((KNOWN[one] for one in map(str, kinds) if one in KNOWN), RemoteError)
            hint = read_hint(more.get("hint"))
            # Where it names a remedy, each face says that in its own way.
            return _make(kind, read_hint(more.get("words")) or bounded(message), hint, more)
    raise RemoteProtocolError(f"{machine} sent an error that makes no sense")


def _make(
    kind: type[QuicksandError], message: str | Words, hint: str | Words, more: Mapping[Any, Any]
) -> QuicksandError:
    code, errno, log = more.get("code"), more.get("errno"), more.get("log")
    if issubclass(kind, CommandFailedError):
        return RemoteError(message, hint=hint)
    if issubclass(kind, MachineError):
        return kind(message, hint=hint, log=bounded(str(log or ""), LOG_MAX))
    if issubclass(kind, RemoteRefusedError):
        return kind(message, code=bounded(str(code), 64), hint=hint)
    if issubclass(kind, AgentRefusedError):
        return kind(
            message,
            code=typing.cast("AgentCode", code if str(code) in CODES else "internal"),
            errno=errno if type(errno) is int else None,
            parameter=bounded(str(more.get("parameter", "")), 64),
            hint=hint,
        )
    return kind(message, hint=hint)


NAMES: MappingProxyType[str, Any] = MappingProxyType(
    {
        **{one.__name__: one for one in (Architecture, BootTiming, ChangeKind, FileChange)},
        **{one.__name__: one for one in (FileType, Patch, FileVersions, Version, GuestTraffic)},
        **{one.__name__: one for one in (Event, EventKind, MountHandle, SandboxStats)},
        **{one.__name__: one for one in (GuestTraffic, Written, HostUsage, Accelerator)},
        **{one.__name__: one for one in (NetworkMode, SandboxConfig, Mount, PortForward)},
        **{one.__name__: one for one in (Base, Parent, Save, SavedLayer, SaveManifest)},
        **{one.__name__: one for one in (Checkpoint, Difference, PackageChange, ShellTail)},
        **{"Any": Any, "Callable": Callable, "Mapping": Mapping, "Path": Path},
        **{"Image": Any, "Progress": Progress, "Region": Region, "Sequence": Sequence},
    }
)
"""The types of the methods' arguments and results, by the names in their declarations: some modules
import these only for type checkers."""


def encode(value: Any) -> Any:
    """Return a value as JSON has it. Raises ForeignValueError if JSON cannot hold it."""
    return encode_plain(value, DEPTH_MAX, _encode_error)


def _encode_error(value: Any) -> Any:
    if isinstance(value, QuicksandError):
        return encode_error(value)
    raise ForeignValueError(f"{type(value).__name__} is not for another machine")


def _decode_error(value: Any, name: str) -> QuicksandError:
    try:
        return decode_error(value, "it")
    except RemoteProtocolError as error:
        raise ForeignValueError(f"{name}: {error}") from None


_DECODER = Decoder(NAMES, others={QuicksandError: _decode_error})
decode, hints_of = _DECODER.decode, _DECODER.hints_of


_ALL: tuple[Callable[..., Any], ...] = (
    *(Life.start, Life.detach, InGuest.stats, InGuest.ping, LocalParts.clone, LocalParts.fork),
    *(Ending.stop, Ending.trash, Pausing.pause, Pausing.resume),
    *(HostDirectories.mount, HostDirectories.unmount, Saves.save, Saves.save_to),
    *(Checkpoints.checkpoint, Checkpoints.revert, Checkpoints.undo),
    *(Checkpoints.delete_checkpoint, Checkpoints.pin_checkpoint, Checkpoints.note_checkpoint),
    *(Checkpoints.checkpoint_screen, Checkpoints.checkpoint_shell, Checkpoints.checkpoints),
    *(Checkpoints.diff, Checkpoints.compare, Checkpoints.compare_file, Checkpoints.patch),
    *(Desktop.screenshot, Desktop.query_display_size, Desktop.set_display_size),
    *(Desktop.wait_for_screen, Desktop.type_text, Desktop.press_key, Desktop.key_down),
    *(Desktop.key_up, Desktop.mouse_move, Desktop.mouse_move_px, Desktop.mouse_click),
    *(Desktop.mouse_down, Desktop.mouse_up, Desktop.mouse_drag, Desktop.mouse_scroll),
    Desktop.query_mouse_position,
)

METHODS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {method.__name__: method for method in _ALL}
)
NEW = frozenset({"clone", "fork"})
"""The methods that return further sandboxes."""

OF_THINGS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        method.__name__: method
        for method in (
            *(KeptThings.remove_sandbox, KeptThings.restore_sandbox, KeptThings.find_in_trash),
            *(KeptThings.restore_things, KeptThings.empty_trash, KeptThings.remove_saves),
            *(KeptThings.prune_saves, KeptThings.verify_saves, KeptThings.rebase_save),
        )
    }
)
"""The methods of the things on a machine's disk, of which no sandbox is opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A sandbox as of its machine's last answer. The fields are the properties of `Sandbox`, and
    the results of its methods that do not wait."""

    id: str
    name: str
    config: SandboxConfig
    exists: bool = False
    """Whether the machine has the sandbox, running or not."""
    is_running: bool = False
    accelerator: str | None = None
    boot_timing: BootTiming | None = None
    qemu_command: Sequence[str] = ()
    port_forwards: Mapping[int, int] = field(default_factory=dict)
    udp_port_forwards: Mapping[int, int] = field(default_factory=dict)
    agent_token: str | None = field(default=None, repr=False)
    notices: Sequence[str] = ()
    active_mounts: Sequence[MountHandle] = ()
    checkpoints: Sequence[Checkpoint] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedSandbox:
    """A sandbox in the list of another machine."""

    id: str
    name: str
    status: str
    """A value of `Status`."""
    image: str
    created: float
    """Unix time."""
