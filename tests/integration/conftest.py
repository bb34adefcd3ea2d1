"""Real VMs. A test has places of its own, and what it leaves is its own fault; `shared/` has the
tests that do with one VM for all of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from quicksand.base.paths import Paths
from quicksand.display import hands
from quicksand.qemu import guest_resume
from quicksand.records.config import SandboxConfig
from quicksand.snapshots import recognition
from quicksand.warm.spares import claiming, handover

from tests.conftest import fresh_places, make_template, our_processes, wait_for


@pytest.fixture(scope="session", autouse=True)
def start_warm(template: None) -> None:
    """Booting is what few of these tests are about."""


@pytest.fixture(scope="session")
def warm_without_network(prepared: Paths) -> None:
    """The user's template of a machine without a network card, which is another one."""
    make_template(SandboxConfig.parse({"image": "debian", "network_mode": "none"}), prepared)


@pytest.fixture(autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Places in which nothing runs in the end."""
    with fresh_places(prepared) as found:
        yield found
        wait_for(lambda: not our_processes(str(found.data)), what="its processes to end")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that waits is taken over, a checkpoint has its picture, held keys are released and
    a guest's clock is set exactly, however long a busy host holds them up. Otherwise a start, a
    revert or a checkpoint does without after a second or two."""
    for module, name in (
        (claiming, "ANSWER_S"),
        (handover, "CONNECT_S"),
        (hands, "LIFT_S"),
        (recognition, "PATIENCE_S"),
        (guest_resume, "FIRST_HELLO_S"),
        (guest_resume, "CLOCK_S"),
    ):
        monkeypatch.setattr(module, name, 10.0)
    exactly = guest_resume.CLOCK_TRIES_S[:1]
    monkeypatch.setattr(guest_resume, "CLOCK_TRIES_S", exactly * 200)
