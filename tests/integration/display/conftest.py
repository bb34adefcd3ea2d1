"""A machine with a screen, whose guest tells what its keyboard and its pointer do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.records.config import SandboxConfig

from tests.conftest import make_template
from tests.integration.display.reports import Reports


@pytest.fixture(scope="session", autouse=True)
def start_warm(prepared: Paths) -> None:
    """Booting is not what these tests are about."""
    make_template(SandboxConfig.parse({"image": "debian", "enable_display": True}), prepared)


@pytest.fixture
async def vm(places: Paths) -> AsyncIterator[Sandbox]:
    async with Sandbox(image="debian", name="box", enable_display=True, vnc_port=0) as sandbox:
        # The default image's kernel has the drivers of keyboard and pointer, but none of a screen.
        result = await sandbox.execute("modprobe -a virtio_input evdev", timeout=60)
        assert result.exit_code == 0, result.stderr
        yield sandbox


@pytest.fixture
async def reports(vm: Sandbox) -> AsyncIterator[Reports]:
    async with Reports(vm) as found:
        yield found
