"""Where these tests save."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths

from tests.conftest import fresh_places


@pytest.fixture(autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Each test's own."""
    with fresh_places(prepared) as found:
        yield found


@pytest.fixture
def workspace(places: Paths) -> Path:
    """On the file system of the sandboxes."""
    return places.data / "work"


def digests(root: Path) -> dict[str, str]:
    """Every file of a directory, by its content."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
