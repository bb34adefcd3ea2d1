"""Every test runs in places of its own; after all of them nothing may be left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from quicksand.host.paths import Paths, paths


@pytest.fixture(autouse=True)
def places(monkeypatch: pytest.MonkeyPatch, image_store: Path) -> Iterator[Paths]:
    """Fresh runtime, data and cache directories; the images are the user's, by a link.

    Made in /tmp and not in pytest's long directories: a Unix socket's path has 104 bytes.
    """
    root = Path(tempfile.mkdtemp(prefix="qst-"))
    for variable, name in (
        ("QUICKSAND_RUNTIME_DIR", "run"),
        ("QUICKSAND_DATA_DIR", "data"),
    ):
        monkeypatch.setenv(variable, str(root / name))
    (root / "data").mkdir(mode=0o700)
    (root / "data" / "images").symlink_to(image_store)
    found = paths()
    yield found
    leftovers = sorted(str(p.relative_to(root)) for p in (root / "run").rglob("*"))
    shutil.rmtree(root)
    assert not leftovers, f"the test left runtime files: {leftovers}"


@pytest.fixture(scope="session")
def image_store() -> Path:
    """The images that `make setup` made."""
    return Path(os.environ.get("QUICKSAND_TEST_IMAGES", str(paths().images)))
