"""Mounts by commands, on real VMs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.commands.conftest import IMAGE, execute, in_vm, invoke, succeed
from tests.each import each

pytestmark = pytest.mark.vm


@pytest.fixture
def src(tmp_path: Path) -> Path:
    """A directory of the host."""
    found = tmp_path / "my src"
    found.mkdir()
    (found / "file").write_text("from the host")
    return found


@pytest.fixture
def removed() -> Iterator[list[str]]:
    """Names of sandboxes that are removed after the test."""
    names: list[str] = []
    yield names
    invoke("rm", "-f", *names)


def mounts(*names: str) -> list[tuple[str, str, str, bool, str]]:
    """The sandbox, host, guest, whether it is read-only, and the state of each."""
    found = json.loads(succeed("mounts", *names, "--json"))
    keys = ("sandbox", "host", "guest", "readonly", "state")
    return [tuple(one[key] for key in keys) for one in found]


def test_a_directory_is_mounted_listed_and_unmounted(vm: str, src: Path) -> None:
    succeed("mount", vm, f"{src}:/mnt/src")
    assert mounts() == mounts(vm) == [(vm, str(src), "/mnt/src", False, "mounted")]
    assert in_vm(vm, "cat /mnt/src/file") == "from the host"
    in_vm(vm, "echo from the guest > /mnt/src/new")
    assert (src / "new").read_text() == "from the guest\n"
    again = invoke("mount", vm, f"{src}:/mnt/src")
    assert again.returncode == 2
    assert b"something is mounted at /mnt/src already" in again.stderr
    succeed("unmount", vm, "/mnt/src/")
    assert mounts(vm) == []
    assert execute(vm, "cat /mnt/src/file").exit_code != 0
    assert (src / "file").exists()


def test_one_in_use_stays_until_it_is_forced(vm: str, src: Path) -> None:
    succeed("mount", vm, f"{src}:/mnt/busy")
    in_vm(vm, "sleep 1000 < /mnt/busy/file > /dev/null 2>&1 & echo $! > /root/pid")
    refused = invoke("unmount", vm, "/mnt/busy")
    assert refused.returncode == 1
    assert b"is in use in the guest" in refused.stderr
    assert f"unmount --force {vm} /mnt/busy".encode() in refused.stderr
    assert len(mounts(vm)) == 1
    succeed("unmount", "--force", vm, "/mnt/busy")
    assert mounts(vm) == []
    in_vm(vm, "kill $(cat /root/pid)")


@each(
    ("word", "code", "says"),
    [
        ("{src}/file:/mnt/x", 1, "mount the directory that it lies in"),
        ("{src}/nothing:/mnt/x", 1, "must be a directory that exists"),
        ("/mnt/x:{src}", 1, "the directory of this host comes first: {src}:/mnt/x"),
        ("{src}:mnt/x", 2, "the path in the sandbox must be absolute"),
        ("{src}:/proc/x", 2, "the guest's system needs it"),
    ],
)
def test_what_cannot_be_mounted(vm: str, src: Path, word: str, code: int, says: str) -> None:
    refused = invoke("mount", vm, word.format(src=src))
    assert (refused.returncode, refused.stdout) == (code, b"")
    assert says.format(src=src) in refused.stderr.decode()
    assert mounts(vm) == []


def test_clones_have_mounts_if_asked_and_keep_them(vm: str, src: Path, removed: list[str]) -> None:
    removed += ["without", "reads", "writes"]
    succeed("mount", vm, f"{src}:/mnt/src")
    succeed("clone", vm, "--name", "without")
    succeed("clone", vm, "--name", "reads", "--mounts", "ro")
    succeed("clone", vm, "--name", "writes", "--mounts", "rw")
    assert mounts("without") == []
    assert mounts("reads", "writes") == [
        ("reads", str(src), "/mnt/src", True, "mounted"),
        ("writes", str(src), "/mnt/src", False, "mounted"),
    ]
    assert execute("without", "cat /mnt/src/file").exit_code != 0
    assert in_vm("reads", "cat /mnt/src/file") == "from the host"
    assert execute("reads", "touch /mnt/src/reads").exit_code != 0
    in_vm("writes", "touch /mnt/src/writes")
    assert sorted(path.name for path in src.iterdir()) == ["file", "writes"]
    assert in_vm(vm, "cat /mnt/src/file") == "from the host", "the source has its own still"
    succeed("stop", "reads")
    assert mounts("reads") == [("reads", str(src), "/mnt/src", True, "at its start")]
    succeed("unmount", vm, "/mnt/src")


def test_run_mounts_directories_and_has_them_at_its_next_start(
    src: Path, removed: list[str]
) -> None:
    removed.append("own")
    succeed(
        "run", IMAGE, "-d", "--name", "own", "-v", f"{src}:/mnt/src:ro", "-v", f"{src}:/root/src"
    )
    assert [(one[2], one[3]) for one in mounts("own")] == [("/mnt/src", True), ("/root/src", False)]
    in_vm("own", "echo more >> /root/src/file; cmp /root/src/file /mnt/src/file")
    succeed("stop", "own")
    assert (src / "file").read_text() == "from the hostmore\n"
    stopped = invoke("mount", "own", f"{src}:/mnt/x")
    assert stopped.returncode == 1
    assert b"`quicksand-tui start own`" in stopped.stderr
    assert {one[4] for one in mounts("own")} == {"at its start"}
