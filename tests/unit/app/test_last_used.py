"""What the form of a new sandbox remembers between runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from quicksand_tui.forms.presets import NAME, Last, recall_last
from quicksand_tui.home.state import Remembered, StateFile
from tests.each import each

MACHINE = {"memory": "1G", "network_mode": "none", "disk_size": "20G"}
VALUE = Last(begin="save:/a b/\udce9", image="dev", machine=MACHINE)


def test_what_one_run_writes_the_next_one_reads(tmp_path: Path) -> None:
    file = StateFile(tmp_path / "app.json")
    first = Remembered(file)
    assert recall_last(first) is None
    first.put(NAME, asdict(VALUE))
    first.write(NAME)
    assert recall_last(Remembered(file)) == VALUE


@each("kept", [None, 5, "x", []])
def test_a_value_of_another_kind_is_not_recalled(kept: object) -> None:
    remembered = Remembered()
    remembered.put(NAME, kept)
    assert recall_last(remembered) is None


def test_values_of_another_kind_count_as_not_given_and_text_is_made_harmless() -> None:
    remembered = Remembered()
    machine = {"memory": 512, "cpus": None, "network_mode": "\x1b[2Jnone", "y": "z"}
    values = {"image": "x" * 9999, "begin": "save:" + "y" * 9999}
    remembered.put(NAME, {**values, "machine": machine})
    last = recall_last(remembered)
    assert last is not None
    assert last.machine == {"network_mode": "none"}
    assert len(last.image) == 200 and len(last.begin) == 4096


def test_what_older_versions_wrote_is_read() -> None:
    remembered = Remembered()
    machine = {"memory": "1G", "cpus": "2", "network": "none", "ports": "8080:80"}
    remembered.put(NAME, {"begin": "image:debian", "image": "debian", **machine})
    last = recall_last(remembered)
    assert last is not None and last.begin == "image:debian"
    assert last.machine == {
        "memory": "1G",
        "cpus": "2",
        "network_mode": "none",
    }
