"""`saves`: listing, removing and bringing back, verifying, pruning."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand import saves as api
from quicksand.base.errors import SaveNotFoundError
from quicksand.base.files import write_json
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import SaveSource
from quicksand.records.trash import TRASH_KEPT_S
from quicksand.saves.finding import all_stores, remember
from quicksand.saves.ownership import mark_imported, mark_made
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Base
from quicksand.saves.store import SaveStore

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.aged import make_overdue
from tests.unit.cli.run_cli import make_stopped, quicksand
from tests.unit.saves.making import make_published, make_save, workspace_of

Output = pytest.CaptureFixture[str]


def read_json(capsys: Output, *argv: str, code: Exit = Exit.OK) -> Any:
    assert run([*argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def lines(capsys: Output, *argv: str, code: Exit = Exit.OK) -> list[str]:
    assert run(list(argv)) == code
    return capsys.readouterr().out.splitlines()


def began_with(places: Paths, name: str, save_id: str, *, committed: bool = True) -> None:
    record = make_stopped(places, name)
    path = sandbox_dir(places, record.id).record
    source = SaveSource(path="/x", name="first", id=save_id, digest="")
    write_json(path, replace(record, source=source, committed=committed).to_json())


# Listing


def test_without_saves_the_way_to_one_is_told(store: SaveStore, capsys: Output) -> None:
    assert run(["saves"]) == Exit.OK
    out, err = capsys.readouterr()
    heads = ["NAME", "OWN", "SHARED", "BASE", "AGE", "PARENT", "CHILDREN", "FROM", "NOTE"]
    assert out.split() == heads
    assert "quicksand-tui save " in err
    assert read_json(capsys, "saves") == []
    assert not Path(".quicksand").exists()


def test_the_list_tells_descent_and_origin(
    places: Paths, store: SaveStore, base: Base, capsys: Output
) -> None:
    first = make_save(store, "first", b"1", base=base, note="with gcc")
    make_save(store, "second", b"2", over=first, base=base)
    make_save(all_stores(places)[0], "near", b"3", base=base)
    began_with(places, "box", first.require().id)
    near, told, second = read_json(capsys, "saves")
    assert [near["name"], near["from"]] == ["near", "workspace"]
    assert (told["name"], told["from"], told["note"]) == ("first", "user", "with gcc")
    assert (told["children"], told["sandboxes"]) == (["second"], ["box"])
    assert told["base"] == {
        "name": "debian",
        "version": "13",
        "digest": base.digest,
        "state": "here",
    }
    assert second["parent"] == {"name": "first", "id": first.require().id}
    assert second["shared"] == told["shared"] > 0
    assert second["layers"] == 2
    table = lines(capsys, "saves")
    assert [line.split()[0] for line in table[1:]] == ["near", "first", "second"]
    assert "debian 13" in table[2]
    assert table[2].endswith("with gcc")


def test_the_list_tells_what_was_not_made_here(
    places: Paths, store: SaveStore, base: Base, capsys: Output
) -> None:
    near, _, here = all_stores(places)
    mark_imported(make_save(store, "brought", b"1", base=base).root)
    greedy = make_save(near, "greedy", b"2", base=base).root / MANIFEST
    manifest = json.loads(greedy.read_text())
    manifest["config"]["network_mode"] = "full"
    greedy.write_text(json.dumps(manifest))
    mine = make_save(here, "mine", b"3", base=base).root
    mark_made(mine, mine, places)
    told = {save["name"]: save for save in read_json(capsys, "saves")}
    assert [(s["from"], s["made_here"], s["left_out"]) for s in told.values()] == [
        ("workspace", False, ["network full"]),
        ("user", False, []),
        ("here", True, []),
    ]
    table = lines(capsys, "saves")
    assert "workspace, not made here" in table[1]
    assert "user, imported" in table[2]
    assert table[3].split()[-1] == "here"


def test_what_was_no_save_stays_in_the_trash(
    places: Paths, store: SaveStore, base: Base, capsys: Output
) -> None:
    Path("notes").mkdir()
    Path("notes/thesis").write_text("years")
    here = all_stores(places)[2]
    remember(here.root, places)
    make_save(all_stores(places)[2], "notes", b"1", base=base, replace=True)
    (told,) = read_json(capsys, "saves", "trash")["saves"]
    assert (told["name"], told["until"]) == ("notes", None)
    assert "kept" in lines(capsys, "saves", "trash")[1]
    assert run(["saves", "trash", "--empty"]) == Exit.FAILURE
    assert run(["saves", "rm", "./notes", "--now"]) == Exit.OK
    assert run(["saves", "restore", "notes"]) == Exit.OK
    assert Path("notes/thesis").read_text() == "years"


def test_problems_are_listed(store: SaveStore, base: Base, capsys: Output) -> None:
    make_save(store, "lost", b"1", base=Base(name="gone", digest="0" * 64))
    make_save(store, "broken", b"1", base=base)
    (store.root / "broken" / MANIFEST).write_text("\x1b[31m{")
    make_published(store.root / "theirs", b"1")
    table = lines(capsys, "saves")
    assert table[0].split()[-1] == "PROBLEM"
    assert "'gone', digest 000000000000 is not here" in "\n".join(table)
    assert "\x1b" not in "\n".join(table)
    told = {save["name"]: save for save in read_json(capsys, "saves")}
    assert told["theirs"]["problems"] == []
    assert (told["broken"]["base"], told["lost"]["base"]["state"]) == (None, "missing")


def test_saves_of_other_workspaces_are_listed_on_demand(
    places: Paths, store: SaveStore, tmp_path: Path, capsys: Output
) -> None:
    other = workspace_of(places, tmp_path / "there")
    make_save(other, "far", b"1")
    assert read_json(capsys, "saves") == []
    (far,) = read_json(capsys, "saves", "--all")
    assert (far["name"], far["from"]) == ("far", str(other.root))
    assert read_json(capsys, "saves", "list", "-a") == [far]


# Removing and bringing back


def test_rm_says_what_it_frees_and_what_came_from_it(
    places: Paths, store: SaveStore, base: Base, capsys: Output
) -> None:
    first = make_save(store, "first", os.urandom(65536), base=base)
    make_save(store, "second", b"2", over=first, base=base)
    began_with(places, "box", first.require().id)
    assert run(["saves", "rm", "first"]) == Exit.OK
    out, err = capsys.readouterr()
    assert out == "first\n"
    assert "in the trash until" in err
    assert "the save second, the sandbox box came from it" in err
    (told,) = read_json(capsys, "saves", "trash")["saves"]
    assert told["name"] == "first"
    assert told["until"] - told["removed"] == TRASH_KEPT_S
    assert lines(capsys, "saves", "restore", "first") == ["first"]
    assert store.find("first").manifest == first.manifest
    assert lines(capsys, "saves", "rm", "first", "second", "--now") == ["first", "second"]
    assert read_json(capsys, "saves") == []
    assert read_json(capsys, "saves", "trash") == {"emptied": False, "frees": 0, "saves": []}


def test_rm_goes_on_after_a_name_that_is_not_there(
    store: SaveStore, base: Base, capsys: Output
) -> None:
    make_save(store, "good", b"1", base=base)
    assert run(["saves", "rm", "godo", "good", "good"]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert out == "good\n"
    assert "did you mean 'good'?" in err
    assert run(["saves", "rm", "good"]) == Exit.FAILURE


def test_a_save_that_a_start_needs_is_not_removed(
    places: Paths, store: SaveStore, base: Base, capsys: Output
) -> None:
    save = make_save(store, "env", b"1", base=base)
    began_with(places, "box", save.require().id, committed=False)
    entry = Registry(places).list()
    assert entry == []  # nobody holds its lock: it is a dead owner's
    from quicksand.base.files import try_lock

    (place,) = (path for path in places.sandboxes.iterdir() if path.is_dir())
    lock = try_lock(place / "lock")
    assert lock is not None
    try:
        assert run(["saves", "rm", "env", "--now"]) == Exit.FAILURE
        assert "box is just starting from it" in capsys.readouterr().err
    finally:
        os.close(lock)
    assert lines(capsys, "saves", "rm", "env", "--now") == ["env"]


def test_one_in_the_workspace_goes_before_one_of_the_same_name_if_it_was_made_here(
    places: Paths, store: SaveStore, base: Base, capsys: Output
) -> None:
    make_save(store, "env", b"0", base=base, note="user")
    near = make_save(all_stores(places)[0], "env", b"1", base=base, note="workspace")
    run(["saves", "rm", "env"])
    assert [save["note"] for save in read_json_after(capsys, "saves")] == ["workspace"]
    run(["saves", "restore", "env"])
    mark_made(near.root, near.root, places)
    run(["saves", "rm", "env"])
    assert [save["note"] for save in read_json_after(capsys, "saves")] == ["user"]
    run(["saves", "rm", str(store.root / "env")])
    assert read_json_after(capsys, "saves") == []
    # The one that comes first by name comes back first.
    run(["saves", "restore", "env"])
    assert {save["note"] for save in read_json_after(capsys, "saves")} == {"user"}
    assert run(["saves", "restore", "env"]) == Exit.OK
    assert {save["note"] for save in read_json_after(capsys, "saves")} == {"user", "workspace"}


def read_json_after(capsys: Output, *argv: str) -> Any:
    capsys.readouterr()
    return read_json(capsys, *argv)


def test_a_save_that_lies_anywhere_is_not_removed(
    places: Paths, store: SaveStore, tmp_path: Path, capsys: Output
) -> None:
    root = make_published(tmp_path / "elsewhere" / "env", b"1")
    mode = root.parent.stat().st_mode
    assert run(["saves", "rm", str(root)]) == Exit.FAILURE
    assert "is in no known" in capsys.readouterr().err
    assert [path.name for path in root.parent.iterdir()] == ["env"]
    assert root.parent.stat().st_mode == mode


def test_restore_under_another_name(store: SaveStore, base: Base, capsys: Output) -> None:
    make_save(store, "env", b"1", base=base, note="first")
    run(["saves", "rm", "env"])
    make_save(store, "env", b"1", base=base, note="second")
    assert run(["saves", "restore", "env"]) == Exit.FAILURE
    assert "--as NEW" in capsys.readouterr().err
    assert lines(capsys, "saves", "restore", "env", "--as", "old") == ["old"]
    assert {s["name"]: s["note"] for s in read_json(capsys, "saves")} == {
        "env": "second",
        "old": "first",
    }
    assert run(["saves", "restore", "env", "--as", "a/b"]) == Exit.FAILURE
    assert run(["saves", "restore", "evn"]) == Exit.FAILURE
    assert "it is empty" in capsys.readouterr().err


def test_restore_says_near_names(store: SaveStore, base: Base, capsys: Output) -> None:
    make_save(store, "my-env", b"1", base=base)
    run(["saves", "rm", "my-env"])
    assert run(["saves", "restore", "my-evn"]) == Exit.FAILURE
    assert "did you mean 'my-env'?" in capsys.readouterr().err
    (told,) = read_json(capsys, "saves", "trash")["saves"]
    assert lines(capsys, "saves", "restore", told["id"]) == ["my-env"]


def test_the_trash_is_emptied_of_some_only_by_their_ids(store: SaveStore, capsys: Output) -> None:
    for name in ("one", "two"):
        make_save(store, name, b"1")
        store.remove(name)
    first, second = read_json(capsys, "saves", "trash")["saves"]
    assert run(["saves", "trash", "--empty", first["id"], "nonsense"]) == Exit.FAILURE
    assert "'nonsense'" in capsys.readouterr().err
    assert len(store.trash()) == 2
    (gone,) = read_json(capsys, "saves", "trash", "--empty", first["id"])["saves"]
    assert gone["name"] == "one"
    assert read_json(capsys, "saves", "trash", second["id"])["saves"] == [second]
    assert [found.save.name for found in store.trash()] == ["two"]


def test_a_week_in_the_trash_ends_with_the_next_change(
    store: SaveStore, base: Base, capsys: Output
) -> None:
    make_save(store, "old", b"1", base=base)
    make_save(store, "new", b"1", base=base)
    make_overdue(store.remove("old").root)
    # Looking changes nothing.
    assert len(read_json(capsys, "saves", "trash")["saves"]) == 1
    assert run(["saves", "rm", "new"]) == Exit.OK
    assert "old: gone for good" in capsys.readouterr().err
    assert [s["name"] for s in read_json(capsys, "saves", "trash")["saves"]] == ["new"]
    emptied = read_json(capsys, "saves", "trash", "--empty")
    assert (emptied["emptied"], len(emptied["saves"])) == (True, 1)
    assert emptied["frees"] > 0
    assert lines(capsys, "saves", "trash")[1:] == []


# Verifying


def test_what_is_not_restored_empties_nothing(store: SaveStore, base: Base, capsys: Output) -> None:
    make_save(store, "web", base=base)
    make_overdue(store.remove("web").root)
    assert run(["saves", "restore", "nosuch"]) == Exit.FAILURE
    assert [trashed.save.name for trashed in store.trash()] == ["web"]


@pytest.mark.parametrize("words", [("trash",), ("saves", "trash")])
def test_a_signal_while_the_trash_is_emptied_is_the_exit_code(
    store: SaveStore,
    base: Base,
    capsys: Output,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    make_save(store, "web", base=base)
    store.remove("web")
    monkeypatch.setattr(
        "quicksand_tui.cli.keeping.saves_trash.run_async", lambda _: Exit.INTERRUPTED
    )
    assert run([*words, "--empty"]) == Exit.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_verify_finds_what_is_damaged(store: SaveStore, base: Base, capsys: Output) -> None:
    for name in ("good", "bad"):
        made = make_save(store, name, name.encode(), base=base)
    path = made.root / OVERLAYS / "0.qcow2"
    with path.open("r+b") as file:
        file.seek(5 * 65536)
        file.write(b"x")
    assert run(["saves", "verify"]) == Exit.OK
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()[1:]] == [["bad", "ok"], ["good", "ok"]]
    assert "--deep" in err
    assert run(["saves", "verify", "--deep"]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert out.splitlines()[1].startswith("bad   BAD    overlays/0.qcow2")
    assert "read 1 MB in" in err
    assert lines(capsys, "saves", "verify", "--deep", "good")[1].split() == ["good", "whole"]
    told = read_json(capsys, "saves", "verify", "--deep", code=Exit.FAILURE)
    assert [(save["name"], save["whole"]) for save in told] == [("bad", False), ("good", True)]
    assert run(["saves", "verify", "nobody"]) == Exit.FAILURE


def test_verify_of_nothing_is_well(store: SaveStore, capsys: Output) -> None:
    assert read_json(capsys, "saves", "verify", "--deep") == []


# Pruning


def make_ages(store: SaveStore, base: Base, **days: float) -> None:
    for name, age in days.items():
        made = make_save(store, name, name.encode(), base=base)
        created = time.time() - age * 86400
        value = json.loads((made.root / MANIFEST).read_text())
        (made.root / MANIFEST).write_text(json.dumps({**value, "created": created}))


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (["--older-than", "5"], {"c", "d"}),
        (["--older-than", "0.5"], {"b", "c", "d"}),
        (["--keep", "1"], {"b", "c", "d"}),
        (["--keep", "9"], set()),
        (["--keep", "0"], {"a", "b", "c", "d"}),
        (["--keep", "3", "--older-than", "5"], {"d"}),
        (["--keep", "1", "--older-than", "5"], {"c", "d"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_prune_chooses_the_old_ones(
    store: SaveStore, base: Base, capsys: Output, options: list[str], gone: set[str]
) -> None:
    make_ages(store, base, a=0, b=1, c=10, d=20)
    make_save(store, "broken", b"1", base=base)
    (store.root / "broken" / MANIFEST).write_text("{")
    plan = read_json(capsys, "saves", "prune", *options, "--dry-run")
    assert ({save["name"] for save in plan["saves"]}, plan["removed"]) == (gone, False)
    assert len(store.list()) == 5
    done = read_json(capsys, "saves", "prune", *options)
    assert {**done, "removed": False} == plan
    assert {save.name for save in store.list()} == {"a", "b", "c", "d", "broken"} - gone
    assert {found.save.name for found in store.trash()} == gone


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["saves", "prune"], "--older-than DAYS, --keep N"),
        (["saves", "prune", "--keep", "-1"], "--keep"),
        (["saves", "prune", "--older-than", "soon"], "--older-than"),
        (["saves", "--json", "rm", "x"], "--json goes behind rm"),
        (["saves", "-a", "rm", "x"], "--all goes with the list"),
        (["saves", "rm"], "NAME"),
        (["saves", "frobnicate"], "frobnicate"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_command_lines(store: SaveStore, capsys: Output, argv: list[str], said: str) -> None:
    assert run(argv) == Exit.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err


def test_names_are_completed(store: SaveStore, base: Base) -> None:
    make_save(store, "my-env", b"1", base=base, note="gcc")
    make_save(store, "gone", b"1", base=base)
    store.remove("gone")
    for words, found in (
        ("saves rm ", "my-env"),
        ("saves restore ", "gone"),
        ("saves v", "verify"),
    ):
        env = {
            "_QUICKSAND_TUI_COMPLETE": "bash_complete",
            "COMP_WORDS": f"quicksand-tui {words}",
            "COMP_CWORD": "2" if words.endswith("v") else "3",
        }
        done = quicksand(env={**env, "PYTHONPATH": absolute_path()})
        assert found.encode() in done.stdout, done


def absolute_path() -> str:
    """Where modules are, for a process in another directory."""
    root = Path(__file__).parents[3]
    return os.pathsep.join(
        str(root / part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    )


# From Python


async def test_the_python_api(store: SaveStore, base: Base) -> None:
    make_save(store, "env", b"1", base=base, note="gcc")
    (info,) = api.list()
    assert (info.name, info.note) == ("env", "gcc")
    assert (await api.verify("env", deep=True)).is_whole
    removed = api.delete("env")
    assert removed.trashed is not None
    assert api.list() == []
    assert api.restore("env", new_name="other").name == "other"
    assert api.delete("other", now=True).trashed is None
    with pytest.raises(SaveNotFoundError):
        api.restore("other")
