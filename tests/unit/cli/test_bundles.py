"""export and import as commands."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from quicksand.base.paths import Paths, paths

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.unit.cli.run_cli import make_stopped
from tests.unit.cli.test_main import complete
from tests.unit.saves.bundles.making import Home


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """An own image store as well."""
    for name, directory in (("DATA", "data"), ("RUNTIME", "run"), ("CACHE", "cache")):
        monkeypatch.setenv(f"QUICKSAND_{name}_DIR", str(tmp_path / "home" / directory))
    return paths()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home.make(tmp_path / "home")
    home.add_image()
    home.add_save("env")
    return home


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Another, empty home; `settle` moves there."""
    return Home.make(tmp_path / "other")


def settle(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(home.paths.data))


def test_a_save_moves(
    home: Home,
    other: Home,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "env.quicksand"
    assert run(["export", "env", str(file), "--full", "--compress"]) == Exit.OK
    assert capsys.readouterr() == (f"{file}\n", "")
    settle(other, monkeypatch)
    assert run(["import", str(file)]) == Exit.OK
    assert capsys.readouterr() == ("env\n", "")
    assert run(["import", str(file)]) == Exit.FAILURE
    assert "there is a save 'env'" in capsys.readouterr().err
    assert run(["import", str(file), "--name", "two", "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["name"], found["image_added"]) == ("save", "two", False)
    assert found["root"] == str(other.paths.saves / "two")
    assert run(["import", str(file), "--replace"]) == Exit.OK
    assert len(other.saves.trash()) == 1


def test_json_of_an_export(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "b"
    assert run(["export", "env", str(file), "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == str(file)
    assert (found["kind"], found["name"], found["full"]) == ("save", "env", False)


class Stream(io.TextIOWrapper):
    """stdin or stdout."""

    def __init__(self, data: bytes = b"") -> None:
        self.bytes = io.BytesIO(data)
        self.terminal = False
        super().__init__(self.bytes)

    def isatty(self) -> bool:
        return self.terminal


def test_standard_streams(
    home: Home,
    other: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = Stream()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        assert run(["export", "env", "-", "--full"]) == Exit.OK
    settle(other, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", Stream(out.bytes.getvalue()))
        assert run(["import", "-"]) == Exit.OK
    assert capsys.readouterr().out == "env\n"
    assert other.saves.find("env").require()
    out.terminal = True
    for argv, name in ((["export", "env", "-"], "stdout"), (["import", "-"], "stdin")):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, out)
            assert run(argv) == Exit.USAGE
        assert f"{name} is a terminal" in capsys.readouterr().err
    assert run(["export", "env", "-", "--json"]) == Exit.USAGE
    assert "both are for stdout" in capsys.readouterr().err


def test_errors_say_what_to_do(
    home: Home,
    other: Home,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "b"
    assert run(["export", "evn", str(file)]) == Exit.FAILURE
    assert "did you mean 'env'?" in capsys.readouterr().err
    make_stopped(paths(), "box")
    assert run(["export", "box", str(file)]) == Exit.FAILURE
    assert "--tree exports its checkpoints" in capsys.readouterr().err
    assert run(["export", "box", str(file), "--tree"]) == Exit.FAILURE
    assert "has no checkpoints" in capsys.readouterr().err
    assert run(["import", str(file)]) == Exit.FAILURE
    assert f"cannot read {file}" in capsys.readouterr().err
    for content, what in (
        (b"\x1b[2Jno tar" * 100, "it is not a tar\n"),
        (b"hello\n", "it is not a bundle, or it is cut off: it holds 6 bytes\n"),
        (b"", "it is empty, or cut off\n"),
    ):
        file.write_bytes(content)
        assert run(["import", str(file)]) == Exit.FAILURE
        assert f"cannot be imported: {what}" in capsys.readouterr().err
    run(["export", "env", str(file)])
    settle(other, monkeypatch)
    capsys.readouterr()
    assert run(["import", str(file)]) == Exit.FAILURE
    err = capsys.readouterr().err
    assert "'debian' version 13" in err
    assert "hint: have it exported with --full" in err


def test_what_should_be_known_is_said_on_stderr(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home.saves.find("env").root / "manifest.json"
    plain = json.loads(path.read_text())
    plain["config"] |= {"network_mode": "full", "extra_qemu_args": ["-name", "\x1b[2J"]}
    path.write_text(json.dumps(plain))
    file = str(tmp_path / "b")
    assert run(["export", "env", file]) == Exit.OK
    assert "takes --trust" in capsys.readouterr().err
    assert run(["import", file, "--name", "new"]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert out == ""
    assert "QEMU arguments" in err
    assert "\x1b" not in err
    assert run(["import", file, "--name", "new", "--trust"]) == Exit.OK
    assert "reaches this host's own services" in capsys.readouterr().err


def test_names_are_completed(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.add_save("empty", b"x")
    home.add_save("other", b"y")
    make_stopped(paths(), "engine")
    assert complete("quicksand-tui export e", 2) == ["empty", "env"]
    assert complete("quicksand-tui export --tree e", 3) == ["engine"]
