"""Unpacks a bundle when a sandbox starts from it, once for each content.

::

    <cache>/bundles/saves/<key>/          the save of a bundle (`SaveStore`)
    <cache>/bundles/images/<key>.json     which image of the store a bundle without digests holds
    <cache>/bundles/<key>.lock            held, and there, while somebody unpacks it

An image goes into the image store, where its name is NAME@DIGEST: a start does not change the
meaning of other names. A save is only needed until the start has linked its layers, so it lies in
the cache. Keys are those of `heads.BundleHead`.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from quicksand.base.errors import BundleError
from quicksand.base.files import give_back, map_os_errors, read_json, try_named_lock, write_json
from quicksand.base.listing import own_files
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.progress import Progress
from quicksand.base.remedies import Remedy, Words
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.saves.bundle.heads import BundleHead, identity, open_to_read
from quicksand.saves.bundle.importing import changed, import_bundle
from quicksand.saves.bundle.manifest import BundleKind
from quicksand.saves.bundle.receiving import ImportOptions, stopping
from quicksand.saves.save_facts import Save
from quicksand.saves.save_manifest import SaveManifest
from quicksand.saves.store import SaveStore

KEY_DIGITS = 32
"""Hexadecimal digits of a key that name a file or a directory."""

_KNOWN = re.compile(rf"[0-9a-f]{{{KEY_DIGITS}}}\.json")

LOCK_POLL_S = 0.1
WAITING = "waiting for another start that unpacks the same bundle"


class Unpacked(NamedTuple):
    """The content of a bundle that was unpacked on this host: an image or a save."""

    image: str = ""
    """The image's name: NAME@DIGEST, unless NAME means that very version."""
    save: Save | None = None


def require_startable(head: BundleHead) -> None:
    """Raise BundleError for a bundle from which no new sandbox can start."""
    if head.kind is BundleKind.TREE:
        raise BundleError(
            f"{head.path} holds the sandbox {head.name!r} with its checkpoints, and neither an "
            "image nor a save",
            hint=Words(
                Remedy("import_bundle", file=str(head.path)),
                " makes a sandbox of it, which can then be started at each of them",
            ),
        )


def save_in(head: BundleHead) -> Save | None:
    """Return the save that a bundle holds, as its manifest describes it; None if it holds none."""
    if head.bundle is None or not isinstance(head.bundle.content, SaveManifest):
        return None
    return Save(name=head.name, root=head.path, manifest=head.bundle.content)


def places_of(paths: Paths) -> tuple[SaveStore, Path]:
    """Return the store for the saves of bundles, and the directory of records about images."""
    root = paths.cache / "bundles"
    return SaveStore(root / "saves"), root / "images"


def unpack(
    head: BundleHead,
    paths: Paths,
    progress: Progress | None = None,
    stop: Callable[[], None] = lambda: None,
) -> Unpacked:
    """Return the contents of a bundle, unpacked and checked, now or before. ``stop`` is called now
    and then, and may raise. Blocks for I/O.

    Raises BundleError if the file is damaged, refused, has changed since ``head`` was read, or lies
    on an image that is not here; ImageError, SaveError, HostError. Nothing of it is left then,
    except that an image may stay.
    """
    require_startable(head)
    if (found := find_unpacked(head, paths)) is not None:
        return found
    say = stopping(progress, stop)
    with _alone(head, paths, say):
        # Another one may have unpacked it meanwhile.
        return find_unpacked(head, paths) or _unpack(head, paths, say, stop)


def find_unpacked(head: BundleHead, paths: Paths) -> Unpacked | None:
    """Return the contents of a bundle if it is already unpacked. Blocks for I/O."""
    images = ImageStore(paths.images)
    if head.kind is BundleKind.SAVE:
        return _find_save(head, paths, images)
    if head.image is not None:
        return _of(images, images.find_version(head.image.name, head.image.digest))
    if not head.key:
        return None
    with contextlib.suppress(OSError, ValueError):  # there is no record, or a damaged one
        known = read_json(_known(head, paths))
        image = images.find_version(str(known["name"]), str(known["digest"]))
        return _of(images, image)
    return None


def _of(images: ImageStore, image: StoredImage | None) -> Unpacked | None:
    if image is None:
        return None
    current = images.get(image.name)
    is_current = current is not None and current.root == image.root
    return Unpacked(image=image.name if is_current else image.versioned)


def _find_save(head: BundleHead, paths: Paths, images: ImageStore) -> Unpacked | None:
    assert head.bundle is not None
    store, _ = places_of(paths)
    save = store.get(head.key[:KEY_DIGITS])
    base = head.bundle.base
    if save is None or save.error or images.find_version(base.name, base.digest) is None:
        return None
    return Unpacked(save=replace(save, name=head.name))


def _unpack(
    head: BundleHead, paths: Paths, progress: Progress, stop: Callable[[], None]
) -> Unpacked:
    saves, known = places_of(paths)
    images = ImageStore(paths.images)
    is_save = head.kind is BundleKind.SAVE
    options = ImportOptions(
        name=head.key[:KEY_DIGITS] if is_save else head.name,
        replace=True,
        opened=head.path.name,
        expected=head.key if head.bundle is not None else "",
        progress=progress,
        stop=stop,
    )
    with open_to_read(head.path) as file:
        _require_same(head, file.fileno())
        done = import_bundle(file, saves, images, options=options)
        _require_same(head, file.fileno())
    if is_save:
        _forget_replaced(saves)
        return Unpacked(save=replace(saves.find(done.name), name=head.name))
    image = ImageStore.load(done.root)
    if head.image is None and head.key:
        make_private_dir(known)
        write_json(_known(head, paths), {"name": image.name, "digest": image.digest})
    return Unpacked(image=image.versioned)


def _require_same(head: BundleHead, descriptor: int) -> None:
    """Raise BundleError unless a file without digests is still the one whose manifest was read."""
    if head.bundle is None and head.key and identity(os.fstat(descriptor)) != head.key:
        raise changed(str(head.path))


def _forget_replaced(saves: SaveStore) -> None:
    """Remove damaged saves that were replaced: nobody wants them back."""
    if trashed := [one.id for one in saves.trash() if one.was_save]:
        saves.empty_trash(trashed)


def _known(head: BundleHead, paths: Paths) -> Path:
    return places_of(paths)[1] / f"{head.key[:KEY_DIGITS]}.json"


@contextlib.contextmanager
def _alone(head: BundleHead, paths: Paths, say: Progress) -> Iterator[None]:
    """Hold the lock of a bundle's content. Raises HostError, and the errors of ``say``."""
    root = make_private_dir(paths.cache / "bundles")
    lock = root / f"{head.key[:KEY_DIGITS] or 'unsettled'}.lock"
    with map_os_errors(root):
        while (held := try_named_lock(lock)) is None:
            say(WAITING, 0, 0)
            time.sleep(LOCK_POLL_S)
    try:
        yield
    finally:
        give_back(lock, held)


def unpacked_files(paths: Paths) -> list[Path]:
    """List the files that bundles have left in the cache and that can be unpacked again."""
    saves, known = places_of(paths)
    return [*saves.roots(), *own_files(known, _KNOWN)]


def forget(files: Sequence[Path], paths: Paths) -> None:
    """Remove these of `unpacked_files`. Raises SaveError, HostError."""
    saves, known = places_of(paths)
    for path in files:
        if path.parent == saves.root:
            saves.delete(path.name)
        elif path.parent == known:
            path.unlink(missing_ok=True)
