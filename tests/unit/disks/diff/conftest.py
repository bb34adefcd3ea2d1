"""Tools that make file systems."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from quicksand_images.disk import require_filesystem_tools
from quicksand_images.toolbox import Tool

from tests.unit.disks.diff.disks import Maker


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tool, Tool]]:
    """As the builder of images gets them: installed, or unpacked for us."""
    place = tmp_path_factory.mktemp("tools")
    yield asyncio.run(require_filesystem_tools(place))
    shutil.rmtree(place)


@pytest.fixture
def maker(tools: tuple[Tool, Tool], tmp_path: Path) -> Maker:
    return Maker(*tools, tmp_path)
