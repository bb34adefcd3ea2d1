"""A save on its way between machines: the files that leave, and those that have arrived, by their
digests, until they are a save."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from quicksand.base.error_text import reason_of
from quicksand.base.errors import BundleError, PathError, QuicksandError, SaveError, StateError
from quicksand.base.files import is_locked, lock_within, map_os_errors, try_lock
from quicksand.base.listing import own_files
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.progress import Progress
from quicksand.base.regular import open_regular
from quicksand.base.sharing import share_file, write_at
from quicksand.disks.images.image_store import ImageStore
from quicksand.saves.bundle.bases import IncomingBase
from quicksand.saves.bundle.exporting import Outgoing, encode_manifest, planned_save
from quicksand.saves.bundle.importing import check_reach, import_save
from quicksand.saves.bundle.manifest import Bundle, BundleKind, Member, image_part, parse_json
from quicksand.saves.bundle.receiving import (
    Imported,
    ImportOptions,
    check_digest,
    require_space,
    unlike,
)
from quicksand.saves.finding import find_save
from quicksand.saves.save_manifest import Save, SaveManifest, check_save_name, overlay_paths
from quicksand.saves.store import SaveStore, taken

if TYPE_CHECKING:
    from hashlib import _Hash

    from quicksand.records.nodes import File
    from quicksand.saves.bundle.receiving import Watch


class SaveSource:
    """A save of this machine whose files are open: they stay unchanged, whatever happens to their
    names. `open` and `read` block."""

    def __init__(self, name: str | Path, places: Paths) -> None:
        self.name = str(name)
        self.manifest = b""
        self._places = places
        self._files: dict[str, Outgoing] = {}
        self._stack = ExitStack()

    def open(self, progress: Progress) -> None:
        """Open the save and, if it is here, the image below it. Unknown digests are computed.
        Raises as `quicksand.saves.export`, and the errors of ``progress``."""
        save = find_save(self.name, self._places)
        plan = self._stack.enter_context(
            planned_save(save, self._places, full=None, progress=progress)
        )
        self._files = {file.sha256: file for file in plan.files}
        self.manifest = encode_manifest(plan.bundle)

    def find(self, sha256: str) -> Member:
        """Describe the file with that digest. Raises SaveError."""
        if sha256 not in self._files:
            raise SaveError(f"the save {self.name!r} has no file {sha256!r:.80}")
        return self._files[sha256].member

    def read(self, sha256: str, offset: int, size: int) -> bytes:
        """Read a piece of a file; b"" at its end. Raises SaveError, PathError."""
        self.find(sha256)
        file = self._files[sha256]
        try:
            return os.pread(file.descriptor, size, offset)
        except OSError as error:
            raise PathError(f"cannot read {file.path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._stack.close()


PIECE = 1024 * 1024
"""Bytes that are read in one step."""


class FileMembers:
    """Files by their digests (`Members`). Each is read once more, completely, and then linked, or
    copied where that is not possible: the file on disk may have been replaced since."""

    def __init__(self, files: Mapping[str, Path], stop: Callable[[], None]) -> None:
        """``stop`` is called for each piece, and may raise."""
        self._files = files
        self._stop = stop

    def skip(self, member: Member) -> None:
        """See `Members.skip`."""

    def end(self) -> None:
        """See `Members.end`."""

    def require_space(self, root: Path, need: int) -> None:
        """Do nothing: links need no space, and a copy that finds none raises an error."""

    def write(
        self,
        member: Member,
        path: Path,
        expected: File | None = None,
        watch: Watch | None = None,
    ) -> None:
        """See `Members.write`."""
        if expected is not None and expected.size != member.size:
            raise unlike(expected)
        source = self._files.get(member.sha256)
        if source is None:
            raise ValueError(f"{member.name} has not arrived")
        with map_os_errors(source):
            descriptor = open_regular(source, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            digest, at = hashlib.sha256(), 0
            while data := os.pread(descriptor, PIECE, at):
                self._stop()
                if watch is not None:
                    watch.look(data)
                digest.update(data)
                at += len(data)
            check_digest(member, digest.hexdigest())
        finally:
            os.close(descriptor)
        share_file(source, path)


def hash_file(descriptor: int) -> _Hash:
    """Return the digest of an open file's contents, which can be continued. Raises OSError."""
    digest, at = hashlib.sha256(), 0
    while data := os.pread(descriptor, PIECE, at):
        digest.update(data)
        at += len(data)
    return digest


class Arriving:
    """A file that arrives in pieces. After an error the received part stays on disk, unless it is
    damaged, and a later transfer continues it. All methods except `close` block."""

    def __init__(self, file: Member, part: Path, offset: int) -> None:
        """Open ``part``, of which ``offset`` bytes have already arrived. Raises BundleError,
        PathError."""
        self._file = file
        self._part = part
        with map_os_errors(part):
            self._descriptor = open_regular(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        self._size = os.fstat(self._descriptor).st_size
        if offset != self._size or self._size > file.size:
            self.close()
            raise BundleError(f"{file.name}: {self._size} bytes of it are here, not {offset}")

    def begin(self) -> None:
        """Read the part that has already arrived. Raises PathError."""
        with map_os_errors(self._part):
            self._digest = hash_file(self._descriptor)

    def write(self, data: bytes) -> None:
        """Write the next piece. Raises BundleError if there are too many, DiskSpaceError,
        PathError."""
        if self._size + len(data) > self._file.size:
            raise self._refuse(f"{self._file.name} has more than {self._file.size} bytes")
        with map_os_errors(self._part):
            if data.count(0) == len(data):
                os.ftruncate(self._descriptor, self._size + len(data))  # a hole
            else:
                write_at(self._descriptor, memoryview(data), self._size)
        self._digest.update(data)
        self._size += len(data)

    def finish(self) -> None:
        """Check that the file is whole, and sync it. Raises BundleError, PathError."""
        name = self._file.name
        if self._size != self._file.size:
            raise BundleError(f"{name} is cut off: {self._size} of {self._file.size} bytes came")
        if self._digest.hexdigest() != self._file.sha256:
            raise self._refuse(f"{name} is damaged: it has another digest")
        with map_os_errors(self._part):
            os.fsync(self._descriptor)

    def _refuse(self, why: str) -> BundleError:
        self._part.unlink(missing_ok=True)
        return BundleError(why)

    def close(self) -> None:
        """Close it. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


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
        raise BundleError(f"the save cannot be taken: {reason_of(error)}") from error
