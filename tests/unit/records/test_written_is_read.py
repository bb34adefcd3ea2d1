"""Nothing is written that its own reader would refuse."""

from __future__ import annotations

import ast
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import ConfigError, QuicksandError
from quicksand.base.files import JSON_MAX, read_json, write_json
from quicksand.mounts.shares import Share
from quicksand.records.fleet_files import LeaseRecord
from quicksand.records.layout import SandboxDir
from quicksand.records.mount import Mount
from quicksand.records.nodes import BLANK, NOTE_MAX, GivenUp, Head, check_note, read_note
from quicksand.records.sandboxes import SaveSource
from quicksand.saves.save_manifest import Base, SaveManifest
from quicksand.saves.saving import SaveOptions
from quicksand.snapshots.history import History
from quicksand.snapshots.recognition import ShellTail
from quicksand.things.checkpoint import DISK
from quicksand.warm.spares.spare import Spare
from quicksand_e2b.records import SandboxRecord, SnapshotRecord, State
from quicksand_fleet.keeping.book import Kept, Phase
from quicksand_fleet.record import FleetRecord, NodeRecord

from tests.each import each
from tests.unit.cli.histories import node_of
from tests.unit.records.making import RECORD, RUN

HALF = "a note with half an emoji \ud83d"
WRONG: tuple[Any, ...] = (
    None, True, 7, -1, 1.5, float("nan"), float("inf"), 2**70, b"bytes", object(), {1, 2},
    "", "text", HALF, "\0\x1b[2J", "x" * (NOTE_MAX + 1), "x" * JSON_MAX,
    [], ["a"], [None], (1, 2), {}, {"a": None}, {"a": HALF}, ["x"] * 3,
)  # fmt: skip

API_ID = "i" + "0" * 19
NO_MEMORY: dict[str, Any] = {
    **{"memory": BLANK, "pages": (), "index": None, "devices": None},
    **{"firmware": None, "image": None, "state": None},
}
RECORDS: tuple[Any, ...] = (
    RECORD,
    replace(RECORD, source=SaveSource(path="/s", name="s", id="", digest="")),
    RUN,
    node_of(1),
    Head(layers=("0" * 12,), top="1" * 12),
    LeaseRecord(name="box", epoch=1, boot="b"),
    FleetRecord(nodes=(NodeRecord(id="0" * 8, name="a", memory_bytes=1, cpus=1),)),
    GivenUp(
        node=replace(node_of(1), tier=DISK, **NO_MEMORY), head=Head(layers=(), top="1" * 12),
        run="r", size=4096, since=None, firmware=None, boot="b",
    ),
    Kept(
        name="a", epoch=1, phase=Phase.LEASED, host="h", id="0" * 12, lease=9.0, every=None, make=""
    ),
    Share(number=1, name="QUICKSAND1-0123ABCD", mount=Mount("/a", "/mnt/a"), pid=1, started="1"),
    ShellTail(program="sh", columns=80, rows=24, output=b"$ "),
    SaveManifest(config=RECORD.config, arch="x86_64", id="0" * 12, base=Base(name="debian")),
    Spare(id=RECORD.id, key="k", record=RECORD, run=RUN, port=1, until=None),
    SandboxRecord(
        id=API_ID, owner="o", template="t", state=State.RUNNING, created=1.0, ends=2.0,
        on_timeout="kill", auto_resume=False, pauses_memory=True, token="t", traffic_token="t",
        cpus=1, memory_mb=512, disk_mb=1,
    ),
    SnapshotRecord(
        id=API_ID, owner="o", name="", source=API_ID, created=1.0, is_whole=True, has_memory=True,
        template="t", user="u", cpus=1, memory_mb=512, disk_mb=1,
    ),
)  # fmt: skip


def is_read_again(record: Any, path: Path) -> bool:
    """Whether the record is written; then it is also read. Raises what its reader raises."""
    try:
        write_json(path, record.to_json(), read=type(record).from_json, durable=False)
    except (QuicksandError, AttributeError, TypeError, ValueError):
        assert not path.exists()
        return False
    type(record).from_json(read_json(path))
    path.unlink()
    return True


def test_every_record_with_every_wrong_value_is_refused_or_read_again(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    unread = []
    for record in RECORDS:
        assert is_read_again(record, path), record
        for field in fields(record):
            for wrong in WRONG:
                try:
                    is_read_again(replace(record, **{field.name: wrong}), path)
                except QuicksandError:  # it cannot even be made
                    continue
                except (AttributeError, TypeError, ValueError, OSError) as error:
                    unread.append((type(record).__name__, field.name, repr(wrong)[:40], error))
    assert unread == []


def test_every_writer_of_a_record_names_its_reader() -> None:
    missing = []
    root = Path(__file__).parents[3]
    packages = ("engine/quicksand", "extras", "images/quicksand_images", "quicksand_tui")
    for path in (path for package in packages for path in (root / package).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
                continue
            if call.func.id not in ("write_json", "PendingJson"):
                continue
            if ".to_json()" in ast.unparse(call) and "read" not in {k.arg for k in call.keywords}:
                missing.append(f"{path.relative_to(root)}:{call.lineno}")
    # A seal, and whatever else a value of ours is only a part of.
    assert [found for found in missing if "layers.py" not in found] == []


@each("note", [None, 7, b"x", ["x"], HALF, "x" * (NOTE_MAX + 1)])
def test_a_wrong_note_is_refused_before_anything_is_done(note: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        check_note(note)
    with pytest.raises(ConfigError):
        SaveOptions(note=note)
    history = History(SandboxDir(tmp_path))
    with pytest.raises(ConfigError):
        history.write_note(node_of(1), note)


@each("note", ["", "plain", "\U0001f600 whole", "line\nline", "x" * NOTE_MAX])
def test_a_note_that_is_taken_is_read_as_it_was(note: str) -> None:
    assert read_note(json.loads(json.dumps(check_note(note)))) == note


def test_checkpoints_that_older_versions_wrote_with_a_wrong_note_are_whole_again() -> None:
    for note, now in ((None, ""), (HALF, HALF.replace("\ud83d", "?"))):
        plain = {**node_of(1).to_json(), "note": note}
        assert type(node_of(1)).from_json(json.loads(json.dumps(plain))).note == now


@each(
    "options",
    [
        {"image": "debian\ud83d"},
        {"workspace": "/tmp/\ud83d"},
        {"workspace": "/tmp/\0"},
        {"extra_qemu_args": ["\ud83d"]},
        {"mounts": [("/tmp/\ud83d", "/mnt")]},
        {"mounts": [("/tmp", "/mnt/\ud83d")]},
    ],
)
def test_half_a_character_is_no_part_of_a_path_or_an_argument(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        options = dict(options)
        if "mounts" in options:
            options["mounts"] = [Mount(*one) for one in options["mounts"]]
        Sandbox(**{"image": "debian", **options})
