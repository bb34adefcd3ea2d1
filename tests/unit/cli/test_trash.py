"""`rm`, `trash` and `restore`: one trash for sandboxes and saves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import QuicksandError
from quicksand.base.files import read_json
from quicksand.base.paths import Paths
from quicksand.life.image_users import ImageUsers
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.saves.store import SaveStore

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.cli.run_cli import make_stopped
from tests.unit.disks.test_store import publish
from tests.unit.saves.making import make_save

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_orphans: None) -> None:
    """Images and a current directory of the test's own."""
    for name in ("images", "qemu"):
        (places.data / name).unlink()
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(places.data.parent / "cache"))
    monkeypatch.chdir(tmp_path)


def names(places: Paths) -> list[str]:
    return [entry.name for entry in Registry(places).list()]


def told(capsys: Output, *argv: str) -> Any:
    capsys.readouterr()
    assert run([*argv, "--json"]) == Exit.OK
    return json.loads(capsys.readouterr().out)


def test_rm_moves_to_the_trash_and_restore_brings_back(places: Paths, capsys: Output) -> None:
    record = make_stopped(places, "box")
    assert run(["rm", "box"]) == Exit.OK
    captured = capsys.readouterr()
    assert captured.out == "box\n"
    assert "`quicksand-tui restore box` restores it" in captured.err
    assert names(places) == []
    (found,) = told(capsys, "trash")["removed"]
    assert (found["kind"], found["name"], found["id"]) == ("sandbox", "box", record.id)
    assert run(["restore", "box"]) == Exit.OK
    captured = capsys.readouterr()
    assert captured.out == "box\n"
    assert "`quicksand-tui start box`" in captured.err
    assert names(places) == ["box"]


def test_rm_now_removes_for_good(places: Paths, capsys: Output) -> None:
    make_stopped(places, "box")
    assert run(["rm", "--now", "box"]) == Exit.OK
    assert "gone for good" in capsys.readouterr().err
    assert told(capsys, "trash")["removed"] == []
    assert run(["restore", "box"]) == Exit.FAILURE
    assert "it is empty" in capsys.readouterr().err


def test_one_that_was_to_be_discarded_does_not_go_to_the_trash(
    places: Paths, capsys: Output
) -> None:
    record = make_stopped(places, "box")
    path = sandbox_dir(places, record.id).record
    path.write_text(json.dumps({**read_json(path), "discard": True}))
    assert run(["rm", "box"]) == Exit.OK
    assert told(capsys, "trash")["removed"] == []


def test_a_name_that_is_taken_by_then_is_given_another(places: Paths, capsys: Output) -> None:
    record = make_stopped(places, "box")
    assert run(["rm", "box"]) == Exit.OK
    make_stopped(places, "box")
    assert run(["restore", "box"]) == Exit.FAILURE
    assert f"`quicksand-tui restore {record.id} --name NEW`" in capsys.readouterr().err
    assert run(["restore", record.id, "--name", "old"]) == Exit.OK
    assert sorted(names(places)) == ["box", "old"]


def test_saves_are_in_the_same_trash(places: Paths, capsys: Output) -> None:
    make_save(SaveStore(places.saves), "env", b"1")
    make_stopped(places, "box")
    assert run(["saves", "rm", "env"]) == Exit.OK
    assert run(["rm", "box"]) == Exit.OK
    assert [(f["kind"], f["name"]) for f in told(capsys, "trash")["removed"]] == [
        ("save", "env"),
        ("sandbox", "box"),
    ]
    assert run(["restore", "env", "--name", "again"]) == Exit.OK
    assert SaveStore(places.saves).get("again") is not None
    assert [f["name"] for f in told(capsys, "trash")["removed"]] == ["box"]


def test_one_name_of_both_kinds_is_asked_about(places: Paths, capsys: Output) -> None:
    make_save(SaveStore(places.saves), "box", b"1")
    record = make_stopped(places, "box")
    assert run(["saves", "rm", "box"]) == Exit.OK
    assert run(["rm", "box"]) == Exit.OK
    (save,) = SaveStore(places.saves).trash()
    capsys.readouterr()
    assert run(["restore", "box"]) == Exit.FAILURE
    hint = capsys.readouterr().err
    assert f"restore {record.id}` brings the sandbox back" in hint
    assert f"restore {save.id}` the save" in hint
    assert run(["restore", record.id]) == Exit.OK
    assert run(["restore", "box"]) == Exit.OK, "the save alone is left"


def test_the_trash_is_emptied_of_all_or_of_some(places: Paths, capsys: Output) -> None:
    one, _ = make_stopped(places, "one"), make_stopped(places, "other")
    make_save(SaveStore(places.saves), "env", b"1")
    assert run(["saves", "rm", "env"]) == Exit.OK
    assert run(["rm", "one", "other"]) == Exit.OK
    assert run(["trash", "--empty", "0" * 12]) == Exit.FAILURE
    assert len(told(capsys, "trash")["removed"]) == 3
    assert [f["name"] for f in told(capsys, "trash", "--empty", one.id)["removed"]] == ["one"]
    assert len(told(capsys, "trash")["removed"]) == 2
    assert run(["trash", "--empty"]) == Exit.OK
    assert told(capsys, "trash")["removed"] == []


def test_du_and_clean_tell_what_the_trash_holds(places: Paths, capsys: Output) -> None:
    record = make_stopped(places, "box")
    (sandbox_dir(places, record.id).root / "layer").write_bytes(b"x" * 65536)
    assert run(["rm", "box"]) == Exit.OK
    (kind,) = (k for k in told(capsys, "du")["kinds"] if k["kind"] == "trash")
    assert kind["number"] == 1
    assert kind["own"] >= 65536
    assert {k["kind"] for k in told(capsys, "du")["kinds"]}.isdisjoint({"sandboxes", "leftovers"})
    (heap,) = (h for h in told(capsys, "clean", "--dry-run")["heaps"] if h["kind"] == "trash")
    assert heap["paths"] == [str(SandboxTrash(Registry(places)).root / record.id)]
    assert heap["frees"] >= 65536
    assert run(["clean", "--yes"]) == Exit.OK
    assert told(capsys, "trash")["removed"] == []


def test_an_image_that_one_in_the_trash_lies_on_stays(places: Paths, capsys: Output) -> None:
    from quicksand.disks.images.image_store import ImageStore

    image = publish(ImageStore(places.images))
    record = make_stopped(places, "box", image=image.name)
    path = sandbox_dir(places, record.id).record
    path.write_text(json.dumps({**read_json(path), "image_digest": image.digest}))
    assert run(["rm", "box"]) == Exit.OK
    assert ImageUsers(places).of(image).trashed == ("box",)
    assert run(["images", "rm", image.name]) == Exit.FAILURE
    assert "box in the trash" in capsys.readouterr().err
    assert run(["trash", "--empty"]) == Exit.OK
    assert run(["images", "rm", image.name]) == Exit.OK


def test_python_brings_back_too(places: Paths) -> None:
    from quicksand import Sandbox

    record = make_stopped(places, "box")
    SandboxTrash(Registry(places)).put(record.id)
    with pytest.raises(QuicksandError):
        Sandbox.open("box")
    assert Sandbox.restore("box", name="new").name == "new"
    assert names(places) == ["new"]
