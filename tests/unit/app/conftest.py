"""Saves on disk, in places of a test's own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from quicksand_tui.ui import key_routing


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input that is gone tells nobody that its last key was handled, so that the next keys wait
    until they go on in any case."""
    monkeypatch.setattr(key_routing, "HELD_S", 0.01)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks are shown in the zone that the user is in: here in one that all hosts have."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()
