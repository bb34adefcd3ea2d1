from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.smb_protocol.client import SERVERS


@pytest.fixture(autouse=True)
def closed_houses() -> Iterator[None]:
    yield
    while SERVERS:
        SERVERS.pop().end()
