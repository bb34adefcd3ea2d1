"""What is refused, and what must be true of each refusal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import QuicksandError

from tests.unit.saves.bundles.making import Home, contents

SECONDS = 1.0
SECRET = "the secret of the host"


def refusal(there: Home, data: bytes, tmp_path: Path, **options: Any) -> str:
    """Why it is refused."""
    before = contents(tmp_path)
    started = time.process_time()
    with pytest.raises(QuicksandError) as caught:
        there.import_(data, **options)
    # Of the processor: others may be using it, too.
    assert time.process_time() - started < SECONDS
    assert contents(tmp_path) == before
    assert SECRET not in str(caught.value)
    return str(caught.value)
