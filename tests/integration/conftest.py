"""Real VMs. A test has places of its own, and what it leaves is its own fault; `shared/` has the
tests that do with one VM for all of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quicksand.config import SandboxConfig
from quicksand.host.paths import Paths

from tests.conftest import fresh_places, make_template, our_processes, wait_for


@pytest.fixture(scope="module", autouse=True)
def start_warm(prepared: Paths) -> None:
    """Booting is what few of these tests are about. Looked for in each module: what others do on
    this machine may have taken it away."""
    make_template(SandboxConfig.parse({"image": "debian"}), prepared)


@pytest.fixture(autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Places in which nothing runs in the end."""
    with fresh_places(prepared) as found:
        yield found
        wait_for(lambda: not our_processes(str(found.data)), what="its processes to end")
