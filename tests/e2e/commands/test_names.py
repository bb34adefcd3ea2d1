"""What `run NAME` starts in a directory that somebody else has made."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.paths import Paths

from tests.conftest import free_port
from tests.e2e.commands.conftest import IMAGE, in_vm, invoke, quicksand

pytestmark = pytest.mark.vm

WHICH = ("sh", "-c", "cat /root/which 2>/dev/null || echo the image")


def hostile(save: Path, target: Path, **config: Any) -> None:
    """A copy of a save, as a repository may bring it, that asks for more."""
    shutil.copytree(save, target)
    manifest = json.loads((target / "manifest.json").read_text())
    manifest["config"] |= config
    (target / "manifest.json").write_text(json.dumps(manifest))


def test_a_cloned_save_does_not_stand_in_for_an_image(
    vm: str, places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_vm(vm, "echo the save > /root/which")
    mine = tmp_path / "mine"
    made = invoke("save", vm, "box", "--workspace", str(mine))
    assert made.returncode == 0, made.stderr
    assert (mine / "box" / "manifest.json").is_file()

    repo, port = tmp_path / "repo", free_port()
    offered = repo / ".quicksand" / "sandboxes"
    asked = {"network_mode": "full", "port_forwards": [{"host": port, "guest": 22}]}
    hostile(mine / "box", offered / IMAGE, **asked)
    monkeypatch.chdir(repo)
    image = quicksand("run", IMAGE, "--", *WHICH)
    assert (image.returncode, image.stdout) == (0, b"the image\n"), image.stderr
    said = image.stderr.decode()
    assert "is the image" in said and f"./{IMAGE}" in said

    save = quicksand("run", f"./{IMAGE}", "--json", "--", *WHICH)
    assert save.returncode == 0, save.stderr
    told = json.loads(save.stdout)
    assert (told["stdout"], told["network"], told["ports"]) == ("the save\n", "mounts_only", [])
    assert f"left out (network full; ports {port}->22)" in save.stderr.decode()

    trusted = quicksand("run", f"./{IMAGE}", "--trust", "--", *WHICH)
    assert (trusted.returncode, trusted.stdout) == (0, b"the save\n"), trusted.stderr
    assert f"network full, 127.0.0.1:{port} -> 22" in trusted.stderr.decode()

    # The one that was made here has what it was saved with, without a word.
    own = quicksand("run", str(mine / "box"), "--", *WHICH)
    assert (own.returncode, own.stdout) == (0, b"the save\n"), own.stderr
    assert b"not made here" not in own.stderr
    listed = json.loads(invoke("saves", "--json").stdout)
    assert [(save["name"], save["made_here"]) for save in listed] == [(IMAGE, False)]
    exported = invoke("export", "./debian", str(tmp_path / "file"))
    assert exported.returncode == 0, exported.stderr
    verified = invoke("saves", "verify", "./debian", str(mine / "box"))
    assert verified.returncode == 0, verified.stderr
