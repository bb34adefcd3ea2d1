"""Saving the disk of a sandbox, running or not."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from quicksand.errors import ConfigError, ImageError, PathError, QuicksandError
from quicksand.host.arch import Architecture
from quicksand.host.files import map_os_errors, sync_dir, write_json
from quicksand.host.paths import Paths
from quicksand.host.sharing import copy_open_file, link_file
from quicksand.host.threads import in_thread_to_the_end
from quicksand.images.resolve import ImageResolver, ResolvedImage
from quicksand.images.store import sha256_file
from quicksand.planning import check_space, resolve_image
from quicksand.registry import Record, Registry
from quicksand.saves.manifest import (
    MANIFEST,
    OVERLAYS,
    Base,
    Parent,
    SavedLayer,
    SaveManifest,
    check_save_name,
    is_sha256,
)
from quicksand.saves.portable import write_portable
from quicksand.saves.store import Save, SaveStore, taken
from quicksand.saves.workspaces import remember
from quicksand.snapshots.history import History
from quicksand.snapshots.operations import Live, working_on
from quicksand.snapshots.pivot import Pivot, freeze_stopped
from quicksand.snapshots.records import new_id

Report = Callable[[str, int, int], None]

Ask = Callable[[str, dict[str, Any], float], Awaitable[dict[str, Any]]]
"""Asks the guest's agent: method, parameters, seconds."""

AGENT_S = 30.0
"""Seconds for the guest to write out what it has in memory; it may have much."""

FREEZE_S = 2
"""Seconds after which the guest thaws its file system by itself."""

VOLATILE_MAX = 50
PATH_MAX = 4096
"""Of what the guest says is only in its memory: entries, and characters of each."""

QUICK_S = 0.1
"""A guest that syncs so quickly can be frozen without anybody noticing."""

HASHERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to save."""

    compress: bool = False
    delete_checkpoints: bool = False
    note: str = ""
    replace: bool = True
    """A save that has the name goes to the trash."""
    freeze: bool | None = None
    """Whether the guest's file system is to stand still for the instant; None: where that is
    quick."""
    progress: Report | None = None
    """Told the stage, and bytes done of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Guest:
    """What the guest said before its disk was saved."""

    volatile: tuple[str, ...] = ()
    can_freeze: bool = False
    """In no time."""
    synced: bool = False
    """It has written out what it had in memory."""


@dataclass(slots=True)
class _Frozen:
    """The frozen layers of a disk, on their way into a save."""

    guest: _Guest
    layers: tuple[str, ...] = ()
    descriptors: dict[str, int] = field(default_factory=dict)
    """Of those that are on another file system: still to be copied, whatever becomes of the
    sandbox meanwhile."""
    digests: dict[str, str] = field(default_factory=dict)
    was_live: bool = False
    """A machine ran, or was paused."""
    stood_still: bool = False
    """The guest's file system did, in the instant of the save."""

    def close(self) -> None:
        for descriptor in self.descriptors.values():
            os.close(descriptor)


async def save(
    registry: Registry,
    record: Record,
    name: str,
    store: SaveStore,
    options: Options,
    ask: Ask | None,
) -> Save:
    """Save the disk of a sandbox. ``ask``: its guest's agent, if that answers.

    A running VM goes on; its writes go to a new layer from then on. Raises ConfigError, SaveError,
    StateError, HistoryError, HostError, ImageError, MachineError: then there is no save of that
    name, or the one that was there before.
    """
    await asyncio.to_thread(_check_target, registry.paths, store, name, options.replace)
    image = (await asyncio.to_thread(resolve_image, registry, record))[0]
    async with _making(store) as made:
        async with _frozen(registry, record, made, options, ask) as frozen:
            layers = await in_thread_to_the_end(
                lambda: _bring(registry.history(record.id), frozen, made, options, image)
            )
        manifest = replace(_describe(record, image, frozen, options), layers=layers)
        saved = await in_thread_to_the_end(
            lambda: _publish(store, made, name, manifest, options.replace)
        )
    await asyncio.to_thread(remember, store.root, registry.paths)
    return saved


async def write_snapshot(
    registry: Registry, record: Record, target: Path, options: Options, ask: Ask | None
) -> SaveManifest:
    """Write the disk of a sandbox to one file (portable.py). Raises as `save`."""
    if not target.parent.is_dir():
        raise PathError(f"there is no directory {target.parent}", hint="make it first")
    image = (await asyncio.to_thread(resolve_image, registry, record))[0]
    if not image.digest:
        raise ImageError(
            f"the image {image.name!r} is not in the store: nothing tells it by content"
        )
    # Beside the sandboxes, where nothing need be copied.
    store = SaveStore(registry.paths.saves)
    async with _making(store) as made, _frozen(registry, record, made, options, ask) as frozen:
        manifest = _describe(record, image, frozen, options)
        layers = [made / OVERLAYS / f"{n}.qcow2" for n in range(len(frozen.layers))]
        return await in_thread_to_the_end(
            lambda: write_portable(
                _all_there(layers, frozen, options),
                target,
                manifest,
                image,
                compress=options.compress,
                report=options.progress,
            )
        )


def _all_there(layers: list[Path], frozen: _Frozen, options: Options) -> list[Path]:
    _copy(frozen.descriptors, dict(zip(frozen.layers, layers, strict=True)), options)
    return layers


@contextlib.asynccontextmanager
async def _frozen(
    registry: Registry, record: Record, made: Path, options: Options, ask: Ask | None
) -> AsyncIterator[_Frozen]:
    frozen = _Frozen(guest=await _settle(ask) if ask is not None else _Guest())
    try:
        await _freeze(registry, record, made, frozen, options, ask)
        yield frozen
    finally:
        frozen.close()


def _describe(
    record: Record, image: ResolvedImage, frozen: _Frozen, options: Options
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
    if not replace_it and store.get(name) is not None:
        raise taken(name, store.root)


async def _settle(ask: Ask) -> _Guest:
    """Have the guest write out what it has in memory and give back what it has deleted."""
    guest = _Guest()
    with contextlib.suppress(QuicksandError):
        await ask("sync", {}, AGENT_S)
        guest = _Guest(synced=True)
        # What was deleted in the guest must not be in the save.
        await ask("trim", {}, AGENT_S)
        started = time.perf_counter()
        await ask("sync", {}, AGENT_S)
        quick = time.perf_counter() - started < QUICK_S
        found = await ask("volatile", {}, AGENT_S)
        return replace(guest, volatile=_volatile_paths(found), can_freeze=quick)
    return guest


def _volatile_paths(reply: dict[str, Any]) -> tuple[str, ...]:
    """What a guest says of its memory, which may be anything."""
    found = reply.get("paths")
    entries = found[:VOLATILE_MAX] if isinstance(found, list) else []
    # A path that is no text is told in base64: it says as much as any.
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
    options: Options,
    ask: Ask | None,
) -> None:
    """Freeze the layers of the disk and take hold of them."""
    entry = registry.inspect(record.id)
    history = registry.history(record.id)
    if entry is not None and entry.run is not None:
        async with working_on(registry, record) as live:
            await _drop_checkpoints(history, options)
            still = frozen.guest.can_freeze if options.freeze is None else options.freeze
            await _freeze_live(live, frozen, ask if still else None)
            await in_thread_to_the_end(lambda: _take_hold(history, frozen, made))
        return
    lock = registry.lock(record.id)
    try:
        async with history.locked():
            await _drop_checkpoints(history, options)
            frozen.layers = await in_thread_to_the_end(lambda: freeze_stopped(history, record.name))
            await in_thread_to_the_end(lambda: _take_hold(history, frozen, made))
    finally:
        os.close(lock)


async def _drop_checkpoints(history: History, options: Options) -> None:
    if options.delete_checkpoints:
        for node in await asyncio.to_thread(history.nodes):
            await in_thread_to_the_end(lambda node=node: history.remove(node))  # type: ignore[misc]


async def _freeze_live(live: Live, frozen: _Frozen, ask: Ask | None) -> None:
    frozen.was_live = True
    check_space(live.place.root)
    pivot = Pivot(live.history, live.run, live.monitor)
    try:
        await pivot.prepare()
        still = await _stand_still(ask) if ask is not None else False
        try:
            await pivot.turn()
        finally:
            if still and ask is not None:
                frozen.stood_still = await _thaw(ask)
    except BaseException:
        await asyncio.shield(pivot.undo())
        raise
    frozen.layers = pivot.frozen


async def _stand_still(ask: Ask) -> bool:
    with contextlib.suppress(QuicksandError):
        await ask("freeze", {"seconds": FREEZE_S}, FREEZE_S)
        return True
    return False


async def _thaw(ask: Ask) -> bool:
    """Whether the file system stood still up to now. If nobody is heard, it thaws by itself."""
    with contextlib.suppress(QuicksandError):
        await ask("thaw", {}, FREEZE_S)
        return True
    return False


def _take_hold(history: History, frozen: _Frozen, made: Path) -> None:
    """Have the frozen layers in the save; those that cannot be linked are only opened, since their
    copying takes longer than others should wait for the history."""
    for number, layer in enumerate(frozen.layers):
        path = history.place.layer(layer)
        with map_os_errors(path):
            if not link_file(path, made / OVERLAYS / f"{number}.qcow2"):
                frozen.descriptors[layer] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError, UnicodeDecodeError):
            digest = history.place.digest(layer).read_text("ascii").strip()
            if is_sha256(digest):  # and not what a crash has left of one
                frozen.digests[layer] = digest


def _bring(
    history: History, frozen: _Frozen, made: Path, options: Options, image: ResolvedImage
) -> tuple[SavedLayer, ...]:
    """Bring all layers to the disk, and tell what identifies them."""
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


def _copy(descriptors: dict[str, int], paths: dict[str, Path], options: Options) -> None:
    """Copy what could not be linked."""
    sizes = {layer: os.fstat(fd).st_blocks * 512 for layer, fd in descriptors.items()}
    total, before, report = sum(sizes.values()), 0, options.progress
    for layer, descriptor in descriptors.items():
        check_space(paths[layer].parent, total - before)
        told = None if report is None else partial(_report, report, before, total)
        with map_os_errors(paths[layer]):
            copy_open_file(descriptor, paths[layer], told)
        before += sizes[layer]


def _report(report: Report, before: int, total: int, done: int) -> None:
    report("copy", before + done, total)


def _compress(layers: list[Path], image: ResolvedImage, options: Options) -> Path:
    """One compressed layer in place of all."""
    from quicksand.images.merge import write_merged

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
    """The digest of a layer that is on the disk."""
    with map_os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return sha256_file(path)


def _remember(history: History, layer: str, digest: str) -> None:
    """Note the digest beside the layer: the next save need not compute it. Only a help."""
    if history.place.layer(layer).exists():
        with contextlib.suppress(OSError):
            history.place.digest(layer).write_text(f"{digest}\n", encoding="ascii")


def _publish(
    store: SaveStore, made: Path, name: str, manifest: SaveManifest, replace_it: bool
) -> Save:
    write_json(made / MANIFEST, manifest.to_json())
    return store.publish(made, name, replace=replace_it)


def _parent(record: Record) -> Parent | None:
    source = record.source
    return None if source is None else Parent(name=source.name, id=source.id)


def _engine_name() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"quicksand-tui {version('quicksand-tui')}"
    except PackageNotFoundError:
        return "quicksand-tui"
