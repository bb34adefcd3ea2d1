"""Verifying that saves are undamaged: by sizes and headers, or by every byte of them and of the
images below them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from quicksand_disks import DiskFileError
from quicksand_disks.qcow2 import Layer

from quicksand.base.errors import QuicksandError, SaveError
from quicksand.base.paths import Paths
from quicksand.base.regular import open_regular
from quicksand.base.threads import Stopped, in_stoppable_thread
from quicksand.disks.images.image_store import ImageStore
from quicksand.disks.images.resolve import ResolvedImage
from quicksand.saves.boot_disk import find_base, stack_of
from quicksand.saves.finding import find_save
from quicksand.saves.portable import find_portable
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Save, overlay_paths

CHUNK = 1 << 20
"""Bytes of one read. hashlib releases the GIL for data of this size."""

READERS = 2
"""Threads that read files."""

BASE = "base"
"""Stands for the image below a save among the names of files."""

Report = Callable[[int, int], None]
"""Called with bytes done and bytes in all, from another thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of verifying one save."""

    save: Save
    deep: bool
    """Whether every byte read."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """The faults, by file (`BASE`: the image); empty if the save is undamaged."""

    @property
    def is_whole(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A file that a save needs."""

    name: str
    path: Path
    sha256: str
    """"" if unknown: then the file is only read to its end."""
    size: int | None = None
    """The number of bytes to which the digest applies; None: the whole file."""


_Key = tuple[int, int, bool]
"""A file (device, inode), and whether its digest is to be computed."""


class Verifier:
    """Verifies saves, reading each file once, in READERS threads."""

    def __init__(
        self,
        paths: Paths,
        *,
        deep: bool = False,
        progress: Report | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """``check`` is called at each step, from several threads, and may raise to stop the
        work."""
        self._paths = paths
        self._deep = deep
        self._progress = progress
        self._check = check
        self._failed = threading.Event()
        self._lock = threading.Lock()
        self._done = self._total = 0

    def verify(self, saves: Sequence[Save]) -> list[Verdict]:
        """The verdicts, in the same order; a damaged save is reported there, not raised."""
        plans = [self._plan(save) for save in saves]
        wanted: dict[_Key, _Part] = {}
        for parts, _ in plans:
            for part in parts:
                if (key := _key(part)) is not None:
                    wanted.setdefault(key, part)
        found = self._read_all(wanted)
        return [
            self._judge(save, parts, problems, found)
            for save, (parts, problems) in zip(saves, plans, strict=True)
        ]

    def _plan(self, save: Save) -> tuple[list[_Part], dict[str, str]]:
        """The files to read for a save, and the problems found so far."""
        if save.manifest is None:
            return [], {MANIFEST: save.error}
        problems: dict[str, str] = {}
        parts: list[_Part] = []
        try:
            below = stack_of(save, self._paths)[:-1]
            image = find_base(save, self._paths, trusted=True)
        except QuicksandError as error:
            problems[BASE] = str(error)
            below, image = [], None
        if self._deep:
            parts += _parts_of_save(save, "", problems)
            for lower in below:
                parts += _parts_of_save(lower, f"{lower.name}: ", problems)
            if image is not None and image.digest:
                parts += _parts_of_image(image)
        return parts, problems

    def _read_all(self, wanted: Mapping[_Key, _Part]) -> dict[_Key, str | Exception]:
        """Read the files. The result for each is its digest, "" if no digest was wanted, or the
        error."""
        self._done, self._total = 0, sum(_size(part.path) for part in wanted.values())
        # The largest first, so that all threads end at about the same time.
        ordered = sorted(wanted.items(), key=lambda item: _size(item[1].path), reverse=True)
        with ThreadPoolExecutor(READERS, thread_name_prefix="quicksand-verify") as readers:
            try:
                results = list(readers.map(lambda item: self._read(item[1]), ordered))
            except BaseException:
                self._failed.set()
                raise
        return {key: result for (key, _), result in zip(ordered, results, strict=True)}

    def _read(self, part: _Part) -> str | Exception:
        try:
            return self._hash(part.path, part.size) if part.sha256 else self._walk(part.path)
        except (OSError, DiskFileError) as error:
            return error

    def _hash(self, path: Path, size: int | None) -> str:
        digest, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
        left = sys.maxsize if size is None else size
        with open(open_regular(path, os.O_NOFOLLOW), "rb", buffering=0) as file:  # noqa: PTH123
            while count := file.readinto(buffer[:left]):
                digest.update(buffer[:count])
                self._count(count)
                left -= count
        return digest.hexdigest()

    def _walk(self, path: Path) -> str:
        """Read all allocated clusters of a layer."""
        layer, uncounted = Layer(path), 0
        try:
            for start, end in layer.allocated():
                layer.read(start, end - start)
                uncounted += end - start
                if uncounted >= CHUNK:
                    self._count(uncounted)
                    uncounted = 0
        finally:
            layer.close()
        return ""

    def _count(self, size: int) -> None:
        self._check()
        if self._failed.is_set():  # another thread
            raise Stopped
        with self._lock:
            self._done += size
            done = min(self._done, self._total)
        if self._progress is not None:
            self._progress(done, self._total)

    def _judge(
        self,
        save: Save,
        parts: Sequence[_Part],
        problems: dict[str, str],
        found: Mapping[_Key, str | Exception],
    ) -> Verdict:
        for part in parts:
            key = _key(part)
            result = found.get(key) if key is not None else None
            if result is None:
                problems.setdefault(part.name, f"{part.path} is no file, or not there any more")
            elif isinstance(result, Exception):
                problems.setdefault(part.name, f"{part.path} cannot be read: {result}")
            elif result != part.sha256:
                problems.setdefault(
                    part.name,
                    f"{part.path} has changed: its SHA-256 is {result[:12]}…, "
                    f"not {part.sha256[:12]}…",
                )
        return Verdict(save=save, deep=self._deep, problems=problems)


def _parts_of_save(save: Save, prefix: str, problems: dict[str, str]) -> Iterator[_Part]:
    """The files of a save's disk, with ``prefix`` before their names."""
    manifest = save.require()
    if save.root.is_file():  # a portable snapshot, with its metadata behind the disk
        for layer in manifest.layers or ():
            yield _Part(name=save.root.name, path=save.root, sha256=layer.sha256, size=layer.size)
        return
    try:
        paths = overlay_paths(save.root, manifest)
    except SaveError as error:  # the save is just being removed
        problems[f"{prefix}{OVERLAYS}"] = str(error)
        return
    for number, path in enumerate(paths):
        sha256 = "" if manifest.layers is None else manifest.layers[number].sha256
        yield _Part(name=f"{prefix}{OVERLAYS}/{path.name}", path=path, sha256=sha256)


def _parts_of_image(image: ResolvedImage) -> Iterator[_Part]:
    """The files of an image, with the digests from its manifest."""
    with contextlib.suppress(QuicksandError):  # an image outside of the store has none
        stored = ImageStore.load(image.kernel.parent)
        for found in stored.files.values():
            path = stored.root / str(found["name"])
            yield _Part(name=BASE, path=path, sha256=str(found["sha256"]))


def _key(part: _Part) -> _Key | None:
    """The key of a part; None if it is no regular file or is gone."""
    try:
        found = part.path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_dev, found.st_ino, part.sha256 != ""


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def find_any(name_or_path: str | Path, paths: Paths) -> Save:
    """The save with that name or path, or the snapshot file at that path. Raises
    SaveNotFoundError, SaveError."""
    snapshot = find_portable(Path(name_or_path).absolute())
    return find_save(name_or_path, paths) if snapshot is None else snapshot


async def verify_saves(
    saves: Sequence[Save], paths: Paths, *, deep: bool = False, progress: Report | None = None
) -> list[Verdict]:
    """Verify saves by sizes and headers, or with ``deep`` by every byte. A cancellation stops it at
    once."""

    def verify(check: Callable[[], None]) -> list[Verdict]:
        return Verifier(paths, deep=deep, progress=progress, check=check).verify(saves)

    return await in_stoppable_thread(verify)
