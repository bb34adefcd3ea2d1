"""Real VMs. A test has places of its own, and what it leaves is its own fault; `shared/` has the
tests that do with one VM for all of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quicksand.host.paths import Paths

from tests.conftest import fresh_places, our_processes, wait_for


@pytest.fixture(scope="session", autouse=True)
def start_warm(template: None) -> None:
    """Booting is what few of these tests are about."""


@pytest.fixture(autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Places in which nothing runs in the end."""
    with fresh_places(prepared) as found:
        yield found
        wait_for(lambda: not our_processes(str(found.data)), what="its processes to end")
