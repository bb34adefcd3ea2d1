"""A server of the tests' own, and nothing of the user's settings for indexes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand.disks.images.image_store import ImageStore

from tests.unit.disks.packages.servers import Server, serving

SETTINGS = (
    *("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "XDG_CONFIG_DIRS"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"),
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def images(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")
