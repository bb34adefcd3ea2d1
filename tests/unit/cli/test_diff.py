"""diff where there is no VM: what it prints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from quicksand import ChangeKind, Difference, FileChange, FileType, PackageChange, Patch, Sandbox
from quicksand.base.paths import Paths
from quicksand.snapshots.history import History

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.each import each
from tests.unit.cli.histories import add, history_of, stand_at
from tests.unit.cli.run_cli import make_stopped

FILE, DIRECTORY, LINK = FileType.FILE, FileType.DIRECTORY, FileType.SYMLINK


@pytest.fixture
def history(places: Paths) -> History:
    """Of a stopped sandbox that is called web, with the checkpoint tag-1."""
    found = history_of(places, make_stopped(places, "web"))
    add(found, 1)
    stand_at(found, 1)
    return found


def change(
    path: str,
    kind: ChangeKind,
    types: tuple[FileType | None, FileType | None],
    sizes: tuple[int | None, int | None],
    *differs: str,
) -> FileChange:
    return FileChange(
        path=path,
        kind=kind,
        type_before=types[0],
        type_after=types[1],
        size_before=sizes[0],
        size_after=sizes[1],
        differs=differs,
    )


CHANGES = [
    change("/etc/a", ChangeKind.CHANGED, (FILE, FILE), (220, 5000), "content", "mtime"),
    change("/etc/m", ChangeKind.CHANGED, (FILE, FILE), (7, 7), "mode", "owner"),
    change("/gone", ChangeKind.REMOVED, (FILE, None), (12, None)),
    change("/new", ChangeKind.ADDED, (None, DIRECTORY), (None, None)),
    change("/new/l", ChangeKind.ADDED, (None, LINK), (None, 6)),
    change("/t", ChangeKind.TYPE_CHANGED, (FILE, DIRECTORY), (3, None)),
    change("/\udcff\x1b[2J\n\u202e", ChangeKind.ADDED, (None, FILE), (None, 0)),
]


def difference(changes: list[FileChange], **facts: Any) -> Difference:
    lines = {"/etc/a": (3, 1), "/gone": (0, 2)} if changes else {}
    values = {"before": "a", "after": "b", "read": 0.0, "lines": lines, **facts}
    return Difference(changes=changes, **values)


@pytest.fixture
def asked(history: History, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """What is asked of the engine, which answers with CHANGES."""
    found: list[tuple[str, str | None]] = []

    async def compare(
        self: Sandbox, a: str, b: str | None = None, *, parent: bool = False
    ) -> Difference:
        found.append((a, "parent" if parent else b))
        return difference(CHANGES)

    monkeypatch.setattr(Sandbox, "compare", compare)
    return found


def test_a_line_tells_of_each_path(
    asked: list[tuple[str, str | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", "web", "tag-1", "tag-2"]) == Exit.OK
    out, err = capsys.readouterr()
    assert asked == [("tag-1", "tag-2")]
    assert out.splitlines() == [
        "M  /etc/a                  +3 -1  220 B -> 4.88 KiB",
        "M  /etc/m                         7 B                (mode, owner)",
        "D  /gone                   +0 -2  12 B",
        "A  /new/",
        "A  /new/l                         6 B",
        "T  /t/                            3 B                (file -> directory)",
        "A  /\\xff\\x1b[2J\\x0a\\u202e         0 B",
    ]
    assert err == "3 added, 1 removed, 2 changed, 1 type-changed\n"


def test_json_is_a_list_with_everything(
    asked: list[tuple[str, str | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", "web", "tag-1", "--json"]) == Exit.OK
    out, err = capsys.readouterr()
    assert asked == [("tag-1", None)]
    found = json.loads(out)
    assert found[0] == {
        "path": "/etc/a",
        "kind": "changed",
        "type_before": "file",
        "type_after": "file",
        "size_before": 220,
        "size_after": 5000,
        "differs": ["content", "mtime"],
        "lines_added": 3,
        "lines_removed": 1,
    }
    assert found[1]["lines_added"] is None
    assert found[-1]["path"] == "/\udcff\x1b[2J\n\u202e"
    assert out.replace("\n", "").isprintable()
    assert err == ""


DPKG = "/var/lib/dpkg/status"


@pytest.fixture
def packages(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine answers with a database of packages that has changed."""
    changed = change(DPKG, ChangeKind.CHANGED, (FILE, FILE), (1000, 1200), "content")
    found = (
        PackageChange(name="nginx", before=None, after="1.24-1"),
        PackageChange(name="old", before="1:2", after=None),
        PackageChange(name="openssl", before="3.0.1", after="3.0.2"),
    )

    async def compare(self: Sandbox, a: str, b: str | None = None, **_: object) -> Difference:
        return difference([changed], lines={}, packages={DPKG: found})

    monkeypatch.setattr(Sandbox, "compare", compare)


@pytest.mark.usefixtures("packages")
def test_packages_that_differ_follow_the_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "web", "tag-1"]) == Exit.OK
    out, err = capsys.readouterr()
    assert out.splitlines()[1:] == [
        "",
        "A  package nginx    1.24-1",
        "D  package old      1:2",
        "M  package openssl  3.0.1 -> 3.0.2",
    ]
    assert err == "1 changed\npackages: 1 added, 1 removed, 1 of another version\n"


@pytest.mark.usefixtures("packages")
def test_json_has_packages_in_the_entry_of_their_database(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["diff", "web", "tag-1", "--json"]) == Exit.OK
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["path"], found["packages"][0], found["packages"][2]["kind"]) == (
        DPKG,
        {"name": "nginx", "before": None, "after": "1.24-1", "kind": "added"},
        "version-changed",
    )


def test_nothing_is_said_to_be_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def compare(self: Sandbox, a: str, b: str | None = None, **_: object) -> Difference:
        return difference([])

    monkeypatch.setattr(Sandbox, "compare", compare)
    assert run(["diff", "web", "tag-1"]) == Exit.OK
    assert capsys.readouterr() == ("", "no file differs\n")


@pytest.mark.parametrize("tags", [["tga-1"], ["tag-1", "tga-1"]])
def test_an_unknown_tag_is_met_with_a_guess(
    history: History, tags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", "web", *tags]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no checkpoint 'tga-1'" in err
    assert "did you mean 'tag-1'?" in err


def test_an_unknown_sandbox_is_named(places: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", "wbe", "a"]) == Exit.FAILURE
    assert "wbe" in capsys.readouterr().err


def test_stat_counts_the_lines(
    asked: list[tuple[str, str | None]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", "web", "tag-1", "--parent", "--stat"]) == Exit.OK
    out, err = capsys.readouterr()
    assert asked == [("tag-1", "parent")]
    assert out.splitlines()[:3] == [
        "/etc/a                  M  +3 -1",
        "/etc/m                  M  7 B",
        "/gone                   D  +0 -2",
    ]
    assert err == "5 files, 3 lines added, 3 removed\n"


def test_a_patch_goes_to_stdout_as_it_is_and_what_it_lacks_is_said(
    history: History, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def patch(self: Sandbox, a: str, b: str | None = None, **_: object) -> Patch:
        return Patch(data=b"diff \xff\n", left_out=(("/\x1b[2J", "it is binary"),))

    monkeypatch.setattr(Sandbox, "patch", patch)
    assert run(["diff", "web", "tag-1", "--patch"]) == Exit.OK
    assert capsysbinary.readouterr() == (
        b"diff \xff\n",
        b"not in the patch: /\\x1b[2J: it is binary\n",
    )


@pytest.mark.parametrize("is_synced", [True, False])
def test_it_is_said_how_new_the_present_is(
    is_synced: bool,
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def compare(self: Sandbox, a: str, b: str | None = None, **_: object) -> Difference:
        return difference([], is_live=True, is_synced=is_synced)

    monkeypatch.setattr(Sandbox, "compare", compare)
    assert run(["diff", "web", "tag-1"]) == Exit.OK
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("web is running: compared with its disk at ")
    assert ("holds in memory" in first) is not is_synced


@each("words", [["b", "--parent"], ["--stat", "--json"], ["--patch", "--stat"]])
def test_what_excludes_each_other_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diff", "web", "a", *words]) == Exit.USAGE
    assert capsys.readouterr().out == ""
