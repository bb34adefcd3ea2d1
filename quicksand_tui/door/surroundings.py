"""Reads the surroundings of the sandboxes: the images, and the free memory and disk of the host.

This needs much of the engine, so the app looks at the sandboxes first.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from quicksand.base.capacity import available_memory
from quicksand.base.errors import QuicksandError
from quicksand.disks.images.resolve import ImageResolver
from quicksand.life.all_processes import spare_memory
from quicksand.life.image_building import buildable_images, find_suggested_options
from quicksand.qemu.debs import is_apt_host
from quicksand.records.fleet_files import is_known_to_fleets
from quicksand.records.machine_options import NO, YES
from quicksand.records.memory_budget import BUDGET, Claims
from quicksand.things.image_info import ImageInfo

from quicksand_tui.door.stamps import Stamp, dir_stamp, directories
from quicksand_tui.model.text import cleaned, error_text, sanitise
from quicksand_tui.model.world import HostView, RoomView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quicksand.base.paths import Paths
    from quicksand.records.registry import Registry


class Surroundings:
    """Reads images and the host, and remembers them. Used by one thread at a time."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._stamp: Stamp | None = None
        self._in_doubt = False
        """A part of an image could not be read, which may succeed at any time."""
        self.images: tuple[ImageInfo, ...] = ()
        self.host = HostView()

    def forget(self) -> None:
        """Has the images read anew by the next look."""
        self._stamp = None

    def look_at_images(self, due: bool) -> str:
        """Looks at the images if any has changed; with ``due``, also if a part of one could not be
        read. If none can be read now, they stay as they were, and are looked at again the next
        time; returns the reason, or ""."""
        root = self._paths.images
        try:
            stamp: Stamp = dir_stamp(root)
            for name in directories(root):
                stamp += dir_stamp(root / name)
            if stamp == self._stamp and not (due and self._in_doubt):
                return ""
            found = ImageResolver(self._paths).list()
            self._in_doubt = any(info.error for info in found)
            self.images = tuple(
                replace(image, machine=self._suggested(image))
                for image in (
                    *(ImageInfo(**cleaned(asdict(info))) for info in found),
                    *_not_built(found),
                )
            )
        except (OSError, QuicksandError) as error:
            self._stamp = None
            return error_text(error)
        self._stamp = stamp
        return ""

    def _suggested(self, image: ImageInfo) -> dict[str, str]:
        """Returns an image's suggestions for its machines, as a user types them."""
        typed = {True: YES, False: NO}
        try:
            options = {} if image.error else find_suggested_options(image.name, self._paths)
        except QuicksandError:
            self._in_doubt = True
            return {}
        return {
            keyword: typed[value] if isinstance(value, bool) else sanitise(str(value), limit=20)
            for keyword, value in options.items()
        }

    def look_at_host(self, registry: Registry) -> None:
        """Measures the free memory and disk, and the memory of spares."""
        self.host = self._measured(registry)

    def _measured(self, registry: Registry) -> HostView:
        place = self._paths.data
        try:
            while not place.exists():
                place = place.parent
            memory, disk = available_memory(), shutil.disk_usage(place).free
            # Rounded to 64, 256 and 16 MiB: digits that always change would only cost repaints.
            spares, taken = spare_memory(registry)
            return HostView(
                cpus=os.cpu_count(),
                memory_free=memory >> 26 << 26,
                disk_free=disk >> 28 << 28,
                spares=spares,
                spares_memory=taken >> 24 << 24,
                room=self._room(),
            )
        except (OSError, QuicksandError):
            return HostView()  # shown as unknown

    def _room(self) -> RoomView | None:
        """Returns the room that this machine tells fleets; None if none has asked."""
        if BUDGET not in os.environ and not is_known_to_fleets(self._paths):
            return None
        use, claims = Claims(self._paths).look()
        kept = [taken for taken in claims.values() if taken]
        free = max(0, use.free - sum(kept))
        return RoomView(
            memory=use.budget,
            free=free >> 26 << 26,
            claims=len(kept),
            is_limit=BUDGET in os.environ,
        )


def _not_built(found: Sequence[ImageInfo]) -> tuple[ImageInfo, ...]:
    """Returns the images that are built when first needed."""
    if not is_apt_host():
        return ()
    there = {info.name for info in found}
    return tuple(
        ImageInfo(name=name, source="recipe") for name in buildable_images() if name not in there
    )
