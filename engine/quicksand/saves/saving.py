"""Saving the disk of a sandbox, running or not.

The disk's layers are frozen as for a checkpoint (pivot.py), then linked or copied into the save.
A block that asks for a save at its end gets one even by SIGTERM (`AutoSave`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from quicksand.base.arch import Architecture
from quicksand.base.capacity import check_space
from quicksand.base.effort import best_effort
from quicksand.base.errors import ConfigError, ImageError, PathError, QuicksandError
from quicksand.base.files import map_os_errors, sync_dir, write_json, write_word
from quicksand.base.paths import Paths
from quicksand.base.progress import Progress
from quicksand.base.regular import open_regular, read_word
from quicksand.base.sharing import copy_open_file, link_file
from quicksand.base.threads import in_thread_to_the_end, to_the_end
from quicksand.base.version import DISTRIBUTION, version_text
from quicksand.disks.images.disk_layers import write_merged
from quicksand.disks.images.resolve import ImageResolver, ResolvedImage
from quicksand.disks.images.stored_image import sha256_file
from quicksand.guest.agent.session import Ask
from quicksand.qemu.planning import resolve_image
from quicksand.records.nodes import check_note, new_id
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.finding import remember
from quicksand.saves.ownership import mark_made
from quicksand.saves.portable import write_portable
from quicksand.saves.save_manifest import (
    MANIFEST,
    OVERLAYS,
    Base,
    Parent,
    Save,
    SavedLayer,
    SaveManifest,
    check_save_name,
    is_sha256,
)
from quicksand.saves.store import SaveStore
from quicksand.snapshots.history import History, history_of
from quicksand.snapshots.keeping import locked_history
from quicksand.snapshots.layers import Pivot, freeze_stopped
from quicksand.snapshots.taking import RunningSandbox, working_on

AGENT_S = 30.0
"""Seconds that the guest may take to flush its page cache."""

FREEZE_S = 2
"""Seconds after which the guest thaws its file system by itself."""

VOLATILE_MAX = 50
PATH_MAX = 4096
"""Limits on the guest's list of volatile paths: entries, and characters of each."""

QUICK_S = 0.1
"""Seconds; a guest that syncs within this time can be frozen without a noticeable delay."""

HASHERS = 2
"""Threads that compute digests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOptions:
    """The options of a save."""

    compress: bool = False
    delete_checkpoints: bool = False
    note: str = ""
    replace: bool = True
    """An existing save of that name goes to the trash."""
    freeze: bool | None = None
    """Whether to freeze the guest's file system at the moment of the save; None: only if the guest
    can sync within QUICK_S."""
    progress: Progress | None = None
    """Called with the stage, bytes done and bytes in all."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a bad note."""
        check_note(self.note)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guest:
    """The guest's report before its disk is saved."""

    volatile: tuple[str, ...] = ()
    can_freeze: bool = False
    """Whether the guest syncs within QUICK_S."""
    synced: bool = False
    """Whether the guest has flushed its page cache."""


@dataclass(slots=True)
class _Frozen:
    """The frozen layers of a disk that are being put into a save."""

    guest: _Guest
    layers: tuple[str, ...] = ()
    descriptors: dict[str, int] = field(default_factory=dict)
    """Open files of layers on another file system, by id. They are copied later, even if the
    sandbox is removed meanwhile."""
    digests: dict[str, str] = field(default_factory=dict)
    was_live: bool = False
    """The sandbox was running or paused."""
    stood_still: bool = False
    """The guest's file system was frozen at the moment of the save."""

    def close(self) -> None:
        for descriptor in self.descriptors.values():
            os.close(descriptor)


async def save(
    registry: Registry,
    record: Record,
    name: str,
    store: SaveStore,
    options: SaveOptions,
    ask: Ask | None,
) -> Save:
    """Save the disk of a sandbox as ``name`` in ``store``. ``ask``: its guest's agent, or None if
    that cannot answer.

    A running VM keeps running and writes to a new layer from then on. Raises ConfigError,
    SaveError, StateError, HistoryError, HostError, ImageError, MachineError; an existing save of
    that name is then unchanged.
    """
    await asyncio.to_thread(_check_target, registry.paths, store, name, options.replace)
    image = (await asyncio.to_thread(resolve_image, registry, record))[0]
    async with _making(store) as made:
        # If this process dies, others know where it has left an unfinished save.
        await asyncio.to_thread(remember, store.root, registry.paths)
        async with _frozen(registry, record, made, options, ask) as frozen:
            layers = await in_thread_to_the_end(
                lambda: _bring(history_of(registry, record.id), frozen, made, options, image)
            )
        manifest = replace(_describe(record, image, frozen, options), layers=layers)
        return await in_thread_to_the_end(
            lambda: _publish(registry.paths, store, made, name, manifest, options.replace)
        )


async def write_snapshot(
    registry: Registry, record: Record, target: Path, options: SaveOptions, ask: Ask | None
) -> SaveManifest:
    """Write the disk of a sandbox to one portable file (portable.py). Raises as `save`, and
    ImageError if the image is not in the store."""
    if not target.parent.is_dir():
        raise PathError(f"there is no directory {target.parent}", hint="make it first")
    image = (await asyncio.to_thread(resolve_image, registry, record))[0]
    if not image.digest:
        raise ImageError(
            f"the image {image.name!r} is not in the store, so it has no digest to find it by"
        )
    # The user's own store is beside the sandboxes, so layers can be linked there.
    store = SaveStore(registry.paths.saves)
    async with _making(store) as made, _frozen(registry, record, made, options, ask) as frozen:
        manifest = _describe(record, image, frozen, options)
        layers = [made / OVERLAYS / f"{n}.qcow2" for n in range(len(frozen.layers))]
        made_manifest = await in_thread_to_the_end(
            lambda: write_portable(
                _all_there(layers, frozen, options),
                target,
                manifest,
                image,
                compress=options.compress,
                report=options.progress,
            )
        )
        await asyncio.to_thread(mark_made, target, target, registry.paths)
        return made_manifest


def _all_there(layers: list[Path], frozen: _Frozen, options: SaveOptions) -> list[Path]:
    _copy(frozen.descriptors, dict(zip(frozen.layers, layers, strict=True)), options)
    return layers


@contextlib.asynccontextmanager
async def _frozen(
    registry: Registry, record: Record, made: Path, options: SaveOptions, ask: Ask | None
) -> AsyncIterator[_Frozen]:
    log = history_of(registry, record.id).place.engine_log
    frozen = _Frozen(guest=await _settle(ask, log) if ask is not None else _Guest())
    try:
        await _freeze(registry, record, made, frozen, options, ask)
        yield frozen
    finally:
        frozen.close()


def _describe(
    record: Record, image: ResolvedImage, frozen: _Frozen, options: SaveOptions
) -> SaveManifest:
    return SaveManifest(
        config=replace(record.config, image=image.name),
        arch=(record.config.arch or Architecture.host()).value,
        id=new_id(),
        created=time.time(),
        note=options.note,
        engine=_engine_name(),
        base=Base(name=image.name, version=image.version, digest=image.digest),
        parent=_parent(record),
        frozen=frozen.stood_still,
        unsynced=frozen.was_live and not frozen.guest.synced,
        volatile=frozen.guest.volatile,
    )


def _check_target(paths: Paths, store: SaveStore, name: str, replace_it: bool) -> None:
    check_save_name(name)
    if any(info.name == name for info in ImageResolver(paths).list()):
        raise ConfigError(
            f"{name!r} is the name of an image, which a save of that name would hide",
            hint="choose another name",
        )
    store.check_target(name, replace=replace_it)


async def _settle(ask: Ask, log: Path) -> _Guest:
    """Have the guest flush its page cache and discard deleted blocks (fstrim)."""
    guest = _Guest()
    with best_effort("have the guest write everything to its disk", log, QuicksandError):
        await ask("sync", {}, AGENT_S)
        guest = _Guest(synced=True)
        # Deleted data must not be in the save.
        await ask("trim", {}, AGENT_S)
        started = time.perf_counter()
        await ask("sync", {}, AGENT_S)
        quick = time.perf_counter() - started < QUICK_S
        found = await ask("volatile", {}, AGENT_S)
        return replace(guest, volatile=_volatile_paths(found), can_freeze=quick)
    return guest


def _volatile_paths(reply: dict[str, Any]) -> tuple[str, ...]:
    """The guest's list of volatile paths; the reply may contain anything."""
    found = reply.get("paths")
    entries = found[:VOLATILE_MAX] if isinstance(found, list) else []
    # A path that is not UTF-8 comes in base64 and is kept like that.
    names = (e.get("path", e.get("path_b64")) for e in entries if isinstance(e, dict))
    return tuple(name[:PATH_MAX] for name in names if isinstance(name, str))


@contextlib.asynccontextmanager
async def _making(store: SaveStore) -> AsyncIterator[Path]:
    making = store.making()
    made = await asyncio.to_thread(making.__enter__)
    try:
        yield made
    finally:
        await in_thread_to_the_end(lambda: making.__exit__(None, None, None))


async def _freeze(
    registry: Registry,
    record: Record,
    made: Path,
    frozen: _Frozen,
    options: SaveOptions,
    ask: Ask | None,
) -> None:
    """Freeze the layers of the disk, then link or open them."""
    entry = registry.inspect(record.id)
    history = history_of(registry, record.id)
    if entry is not None and entry.run is not None:
        async with working_on(registry, record) as live:
            await _drop_checkpoints(history, options)
            still = frozen.guest.can_freeze if options.freeze is None else options.freeze
            await _freeze_live(live, frozen, ask if still else None)
            await in_thread_to_the_end(lambda: _take_hold(history, frozen, made))
        return
    lock = registry.lock(record.id)
    try:
        async with locked_history(history):
            await _drop_checkpoints(history, options)
            frozen.layers = await in_thread_to_the_end(lambda: freeze_stopped(history, record.name))
            await in_thread_to_the_end(lambda: _take_hold(history, frozen, made))
    finally:
        os.close(lock)


async def _drop_checkpoints(history: History, options: SaveOptions) -> None:
    if options.delete_checkpoints:
        for node in await asyncio.to_thread(history.nodes):
            await in_thread_to_the_end(lambda node=node: history.remove(node))  # type: ignore[misc]


async def _freeze_live(live: RunningSandbox, frozen: _Frozen, ask: Ask | None) -> None:
    frozen.was_live = True
    check_space(live.place.root)
    pivot = Pivot(live.history, live.hypervisor)
    try:
        await pivot.find_head()
        await pivot.prepare()
        still = await _stand_still(ask, live.log) if ask is not None else False
        try:
            await pivot.turn()
        finally:
            if still and ask is not None:
                frozen.stood_still = await _thaw(ask, live.log)
    except BaseException:
        await to_the_end(pivot.undo())
        raise
    frozen.layers = pivot.frozen


async def _stand_still(ask: Ask, log: Path) -> bool:
    with best_effort("freeze the guest's file system", log, QuicksandError):
        await ask("freeze", {"seconds": FREEZE_S}, FREEZE_S)
        return True
    return False


async def _thaw(ask: Ask, log: Path) -> bool:
    """Thaw the file system; returns whether it was frozen until now. If the guest does not answer,
    it thaws by itself after FREEZE_S."""
    with best_effort("thaw the guest's file system", log, QuicksandError):
        await ask("thaw", {}, FREEZE_S)
        return True
    return False


def _take_hold(history: History, frozen: _Frozen, made: Path) -> None:
    """Link the frozen layers into the save. Those that cannot be linked are only opened here and
    copied later, so that other clients need not wait for the history's lock."""
    for number, layer in enumerate(frozen.layers):
        path = history.place.layer(layer)
        with map_os_errors(path):
            if not link_file(path, made / OVERLAYS / f"{number}.qcow2"):
                frozen.descriptors[layer] = open_regular(path)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            digest = read_word(history.place.digest(layer)).strip()
            if is_sha256(digest):  # a crash may have left a part of one
                frozen.digests[layer] = digest


def _bring(
    history: History, frozen: _Frozen, made: Path, options: SaveOptions, image: ResolvedImage
) -> tuple[SavedLayer, ...]:
    """Copy the layers that could not be linked, compress if requested, sync all layers and return
    their records."""
    overlays = made / OVERLAYS
    paths = {id_: overlays / f"{n}.qcow2" for n, id_ in enumerate(frozen.layers)}
    _copy(frozen.descriptors, paths, options)
    if options.compress:
        paths = {new_id(): _compress(list(paths.values()), image, options)}
    unknown = [layer for layer in paths if layer not in frozen.digests]
    with ThreadPoolExecutor(HASHERS) as pool:
        found = dict(zip(unknown, pool.map(_seal, (paths[x] for x in unknown)), strict=True))
    sync_dir(overlays)
    for layer, digest in found.items():
        _remember(history, layer, digest)
    digests = {**frozen.digests, **found}
    return tuple(
        SavedLayer(id=layer, size=path.stat().st_size, sha256=digests[layer])
        for layer, path in paths.items()
    )


def _copy(descriptors: dict[str, int], paths: dict[str, Path], options: SaveOptions) -> None:
    """Copy the layers that could not be linked. Raises HostError."""
    sizes = {layer: os.fstat(fd).st_blocks * 512 for layer, fd in descriptors.items()}
    total, before, report = sum(sizes.values()), 0, options.progress
    for layer, descriptor in descriptors.items():
        check_space(paths[layer].parent, total - before)
        told = None if report is None else partial(_report, report, before, total)
        with map_os_errors(paths[layer]):
            copy_open_file(descriptor, paths[layer], told)
        before += sizes[layer]


def _report(report: Progress, before: int, total: int, done: int) -> None:
    report("copy", before + done, total)


def _compress(layers: list[Path], image: ResolvedImage, options: SaveOptions) -> Path:
    """Merge all layers into one compressed layer in their place."""
    target = layers[0]
    whole = target.with_name("whole.qcow2")
    report = options.progress
    write_merged(
        layers,
        whole,
        backing=image.chain[-1],
        base=image.chain,
        compress=True,
        progress=(lambda done, total: report("compress", done, total)) if report else None,
    )
    with map_os_errors(whole):
        for path in layers:
            path.unlink()
        whole.rename(target)
    return target


def _seal(path: Path) -> str:
    """Sync a layer and return its SHA-256."""
    with map_os_errors(path):
        descriptor = open_regular(path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return sha256_file(path)


def _remember(history: History, layer: str, digest: str) -> None:
    """Write the digest beside the layer, so that the next save need not compute it. Failures are
    ignored."""
    if history.place.layer(layer).exists():
        with contextlib.suppress(OSError):
            write_word(history.place.digest(layer), f"{digest}\n")


def _publish(
    places: Paths,
    store: SaveStore,
    made: Path,
    name: str,
    manifest: SaveManifest,
    replace_it: bool,
) -> Save:
    write_json(made / MANIFEST, manifest.to_json(), read=SaveManifest.from_json)
    # Marked before it gets its name, so that it never exists without the mark.
    mark_made(made, store.root / name, places)
    return store.publish(made, name, replace=replace_it)


def _parent(record: Record) -> Parent | None:
    source = record.source
    return None if source is None else Parent(name=source.name, id=source.id)


def _engine_name() -> str:
    return f"{DISTRIBUTION} {version_text()}".rstrip()


class AutoSave:
    """The save that is made when a sandbox stops. It also turns SIGTERM into a normal stop."""

    def __init__(self, name: str, store: SaveStore) -> None:
        self.name = name
        self.store = store
        self._watching = False
        self._terminated = False

    def watch(self) -> None:
        """Let SIGTERM cancel the present task, so that its blocks are left in order. Does nothing
        if the program has its own handler, or outside of the main thread."""
        task = asyncio.current_task()
        if threading.current_thread() is not threading.main_thread() or task is None:
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return

        def terminate() -> None:
            if not self._terminated:
                self._terminated = True
                task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        self._watching = True

    def release(self) -> None:
        """Restore SIGTERM's default when the sandbox is stopped; a SIGTERM that came before now
        ends this process."""
        if self._watching:
            self._watching = False
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
        if self._terminated:
            os.kill(os.getpid(), signal.SIGTERM)
