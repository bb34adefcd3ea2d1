"""`quicksand-tui api`, as far as it needs no sandbox."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand.base.errors import HostError
from quicksand.base.files import try_lock
from quicksand.base.paths import paths
from quicksand_e2b import server
from quicksand_e2b.places import api_dir

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.each import each

WITHOUT = """
import sys
sys.modules["aiohttp"] = None
from quicksand_tui.cli.main import run
sys.exit(run(["api", *sys.argv[1:]]))
"""


def _variables(text: str) -> dict[str, str]:
    """The variables that a shell has after what is printed."""
    words = [shlex.split(line) for line in text.splitlines()]
    assert all(word[0] == "export" for word in words)
    return {name: value for name, _, value in (word[1].partition("=") for word in words)}


def test_the_variables_are_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["api", "env"]) == Exit.OK
    first = _variables(capsys.readouterr().out)
    assert run(["api", "env", "--listen", "0.0.0.0:4000"]) == Exit.OK
    second = _variables(capsys.readouterr().out)

    assert first["E2B_API_URL"] == first["E2B_SANDBOX_URL"] == "http://127.0.0.1:3000"
    assert second["E2B_API_URL"] == "http://127.0.0.1:4000"
    assert first["E2B_API_KEY"] == second["E2B_API_KEY"]


def test_with_tls_there_is_one_name_and_an_authority(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["api", "env", "--tls", "3443"]) == Exit.OK
    found = _variables(capsys.readouterr().out)
    assert found["E2B_DOMAIN"] == "qs.localhost:3443"
    assert "BEGIN CERTIFICATE" in Path(found["SSL_CERT_FILE"]).read_text()


@each("code", [0, 2])
def test_where_the_host_does_not_resolve_the_names_it_is_said_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    getent = tmp_path / "getent"
    getent.write_text(f"#!/bin/sh\n[ $1.$2 = ahosts.x.qs.localhost ] && exit {code}\nexit 9\n")
    getent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(["api", "env", "--tls", "3443"]) == Exit.OK
    told = capsys.readouterr()
    assert _variables(told.out)["E2B_DOMAIN"] == "qs.localhost:3443"  # for eval, as ever
    assert ("libnss-myhostname" in told.err) is bool(code)


def test_keys_are_made_listed_and_removed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["api", "keys", "--add", "ci"]) == Exit.OK
    assert run(["api", "env", "--owner", "ci"]) == Exit.OK
    key = _variables(capsys.readouterr().out)["E2B_API_KEY"]
    assert run(["api", "keys", "--json"]) == Exit.OK
    printed = capsys.readouterr().out
    assert [found["owner"] for found in json.loads(printed)] == ["ci"]
    assert key not in printed
    assert run(["api", "keys"]) == Exit.OK
    assert "ci" in capsys.readouterr().out
    assert run(["api", "keys", "--add", "ci"]) != Exit.OK
    assert run(["api", "keys", "--remove", "ci"]) == Exit.OK
    assert run(["api", "keys", "--remove", "ci"]) != Exit.OK
    assert run(["api", "env", "--owner", "ci"]) != Exit.OK
    assert "`quicksand-tui api keys --add ci`" in capsys.readouterr().err
    assert run(["api", "keys", "--add", "a", "--remove", "b"]) == Exit.USAGE


@each("address", ["x:y", "127.0.0.1:70000", "nowhere.invalid:1", ""])
def test_an_address_that_cannot_be_listened_at_is_told(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["api", "--listen", address]) != Exit.OK
    assert address in capsys.readouterr().err


def test_there_is_one_server_for_a_data_directory(capsys: pytest.CaptureFixture[str]) -> None:
    place = api_dir(paths())
    place.mkdir(parents=True)
    lock = try_lock(place / "server.lock")
    assert lock is not None
    assert run(["api", "--listen", "127.0.0.1:0"]) != Exit.OK
    assert "another server" in capsys.readouterr().err
    os.close(lock)


def test_an_image_that_is_not_there_yet_is_told_at_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.asynccontextmanager
    async def serving(*_: object) -> AsyncIterator[tuple[str, int]]:
        raise HostError("it would serve")
        yield "", 0

    monkeypatch.setattr(server, "serving", serving)
    assert run(["api", "--listen", "127.0.0.1:0", "--image", "alpine-desktop"]) != Exit.OK
    told = capsys.readouterr().err
    assert "template base: Image not found: 'alpine-desktop'" in told
    assert "`quicksand-tui " in told
    assert "it would serve" in told, "the image may be made while the server runs"


def test_without_the_extra_it_is_named() -> None:
    words = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, Exit.USAGE)
    assert "aiohttp" in done.stderr
    assert "pip install 'quicksand-tui[api]'" in done.stderr
    env = subprocess.run([*words, "env"], capture_output=True, text=True, timeout=60, check=False)
    assert env.returncode == 0, env.stderr
