from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.smb_protocol.client import SERVERS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def closed_houses() -> Iterator[None]:
    yield
    while SERVERS:
        SERVERS.pop().end()
