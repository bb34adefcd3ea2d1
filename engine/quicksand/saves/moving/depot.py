"""The end at which a save arrives: it reports which files are missing, takes them, and makes the
save once all are here. No received data is trusted.

::

    <cache>/incoming/lock           held by the one process that takes a save
    <cache>/incoming/<sha256>.part  a file that is arriving, as far as it has come
    <cache>/incoming/<sha256>.whole a file that has arrived, and has that digest

The received files stay there when the connection breaks, for the next attempt. They are removed
when the transfer fails otherwise, is cancelled, or has not been continued for a day.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import BundleError, QuicksandError, StateError
from quicksand.base.files import is_locked, lock_within, map_os_errors, try_lock
from quicksand.base.listing import own_files
from quicksand.base.paths import Paths, make_private_dir
from quicksand.disks.images.image_store import ImageStore
from quicksand.saves.bundle.bases import IncomingBase
from quicksand.saves.bundle.importing import check_reach, import_save
from quicksand.saves.bundle.manifest import Bundle, BundleKind, Member, image_part, parse_json
from quicksand.saves.bundle.receiving import Imported, ImportOptions, require_space
from quicksand.saves.moving.arriving import Arriving
from quicksand.saves.moving.members import FileMembers
from quicksand.saves.save_manifest import Save, SaveManifest, check_save_name, overlay_paths
from quicksand.saves.store import SaveStore, taken

PLACE, LOCK = "incoming", "lock"
LOCK_WAIT_S = 10.0
KEPT_S = 24 * 3600.0
"""Seconds for which received files are kept for another attempt."""

ARRIVED = re.compile(r"[0-9a-f]{64}\.(?:part|whole)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A file that has to be sent."""

    sha256: str
    size: int
    have: int
    """Bytes of it that have already arrived."""


def list_arrived(places: Paths) -> list[Path]:
    """Return the files of interrupted transfers, which the next attempt continues; none while a
    save is being received. Blocks."""
    place = places.cache / PLACE
    with contextlib.suppress(OSError):  # the file in the lock's place is not ours
        if not is_locked(place / LOCK):
            return own_files(place, ARRIVED)
    return []


def drop_arrived(files: Sequence[Path], places: Paths) -> None:
    """Remove those of these files, unless a save is being received by now. Raises OSError."""
    lock = try_lock(places.cache / PLACE / LOCK)
    if lock is None:
        return
    try:
        for path in set(files) & set(own_files(places.cache / PLACE, ARRIVED)):
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


class Depot:
    """Takes one save, from `open` to `close`. The methods block."""

    def __init__(self, places: Paths) -> None:
        self._places = places
        self._store = SaveStore(places.saves)
        self._images = ImageStore(places.images)
        self._place = places.cache / PLACE
        self._lock: int | None = None
        self._bundle: Bundle | None = None
        self._options = ImportOptions()
        self._here: dict[str, Path] = {}
        """The files of the save that are already here, by digest."""
        self._missing: dict[str, Member] = {}
        self.done: Save | None = None
        """The save, if it was already here."""

    def open(self) -> None:
        """Take the depot. Raises StateError if another process has it, HostError."""
        make_private_dir(self._places.cache)
        make_private_dir(self._place)
        with map_os_errors(self._place):
            self._lock = lock_within(self._place / LOCK, LOCK_WAIT_S)
        if self._lock is None:
            raise StateError(
                "another save is being received here", hint="wait until that has ended"
            )

    # What is needed

    def expect(
        self, manifest: bytes, *, name: str = "", replace: bool = False, trusted: bool = False
    ) -> Sequence[Missing]:
        """Read the manifest of a save that will be sent, and return which of its files are missing.
        ``name`` replaces its name; ``replace`` and ``trusted`` are as for an import.

        Raises BundleError, SaveError if the name is taken, ImageError, ConfigError, DiskSpaceError.
        """
        with _damage():
            bundle = Bundle.from_json(parse_json(manifest))
            if bundle.kind is not BundleKind.SAVE:
                raise ValueError(f"it is {bundle.kind.named}, and no save")
            check_reach(bundle, trusted=trusted)
            self._bundle = bundle
            self._options = ImportOptions(name=name or None, replace=replace, trusted=trusted)
            self.done = self._find_done()
            if self.done is not None:
                return ()
            if (self._store.root / self._name).exists() and not replace:
                raise taken(self._name, self._store.root)
            needed = self._needed(bundle)
        self._sweep(keep={file.sha256 for file in needed})
        known = self._known()
        for file in needed:
            if (path := self._find_here(file, known)) is not None:
                self._here[file.sha256] = path
            else:
                self._missing[file.sha256] = file
        missing = [self._describe(file) for file in self._missing.values()]
        require_space(self._place, sum(one.size - one.have for one in missing))
        return missing

    @property
    def _name(self) -> str:
        assert self._bundle is not None
        return check_save_name(self._options.name or self._bundle.name)

    def _find_done(self) -> Save | None:
        """Return the save, if an earlier attempt has completed it here, unreported."""
        assert self._bundle is not None
        assert isinstance(self._bundle.content, SaveManifest)
        there, coming = self._store.get(self._name), self._bundle.content
        if there is None or there.error or (own := there.require()).id != coming.id:
            return None
        return there if own.layers == coming.layers else None

    def _needed(self, bundle: Bundle) -> Sequence[Member]:
        """The files that an import reads: not those of an image that is here."""
        base = IncomingBase(self._images, bundle)
        return [file for file in bundle.files if base.is_new or image_part(file.name) is None]

    def _known(self) -> Mapping[str, Path]:
        """The layers of saves and the files of images that are here, by their digests."""
        found: dict[str, Path] = {}
        for save in self._store.list():
            manifest = None if save.error else save.require()
            if manifest is not None and manifest.layers is not None:
                paths = overlay_paths(save.root, manifest)
                found |= {
                    layer.sha256: path for layer, path in zip(manifest.layers, paths, strict=True)
                }
        for current in self._images.list():
            for image in self._images.versions(current.name):
                found |= {
                    str(facts["sha256"]): image.root / str(facts["name"])
                    for facts in image.files.values()
                }
        return found

    def _find_here(self, file: Member, known: Mapping[str, Path]) -> Path | None:
        for path in (self._whole(file.sha256), known.get(file.sha256)):
            with contextlib.suppress(OSError):
                if path is not None and path.stat().st_size == file.size:
                    return path
        return None

    def _describe(self, file: Member) -> Missing:
        have = 0
        with contextlib.suppress(OSError):
            have = self._part(file.sha256).stat().st_size
        if have > file.size:
            self._part(file.sha256).unlink()
            have = 0
        return Missing(sha256=file.sha256, size=file.size, have=have)

    # What arrives

    def take(self, sha256: str, offset: int) -> Arriving:
        """Begin to take a missing file from ``offset`` on. Raises BundleError, PathError."""
        file = self._missing.get(sha256)
        if file is None:
            raise BundleError(f"the file {sha256!r:.80} is not expected")
        return Arriving(file, self._part(sha256), offset)

    def keep(self, sha256: str) -> None:
        """Note that a file has arrived (`Arriving.finish`). Raises PathError."""
        part, whole = self._part(sha256), self._whole(sha256)
        with map_os_errors(part):
            part.rename(whole)
        self._here[sha256] = whole
        del self._missing[sha256]

    def publish(self, stop: Callable[[], None] = lambda: None) -> Imported:
        """Make the save of the files that are here. ``stop`` is called now and then, and may raise.
        Raises as `quicksand.saves.import_`; then nothing has changed."""
        bundle = self._bundle
        if bundle is None or self._missing:
            raise BundleError("some of its files have not arrived")
        members = FileMembers(self._here, stop)
        with _damage():
            made = import_save(members, bundle, self._store, self._images, self._options)
        self.discard()
        return made

    # Its end

    def discard(self) -> None:
        """Remove the received files. Raises OSError."""
        self._sweep(keep=())

    def _sweep(self, *, keep: Sequence[str] | set[str]) -> None:
        """Remove received files that nobody continues: those of this save unless there are some to
        ``keep``, and those a day old that are not in ``keep``."""
        ours = {file.sha256 for file in self._bundle.files} if self._bundle is not None else set()
        now = time.time()
        for path in own_files(self._place, ARRIVED):
            is_ours = path.name[:64] in ours
            with contextlib.suppress(OSError):
                is_old = now - path.stat().st_mtime > KEPT_S
                if (is_ours and not keep) or (is_old and path.name[:64] not in keep):
                    path.unlink()

    def close(self) -> None:
        """Release the depot. Received files stay. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _part(self, sha256: str) -> Path:
        return self._place / f"{sha256}.part"

    def _whole(self, sha256: str) -> Path:
        return self._place / f"{sha256}.whole"


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """Turn errors about a faulty save into one that says it cannot be taken."""
    try:
        yield
    except QuicksandError:
        raise
    except (ValueError, OverflowError, KeyError, TypeError) as error:
        raise BundleError(f"the save cannot be taken: {error}") from error
