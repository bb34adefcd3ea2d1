from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.smb_attack.guest import Guest, Server, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """As deployed; what must hold after every attack is checked when the test is done."""
    with serving(tmp_path) as made:
        yield made
        made.check()


@pytest.fixture
def guest(server: Server) -> Guest:
    """Logged in, and connected to the share that may be written."""
    return server.guest.begin()
