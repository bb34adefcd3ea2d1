"""Whether saves are whole: from outside, or every byte of them and of what they lie on."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from quicksand.diskdiff.bounds import Stopped
from quicksand.errors import ImageError, SaveError
from quicksand.host.paths import Paths
from quicksand.images.store import ImageStore, StoredImage
from quicksand.saves.census import BaseState, base_of, base_state
from quicksand.saves.manifest import MANIFEST, OVERLAYS
from quicksand.saves.store import Save, overlay_paths

CHUNK = 1 << 20
"""Bytes of one read. hashlib lets other threads go on meanwhile."""

READERS = 2

BASE = "base"
"""Stands for the image that a save lies on, among the names of files."""

Report = Callable[[int, int], None]
"""Told bytes done and bytes in all, in another thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found out about one save."""

    save: Save
    deep: bool
    """Every byte was read."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """What is wrong, by file (`BASE`: the image); empty if the save is whole."""

    @property
    def is_whole(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A file that a save needs."""

    name: str
    path: Path
    sha256: str
    """"" if nobody has told: then its data are looked for, all of them."""


_Key = tuple[int, int, bool]
"""A file (device, inode), and whether its digest is wanted."""


class Verifier:
    """Reads files, each once, in two threads."""

    def __init__(
        self,
        images: ImageStore,
        *,
        deep: bool = False,
        progress: Report | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._images = images
        self._deep = deep
        self._progress = progress
        self._stop = stop or threading.Event()
        self._lock = threading.Lock()
        self._done = self._total = 0

    def verify(self, saves: Sequence[Save]) -> list[Verdict]:
        """The verdicts, in the same order. Never raises for a bad save; raises Stopped."""
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
        """What is to be read of a save, and what is wrong with it already."""
        if save.manifest is None:
            return [], {MANIFEST: save.error}
        problems: dict[str, str] = {}
        parts: list[_Part] = []
        base = base_of(save)
        if (state := base_state(base, self._images)) is not BaseState.HERE:
            there = ", only another version of it" if state is BaseState.OTHER else ""
            problems[BASE] = f"the image {base} is not here{there}"
        if self._deep:
            try:
                parts = list(_parts_of_save(save))
            except SaveError as error:  # it is being removed
                problems[OVERLAYS] = str(error)
            image = self._images.find_version(base.name, base.digest) if base.digest else None
            if image is not None:
                parts += _parts_of_image(image)
        return parts, problems

    def _read_all(self, wanted: Mapping[_Key, _Part]) -> dict[_Key, str | Exception]:
        """What was found for each: a digest, "" for data that can all be read, or what failed."""
        self._done, self._total = 0, sum(_size(part.path) for part in wanted.values())
        # The largest first: then both threads end at about the same time.
        ordered = sorted(wanted.items(), key=lambda item: _size(item[1].path), reverse=True)
        with ThreadPoolExecutor(READERS, thread_name_prefix="quicksand-verify") as readers:
            try:
                results = list(readers.map(lambda item: self._read(item[1]), ordered))
            except BaseException:
                self._stop.set()
                raise
        return {key: result for (key, _), result in zip(ordered, results, strict=True)}

    def _read(self, part: _Part) -> str | Exception:
        try:
            return self._hash(part.path) if part.sha256 else self._walk(part.path)
        except (OSError, ImageError) as error:
            return error

    def _hash(self, path: Path) -> str:
        digest, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(path, flags), "rb", buffering=0) as file:  # noqa: PTH123
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
                self._count(count)
        return digest.hexdigest()

    def _walk(self, path: Path) -> str:
        """Read all that a layer holds of the guest's disk."""
        from quicksand.diskdiff.layer import Layer

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
        if self._stop.is_set():
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


def _parts_of_save(save: Save) -> Iterator[_Part]:
    """Raises SaveError."""
    manifest = save.require()
    for number, path in enumerate(overlay_paths(save.root, manifest)):
        layers = manifest.layers
        yield _Part(
            name=f"{OVERLAYS}/{path.name}",
            path=path,
            sha256="" if layers is None else layers[number].sha256,
        )


def _parts_of_image(image: StoredImage) -> Iterator[_Part]:
    for found in image.files.values():
        yield _Part(name=BASE, path=image.root / str(found["name"]), sha256=str(found["sha256"]))


def _key(part: _Part) -> _Key | None:
    """None if it is no file (any more)."""
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


async def verify_saves(
    saves: Sequence[Save], paths: Paths, *, deep: bool = False, progress: Report | None = None
) -> list[Verdict]:
    """Look at saves from outside, or ``deep`` at every byte. A cancellation stops it at once."""
    stop = threading.Event()
    verifier = Verifier(ImageStore(paths.images), deep=deep, progress=progress, stop=stop)
    task = asyncio.create_task(asyncio.to_thread(verifier.verify, saves), name="quicksand-verify")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()
        raise
