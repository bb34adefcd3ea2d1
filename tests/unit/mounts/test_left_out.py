"""`unmount` of what could not be mounted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import ConfigError
from quicksand.base.paths import Paths
from quicksand.life.sandbox_mounts import Mounts
from quicksand.mounts.known_mounts import note_left_out, read_left_out
from quicksand.records.layout import sandbox_dir

ID = "0123456789ab"


class History:
    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        yield


async def test_it_is_taken_from_the_list_and_the_guest_is_not_asked(places: Paths) -> None:
    life: Any = SimpleNamespace(
        registry=SimpleNamespace(paths=places),
        id=ID,
        name="web",
        entry=lambda: SimpleNamespace(run=SimpleNamespace(paused=False)),
        history=History,
    )
    guest: Any = None
    mounts, place = Mounts(life, guest), sandbox_dir(places, ID)
    place.left_out.parent.mkdir(parents=True)
    note_left_out(place, {"/mnt/hot": "a link", "/mnt/other": "gone"})
    await mounts.remove("/mnt/hot", force=False)
    assert read_left_out(place) == {"/mnt/other": "gone"}
    with pytest.raises(ConfigError, match="nothing is mounted"):
        await mounts.remove("/mnt/hot", force=False)
