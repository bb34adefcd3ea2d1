"""What commands say of templates, of checkpoints on this host, and of images' templates."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from quicksand.base import sharing
from quicksand.base.errors import HostError
from quicksand.base.files import write_json
from quicksand.base.paths import Paths, paths
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.image_store import ImageStore
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.bundle.exporting import export_image
from quicksand.snapshots import paged
from quicksand.snapshots.guest_ram import GuestRam
from quicksand.snapshots.history import Origin
from quicksand.warm.templates import list_templates, templates_dir

from quicksand_tui.cli import lazy_commands
from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.this_host import doctor
from quicksand_tui.cli.this_host.doctor import Level, check_checkpoints, check_templates


@pytest.fixture(autouse=True)
def own_cache(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache beside the sandboxes, as it is by default."""
    cache = places.data.parent / "cache"
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(cache))
    return cache


def make_template(key: str, digest: str, *, used: float = 1000.0, memory: str = "512M") -> Path:
    """The directory of a template, without its checkpoint."""
    root = templates_dir(paths()) / key
    root.mkdir(parents=True)
    record = Record(
        id="0123456789ab",
        name="template",
        config=SandboxConfig(image="tiny", memory=memory),
        image_digest=digest,
        chain=(),
        created=1.0,
        committed=True,
        discard=False,
    )
    write_json(root / "sandbox.json", record.to_json())
    (root / "checkpoints" / "aaaaaaaa").mkdir(parents=True)
    (root / "checkpoints" / "aaaaaaaa" / "node.json").write_text("{}")
    (root / "pages").write_bytes(bytes(1 << 20))
    os.utime(root, (used, used))
    return root


@pytest.fixture
def image(places: Paths) -> str:
    """The digest of an image called tiny, in a store of the test's own."""
    (places.data / "images").unlink()  # a link to the user's
    staging = places.data / "images" / ".staging"
    staging.mkdir(parents=True)
    create_overlay(staging / "disk.qcow2", backing=None, size=1 << 20)
    for name in ("kernel", "initrd"):
        (staging / name).write_text(name)
    manifest: dict[str, Any] = {"name": "tiny", "version": "1", "arch": "x86_64", "created": 1.0}
    parts = {"disk": "disk.qcow2", "kernel": "kernel", "initrd": "initrd"}
    manifest["files"] = {part: {"name": name} for part, name in parts.items()}
    return ImageStore(places.data / "images").publish(staging, manifest).digest


def test_templates_are_listed_the_last_used_first_and_bad_ones_too() -> None:
    assert list_templates(paths()) == []
    make_template("a" * 32, "digest", used=1000.0)
    make_template("b" * 32, "digest", used=2000.0, memory="2G")
    bad = make_template("c" * 32, "digest", used=500.0)
    (bad / "sandbox.json").write_text("no JSON")
    os.utime(bad, (500.0, 500.0))
    (templates_dir(paths()) / ".making-abcdef01").mkdir()
    (templates_dir(paths()) / "x.lock").touch()
    found = list_templates(paths())
    assert [template.memory for template in found] == ["2G", "512M", ""]
    assert found[0].size >= 1 << 20
    assert (found[2].image, found[2].image_digest) == ("", "")


def test_an_image_tells_of_its_templates(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "inspect", "tiny"]) == Exit.OK
    assert re.search("^templates +none$", capsys.readouterr().out, re.MULTILINE)
    make_template("a" * 32, image)
    make_template("b" * 32, "another")
    assert run(["images", "inspect", "tiny"]) == Exit.OK
    assert re.search("^templates +1, 1", capsys.readouterr().out, re.MULTILINE)
    assert run(["images", "inspect", "--json", "tiny"]) == Exit.OK
    (told,) = json.loads(capsys.readouterr().out)["templates"]
    assert (told["memory"], told["cpus"]) == ("512M", 1)


def test_templates_go_with_their_image(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    gone, stays = make_template("a" * 32, image), make_template("b" * 32, "another")
    assert run(["images", "rm", "tiny"]) == Exit.OK
    assert capsys.readouterr().out == "tiny\n"
    assert (gone.exists(), stays.exists()) == (False, True)


@pytest.mark.parametrize("name", ["../images/tiny", "/", "nobody", ""])
def test_what_is_no_image_takes_no_template_along(
    name: str, image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stays = make_template("a" * 32, image)
    assert run(["images", "rm", "--", name]) == Exit.FAILURE
    assert stays.exists()


def test_an_image_that_is_not_there_is_not_warmed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["images", "warm", "nosuchimage"]) == Exit.FAILURE
    assert "nosuchimage" in capsys.readouterr().err


async def warmed(registry: Registry, config: SandboxConfig, **_: object) -> tuple[Origin, bool]:
    """Instead of a boot: the image that it would boot."""
    raise HostError(f"it would boot {config.image} with {config.memory}")


def test_a_bundle_is_unpacked_and_warmed(
    image: str,
    places: Paths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = ImageStore(places.images)
    export_image("tiny", tmp_path / "t.quicksand", places)
    store.remove("tiny")
    monkeypatch.setattr(lazy_commands, "warm_up", warmed)
    monkeypatch.chdir(tmp_path)
    assert run(["images", "warm", "t.quicksand", "--memory", "300M"]) == Exit.FAILURE
    assert f"it would boot tiny@{image[:12]} with 300M" in capsys.readouterr().err
    assert [one.digest for one in store.unpacked()] == [image]
    assert run(["images", "warm", "gone.quicksand"]) == Exit.FAILURE
    assert "does not exist" in capsys.readouterr().err


# doctor


async def test_doctor_tells_of_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    (check,) = await check_templates()
    assert check.level is Level.OK
    assert check.found.startswith("none yet, ")
    make_template("a" * 32, "digest")
    (check,) = await check_templates()
    assert check.found.startswith("1, 1")
    assert check.found.endswith("on the file system of the sandboxes")
    monkeypatch.setattr("quicksand_tui.cli.this_host.doctor._device", lambda path: len(str(path)))
    (check,) = await check_templates()
    assert check.level is Level.NOTE
    assert "each start copies" in check.found


async def test_doctor_tells_the_tier_and_whether_files_share_blocks(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, disk = await check_checkpoints()
    assert tier.level is Level.OK
    assert tier.found.startswith("tier pages; a pause copies ")
    assert str(places.data) in disk.found
    monkeypatch.setattr(doctor, "can_share_blocks", lambda _directory: True)
    _, disk = await check_checkpoints()
    assert (disk.found.endswith("can share blocks (reflink)"), disk.hint) == (True, "")


async def test_doctor_says_why_checkpoints_are_qemu_s_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    yama = tmp_path / "ptrace_scope"
    yama.write_text("2\n")
    monkeypatch.setattr(paged, "YAMA", yama)
    monkeypatch.setattr(paged, "why_not_readable", lambda _pid: "Operation not permitted")
    check, _ = await check_checkpoints()
    assert check.level is Level.OK
    assert check.found == (
        "tier internal; a pause copies all of the guest's memory that is not zeros "
        "(the memory of QEMU cannot be read: Operation not permitted)"
    )
    assert "sysctl kernel.yama.ptrace_scope=1" in check.hint
    yama.unlink()
    check, _ = await check_checkpoints()
    assert "process_vm_readv" in check.hint
    monkeypatch.setattr(sys, "platform", "darwin")
    check, _ = await check_checkpoints()
    assert check.found.endswith("(the tier 'pages' needs Linux, and this is darwin)")


def test_a_process_of_ours_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paged.why_not_readable() == ""
    monkeypatch.setattr(GuestRam, "read", lambda *_: None)
    assert paged.why_not_readable() == "something else was read"


def test_probing_for_reflinks_leaves_nothing(tmp_path: Path) -> None:
    assert isinstance(sharing.can_share_blocks(tmp_path), bool)
    assert list(tmp_path.iterdir()) == []
