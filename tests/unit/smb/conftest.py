"""A share, a secret beside it, and both ways of walking."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quicksand_smb import walk
from quicksand_smb.store import Store

WALKS = {"by_kernel": walk.by_kernel, "by_steps": walk.by_steps}

StoreMaker = Callable[..., Store]


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """The directory that is shared; `outside` beside it is not."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    share = tmp_path / "share"
    share.mkdir()
    return share


@pytest.fixture
def outside(share: Path) -> Path:
    return share.parent / "outside"


@pytest.fixture(params=WALKS)
def make_store(request: pytest.FixtureRequest, share: Path) -> Iterator[StoreMaker]:
    """Stores with one of the ways of walking; nothing of theirs may stay open."""
    made: list[Store] = []
    before = set(os.listdir("/proc/self/fd"))

    def make(root: Path | None = None, **options: object) -> Store:
        options = {"read_only": False, "walk": WALKS[request.param]} | options
        made.append(Store(str(root or share), **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for store in made:
        store.close()
    assert len(os.listdir("/proc/self/fd")) <= len(before), "descriptors leak"


@pytest.fixture
def store(make_store: StoreMaker) -> Store:
    return make_store()
