"""What is said when two disks cannot be compared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import CheckpointNotFoundError, HistoryError
from quicksand.base.remedies import Remedy, Words
from quicksand.snapshots import comparison

from tests.each import each


@each(
    ("error", "said"),
    [
        (
            CheckpointNotFoundError("no", hint=Words(Remedy("tree", name="web"), " lists")),
            "X lists",
        ),
        (HistoryError("torn"), "it was being written to: take a checkpoint first"),
    ],
    ids=["it has a hint", "it has none"],
)
async def test_the_hint_of_an_error_stays_one_that_each_face_says_in_its_words(
    monkeypatch: pytest.MonkeyPatch, error: HistoryError, said: str
) -> None:
    async def fail(*_: object) -> Any:
        raise error

    monkeypatch.setattr(comparison, "_once", fail)
    registry: Any = SimpleNamespace(inspect=lambda _: SimpleNamespace(is_live=True))
    record: Any = SimpleNamespace(id="1")
    with pytest.raises(HistoryError) as raised:
        await comparison.diff_disks(registry, record, "a", None)
    assert raised.value.hint_in(lambda _: "X") == said
