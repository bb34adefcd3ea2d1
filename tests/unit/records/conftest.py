"""The registry of a test's places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from quicksand.records.registry import Registry

if TYPE_CHECKING:
    from quicksand.base.paths import Paths


@pytest.fixture
def registry(places: Paths) -> Registry:
    return Registry(places)
