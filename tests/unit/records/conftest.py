"""The registry of a test's places."""

from __future__ import annotations

import pytest
from quicksand.base.paths import Paths
from quicksand.records.registry import Registry


@pytest.fixture
def registry(places: Paths) -> Registry:
    return Registry(places)
